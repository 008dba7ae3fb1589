"""What is wrong with a folder of images."""
