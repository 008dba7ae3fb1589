"""Advice on a user's own pipeline: measures possible changes, and advises the one that makes it fastest."""
