"""Trains a network in a child process, and predicts there in several ways: a converter's crash ends only the child.

`bfloat16` is TensorFlow's: a network of that Keras policy, with the weights of the trained one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from benchmarks.devices.fewer_bits.plan import Asked
from benchmarks.devices.fewer_bits.samples import MeasuredWay, Window
from benchmarks.lab.backend import Refused
from benchmarks.lab.training import classes_of, train, without_draws
from models import image_size, open_model
from pipeline import VARIANTS, ImageSource, PipelineConfig, build
from profiles import clock
from profiles.measure.batches import by_hand

Predict = Callable[[NDArray[Any]], NDArray[Any]]

_PIPELINE = VARIANTS["tf-data-autotune"]
# TensorFlow's guide to post-training quantization asks for 100 to 500 examples.
_CALIBRATION_IMAGES = 128
# At most this many test photos are held in memory.
_MOST_TESTED = 2000
_WARMUP_CALLS, _LEAST_CALLS, _WINDOW_S, _LATENCY_CALLS = 5, 3, 0.4, 100
_REFERENCE = "TensorFlow float32"


class _Way:
    """A way to predict: one function for single images, and one for full batches."""

    def __init__(self, one: Predict, many: Predict, content: bytes | None = None) -> None:
        self.one, self.many, self.content = one, many, content


class FewerBitsSession:
    """Answers the parent; each request is a method."""

    def __init__(self, asked: Asked, train_source: ImageSource, test_source: ImageSource) -> None:
        if keras.backend.backend() != "tensorflow":
            raise Refused("--inference needs KERAS_BACKEND=tensorflow: LiteRT's converter is TensorFlow's")
        tf.config.threading.set_intra_op_parallelism_threads(asked.threads)
        self._asked = asked
        self._train, self._test = train_source, test_source
        self._ways: dict[str, _Way] = {}

    def prepare(self) -> int:
        """Trains the network and reads the test photos. Returns the number of photos that are tested."""
        asked = self._asked
        keras.utils.set_random_seed(0)
        self._network = open_model(asked.model, classes=len(self._train.class_names))
        config = replace(
            _PIPELINE, image_size=image_size(self._network, asked.model), batch_size=min(32, self._train.images)
        )
        if asked.passes:
            ignore: Callable[[Any], None] = lambda _: None  # noqa: E731
            train(self._network, self._train, config, passes=asked.passes, on_images=ignore, on_pass=ignore)
        self._images, self._labels = _arrays(self._test.take(min(self._test.images, _MOST_TESTED)), config)
        self._calibration, _ = _arrays(self._train.take(min(self._train.images, _CALIBRATION_IMAGES)), config)
        self._ways[_REFERENCE] = _tensorflow(self._network)
        return len(self._images)

    def bfloat16(self) -> MeasuredWay:
        """Makes the network again in bfloat16, its weights and its products, and tests it."""

        def in_bfloat16(layer: Any) -> Any:
            return layer.__class__.from_config({**layer.get_config(), "dtype": "bfloat16"})

        network = keras.models.clone_model(self._network, clone_function=in_bfloat16)
        network.set_weights(self._network.get_weights())
        return self._tested("TensorFlow bfloat16", _tensorflow(network))

    def reference(self) -> MeasuredWay:
        """Tests the network as it was trained."""
        return self._tested(_REFERENCE, self._ways[_REFERENCE])

    def formats(self) -> tuple[MeasuredWay, ...]:
        """Converts the network to LiteRT's formats, and tests each.

        Raises:
          Refused: if LiteRT is not installed.
        """
        try:
            from benchmarks.devices.fewer_bits.litert import converted, predictor
        except ModuleNotFoundError as error:
            raise Refused(f"not installed ({error}); pip install 'unstall[litert]'") from error
        asked = self._asked
        sizes = (1, asked.batch_size)
        files = {size: converted(self._network, size, list(_batches(self._calibration, size))) for size in sizes}
        return tuple(
            self._tested(
                f"LiteRT {name}",
                _Way(
                    predictor(files[1][name], asked.threads),
                    predictor(files[asked.batch_size][name], asked.threads),
                    files[1][name],
                ),
            )
            for name in files[1]
        )

    def window(self, way: str, number: int) -> Window:
        """Measures one window of a way: full batches for a while, then single images."""
        chosen = self._ways[way]
        batch = next(_batches(self._images, self._asked.batch_size))
        calls, begun_ns = 0, clock.now_ns()
        while calls < _LEAST_CALLS or clock.now_ns() - begun_ns < _WINDOW_S * 1e9:
            chosen.many(batch)
            calls += 1
        rate = calls * len(batch) / (clock.now_ns() - begun_ns) * 1e9
        moments_ns = [clock.now_ns()]
        for _ in range(_LATENCY_CALLS):
            chosen.one(self._images[:1])
            moments_ns.append(clock.now_ns())
        latencies_us = np.diff(moments_ns) // 1000
        return Window(round=number, images_per_sec=rate, latencies_us=tuple(latencies_us.tolist()))

    def close(self) -> None:
        self._ways.clear()

    def _tested(self, name: str, way: _Way) -> MeasuredWay:
        """Keeps a way, and returns what it says of every test photo."""
        outputs = self._outputs(way)
        reference = outputs if name == _REFERENCE else self._outputs(self._ways[_REFERENCE])
        for _ in range(_WARMUP_CALLS):
            way.one(self._images[:1])
        self._ways[name] = way
        products: dict[str, int] = {}
        if way.content is not None:
            from benchmarks.devices.fewer_bits.litert import multiply_adds

            products = dict(multiply_adds(way.content))
        right = classes_of(outputs) == self._labels
        return MeasuredWay(
            way=name,
            products=products,
            file_bytes=None if way.content is None else len(way.content),
            right="".join("01"[is_right] for is_right in right.tolist()),
            off=float(np.abs(outputs - reference).max()),
        )

    def _outputs(self, way: _Way) -> NDArray[np.float32]:
        parts = [way.many(batch) for batch in _batches(self._images, self._asked.batch_size)]
        return np.concatenate(parts)[: len(self._images)]


def _tensorflow(network: Any) -> _Way:
    @tf.function
    def graph(images: Any) -> Any:
        return tf.cast(network(images, training=False), tf.float32)

    def predict(images: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(graph(images))

    return _Way(predict, predict)


def _arrays(source: ImageSource, config: PipelineConfig) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Returns a source's images (images, height, width, 3) in [0, 1], and their labels."""
    with build(without_draws(config), source) as loader:
        parts = [(np.asarray(images), np.asarray(labels)) for images, labels in by_hand(loader.data)]
    images, labels = (np.concatenate(each) for each in zip(*parts, strict=True))
    return images.astype(np.float32), labels.astype(np.int64)


def _batches(images: NDArray[np.float32], size: int) -> Iterator[NDArray[np.float32]]:
    """Yields full batches; the last one is filled up with the first images."""
    for begin in range(0, len(images), size):
        yield np.take(images, range(begin, begin + size), axis=0, mode="wrap")
