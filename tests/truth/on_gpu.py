"""Loads of known cost on a GPU, which computes asynchronously: a grid of loaders and models, and batches on their way.

Works on Keras' TensorFlow and JAX backends.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.truth import by_hand
from tests.truth.comparison import Epoch, Load, measure_load
from tests.truth.loops import WATCHED, watched
from tests.truth.planted import IMAGES, SIDE, Sleeper, a_batch, a_loader, a_model
from unstall.profiles.measure.backends import device_here
from unstall.profiles.results import Result

# Seconds that an epoch lasts, about, and the plain steps that are timed with it.
_EPOCH_S, _STEPS_S = 0.4, 0.25


class Products(keras.layers.Layer):
    """Multiplies large matrices whenever a batch passes, and changes nothing of the batch. Works on every backend.

    Each product needs the one before, and the first needs the batch.

    Args:
      count: products for a batch.
      side: rows and columns of a matrix.
    """

    def __init__(self, count: int, side: int) -> None:
        super().__init__(trainable=False)
        self._count, self._side = count, side

    def build(self, shape: Any) -> None:
        # A product with such a matrix is about as long as what was multiplied.
        random = keras.initializers.RandomNormal(stddev=self._side**-0.5, seed=0)
        self._matrix = self.add_weight(shape=(self._side, self._side), initializer=random, trainable=False)

    def call(self, images: Any) -> Any:
        product = self._matrix + keras.ops.mean(images)
        for _ in range(self._count):
            product = keras.ops.matmul(product, self._matrix)
        # Too small to change anything, and no constant that a compiler could leave out.
        return images + 1e-30 * keras.ops.mean(product)


def a_busy_model(step_s: float, *, side: int = 4096) -> keras.Model:
    """Returns a tiny compiled model whose training step keeps the device busy for about `step_s`, with matrices.

    Args:
      side: of a matrix. One product of the default size takes less than a millisecond on a GPU of 2022.
    """
    product_s, rest_s = _product_s(side)
    return _multiplying(max(1, round((step_s - rest_s) / product_s)), side)


# No step needs more products than this to spend most of its time on them.
_MOST_PRODUCTS = 1000


@functools.cache
def _product_s(side: int) -> tuple[float, float]:
    """Returns the seconds that this device takes for a product, and for the rest of a training step."""

    def step_s(count: int) -> float:
        return by_hand.step_s(_multiplying(count, side), itertools.repeat(on_device(a_batch())), 30)

    few, many = 4, 12
    few_s, many_s = step_s(few), step_s(many)
    # While the products add less than the rest of a step takes, noise can be larger than what they add.
    while many_s < 2 * few_s and many < _MOST_PRODUCTS:
        many *= 2
        many_s = step_s(many)
    product_s = (many_s - few_s) / (many - few)
    return product_s, few_s - few * product_s


def _multiplying(count: int, side: int) -> keras.Model:
    layers = [keras.Input((SIDE, SIDE, 3)), Products(count, side), keras.layers.Flatten(), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(optimizer="sgd", loss="mse")
    return model


def on_device(batch: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the batch as tensors of Keras' backend, which lie on the device that Keras trains on."""
    return tuple(keras.ops.convert_to_tensor(np.asarray(part)) for part in batch)


def gpu_cell(group: str, load_ms: float, step_ms: float) -> Load:
    """A loader that sleeps and a model that multiplies on a GPU, which computes asynchronously.

    Args:
      group: "grid-gpu", as the main job measures; "watched-gpu", as a script is watched.
      step_ms: about what a step takes; by hand the step is timed.
    Raises:
      RuntimeError: if Keras can use no GPU here.
    """
    _need_gpu()
    return asynchronous(group, f"load {load_ms:g} ms, step {step_ms:g} ms", load_ms, a_busy_model(step_ms / 1e3), "gpu")


def asynchronous(group: str, case: str, load_ms: float, model: Any, device: str) -> Load:
    """A loader that sleeps, and a model that computes on a device while the host loads."""
    ready = itertools.repeat(on_device(a_batch()))
    step_s = by_hand.step_s(model, ready, 10)
    steps = max(12, round(_EPOCH_S / max(load_ms / 1e3, step_s)))
    data = a_loader(Sleeper(load_ms / 1e3), steps)
    by_hand.warmed(model, data)

    def time_epoch() -> Epoch:
        compute_s = steps * by_hand.step_s(model, ready, max(5, round(_STEPS_S / step_s)))
        return Epoch(s=by_hand.epoch_s(model, data), images=steps * IMAGES, parts_s={"compute": compute_s})

    def measure() -> Result:
        if group == "grid-gpu":
            return measure_load(data, model, device)
        return watched(lambda: model.fit(data, epochs=WATCHED, verbose=0))

    return Load(case=case, time_epoch=time_epoch, measure=measure)


def transfer() -> Load:
    """Batches of 12 MB on their way to a GPU, on which a tiny model trains.

    Raises:
      RuntimeError: if Keras can use no GPU here.
    """
    _need_gpu()
    side = 64
    with tf.device("/CPU:0"):
        on_host = a_batch(256, side)
        data = a_loader(lambda: None, 100, batch=on_host)
    return carried("batches of 12 MB", a_model(side=side), "gpu", data, on_device(on_host), _on_host(on_host))


def _on_host(batch: tuple[tf.Tensor, ...]) -> Iterator[Any]:
    """Yields the batch from the host's memory, endlessly, as Keras' backend takes it."""
    parts = batch if keras.backend.backend() == "tensorflow" else tuple(part.numpy() for part in batch)
    return itertools.repeat(parts)


def _need_gpu() -> None:
    if device_here().kind != "gpu":
        raise RuntimeError("there is no GPU here that Keras can use")


def carried(
    case: str, model: Any, device: str, data: tf.data.Dataset, batch: tuple[tf.Tensor, ...], host: Iterator[Any]
) -> Load:
    """A model whose steps take longer on batches that lie in the host's memory.

    Args:
      data: yields batches from the host's memory.
      batch: the same on the device.
      host: yields the same from the host's memory, endlessly.
    """
    steps, images, resident = len(data), int(batch[0].shape[0]), itertools.repeat(batch)
    by_hand.warmed(model, data)

    def time_epoch() -> Epoch:
        resident_s, host_s = (by_hand.step_s(model, batches, steps) for batches in (resident, host))
        parts_s = {"compute": steps * resident_s, "transfer": steps * (host_s - resident_s)}
        return Epoch(s=by_hand.epoch_s(model, data), images=steps * images, parts_s=parts_s)

    return Load(case=case, time_epoch=time_epoch, measure=lambda: measure_load(data, model, device))
