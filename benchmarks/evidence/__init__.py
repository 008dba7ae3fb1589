"""Measurements of our own claims, for a checkout: `python -m benchmarks.evidence.peers`. The wheel has none of this."""
