"""Prediction in fewer bits, on the CPU: `unstall devices --inference`."""
