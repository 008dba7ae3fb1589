"""Prediction in fewer bits, on the CPU: `python -m benchmarks.devices --inference`."""
