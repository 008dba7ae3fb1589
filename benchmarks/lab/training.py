"""Trains a network pass by pass, and tests which photos it gets right; all commands that train use this module."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from unstall.models import behind
from unstall.pipeline import ImageSource, PipelineConfig, build
from unstall.pipeline.service import NO_SERVICE
from unstall.profiles.measure import by_hand
from unstall.profiles.script.callback import WatchCallback

# Reading the loss waits for the device, so the loss is read only once in this many steps, and after each pass.
_LOOK_STEPS = 16
# Test photos of at most this many bytes of pixels are read once and kept: the pipeline always gives the same pixels.
_HELD_BYTES = 2**30


class DivergedError(Exception):
    """The loss has become infinite or NaN; the message says when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass over all photos to train on.

    Attributes:
      number: the number of the pass, from 1.
      images: the number of images in the pass.
      loss: the mean over the steps of the pass.
      images_per_sec: the rate of the whole pass, with its beginning and end, without tracing; None where the steps of
        the backend cannot be watched.
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
      config: the pipeline, with the network's image size.
      passes: how many times to train on all of `source`.
      on_images: called now and then with the number of images seen so far.
      on_pass: called after each pass; may evaluate the network.
      device: TensorFlow's name of the device to which tf.data prefetches.
    Returns:
      What a reader of the results must know about the loader.
    Raises:
      DivergedError: if the loss becomes infinite or NaN.
      UnavailableError: if the pipeline cannot serve this source.
    """
    with build(config, source, device=device) as loader:
        fed = behind(loader.device_layers, network, dtype=config.output_dtype) if loader.device_layers else network
        follow = _Follow(source.images, config.batch_size, on_images, on_pass)
        # shuffle=False: `fit` would shuffle the batches of a PyDataset, and every loader decides on the order itself.
        fed.fit(**loader.fit_arguments, epochs=passes, verbose=0, shuffle=False, callbacks=[follow])
        return loader.notes


class _Follow(WatchCallback):
    """Reports how far training is, and ends training if the loss is infinite or NaN."""

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
        # On JAX, Keras keeps the values of a model's variables elsewhere during an epoch, so the loss cannot be read.
        in_variables = keras.backend.backend() != "jax"
        if in_variables and before // _LOOK_STEPS != self._steps // _LOOK_STEPS:
            self._check(float(np.asarray(self.model.metrics[0].result())))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        assert self.watch is not None and logs is not None
        loss = float(logs["loss"])
        self._check(loss)
        # There are no records if the steps of the backend cannot be watched.
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
    """Tests a network with photos that its pipeline reads without augmentation, each photo once.

    Args:
      network: as for `train`; each test takes the weights that the network has at that moment.
      config: the pipeline that trains the network.
    """

    def __init__(self, network: Any, source: ImageSource, config: PipelineConfig) -> None:
        self._source = source
        self._loader = build(without_draws(config), source)
        layers = self._loader.device_layers
        self._network = behind(layers, network, dtype=config.output_dtype) if layers else network
        pixels = source.images * math.prod(config.image_size) * 3
        held_bytes = pixels * np.dtype(config.output_dtype).itemsize
        self._held: list[Any] | None = None
        if held_bytes <= _HELD_BYTES:
            with self._loader:  # its workers have no more to do
                self._held = list(by_hand(self._loader.data))

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
    """Returns the same pipeline for test photos: they come in the source's order, and nothing is random.

    A service's workers have the training photos only: this process reads in their place.
    """
    return replace(
        config,
        service=NO_SERVICE,
        augmentation=None,
        shuffle_buffer=0,
        cache="none",
        deterministic=True,
    )


def classes_of(outputs: NDArray[np.float32]) -> NDArray[np.int64]:
    """Returns the class that a network predicts for each image, (batch,).

    Args:
      outputs: (batch, 1), the probability of the second of two classes; or (batch, classes).
    """
    if outputs.shape[1] == 1:
        return (outputs[:, 0] > 0.5).astype(np.int64)
    return outputs.argmax(axis=1)


def antialiases(config: PipelineConfig, source: ImageSource) -> bool:
    """Whether a pipeline smooths photos when it makes them smaller, so that a saved model must smooth them as well.

    Pillow smooths, in Keras' generator. Decoding at a fraction of the size has nearly the same effect: on 200 real
    photos at 64 px, its pixels differ by 3.3 levels of 255 from those of a resize with smoothing, and by 5.8 from those
    of a resize without; Pillow's pixels differ by 0.3 and 6.3. A network that was trained on photos decoded at a
    fraction of the size gave the same class to 383 of 400 test photos resized with smoothing, and to 362 without.
    """
    if config.loader == "image_data_generator" and config.storage == "files":
        return config.interpolation == "bilinear"
    return config.decode == "scaled" and "JPEG" in source.formats
