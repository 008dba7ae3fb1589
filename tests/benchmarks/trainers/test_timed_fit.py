"""Images are counted in the process that decodes them, against a count of the calls of the decoder."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import tensorflow as tf

from tests.benchmarks.trainers.feeds import BATCH, a_feed
from unstall.benchmarks.trainers.timed_fit import counted
from unstall.pipeline.stages import read


@pytest.fixture
def decoder_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
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
def feed(photos) -> Iterator[tuple[tf.data.Dataset, list[int], int]]:
    with a_feed(photos) as made:
        yield made


def test_an_image_is_counted_where_it_is_decoded_and_not_where_it_is_trained_on(decoder_calls, feed):
    """As Keras divides a dataset: batches of a process, of which it keeps its own."""
    dataset, decoded, images = feed
    served = sum(int(labels.shape[0]) for _, labels in dataset.rebatch(BATCH // 2).shard(2, 1))
    assert served == images // 2
    assert sum(decoded) == len(decoder_calls) == images


def test_batches_come_as_they_were_and_of_a_known_size(feed):
    dataset, _, images = feed
    assert [spec.shape[0] for spec in dataset.element_spec] == [BATCH, BATCH]
    labels = [label for _, labels in dataset for label in labels.numpy().tolist()]
    assert len(labels) == images and set(labels) == {0, 1}


def test_threads_count_together():
    decoded: list[int] = []
    dataset = tf.data.Dataset.from_tensors((tf.zeros((BATCH, 2)), tf.zeros((BATCH,)))).repeat(250)
    counting = counted(dataset, decoded, BATCH)
    threads = [threading.Thread(target=lambda: list(counting)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(decoded) == 4 * 250 * BATCH
