"""Runs a user's unmodified script, and watches each Keras `fit` and each loop over a `DataLoader` in it."""

# How long trying remedies may take unless the user says otherwise.
BUDGET_S = 60.0
