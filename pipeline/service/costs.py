"""What an image costs a worker, by stage: measured by the worker itself when it starts, one call at a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from unstall.pipeline.clock import process_cpu_ns
from unstall.pipeline.config import PipelineConfig
from unstall.pipeline.errors import SourceError, first_line
from unstall.pipeline.service.numbered import BatchMaker, numbered_batches
from unstall.pipeline.sources.source import ImageSource
from unstall.pipeline.stages import read

_IMAGES = 128


def stage_costs(source: ImageSource, config: PipelineConfig) -> dict[str, float]:
    """Returns the CPU time of an image in microseconds: reading, decoding, the rest, and all of it.

    Raises:
      SourceError: if an image cannot be read or decoded.
    """
    try:
        return _measured(source, config)
    except tf.errors.OpError as error:
        raise SourceError(f"{source.name} cannot be served: {first_line(error)}") from error


def _measured(source: ImageSource, config: PipelineConfig) -> dict[str, float]:
    paths = source.paths[:: max(1, source.images // _IMAGES)][:_IMAGES]
    reading = _us_per_call(_read_bytes, paths)
    decoding = _us_per_call(_decoder(source, config), range(0, source.images, max(1, source.images // len(paths))))
    batches = max(1, _IMAGES // config.batch_size)
    dataset = numbered_batches(tf.data.Dataset.range(batches), BatchMaker(source, config))
    list(dataset.take(1))  # traces the functions, and loads what they need
    started_ns = process_cpu_ns()
    images = sum(int(images.shape[0]) for _, images, _, _ in dataset)
    whole = (process_cpu_ns() - started_ns) / 1e3 / images
    return {
        "read": round(reading, 1),
        "decode": round(max(0.0, decoding - reading), 1),
        "resize, augment, batch": round(max(0.0, whole - decoding), 1),
        "all": round(whole, 1),
    }


def _us_per_call(function: Callable[[Any], object], arguments: Any) -> float:
    arguments = list(arguments)
    function(arguments[0])
    started_ns = process_cpu_ns()
    for argument in arguments:
        function(argument)
    return (process_cpu_ns() - started_ns) / 1e3 / len(arguments)


def _read_bytes(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.read(descriptor, 1 << 26)
    finally:
        os.close(descriptor)


def _decoder(source: ImageSource, config: PipelineConfig) -> Callable[[int], object]:
    """Returns what reads and decodes one image, by the library that the pipeline uses."""
    if config.composed:
        from unstall.pipeline.stages.opencv_decode import OpenCVDecoder

        return OpenCVDecoder(source, config)
    paths = source.paths

    @tf.function(input_signature=[tf.TensorSpec((), tf.string)])
    def decode(path: Any) -> Any:
        return read.decode(tf.io.read_file(path), source.formats, config)

    return lambda index: np.asarray(decode(tf.constant(os.fsencode(paths[index]))))
