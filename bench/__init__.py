"""Measuring: drawn scenes with exact truth, the demo model's training, and the benches."""
