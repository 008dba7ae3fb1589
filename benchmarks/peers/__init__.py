"""Other loaders at the same work, in one run."""
