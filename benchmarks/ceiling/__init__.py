"""Loaders beside all cores doing nothing but decoding the same files."""
