"""The loaders that are not tf.data: Keras' generators and PyDataset, worker processes, batches for loops in Python."""
