"""What each augmentation costs, by library and placement."""
