"""The pipeline that the service's workers run: batches by their numbers, which go on from one epoch to the next."""

from __future__ import annotations

import inspect
import math
import os
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from unstall.pipeline import augmentation, draws
from unstall.pipeline import config as configs
from unstall.pipeline.address import NO_SERVICE
from unstall.pipeline.config import PipelineConfig, config_to_dict
from unstall.pipeline.service import functions
from unstall.pipeline.service.account import Ledger
from unstall.pipeline.sources.source import ImageSource
from unstall.pipeline.stages import augment, epochs, output, read

# How many batches a worker gets at a time. The dispatcher gives out the elements of the source one by one. Of batches
# that take no time to make, two workers served 0.67 times as many in chunks of one, and 0.74 times in chunks of 64.
CHUNK_BATCHES = 8
# The chunks of all epochs: more than any training asks for.
_CHUNKS = 1 << 40


class BatchMaker:
    """Says what each batch holds, and makes composed batches: from the seed and the batch's number alone.

    Safe in threads. Attributes:
      config: of the batches, as `served_config` returns it.
      batches: number of batches of an epoch.
      formats: of the source's files.
      parts: what the batches depend on, as `parts_of` returns it.
      service_digest: of these parts.
    """

    def __init__(self, source: ImageSource, config: PipelineConfig, ledger: Ledger | None = None) -> None:
        self._source = source
        self.config = config = served_config(config)
        self._ledger = ledger or Ledger()
        self._composed = _composed(source, config)
        self._labels = source.labels.astype(np.int32)
        self._paths = source.paths
        self._orders = epochs.orders_of(source, config)
        self.formats = source.formats
        self.batches = math.ceil(source.images / config.batch_size)
        self.parts = parts_of(source, config)
        self.service_digest = functions.digest_of(*(f"{name} {text}" for name, text in self.parts.items()))

    def size_of(self, number: int) -> int:
        """Returns how many images a batch holds: the last of an epoch may be short."""
        position = number % self.batches * self.config.batch_size
        return min(self.config.batch_size, self._source.images - position)

    def make(self, number: np.int64) -> tuple[NDArray[np.uint8], NDArray[np.int32], bytes]:
        """Returns a batch of a composed pipeline, (batch, height, width, 3) and (batch,), and the worker's account."""
        assert self._composed is not None
        self._ledger.planned(int(number))
        try:
            chosen, matrices = self._plan(int(number))
            images = self._composed(chosen, matrices)
        except BaseException:
            self._ledger.failed()
            raise
        return images, self._labels[chosen], self._ledger.finished(len(chosen)).text()

    def plan(self, number: np.int64) -> tuple[NDArray[np.object_], NDArray[np.int32], NDArray[np.float32]]:
        """Returns a batch's paths, labels and maps; a short batch is filled up with its first image."""
        self._ledger.planned(int(number))
        try:
            chosen, matrices = self._plan(int(number))
        except BaseException:
            self._ledger.failed()
            raise
        fill = np.resize(np.arange(len(chosen)), self.config.batch_size)
        fill[len(chosen) :] = 0
        paths = np.array([os.fsencode(self._paths[index]) for index in chosen[fill]], object)
        return paths, self._labels[chosen[fill]], matrices[fill]

    def maps(self, number: np.int64) -> NDArray[np.float32]:
        """Returns the maps of a batch's draws, (batch, 2, 3)."""
        return self._plan(int(number))[1]

    def account(self, number: np.int64) -> bytes:
        """Returns the worker's account when a batch of a pipeline that is not composed is ready."""
        return self._ledger.finished(self.size_of(int(number))).text()

    def _plan(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        epoch, batch = divmod(number, self.batches)
        first, size = batch * self.config.batch_size, self.size_of(number)
        matrices = epochs.maps_of(size, self.config, epoch, first=first)
        return self._orders(epoch)(np.arange(first, first + size)), matrices


def _composed(source: ImageSource, config: PipelineConfig) -> Any:
    if not config.composed:
        return None
    from unstall.pipeline.stages.compose import ComposedBatches  # imports OpenCV, which other pipelines do not need

    return ComposedBatches(source, config)


def served_config(config: PipelineConfig) -> PipelineConfig:
    """Returns what the workers make of a config: bytes, and nothing that only concerns the client."""
    return replace(config, output_dtype="uint8", prefetch=0, one_iterator=False, service=NO_SERVICE)


def parts_of(source: ImageSource, config: PipelineConfig) -> dict[str, str]:
    """Returns all that a batch's pixels depend on, by name: settings, files, code and libraries.

    Without the folder, which may be another on each host; and without what does not change a pixel, such as how many
    calls are made at the same time: that comes with the client's graph.
    """
    base = PipelineConfig()
    alike = replace(
        served_config(config),
        workers=base.workers,
        autotune=base.autotune,
        autotune_algorithm=base.autotune_algorithm,
        rewrites=base.rewrites,
        deterministic=base.deterministic,
    )
    modules: list[ModuleType] = [augmentation, draws, configs, epochs, augment, output, read, sys.modules[__name__]]
    libraries = {"TensorFlow": tf.__version__, "NumPy": np.__version__}
    if config.augment_with in ("opencv", "albumentations"):
        from unstall.pipeline.stages import compose, opencv_decode, warp

        modules += [compose, opencv_decode, warp]
        libraries["OpenCV"] = opencv_decode.cv2.__version__
    return {
        **{name: str(value) for name, value in config_to_dict(alike).items()},
        **libraries,
        "list of files": functions.digest_of("\0".join(source.files), source.labels.astype(np.int64).tobytes().hex()),
        "unstall": functions.digest_of(*map(inspect.getsource, modules)),
    }


def chunks(first: int) -> tf.data.Dataset:
    """Yields the numbers of all batches from `first` on; an element of its source is a chunk of them."""
    return tf.data.Dataset.range(_CHUNKS).flat_map(
        lambda chunk: tf.data.Dataset.range(first + chunk * CHUNK_BATCHES, first + (chunk + 1) * CHUNK_BATCHES)
    )


def numbered_batches(numbers: tf.data.Dataset, maker: BatchMaker) -> tf.data.Dataset:
    """Yields `(number, images, labels, account)` for each number.

    Images are (batch, height, width, 3) uint8: a quarter of the bytes of floats. Pixels of a pipeline that is not
    composed are rounded. Where the config has files served, they are the bytes of files, (batch,). The graph holds no
    paths and no labels, which each worker lists for itself.
    """
    # Single images of several batches pass through the maps: out of order, `batch` would mix the batches.
    config = maker.config if maker.config.composed else replace(maker.config, deterministic=True)
    dataset = _composed_batches(numbers, maker, config) if config.composed else _batches(numbers, maker, config)
    return output.with_options(dataset, config)


def _composed_batches(numbers: tf.data.Dataset, maker: BatchMaker, config: PipelineConfig) -> tf.data.Dataset:
    def load(number: Any) -> tuple[Any, ...]:
        made = tf.numpy_function(maker.make, [number], (tf.uint8, tf.int32, tf.string), stateful=False)
        return (number, *_shaped(made[0], made[1], config), tf.ensure_shape(made[2], ()))

    return output.mapped(numbers, load, config)


def _shaped(images: Any, labels: Any, config: PipelineConfig) -> tuple[Any, Any]:
    images.set_shape((None, *config.image_size, 3))
    labels.set_shape((None,))
    return images, labels


def _batches(numbers: tf.data.Dataset, maker: BatchMaker, config: PipelineConfig) -> tf.data.Dataset:
    size = config.batch_size

    def images_of(number: Any) -> tf.data.Dataset:
        paths, labels, matrices = tf.numpy_function(
            maker.plan, [number], (tf.string, tf.int32, tf.float32), stateful=False
        )
        parts = (
            tf.ensure_shape(paths, (size,)),
            tf.ensure_shape(labels, (size,)),
            tf.ensure_shape(matrices, (size, 2, 3)),
        )
        return tf.data.Dataset.from_tensor_slices((tf.fill((size,), number), *parts))

    def load(number: Any, path: Any, label: Any, matrix: Any) -> tuple[Any, ...]:
        encoded = tf.io.read_file(path)
        if config.served == "files":
            return number, encoded, label, matrix
        return number, read.resize(read.decode(encoded, maker.formats, config), config), label, matrix

    def finish(numbers: Any, images: Any, labels: Any, matrices: Any) -> tuple[Any, ...]:
        if augments and config.augment_at == "batch":
            images = augment.drawn(config)(images, matrices)
        number = numbers[0]
        left = tf.where(number % maker.batches == maker.batches - 1, maker.size_of(maker.batches - 1), size)
        account = tf.ensure_shape(tf.numpy_function(maker.account, [number], tf.string, stateful=False), ())
        if config.served == "files":
            return number, images[:left], labels[:left], account
        images = output.whole_levels(images[:left])
        return (number, *_shaped(images, labels[:left], config), account)

    augments = config.augmentation is not None and config.served == "batches"
    dataset = output.mapped(numbers.flat_map(images_of), load, config)
    if augments and config.augment_at == "element":
        apply = augment.one_image(augment.drawn(config))
        dataset = output.mapped(
            dataset, lambda number, image, label, matrix: (number, apply(image, matrix), label, matrix), config
        )
    dataset = dataset.batch(size, drop_remainder=True)
    at_batch = augments and config.augment_at == "batch"
    return output.mapped(dataset, finish, config) if at_batch else dataset.map(finish)


def rest_of(dataset: tf.data.Dataset, maker: BatchMaker) -> tf.data.Dataset:
    """Does what the workers have left to do: decodes files, and augments images.

    Args:
      dataset: `(number, files or images, labels)`.
    Returns:
      `(images, labels)`; images are (batch, height, width, 3) in [0, 255].
    """
    config = maker.config

    def load(encoded: Any) -> Any:
        return read.resize(read.decode(encoded, maker.formats, config), config)

    def finish(number: Any, served: Any, labels: Any) -> tuple[Any, Any]:
        images = served
        if config.served == "files":
            images = tf.map_fn(load, served, fn_output_signature=tf.TensorSpec((*config.image_size, 3), tf.float32))
        if config.augmentation is not None and config.augment_at != "device":
            matrices = tf.numpy_function(maker.maps, [number], tf.float32, stateful=False)
            matrices.set_shape((None, 2, 3))
            images = augment.drawn(config)(tf.cast(images, tf.float32), matrices)
        return _shaped(images, labels, config)

    return output.mapped(dataset, finish, config)
