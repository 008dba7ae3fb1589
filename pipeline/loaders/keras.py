"""Keras' own loaders as its users write them: ImageDataGenerator and image_dataset_from_directory."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from unstall.pipeline.config import PipelineConfig
from unstall.pipeline.loaders.py_dataset import WorkerRecord
from unstall.pipeline.sources.source import ImageSource
from unstall.pipeline.stages import augment, output

# Keras 3's own `keras.preprocessing.image` no longer has these classes.
_legacy = tf.keras.preprocessing.image


class RecordingDirectoryIterator(_legacy.DirectoryIterator):  # type: ignore[name-defined]
    """What `flow_from_directory` returns, with a record of how many workers are busy."""

    record: WorkerRecord

    def __getitem__(self, index: int) -> Any:
        with self.record.serving():
            return super().__getitem__(index)


def image_data_generator(source: ImageSource, config: PipelineConfig, folder: Path) -> RecordingDirectoryIterator:
    """Builds the tutorial's generator on `folder`, with workers and queue set on the iterator.

    Keras 3's `fit` lacks those arguments and the `flow` methods drop them: only the iterator's setters work. The
    iterator seeds NumPy's global state: threads race for its draws, and forked workers repeat them.

    Args:
      source: gives the class names.
      config: the pipeline.
      folder: holds the source's files in class folders.
    """
    generator = _legacy.ImageDataGenerator(rescale=1 / 255)
    if config.augmentation is not None:
        generator = _legacy.ImageDataGenerator(
            rescale=1 / 255,
            shear_range=config.augmentation.shear_degrees,
            zoom_range=config.augmentation.zoom_range,
            horizontal_flip=config.augmentation.flip_probability > 0,
            fill_mode=config.augmentation.fill_mode,
        )
    with contextlib.redirect_stdout(io.StringIO()):  # the iterator prints how many images it finds
        iterator = RecordingDirectoryIterator(
            str(folder),
            generator,
            target_size=config.image_size,
            class_mode="binary" if len(source.class_names) == 2 else "sparse",
            batch_size=config.batch_size,
            shuffle=config.shuffle_buffer > 0,
            seed=config.seed,
            interpolation=config.interpolation,
            classes=list(source.class_names),
        )
    iterator.record = WorkerRecord()
    iterator.workers = int(config.workers)
    iterator.use_multiprocessing = config.use_multiprocessing
    iterator.max_queue_size = config.max_queue_size
    return iterator


def image_dataset_from_directory(source: ImageSource, config: PipelineConfig, folder: Path) -> tf.data.Dataset:
    """Builds what TensorFlow's guide shows: the utility, then Keras layers in a map, then prefetch.

    Args:
      source: gives the class names and the number of images.
      config: the pipeline.
      folder: holds the source's files in class folders.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        dataset = keras.utils.image_dataset_from_directory(
            str(folder),
            class_names=list(source.class_names),
            image_size=config.image_size,
            batch_size=config.batch_size,
            shuffle=config.shuffle_buffer > 0,
            seed=config.seed,
            verbose=False,
        )
    dataset = augment.augment(dataset, source.images, config)
    dataset = output.rescale(dataset, config)
    return output.prefetch(dataset, config, "/CPU:0")
