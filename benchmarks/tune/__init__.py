"""Finds the fastest pipeline for a folder, a model and a device, or advises on a user's own pipeline."""
