"""Reproduces the published accuracies of the cat/dog networks."""
