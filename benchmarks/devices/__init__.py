"""Reproduces the published comparisons of CPU and GPU."""
