"""Trains a network to the end, pass by pass, and counts what it gets right: what all commands that train do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from models import behind
from pipeline import ImageSource, PipelineConfig, build
from profiles.measure.batches import by_hand
from profiles.script.watch import WatchCallback

# Reading the loss waits for the device, so it is read once in this many steps, and behind each pass.
_LOOK_STEPS = 16
# Test photos that fit are read once and held as the pipeline gives them: its pixels are the same after every pass.
_HELD_BYTES = 2**30


class DivergedError(Exception):
    """The loss is no number any more; the message says when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass over all photos to train on.

    Attributes:
      number: from 1.
      images: of the pass.
      loss: mean over its steps.
      images_per_sec: of the whole pass, its edges included, without tracing; None where it cannot be known.
    """

    number: int
    images: int
    loss: float
    images_per_sec: float | None


def train(
    network: Any,
    source: ImageSource,
    config: PipelineConfig,
    *,
    passes: int,
    on_images: Callable[[int], None],
    on_pass: Callable[[Pass], None],
    device: str = "/CPU:0",
) -> tuple[str, ...]:
    """Trains with one call of `fit`.

    Args:
      network: compiled; takes float32 in [0, 1].
      config: with the network's image size.
      passes: over all of `source`.
      on_images: told how many images have been seen, now and then.
      on_pass: called behind each pass; may evaluate the network.
      device: TensorFlow's name of what trains.
    Returns:
      What a reader of the results must know about the loader.
    Raises:
      DivergedError: if the loss is no number any more.
      UnavailableError: if the pipeline cannot serve this source.
    """
    with build(config, source, device=device) as loader:
        fed = behind(loader.device_layers, network, dtype=config.output_dtype) if loader.device_layers else network
        follow = _Follow(source.images, config.batch_size, on_images, on_pass)
        # Unshuffled by `fit`, which draws the order of a PyDataset's batches: every loader has its own order already.
        fed.fit(loader.data, epochs=passes, verbose=0, shuffle=False, callbacks=[follow])
        return loader.notes


class _Follow(WatchCallback):
    """Says how far training is, and ends it where the loss is no number."""

    def __init__(
        self, images: int, batch_size: int, on_images: Callable[[int], None], on_pass: Callable[[Pass], None]
    ) -> None:
        super().__init__(on_steps=self._stepped)
        self._images = images
        self._batch_size = batch_size
        self._on_images = on_images
        self._on_pass = on_pass
        self._number = 1
        self._steps = 0

    def _stepped(self, steps: int) -> None:
        before, self._steps = self._steps, self._steps + steps
        self._on_images((self._number - 1) * self._images + min(self._steps * self._batch_size, self._images))
        # On JAX, Keras takes the values from a model's variables for as long as an epoch lasts.
        in_variables = keras.backend.backend() != "jax"
        if in_variables and before // _LOOK_STEPS != self._steps // _LOOK_STEPS:
            self._check(float(np.asarray(self.model.metrics[0].result())))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        assert self.watch is not None and logs is not None
        loss = float(logs["loss"])
        self._check(loss)
        # Of a backend whose steps cannot be watched there is no record.
        rate = self.watch.records[-1].epoch_images_per_sec if self.watch.records else None
        self._on_pass(Pass(number=self._number, images=self._images, loss=loss, images_per_sec=rate))
        self._number += 1
        self._steps = 0

    def _check(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise DivergedError(
                f"The loss is {loss} in pass {self._number}, after {self._steps} of its steps: training has diverged. "
                "A lower learning rate helps, or other data."
            )


class Evaluation:
    """Photos to test with, each once, as a pipeline without augmentation gives them.

    Args:
      network: as for `train`; what it has learned until then is what is tested.
      config: of the pipeline that trains it.
    """

    def __init__(self, network: Any, source: ImageSource, config: PipelineConfig) -> None:
        self._source = source
        self._loader = build(without_draws(config), source)
        layers = self._loader.device_layers
        self._network = behind(layers, network, dtype=config.output_dtype) if layers else network
        pixels = source.images * math.prod(config.image_size) * 3
        held_bytes = pixels * np.dtype(config.output_dtype).itemsize
        self._held = list(by_hand(self._loader.data)) if held_bytes <= _HELD_BYTES else None

    def correct(self) -> NDArray[np.bool_]:
        """Returns which photos the network gets right, (images,), in the source's order.

        Raises:
          RuntimeError: if the pipeline did not give every photo exactly once, in order.
        """
        right: list[NDArray[np.bool_]] = []
        labels: list[NDArray[np.int64]] = []
        for images, truth in self._batches():
            labels.append(np.asarray(truth).astype(np.int64))
            right.append(classes_of(np.asarray(self._network.predict_on_batch(np.asarray(images)))) == labels[-1])
        if not np.array_equal(np.concatenate(labels), self._source.labels):
            raise RuntimeError("the pipeline did not give every test photo exactly once, in order")
        return np.concatenate(right)

    def _batches(self) -> Iterator[Any]:
        return by_hand(self._loader.data) if self._held is None else iter(self._held)

    def close(self) -> None:
        self._loader.close()


def without_draws(config: PipelineConfig) -> PipelineConfig:
    """Returns the same pipeline for photos to test with: in their order, and nothing drawn."""
    return replace(config, augmentation=None, shuffle_buffer=0, cache="none", deterministic=True)


def classes_of(outputs: NDArray[np.float32]) -> NDArray[np.int64]:
    """Returns the class that a network says of each image, (batch,).

    Args:
      outputs: (batch, 1), the probability of the second of two classes; or (batch, classes).
    """
    if outputs.shape[1] == 1:
        return (outputs[:, 0] > 0.5).astype(np.int64)
    return outputs.argmax(axis=1)


def antialiases(config: PipelineConfig, source: ImageSource) -> bool:
    """Whether a pipeline smooths what it makes smaller, in what a model that is kept must repeat.

    Pillow does, in Keras' generator. So does decoding at a fraction of the size, more or less: on 200 real photos at
    64 px, a resize with smoothing is 3.3 levels of 255 off it, one without 5.8; Pillow's is 0.3 and 6.3 off. A network
    that learned from such decodes said the same of 383 of 400 test photos with it, and of 362 without.
    """
    if config.loader == "image_data_generator" and config.storage == "files":
        return config.interpolation == "bilinear"
    return config.decode == "scaled" and "JPEG" in source.formats
