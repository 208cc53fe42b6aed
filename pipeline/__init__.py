"""Batching, decoding, the model and the engine. No asyncio and no Kafka in here."""
