"""The published accuracies of the cat/dog networks, reproduced."""
