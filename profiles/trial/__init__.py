"""Tries remedies for the data of a script's longest `fit` or loop once the script has ended, and applies them."""
