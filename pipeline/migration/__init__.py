"""Writes Keras' old loaders of images in a script as tf.data, and compares both on the data."""
