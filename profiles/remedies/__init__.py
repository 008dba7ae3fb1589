"""Remedies for slow tf.data pipelines: builds a pipeline again with each change that may help, on equal elements."""

from profiles.remedies.changes import AS_WRITTEN, Change

__all__ = ["AS_WRITTEN", "Change"]
