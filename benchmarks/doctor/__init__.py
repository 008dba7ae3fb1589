"""Finds what is wrong with a folder of images."""
