"""Predicts whether a service pays, how many workers it takes, where to cut the pipeline, and what limits it."""
