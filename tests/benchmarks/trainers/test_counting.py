"""Images are counted in the process that decodes them, beside a count of the calls of the decoder; what is sharded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
import tensorflow as tf

from unstall.benchmarks.trainers.auto_shard import asked_of_tensorflow
from unstall.benchmarks.trainers.counting import Counter, counted
from unstall.benchmarks.trainers.samples import AutoShard
from unstall.pipeline import VARIANTS, build, from_folder
from unstall.pipeline.stages import read
from unstall.profiles import clock

BATCH = 4


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item for each call of the decoder, in whatever thread."""
    calls: list[int] = []
    decode = read.decode

    def noted(encoded, formats, config):
        image = decode(encoded, formats, config)
        with tf.control_dependencies([tf.numpy_function(lambda: calls.append(1) or 0, [], tf.int64)]):
            return tf.identity(image)

    monkeypatch.setattr(read, "decode", noted)
    return calls


@pytest.fixture
def pipeline(photos) -> Iterator[tuple[tf.data.Dataset, Counter, int]]:
    counter = Counter()
    config = replace(VARIANTS["tf-data-autotune"], batch_size=BATCH, image_size=(16, 16))
    source = from_folder(photos)
    source = source.take(source.images // BATCH * BATCH)
    with build(config, source) as loader:
        yield counted(loader.data, counter, BATCH), counter, source.images


def test_an_image_is_counted_where_it_is_decoded_and_not_where_it_is_trained_on(decoded, pipeline):
    """As Keras divides a dataset: batches of a process, of which it keeps its own."""
    dataset, counter, images = pipeline
    served = sum(int(labels.shape[0]) for _, labels in dataset.rebatch(BATCH // 2).shard(2, 1))
    assert served == images // 2
    assert counter.images == len(decoded) == images


def test_batches_come_as_they_were_and_of_a_known_size(pipeline):
    dataset, _, images = pipeline
    assert [spec.shape[0] for spec in dataset.element_spec] == [BATCH, BATCH]
    labels = [label for _, labels in dataset for label in labels.numpy().tolist()]
    assert len(labels) == images and set(labels) == {0, 1}


def test_a_planted_delay_holds_each_batch_back():
    dataset = tf.data.Dataset.from_tensors((tf.zeros((BATCH, 2)), tf.zeros((BATCH,)))).repeat(3)
    begun_ns = clock.now_ns()
    assert len(list(counted(dataset, Counter(), BATCH, delay_ms=20))) == 3
    assert clock.now_ns() - begun_ns >= 3 * 20_000_000


def test_threads_count_together():
    counter = Counter()
    threads = [threading.Thread(target=lambda: [counter.add(1) for _ in range(1000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.images == 4000


def test_tensorflow_finds_no_files_in_our_pipeline_and_decodes_all_for_each_host(pipeline):
    dataset, counter, images = pipeline
    batches = images // BATCH
    assert asked_of_tensorflow(dataset, counter, hosts=2) == AutoShard(
        policy="AUTO", by_files=False, hosts=2, decoded=images, served=-(-batches // 2) * BATCH
    )


def test_tensorflow_divides_the_files_of_a_reader(tmp_path):
    files = [str(tmp_path / f"{number}.tfrecord") for number in range(4)]
    for file in files:
        with tf.io.TFRecordWriter(file) as writer:
            for _ in range(BATCH):
                writer.write(b"x")
    counter = Counter()
    records = tf.data.Dataset.from_tensor_slices(files).interleave(tf.data.TFRecordDataset).batch(BATCH)
    dataset = counted(records.map(lambda record: (record, record)), counter, BATCH)
    facts = asked_of_tensorflow(dataset, counter, hosts=2)
    assert facts == AutoShard(policy="AUTO", by_files=True, hosts=2, decoded=2 * BATCH, served=2 * BATCH)


def test_a_dataset_whose_policy_is_off_is_whole_on_each_host():
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    counter = Counter()
    dataset = tf.data.Dataset.from_tensors((tf.zeros((BATCH, 2)), tf.zeros((BATCH,)))).repeat(3)
    facts = asked_of_tensorflow(counted(dataset, counter, BATCH).with_options(options), counter, hosts=2)
    assert (facts.policy, facts.decoded, facts.served) == ("OFF", 3 * BATCH, 3 * BATCH)
