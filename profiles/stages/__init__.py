"""What each stage of a pipeline costs, in tf.data and in Python."""

from profiles.stages.tf_graph import (
    CutError,
    Node,
    batch_size_of,
    every_node,
    nodes,
    python_in,
    random_before_cache,
    random_in,
    rebuilt,
    shuffle_buffer_of,
)

__all__ = [
    "CutError",
    "Node",
    "batch_size_of",
    "every_node",
    "nodes",
    "python_in",
    "random_before_cache",
    "random_in",
    "rebuilt",
    "shuffle_buffer_of",
]
