"""The costs of each stage of a pipeline, in tf.data and in Python. Here: reading and rebuilding tf.data pipelines."""

from unstall.profiles.stages.places import note_places
from unstall.profiles.stages.tf_graph import (
    BATCHING,
    CutError,
    Node,
    batch_size_of,
    every_node,
    inputs_at_once,
    nodes,
    python_in,
    random_before_cache,
    random_in,
    rebuilt,
    shuffle_buffer_of,
    shuffle_settings,
    source_of,
    user_code,
)

__all__ = [
    "BATCHING",
    "CutError",
    "Node",
    "batch_size_of",
    "every_node",
    "inputs_at_once",
    "nodes",
    "note_places",
    "python_in",
    "random_before_cache",
    "random_in",
    "rebuilt",
    "shuffle_buffer_of",
    "shuffle_settings",
    "source_of",
    "user_code",
]
