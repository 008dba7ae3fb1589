"""Loaders that this project builds from a `PipelineConfig`: Keras' own loaders, and ours."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import keras

from unstall.benchmarks.evidence.peers.loaders.source import source_of
from unstall.benchmarks.evidence.peers.loaders.work import AllEpochs, Endless, Job, Loader, Sink
from unstall.pipeline import PipelineConfig, PythonBatches, build
from unstall.pipeline.config import AUTO
from unstall.pipeline.loaders.workers import AHEAD


def described(job: Job) -> Loader:
    """Builds the pipeline of `job.config`, with the job's number of workers in place of a number in the config."""
    config = job.config or PipelineConfig()
    if job.workers is not None and config.workers != AUTO:
        config = replace(config, workers=job.workers, use_multiprocessing=job.processes)
    if config.loader == "tf_data":
        config = replace(config, one_iterator=True)
    loader = build(config, source_of(job))
    if isinstance(loader.data, keras.utils.PyDataset):
        return ThroughFit(loader.data)
    if loader.endless is None:
        return AllEpochs(loader.data.repeat)
    return AllEpochs(lambda epochs: loader.endless.take(epochs * loader.batches))


def in_python(job: Job) -> Loader:
    """Builds the pipeline of `job.config` without tf.data. The workers continue from one epoch into the next."""
    workers = job.workers or 0
    batches = PythonBatches(source_of(job), job.config or PipelineConfig(), workers=workers)
    epochs = itertools.chain.from_iterable(itertools.repeat(batches))
    return Endless(epochs, per_epoch=len(batches), buffered=AHEAD * workers)


class ThroughFit:
    """Reads a `PyDataset` through `fit`, the only public function that starts its workers.

    The model's train function trains nothing: it hands each batch to the sink.
    """

    def __init__(self, data: Any) -> None:
        self._data = data
        layers = [keras.Input((None, None, 3)), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(1)]
        self._model = keras.Sequential(layers)
        self._model.compile(loss="mse")

    def feed(self, epochs: int, sink: Sink) -> None:
        def take(iterator: Any) -> dict[str, Any]:
            sink.take(*next(iterator))
            return {}

        def begin(epoch: int, logs: Any) -> None:
            if epoch == 0:
                sink.begin()

        self._model.train_function = take
        first = keras.callbacks.LambdaCallback(on_epoch_begin=begin)
        self._model.fit(self._data, epochs=epochs, verbose=0, callbacks=[first])
