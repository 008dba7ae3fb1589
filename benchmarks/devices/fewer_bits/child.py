"""Trains a network in a child process, and predicts there in several ways: a converter's crash ends only the child.

`bfloat16` is TensorFlow's: a network of that Keras policy, with the weights of the trained one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from unstall.benchmarks.devices.fewer_bits.plan import Asked
from unstall.benchmarks.devices.fewer_bits.samples import LITERT, TENSORFLOW, MeasuredWay, Window
from unstall.benchmarks.lab.backend import Refused
from unstall.benchmarks.lab.training import classes_of, train, without_draws
from unstall.models import ModelError, image_size, open_model
from unstall.pipeline import VARIANTS, ImageSource, PipelineConfig, build
from unstall.profiles import clock
from unstall.profiles.measure import by_hand

Predict = Callable[[NDArray[Any]], NDArray[Any]]

_PIPELINE = VARIANTS["tf-data-autotune"]
# TensorFlow's guide to post-training quantization asks for 100 to 500 examples.
_CALIBRATION_IMAGES = 128
# At most so many test photos, of so many bytes of pixels, are held in memory.
_MOST_TESTED, _HELD_BYTES = 2000, 2**29
_WARMUP_CALLS, _LEAST_CALLS, _WINDOW_S, _LATENCY_CALLS = 5, 3, 0.4, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """A way to predict: one function for single images, one for full batches, and the file of single images."""

    one: Predict
    many: Predict
    content: bytes | None = None


class FewerBitsSession:
    """Answers the parent; each request is a method."""

    def __init__(self, asked: Asked, model: str, train_source: ImageSource, test_source: ImageSource) -> None:
        self._asked, self._model = asked, model
        self._train, self._test = train_source, test_source
        self._ways: dict[str, _Way] = {}

    def prepare(self) -> MeasuredWay:
        """Trains the network, reads the test photos, and tests the network as TensorFlow predicts with it.

        Raises:
          Refused: if the model cannot be used here.
        """
        if keras.backend.backend() != "tensorflow":
            raise Refused("--inference needs KERAS_BACKEND=tensorflow: LiteRT's converter is TensorFlow's")
        asked = self._asked
        tf.config.threading.set_intra_op_parallelism_threads(asked.threads)
        keras.utils.set_random_seed(0)
        try:
            self._network = open_model(self._model, classes=len(self._train.class_names))
            size = image_size(self._network, self._model)
        except ModelError as error:
            raise Refused(str(error)) from error
        config = replace(_PIPELINE, image_size=size, batch_size=min(32, self._train.images))
        if asked.passes:
            ignore: Callable[[Any], None] = lambda _: None  # noqa: E731
            train(self._network, self._train, config, passes=asked.passes, on_images=ignore, on_pass=ignore)
        held = max(1, min(_MOST_TESTED, _HELD_BYTES // (4 * 3 * size[0] * size[1])))
        self._images, self._labels = _arrays(self._test.take(min(self._test.images, held)), config)
        self._calibration, _ = _arrays(self._train.take(min(self._train.images, _CALIBRATION_IMAGES)), config)
        way = _tensorflow(self._network)
        self._expected = self._outputs(way)
        return self._tested(TENSORFLOW, "float32", way)

    def bfloat16(self) -> MeasuredWay:
        """Makes the network again in bfloat16, its weights and its products, and tests it.

        Raises:
          Refused: if a part of the network stays in another type.
        """

        def in_bfloat16(layer: Any) -> Any:
            return layer.__class__.from_config({**layer.get_config(), "dtype": "bfloat16"})

        network = keras.models.clone_model(self._network, clone_function=in_bfloat16, recursive=True)
        stayed = {str(weight.dtype) for weight in network.weights} & {"float32", "float16", "float64"}
        if stayed:
            raise Refused(f"some of its weights stay in {', '.join(sorted(stayed))}")
        network.set_weights(self._network.get_weights())
        return self._tested(TENSORFLOW, "bfloat16", _tensorflow(network))

    def formats(self) -> tuple[str, ...]:
        """Returns the names of LiteRT's formats.

        Raises:
          Refused: if LiteRT is not installed.
        """
        try:
            from unstall.benchmarks.devices.fewer_bits.litert import FORMATS
        except ModuleNotFoundError as error:
            raise Refused(f"not installed ({error}); pip install 'unstall[litert]'") from error
        return tuple(FORMATS)

    def litert(self, form: str) -> MeasuredWay:
        """Converts the network to a format of LiteRT's, and tests it."""
        from unstall.benchmarks.devices.fewer_bits.litert import converted, predictor

        asked = self._asked
        one, many = (
            converted(self._network, form, size, list(_batches(self._calibration, size)))
            for size in (1, asked.batch_size)
        )
        way = _Way(one=predictor(one, asked.threads), many=predictor(many, asked.threads), content=one)
        return self._tested(LITERT, form, way)

    def window(self, way: str, number: int) -> Window:
        """Measures one window of a way: full batches for a while, then single images."""
        chosen = self._ways[way]
        batch = next(_batches(self._images, self._asked.batch_size))
        calls, begun_ns = 0, clock.now_ns()
        while calls < _LEAST_CALLS or clock.now_ns() - begun_ns < _WINDOW_S * 1e9:
            chosen.many(batch)
            calls += 1
        wall_ns = clock.now_ns() - begun_ns
        moments_ns = [clock.now_ns()]
        for _ in range(_LATENCY_CALLS):
            chosen.one(self._images[:1])
            moments_ns.append(clock.now_ns())
        latencies_ns = tuple(np.diff(moments_ns).tolist())
        return Window(round=number, images=calls * len(batch), wall_ns=wall_ns, latencies_ns=latencies_ns)

    def close(self) -> None:
        self._ways.clear()

    def _tested(self, runtime: str, form: str, way: _Way) -> MeasuredWay:
        """Keeps a way, and returns what it says of every test photo."""
        name = f"{runtime} {form}"
        outputs = self._outputs(way)
        for _ in range(_WARMUP_CALLS):
            way.one(self._images[:1])
        self._ways[name] = way
        products: dict[str, int] = {}
        uncounted = ""
        if way.content is not None:
            from unstall.benchmarks.devices.fewer_bits.litert import NotCountedError, multiply_adds

            try:
                products = dict(multiply_adds(way.content))
            except NotCountedError as error:
                uncounted = str(error)
        right = classes_of(outputs) == self._labels
        return MeasuredWay(
            way=name,
            runtime=runtime,
            products=products,
            uncounted=uncounted,
            file_bytes=None if way.content is None else len(way.content),
            right="".join("01"[is_right] for is_right in right.tolist()),
            off=float(np.abs(outputs - self._expected).max()),
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

    return _Way(one=predict, many=predict)


def _arrays(source: ImageSource, config: PipelineConfig) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Returns a source's images (images, height, width, 3) in [0, 1], and their labels."""
    with build(without_draws(config), source) as loader:
        parts = [(np.asarray(images), np.asarray(labels)) for images, labels in by_hand(loader.data)]
    images, labels = (np.concatenate(each) for each in zip(*parts, strict=True))
    return images.astype(np.float32, copy=False), labels.astype(np.int64)


def _batches(images: NDArray[np.float32], size: int) -> Iterator[NDArray[np.float32]]:
    """Yields full batches; the last one is filled up with the first images."""
    for begin in range(0, len(images), size):
        yield np.take(images, range(begin, begin + size), axis=0, mode="wrap")
