"""How cost grows with files, cores, batch and image size."""
