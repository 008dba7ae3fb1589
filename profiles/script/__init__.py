"""Runs a user's unmodified script, and watches each Keras `fit` and each loop over a `DataLoader` in it."""
