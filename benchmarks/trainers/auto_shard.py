"""Asks TensorFlow what it does with a dataset on several hosts: which policy it follows, and at what price.

`tf.data.Dataset` says its option only. With AUTO, the default, TensorFlow looks for a reader of files in the graph
(TFRecordDataset, TextLineDataset, FixedLengthRecordDataset, also inside `interleave` and `flat_map`) and divides the
list of files in front of it. Where there is none, such as with `map(tf.io.read_file)`, it divides the finished elements
instead: policy DATA. Source: TensorFlow, tensorflow/core/grappler/optimizers/data/auto_shard.cc. Here its own operation
is called with the policy FILE, which fails where no such reader is found.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from unstall.benchmarks.trainers.counting import Counter
from unstall.benchmarks.trainers.samples import AutoShard

_POLICIES = tf.data.experimental.AutoShardPolicy


def asked_of_tensorflow(dataset: Any, counter: Counter, *, hosts: int) -> AutoShard:
    """Reads the part of the first host once, as its policy says, and counts.

    Args:
      dataset: of `(images, labels)`, counted by `counter`.
      hosts: among how many to divide it.
    """
    policy = dataset.options().experimental_distribute.auto_shard_policy
    before = counter.images
    served = sum(int(labels.shape[0]) for _, labels in _part(dataset, hosts, policy))
    decoded = counter.images - before
    return AutoShard(
        policy=policy.name, by_files=_divides_files(dataset, hosts), hosts=hosts, decoded=decoded, served=served
    )


def _divides_files(dataset: Any, hosts: int) -> bool:
    try:
        next(iter(_part(dataset, hosts, _POLICIES.FILE)), None)
    except tf.errors.NotFoundError:
        return False
    except tf.errors.OpError:  # such as fewer files than hosts: found all the same
        return True
    return True


def _part(dataset: Any, hosts: int, policy: Any) -> Any:
    """Returns what the first of several hosts gets of a dataset."""
    if policy == _POLICIES.OFF:
        return dataset
    flat = tf.nest.flatten(dataset.element_spec)
    variant = tf.raw_ops.AutoShardDataset(
        input_dataset=tf.data.experimental.to_variant(dataset),
        num_workers=hosts,
        index=0,
        auto_shard_policy=int(policy),
        num_replicas=hosts,
        output_types=[spec.dtype for spec in flat],
        output_shapes=[spec.shape for spec in flat],
    )
    return tf.data.experimental.from_variant(variant, dataset.element_spec)
