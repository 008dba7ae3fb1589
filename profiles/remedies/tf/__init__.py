"""Remedies of tf.data pipelines."""
