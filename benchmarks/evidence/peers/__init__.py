"""Measures other libraries' loaders and ours at the same work, in one run."""
