"""The worker process: Kafka in and out, delivery, lifecycle, health."""
