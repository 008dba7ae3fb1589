"""The published comparisons of CPU and GPU, reproduced."""
