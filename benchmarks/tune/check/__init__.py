"""Holds the tuner against exhaustive search: over a small space, is its choice as fast as the best there is?"""
