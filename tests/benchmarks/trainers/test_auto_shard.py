"""What TensorFlow does with a dataset on several hosts, as docs/trainers.md says it: asked by its own operation.

`tf.data.Dataset` says its option only. With AUTO, the default, TensorFlow looks for a reader of files in the graph
(TFRecordDataset, TextLineDataset, FixedLengthRecordDataset, also inside `interleave` and `flat_map`) and divides the
list of files before it. Where there is none, such as with `map(tf.io.read_file)`, it divides the finished elements
instead: policy DATA. Source: TensorFlow, tensorflow/core/grappler/optimizers/data/auto_shard.cc.
"""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tests.benchmarks.trainers.feeds import BATCH, a_feed
from unstall.benchmarks.trainers.timed_fit import counted

POLICIES = tf.data.experimental.AutoShardPolicy
HOSTS = 2


def part_of(dataset: Any, policy: Any) -> Any:
    """Returns what the first of several hosts gets of a dataset."""
    if policy == POLICIES.OFF:
        return dataset
    flat = tf.nest.flatten(dataset.element_spec)
    variant = tf.raw_ops.AutoShardDataset(
        input_dataset=tf.data.experimental.to_variant(dataset),
        num_workers=HOSTS,
        index=0,
        auto_shard_policy=int(policy),
        num_replicas=HOSTS,
        output_types=[spec.dtype for spec in flat],
        output_shapes=[spec.shape for spec in flat],
    )
    return tf.data.experimental.from_variant(variant, dataset.element_spec)


def served(dataset: Any) -> int:
    """Returns how many images the first host would train on, under the dataset's own policy."""
    policy = dataset.options().experimental_distribute.auto_shard_policy
    return sum(int(labels.shape[0]) for _, labels in part_of(dataset, policy))


def policy_of(dataset: Any) -> str:
    name: str = dataset.options().experimental_distribute.auto_shard_policy.name
    return name


def three_batches() -> Any:
    return tf.data.Dataset.from_tensors((tf.zeros((BATCH, 2)), tf.zeros((BATCH,)))).repeat(3)


def test_tensorflow_finds_no_files_in_our_pipeline_and_decodes_all_for_each_host(photos):
    with a_feed(photos) as (dataset, decoded, images):
        assert policy_of(dataset) == "AUTO"
        assert served(dataset) == -(-(images // BATCH) // HOSTS) * BATCH
        assert sum(decoded) == images
        with pytest.raises(tf.errors.NotFoundError):
            next(iter(part_of(dataset, POLICIES.FILE)))


def test_tensorflow_divides_the_files_of_a_reader(tmp_path):
    files = [str(tmp_path / f"{number}.tfrecord") for number in range(4)]
    for file in files:
        with tf.io.TFRecordWriter(file) as writer:
            for _ in range(BATCH):
                writer.write(b"x")
    decoded: list[int] = []
    records = tf.data.Dataset.from_tensor_slices(files).interleave(tf.data.TFRecordDataset).batch(BATCH)
    dataset = counted(records.map(lambda record: (record, record)), decoded, BATCH)
    assert policy_of(dataset) == "AUTO"
    assert (served(dataset), sum(decoded)) == (2 * BATCH, 2 * BATCH)
    assert next(iter(part_of(dataset, POLICIES.FILE)), None) is not None


def test_a_dataset_whose_policy_is_off_is_whole_on_each_host():
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = POLICIES.OFF
    decoded: list[int] = []
    dataset = counted(three_batches(), decoded, BATCH).with_options(options)
    assert policy_of(dataset) == "OFF"
    assert (served(dataset), sum(decoded)) == (3 * BATCH, 3 * BATCH)
