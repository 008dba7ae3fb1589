"""The stages of a tf.data pipeline, each a small function from dataset to dataset.

An element is `index`, then `(image, label)`, then a batch of them. Images are in [0, 255] until `rescale`: float32, or
uint8 from `load_composed`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from pipeline.augmentation import Augmentation, epoch_order
from pipeline.config import AUTO, PipelineConfig
from pipeline.epochs import maps_of, order_of
from pipeline.random_stages import refuse_random_upstream
from pipeline.sources import ImageSource

Apply = Callable[[Any, Any], Any]


def mapped(dataset: tf.data.Dataset, function: Callable[..., Any], config: PipelineConfig) -> tf.data.Dataset:
    """Maps with the config's workers: 1 is tf.data's sequential map."""
    if config.workers == 1:
        return dataset.map(function)
    calls = tf.data.AUTOTUNE if config.workers == AUTO else int(config.workers)
    return dataset.map(function, num_parallel_calls=calls, deterministic=config.deterministic)


def indices(images: int, config: PipelineConfig) -> tf.data.Dataset:
    """Yields 0 to `images` - 1: each epoch in another order, or, before a cache in memory, in one of the seed's.

    A cache of files in their order would serve class after class from any shuffle buffer smaller than a class.
    """
    if not config.shuffle_buffer:
        return tf.data.Dataset.range(images)
    if config.cache == "memory":
        return tf.data.Dataset.from_tensor_slices(epoch_order(images, seed=config.seed, epoch=0))
    return tf.data.Dataset.range(images).shuffle(images, seed=config.seed, reshuffle_each_iteration=True)


def shuffle_cached(dataset: tf.data.Dataset, config: PipelineConfig) -> tf.data.Dataset:
    """Shuffles what comes from a cache in memory, through a buffer of images."""
    if config.cache != "memory" or not config.shuffle_buffer:
        return dataset
    return dataset.shuffle(config.shuffle_buffer, seed=config.seed, reshuffle_each_iteration=True)


def load(dataset: tf.data.Dataset, source: ImageSource, config: PipelineConfig) -> tf.data.Dataset:
    """Turns an index into `(image, label)`: reads, decodes and resizes."""
    labels = tf.constant(source.labels, tf.int32)
    if source.arrays is not None:
        arrays = tf.constant(source.arrays)

        def load_image(index: Any) -> tuple[Any, Any]:
            return resize(tf.gather(arrays, index), config), tf.gather(labels, index)

    else:
        paths = tf.constant([path.encode("utf-8", "surrogateescape") for path in source.paths])

        def load_image(index: Any) -> tuple[Any, Any]:
            encoded = tf.io.read_file(tf.gather(paths, index))
            return resize(decode(encoded, source, config), config), tf.gather(labels, index)

    return mapped(dataset, load_image, config)


def planned_batches(source: ImageSource, config: PipelineConfig) -> tf.data.Dataset:
    """Yields an epoch's order and draws, a batch at a time: indices (batch,) int64, maps (batch, 2, 3) float32.

    Python runs once an epoch; the numbers depend on the seed and the count of epochs alone. Drawing and zipping element
    by element costs tf.data some 20 us an image, a tenth of what decoding it takes.
    """
    images, size, epochs = source.images, config.batch_size, itertools.count()

    def plan_epoch() -> tuple[np.ndarray, np.ndarray]:
        epoch = next(epochs)
        return order_of(source, config, epoch), maps_of(images, config, epoch)

    def batches(_: Any) -> tf.data.Dataset:
        order, matrices = tf.numpy_function(plan_epoch, [], (tf.int64, tf.float32))
        order, matrices = tf.ensure_shape(order, (images,)), tf.ensure_shape(matrices, (images, 2, 3))
        starts = tf.data.Dataset.range(0, images, size)
        return starts.map(lambda start: (order[start : start + size], matrices[start : start + size]))

    dataset = tf.data.Dataset.range(1).flat_map(batches)
    return dataset.apply(tf.data.experimental.assert_cardinality(math.ceil(images / size)))


def load_composed(dataset: tf.data.Dataset, source: ImageSource, config: PipelineConfig) -> tf.data.Dataset:
    """Turns planned batches into `(images, labels)`, images uint8: decoded and resampled once, with their draws.

    One Python call an element, whether it is a batch or several, which does little but call OpenCV.
    """
    from pipeline.composed import ComposedBatches  # OpenCV: only where asked for

    labels = tf.constant(source.labels, tf.int32)
    batches = ComposedBatches(source, config)

    def load_batch(indices: Any, matrices: Any) -> tuple[Any, Any]:
        images = tf.numpy_function(batches, [indices, matrices], tf.uint8, stateful=False)
        images.set_shape((None, *config.image_size, 3))
        return images, tf.gather(labels, indices)

    return mapped(dataset, load_batch, config)


def decode(encoded: Any, source: ImageSource, config: PipelineConfig) -> Any:
    """Decodes one image to (height, width, 3) uint8, at a fraction of its size where the config says so."""
    if source.formats == ("JPEG",):
        if config.decode == "scaled":
            return decode_scaled(encoded, config.image_size)
        return tf.io.decode_jpeg(encoded, channels=3)
    image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    image.set_shape((None, None, 3))
    return image


def decode_scaled(encoded: Any, image_size: tuple[int, int]) -> Any:
    """Decodes a JPEG at the smallest of 1, 1/2, 1/4, 1/8 that is not below `image_size`, read from its header.

    libjpeg rounds the scaled size up, so a side of ceil(side / ratio) pixels remains.
    """
    shape = tf.io.extract_jpeg_shape(encoded)
    height, width = image_size

    fits = [tf.logical_and((shape[0] + r - 1) // r >= height, (shape[1] + r - 1) // r >= width) for r in (2, 4, 8)]
    which = tf.reduce_sum(tf.cast(tf.stack(fits), tf.int32))
    branches = [
        lambda ratio=ratio: tf.io.decode_jpeg(
            encoded, channels=3, ratio=ratio, dct_method="INTEGER_FAST", fancy_upscaling=False
        )
        for ratio in (1, 2, 4, 8)
    ]
    return tf.switch_case(which, branches)


def resize(image: Any, config: PipelineConfig) -> Any:
    """Resizes to (height, width, 3) float32 in [0, 255]."""
    return tf.cast(tf.image.resize(image, config.image_size, method=config.interpolation), tf.float32)


def cache(dataset: tf.data.Dataset, config: PipelineConfig) -> tf.data.Dataset:
    """Keeps what came so far in memory where the config says so; a cache on disk is a source: `copies.cached_copy`."""
    return cached(dataset) if config.cache == "memory" else dataset


def cached(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Keeps what came so far in memory.

    Raises:
      ConfigError: if a stage upstream is random: its first draws would be those of every epoch.
    """
    refuse_random_upstream(dataset)
    return dataset.cache()


def augment(dataset: tf.data.Dataset, images: int, config: PipelineConfig) -> tf.data.Dataset:
    """Applies the epoch's k-th draw to its k-th image, or the k-th batch of draws to its k-th batch."""
    if config.augmentation is None or config.augment_at == "device":
        return dataset
    if config.augment_with == "keras_layers":
        layers = keras_layers(config.augmentation, seed=config.seed)

        def augment_batch(images: Any, labels: Any) -> tuple[Any, Any]:
            for layer in layers:
                images = layer(images, training=True)
            return images, labels

        # Keras' layers hold one random state: calls in parallel would race for it. The guide's own loader has them so.
        parallel = config.loader == "image_dataset_from_directory"
        return mapped(dataset, augment_batch, config) if parallel else dataset.map(augment_batch)
    draws = epoch_draws(images, config)
    apply = _tf_ops(config) if config.augment_with == "tf_ops" else _numpy(config)
    if config.augment_at == "batch":
        draws = draws.batch(config.batch_size)
    else:
        apply = _one_image(apply)

    def augment_image(element: tuple[Any, Any], matrix: Any) -> tuple[Any, Any]:
        image, label = element
        return apply(image, matrix), label

    return mapped(tf.data.Dataset.zip((dataset, draws)), augment_image, config)


def epoch_draws(images: int, config: PipelineConfig) -> tf.data.Dataset:
    """Yields one (2, 3) float32 affine map an image, a fresh draw each time the dataset is iterated.

    Python runs once an epoch; the numbers depend on the seed and the count of epochs alone.
    """
    epochs = itertools.count()

    def draw_epoch() -> np.ndarray:
        return maps_of(images, config, next(epochs))

    def rows(_: Any) -> tf.data.Dataset:
        matrices = tf.numpy_function(draw_epoch, [], tf.float32)
        return tf.data.Dataset.from_tensor_slices(tf.ensure_shape(matrices, (images, 2, 3)))

    dataset = tf.data.Dataset.range(1).flat_map(rows)
    return dataset.apply(tf.data.experimental.assert_cardinality(images))


def _one_image(apply: Apply) -> Apply:
    return lambda image, matrix: apply(image[tf.newaxis], matrix[tf.newaxis])[0]


def _tf_ops(config: PipelineConfig) -> Apply:
    assert config.augmentation is not None
    fill_mode = config.augmentation.fill_mode.upper()

    def warp(images: Any, matrices: Any) -> Any:
        return tf.raw_ops.ImageProjectiveTransformV3(
            images=images,
            transforms=tf.pad(tf.reshape(matrices, (-1, 6)), [[0, 0], [0, 2]]),
            output_shape=config.image_size,
            fill_value=0.0,
            interpolation="BILINEAR",
            fill_mode=fill_mode,
        )

    return warp


def _numpy(config: PipelineConfig) -> Apply:
    from pipeline.warp import WARPS  # OpenCV, albumentations: only where asked for

    assert config.augmentation is not None
    warp_one = WARPS[config.augment_with](config.augmentation)

    def warp(images: np.ndarray, matrices: np.ndarray) -> np.ndarray:
        return np.stack([warp_one(image, matrix) for image, matrix in zip(images, matrices, strict=True)])

    def apply(images: Any, matrices: Any) -> Any:
        warped = tf.numpy_function(warp, [images, matrices], tf.float32, stateful=False)
        warped.set_shape(images.shape)
        return warped

    return apply


def keras_layers(augmentation: Augmentation, *, seed: int) -> list[Any]:
    """Returns Keras' own layers for the same distribution of draws, as TensorFlow's guide stacks them.

    They draw for themselves and resample once per layer.
    """
    import keras

    shear = float(np.sin(np.deg2rad(augmentation.shear_degrees)))
    zoom = (-augmentation.zoom_range, augmentation.zoom_range)
    fill_mode = augmentation.fill_mode
    layers: list[Any] = []
    if shear:
        layers.append(keras.layers.RandomShear(x_factor=shear, fill_mode=fill_mode, seed=seed))
    if augmentation.zoom_range:
        layers.append(keras.layers.RandomZoom(zoom, zoom, fill_mode=fill_mode, seed=seed + 1))
    if augmentation.flip_probability:
        layers.append(keras.layers.RandomFlip("horizontal", seed=seed + 2))
    return layers


def batch(dataset: tf.data.Dataset, config: PipelineConfig) -> tf.data.Dataset:
    """Batches; the last one holds what is left."""
    return dataset.batch(config.batch_size)


def rescale(dataset: tf.data.Dataset, config: PipelineConfig) -> tf.data.Dataset:
    """Turns batches in [0, 255] into float32 in [0, 1], or into uint8 where the device rescales."""
    if dataset.element_spec[0].dtype == config.output_dtype == "uint8":
        return dataset

    def to_output(images: Any, labels: Any) -> tuple[Any, Any]:
        if config.output_dtype == "uint8":
            return tf.cast(tf.round(tf.clip_by_value(images, 0.0, 255.0)), tf.uint8), labels
        return tf.cast(images, tf.float32) / 255.0, labels

    # Not in parallel: a parallel map of batches would prepare some ahead, unasked.
    return dataset.map(to_output)


def prefetch(dataset: tf.data.Dataset, config: PipelineConfig, device: str) -> tf.data.Dataset:
    """Prepares batches ahead, in the memory of the host or of `device`."""
    size = tf.data.AUTOTUNE if config.prefetch == AUTO else config.prefetch
    if size == 0:
        return dataset
    if config.prefetch_to_device and device != "/CPU:0":
        return dataset.apply(tf.data.experimental.prefetch_to_device(device, size))
    return dataset.prefetch(size)


def with_options(dataset: tf.data.Dataset, config: PipelineConfig) -> tf.data.Dataset:
    """Applies what the config says of tf.data's tuner, its rewrites and order."""
    options = tf.data.Options()
    options.autotune.enabled = config.autotune
    options.deterministic = config.deterministic
    if not config.rewrites:
        # The one option that leaves the pipeline as written; switching single rewrites off does not.
        options.experimental_optimization.apply_default_optimizations = False
    return dataset.with_options(options)
