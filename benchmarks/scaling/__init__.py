"""Measures how loading grows with the number of files, the cores, the batch size and the image size."""
