"""Measures what each augmentation costs, by library and placement."""
