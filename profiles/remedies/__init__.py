"""What could be changed in a tf.data pipeline: the pipeline built again with each change, on equal elements."""

from profiles.remedies.changes import AS_WRITTEN, Change

__all__ = ["AS_WRITTEN", "Change"]
