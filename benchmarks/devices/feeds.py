"""Opens the data of a case: photos through a pipeline, or the arrays with which a network was published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unstall.benchmarks.devices.experiments import Case
from unstall.benchmarks.lab.backend import Refused
from unstall.models import MODELS
from unstall.pipeline import ImageSource, PipelineConfig, build
from unstall.pipeline.building import Loader
from unstall.pipeline.errors import UnavailableError
from unstall.pipeline.sources import Dataset, DatasetError, open_dataset
from unstall.profiles.provenance import usable_threads


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """Batches for any number of calls of `fit`, until the feed is closed.

    Attributes:
      data: a `tf.data.Dataset` or a `keras.utils.PyDataset`.
      name: the name of the data; `fingerprint` is of their content.
      examples: the number of examples of all the data.
      served: the number of examples of an epoch of this feed.
      classes: the number of classes of the labels.
      generated: whether the data are generated.
      parallel_batches: how many batches may be in the making at once.
      buffered_batches: how many finished batches may wait.
      validation: test data for `fit`; None without any.
      notes: what a reader of the results must know.
      loader: what loads the photos; None for arrays.
    """

    data: Any
    name: str
    fingerprint: str
    examples: int
    served: int
    classes: int
    generated: bool
    parallel_batches: int = 1
    buffered_batches: int = 0
    validation: Any = None
    notes: tuple[str, ...] = ()
    loader: Loader | None = None

    def forget(self) -> None:
        """Clears the loader's record of its workers."""
        if self.loader is not None and self.loader.record is not None:
            self.loader.record.clear()

    def close(self) -> None:
        """Closes the loader, which removes the files that it made."""
        if self.loader is not None:
            self.loader.close()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where data come from.

    Attributes:
      photos: None where no case takes photos.
      arrays: files or folders, by the name of the data; other data are looked for, or generated.
      download: whether Keras may download data that are not on this machine.
    """

    photos: ImageSource | None
    arrays: Mapping[str, str]
    download: bool


class Feeds:
    """Opens the data of cases, and reads each set of arrays once."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._datasets: dict[str, Dataset] = {}

    def open(self, case: Case, *, batches: int) -> Feed:
        """Opens a number of batches of a case's data, or all where there are fewer.

        Raises:
          Refused: if the data cannot be opened here.
        """
        if case.config is None:
            return self._of_arrays(case, batches)
        return self._of_photos(case, case.config, batches)

    def _of_photos(self, case: Case, config: PipelineConfig, batches: int) -> Feed:
        photos = self._sources.photos
        assert photos is not None
        config = replace(config, image_size=MODELS[case.model].image_size)
        try:
            loader = build(config, photos.take(batches * config.batch_size), whole=photos)
        except UnavailableError as error:
            raise Refused(str(error)) from error
        return Feed(
            data=loader.data,
            name=photos.name,
            fingerprint=photos.fingerprint,
            examples=photos.images,
            served=loader.images,
            classes=len(photos.class_names),
            generated=photos.kind == "generated",
            parallel_batches=loader.parallel_batches,
            buffered_batches=loader.buffered_batches,
            notes=loader.notes,
            loader=loader,
        )

    def _of_arrays(self, case: Case, batches: int) -> Feed:
        from unstall.pipeline.stages.array_batches import array_batches

        dataset = self._dataset(MODELS[case.model].data)
        images = dataset.x_train.dtype == np.uint8
        height, width = (*MODELS[case.model].input_shape, 0)[:2]
        smaller = images and (height, width) != dataset.x_train.shape[1:3]
        count = len(dataset.y_train)
        served = min(count, batches * (case.batch_size or count))
        # Examples from the whole of the data, so that each class is among them.
        chosen = np.linspace(0, count - 1, served).round().astype(np.int64)

        def batched(examples: Any, labels: Any, *, training: bool) -> Any:
            return array_batches(
                examples,
                labels,
                batch_size=case.batch_size,
                training=training,
                scale=images,
                crop=(height, width) if smaller else None,
            )

        return Feed(
            data=batched(dataset.x_train[chosen], dataset.y_train[chosen], training=True),
            name=dataset.name,
            fingerprint=dataset.fingerprint,
            examples=count,
            served=served,
            classes=len(dataset.class_names),
            generated=dataset.kind == "generated" and dataset.name != "features",
            parallel_batches=usable_threads(),
            # tf.data's tuner seldom buffers more than two batches a core.
            buffered_batches=2 * usable_threads(),
            validation=batched(dataset.x_test, dataset.y_test, training=False),
            notes=(dataset.note,),
        )

    def _dataset(self, name: str) -> Dataset:
        if name not in self._datasets:
            try:
                path = self._sources.arrays.get(name)
                self._datasets[name] = open_dataset(name, path=path, download=self._sources.download)
            except DatasetError as error:
                raise Refused(str(error)) from error
        return self._datasets[name]
