"""Advice on a user's own pipeline: what could be changed in it, and what each change gives."""
