"""The last stages of a tf.data pipeline (cache to prefetch), its options, and the `map` that all stages use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from unstall.pipeline.config import AUTO, PipelineConfig

# Batches that lie ready in front of the training where the config leaves that to tf.data's tuner.
_READY_BATCHES = 2


def mapped(dataset: tf.data.Dataset, function: Callable[..., Any], config: PipelineConfig) -> tf.data.Dataset:
    """Maps a function over a dataset with as many parallel calls as the config's workers; 1 maps sequentially."""
    if config.workers == 1:
        return dataset.map(function)
    calls = tf.data.AUTOTUNE if config.workers == AUTO else int(config.workers)
    return dataset.map(function, num_parallel_calls=calls, deterministic=config.deterministic)


def cached_in_memory(dataset: tf.data.Dataset, config: PipelineConfig) -> tf.data.Dataset:
    """Caches the images in memory and shuffles what comes from there, both where the config says so.

    Stages with random draws must follow the cache, or each epoch would repeat the draws of the first. These stages are
    `augment`, which `building.build` puts behind this cache, and `composed_loader`, with which the config refuses a
    cache. (A cache on disk is a source: `copies.cached_copy`.)
    """
    if config.cache != "memory":
        return dataset
    dataset = dataset.cache()
    if not config.shuffle_buffer:
        return dataset
    return dataset.shuffle(config.shuffle_buffer, seed=config.seed, reshuffle_each_iteration=True)


def whole_levels(images: Any) -> Any:
    """Rounds images to uint8."""
    return tf.cast(tf.round(tf.clip_by_value(images, 0.0, 255.0)), tf.uint8)


def from_python(
    epoch: Callable[[], Iterator[Any]],
    batches: int,
    config: PipelineConfig,
    *,
    dtype: str,
    rest: Callable[[tf.data.Dataset], tf.data.Dataset] | None = None,
    endless: bool = False,
) -> tf.data.Dataset:
    """Returns batches that Python makes, as tf.data: rescaled and prefetched as the config says.

    Without tf.data's tuner, which has nothing to tune here, and can block at the end of an epoch.

    Args:
      epoch: called by each iterator for the batches of the next epoch.
      batches: of an epoch.
      dtype: of the images; "string" for the bytes of their files.
      rest: makes `(images, labels)` of what `epoch` yields, which begins with the batch's number then.
      endless: whether one iterator serves one epoch after the other, without an end.
    """
    shape = (None,) if dtype == "string" else (None, *config.image_size, 3)
    spec: tuple[tf.TensorSpec, ...] = tf.TensorSpec(shape, dtype), tf.TensorSpec((None,), tf.int32)
    if rest is not None:
        spec = tf.TensorSpec((), tf.int64), *spec
    with tf.device("/CPU:0"):
        dataset = tf.data.Dataset.from_generator(epoch, output_signature=spec)
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(batches))
        if endless:
            dataset = dataset.repeat()
        if rest is not None:
            dataset = rest(dataset)
        if rest is not None or dtype != config.output_dtype:
            dataset = rescale(dataset, config)
        options = tf.data.Options()
        options.autotune.enabled = False
        ahead = _READY_BATCHES if config.prefetch == AUTO else int(config.prefetch)
        return dataset.with_options(options).prefetch(ahead) if ahead else dataset.with_options(options)


def rescale(dataset: tf.data.Dataset, config: PipelineConfig) -> tf.data.Dataset:
    """Turns batches in [0, 255] into float32 in [0, 1]; or into uint8, where a layer on the device rescales."""
    if dataset.element_spec[0].dtype == config.output_dtype == "uint8":
        return dataset

    def to_output(images: Any, labels: Any) -> tuple[Any, Any]:
        if config.output_dtype == "uint8":
            return whole_levels(images), labels
        return tf.cast(images, tf.float32) / 255.0, labels

    # Not in parallel: a parallel map would prepare batches ahead, which only `prefetch` may do.
    return dataset.map(to_output)


def prefetch(dataset: tf.data.Dataset, config: PipelineConfig, device: str) -> tf.data.Dataset:
    """Prepares batches ahead of the training, in the memory of the host or of `device`."""
    size = tf.data.AUTOTUNE if config.prefetch == AUTO else config.prefetch
    if size == 0:
        return dataset
    if config.prefetch_to_device and device != "/CPU:0":
        return dataset.apply(tf.data.experimental.prefetch_to_device(device, size))
    return dataset.prefetch(size)


def with_options(dataset: tf.data.Dataset, config: PipelineConfig) -> tf.data.Dataset:
    """Sets tf.data's options as the config says: autotuning, graph rewrites and deterministic order."""
    options = tf.data.Options()
    options.autotune.enabled = config.autotune
    if config.autotune_algorithm != "default":
        algorithm = tf.data.experimental.AutotuneAlgorithm[config.autotune_algorithm.upper()]
        options.autotune.autotune_algorithm = algorithm
    options.deterministic = config.deterministic
    if not config.rewrites:
        # Only this option leaves the pipeline as written; switching single rewrites off does not.
        options.experimental_optimization.apply_default_optimizations = False
    return dataset.with_options(options)
