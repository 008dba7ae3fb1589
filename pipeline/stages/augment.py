"""Augmentation: applies the epoch's random draws by TensorFlow, OpenCV or albumentations; or Keras' layers draw."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from unstall.pipeline.augmentation import Augmentation
from unstall.pipeline.config import PipelineConfig
from unstall.pipeline.stages.order import epoch_draws
from unstall.pipeline.stages.output import mapped

Apply = Callable[[Any, Any], Any]


def augment(dataset: tf.data.Dataset, images: int, config: PipelineConfig) -> tf.data.Dataset:
    """Applies the k-th draw of an epoch to its k-th image, or the k-th batch of draws to its k-th batch."""
    return augmenter(config)(with_draws(dataset, images, config))


def with_draws(dataset: tf.data.Dataset, images: int, config: PipelineConfig) -> tf.data.Dataset:
    """Puts an epoch's draws beside its images or batches, as `augmenter` takes them."""
    if config.augmentation is None or config.augment_at == "device" or config.augment_with == "keras_layers":
        return dataset
    draws = epoch_draws(images, config)
    return tf.data.Dataset.zip((dataset, draws.batch(config.batch_size) if config.augment_at == "batch" else draws))


def augmenter(config: PipelineConfig) -> Callable[[tf.data.Dataset], tf.data.Dataset]:
    """Returns a function that applies the draws to what `with_draws` returned, of any number of epochs.

    Keras' layers make their own draws.
    """
    if config.augmentation is None or config.augment_at == "device":
        return lambda dataset: dataset
    if config.augment_with == "keras_layers":
        layers = keras_layers(config.augmentation, seed=config.seed)

        def augment_batch(images: Any, labels: Any) -> tuple[Any, Any]:
            for layer in layers:
                images = layer(images, training=True)
            return images, labels

        # Keras' layers share one random state, and parallel calls would race for it. Only the loader that follows
        # TensorFlow's guide maps them in parallel, as the guide does.
        parallel = config.loader == "image_dataset_from_directory"
        return lambda dataset: mapped(dataset, augment_batch, config) if parallel else dataset.map(augment_batch)
    apply = drawn(config) if config.augment_at == "batch" else one_image(drawn(config))

    def augment_image(element: tuple[Any, Any], matrix: Any) -> tuple[Any, Any]:
        image, label = element
        return apply(image, matrix), label

    return lambda dataset: mapped(dataset, augment_image, config)


def drawn(config: PipelineConfig) -> Apply:
    """Returns what applies draws, maps (batch, 2, 3), to a batch of images."""
    return _tf_ops(config) if config.augment_with == "tf_ops" else _numpy(config)


def one_image(apply: Apply) -> Apply:
    """Makes of a function for batches one for a single image."""
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
    from unstall.pipeline.stages.warp import WARPS  # imports OpenCV, which other pipelines do not need

    assert config.augmentation is not None
    warp_one = WARPS[config.augment_with](config.augmentation)

    def warp(images: np.ndarray, matrices: np.ndarray) -> np.ndarray:
        warped = np.empty_like(images)
        for image, matrix, target in zip(images, matrices, warped, strict=True):
            warp_one(image, matrix, target)
        return warped

    def apply(images: Any, matrices: Any) -> Any:
        warped = tf.numpy_function(warp, [images, matrices], tf.float32, stateful=False)
        warped.set_shape(images.shape)
        return warped

    return apply


def keras_layers(augmentation: Augmentation, *, seed: int) -> list[Any]:
    """Returns Keras' own layers with the same distribution of draws, in the order of TensorFlow's guide.

    They do not use our draws but make their own, and each layer resamples the images.
    """
    import keras

    return [
        getattr(keras.layers, name)(**arguments, seed=seed + offset)
        for name, offset, arguments in keras_layer_arguments(augmentation)
    ]


def keras_layer_arguments(augmentation: Augmentation) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yields for each layer its class name, the number to add to the seed, and its other arguments.

    `keras_layers` makes the layers from this, and `export` writes them into a script.
    """
    fill_mode = augmentation.fill_mode
    shear = float(np.sin(np.deg2rad(augmentation.shear_degrees)))
    zoom = (-augmentation.zoom_range, augmentation.zoom_range)
    if shear:
        yield "RandomShear", 0, {"x_factor": shear, "fill_mode": fill_mode}
    if augmentation.zoom_range:
        yield "RandomZoom", 1, {"height_factor": zoom, "width_factor": zoom, "fill_mode": fill_mode}
    if augmentation.flip_probability:
        yield "RandomFlip", 2, {"mode": "horizontal"}
