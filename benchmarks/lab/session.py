"""Measures jobs on one device in a child process; the parent asks for one window at a time.

TensorFlow and Keras are imported in functions: the parent imports this module too, for its dataclasses, and must not
load TensorFlow or Keras.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unstall.benchmarks.lab.backend import Refused, open_backend, tf_device
from unstall.models import ModelError, behind, image_size, open_model
from unstall.pipeline import ImageSource, PipelineConfig, build
from unstall.pipeline.building import Loader, parallel_batches
from unstall.pipeline.errors import UnavailableError
from unstall.pipeline.service import NO_SERVICE
from unstall.profiles import Device
from unstall.profiles.data import adapter
from unstall.profiles.machine import PageCacheError, StorageRates, drop, left_warm, measure_storage
from unstall.profiles.measure import TRIAL_STEPS, FitData, epochs_for, first_batches, steps_for
from unstall.profiles.samples import Sample
from unstall.profiles.stage_table import AnnotatedFunction, StageTable
from unstall.profiles.stages import CutError, random_before_cache

if TYPE_CHECKING:
    from unstall.profiles.measure.windows import Windows


# A measured epoch has at least this many steady steps: the steps after the first batches of a loader's workers.
# Source: issue 16 of this project.
_STEADY_STEPS = 20
# At the beginning of each `fit`, before the epoch, Keras reads this many batches of a PyDataset.
_DRAWN_BEFORE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A variant that feeds a model; `cold` says whether the job is also measured with an empty page cache."""

    variant: str
    config: PipelineConfig
    model: str
    cold: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What the parent must know of an opened model.

    Attributes:
      image_size: (height, width) in pixels.
      step_images_per_sec: the rate of the model alone, over a few steps.
    """

    image_size: tuple[int, int]
    loss: str
    optimizer: str
    jit_compile: bool
    parameters: int
    step_images_per_sec: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What is known of a prepared job before its first window.

    Attributes:
      config: the job's pipeline, with the model's image size.
      images: the number of images in a measured epoch.
      epochs: the number of epochs in a window of `train` or `loader`.
      buffered_batches: how many batches the loader's queues and buffers hold.
      notes: what a reader of the results must know.
      jit_compile: whether XLA compiles the model with the loader's layers in front.
      behind_layers: whether the loader has layers that stand in front of the model.
      ceiling: the name of the windows of the model alone; jobs with the same name share these windows.
      warmup: the sample of the job's first epoch.
      workers: how many workers were busy at once in the first epoch; None for tf.data.
      storage: how fast the job's files are read; None unless the job can be measured cold.
      warm_only: why the job cannot be measured cold; None unless this was asked for and is impossible.
      frozen_by_cache: random operations before a cache of tf.data, which repeats their results in every epoch.
    """

    config: PipelineConfig
    images: int
    epochs: int
    buffered_batches: int
    notes: tuple[str, ...]
    jit_compile: bool
    behind_layers: bool
    ceiling: str
    warmup: Sample
    workers: int | None
    storage: StorageRates | None = None
    warm_only: str | None = None
    frozen_by_cache: tuple[str, ...] = ()


class Measured:
    """A prepared job: its loader, the files that an epoch reads, and the windows of the model that the loader feeds.

    Args:
      feed: what `fit` gets of the loader: one object for all windows, which recognise data by its identity.
    """

    def __init__(
        self, loader: Loader, feed: Any, paths: Sequence[str], windows: Windows, ceiling: _Ceiling, epochs: int
    ) -> None:
        self.loader = loader
        self.feed = feed
        self.paths = paths
        self.windows = windows
        self.ceiling = ceiling
        self.epochs = epochs


@dataclass(slots=True, kw_only=True)
class _Ceiling:
    """Windows and batches to measure a model without a loader.

    Jobs share them if model, batch size, dtype, the layers in front of the model and the seed are the same.
    """

    windows: Windows
    bare: Windows | None
    batches: list[Any]
    steps: int
    traced: set[str]


class Session:
    """Answers the parent's requests; each request calls a method."""

    def __init__(self, device: Device, source: ImageSource) -> None:
        self._device = device
        self._source = source
        self._models: dict[str, Any] = {}
        self._ceilings: dict[str, _Ceiling] = {}
        self._jobs: dict[Job, Measured] = {}
        self._storage: StorageRates | str | None = None  # a text says why it is unknown; None: not tried yet

    def backend(self) -> dict[str, Any]:
        """Describes the backend; refuses if the device is missing."""
        return open_backend(self._device)

    def open_model(self, name: str, batch_size: int, path: str | None = None) -> ModelFacts:
        """Opens a model and times a few steps of it.

        Args:
          name: of the model in jobs.
          path: what is opened, where `name` lacks the folders of a file; None for the name.
        """
        import keras

        from unstall.profiles.measure.windows import Windows

        try:
            model = self._make(path or name, name)
        except ModelError as error:
            raise Refused(str(error).replace(path or name, name)) from error
        self._models[name] = model
        size = image_size(model, name)
        batch = noise_batch(batch_size, size)
        windows = Windows(model, self._device)
        windows.prepare([batch])
        trial = windows.resident(batch, steps=TRIAL_STEPS, round_=0)
        loss = model.loss if isinstance(model.loss, str) else getattr(model.loss, "name", type(model.loss).__name__)
        return ModelFacts(
            image_size=size,
            loss=str(loss),
            optimizer=keras.optimizers.serialize(model.optimizer)["class_name"],
            jit_compile=bool(model.jit_compile),
            parameters=model.count_params(),
            step_images_per_sec=1 / trial.s_per_image,
        )

    def _make(self, opened: str, name: str) -> Any:
        return open_model(opened, classes=len(self._source.class_names))

    def prepare(self, job: Job, images: int) -> JobFacts:
        """Builds the job's loader, and runs a warm-up epoch.

        Args:
          images: how many images of the source an epoch has at least. The epoch gets more if it would otherwise have
            too few steady steps.
        """
        from unstall.profiles.measure.measure import shapes
        from unstall.profiles.measure.windows import Windows

        model = self._models[job.model]
        config = replace(job.config, image_size=image_size(model, job.model))
        if self._device.kind == "emulated" and config.augment_at == "device" and config.augmentation:
            raise Refused("an emulated device has no layers, so that it cannot augment")
        try:
            ramp_steps = parallel_batches(config, self._source)
            source = self._source.take(max(images, (ramp_steps + _STEADY_STEPS) * config.batch_size))
            loader = build(config, source, whole=self._source, device=tf_device(self._device))
        except UnavailableError as error:
            raise Refused(str(error)) from error
        try:
            layers = config.augmentation if config.augment_at == "device" else None
            key = f"{job.model}, {config.batch_size} a batch, {config.output_dtype}, {layers}, {config.seed}"
            if key not in self._ceilings:
                # Read from another loader, without a cache: `loader` would fill its cache before the first epoch. Nor
                # from a service, whose workers would stay.
                alike = replace(config, cache="none", service=NO_SERVICE, one_iterator=False)
                with build(alike, source) as other:
                    batches = first_batches(other.data)
                bare = None
                if loader.device_layers and self._device.kind != "emulated":
                    bare = Windows(model, self._device)
                fed = model if bare is None else behind(loader.device_layers, model, dtype=config.output_dtype)
                windows = Windows(fed, self._device)
                trial = windows.resident(batches[0], steps=TRIAL_STEPS, round_=0)
                if bare is not None:
                    bare.prepare([_bare_batch(batches[0])])
                self._ceilings[key] = _Ceiling(
                    windows=windows, bare=bare, batches=batches, steps=steps_for(trial), traced=set()
                )
            ceiling = self._ceilings[key]
            label_dtype = "float32" if config.loader == "image_data_generator" else "int32"
            if label_dtype not in ceiling.traced:
                ceiling.traced.add(label_dtype)
                ceiling.windows.prepare(_with_labels(shapes(ceiling.batches), label_dtype))
            if loader.record is not None:
                loader.record.clear()
            feed = loader.data if loader.endless is None else FitData(arguments=loader.fit_arguments)
            warmup = ceiling.windows.train(
                feed, epochs=1, ramp_steps=loader.parallel_batches, round_=0, window="warmup"
            )
        except BaseException:
            loader.close()
            raise
        frozen: tuple[str, ...] = ()
        unknown: tuple[str, ...] = ()
        try:
            frozen = random_before_cache(loader.data)
        except CutError as error:
            unknown = (str(error),)
        typical = warmup
        if config.cache == "memory":  # the first epoch filled the cache, so it took longer
            typical = ceiling.windows.train(feed, epochs=1, ramp_steps=loader.parallel_batches, round_=0)
        if job in self._jobs:
            self._jobs[job].loader.close()
        if loader.service is not None:
            loader.service.client.close()  # until the first window
        measured = Measured(loader, feed, source.paths, ceiling.windows, ceiling, epochs_for(typical))
        self._jobs[job] = measured
        # Each window begins with a collection of garbage. Of all that stays it need not look at again.
        gc.collect()
        gc.freeze()
        storage = (_why_warm_only(config, source) or self._storage_of(source.paths)) if job.cold else None
        return JobFacts(
            config=config,
            images=loader.images,
            epochs=measured.epochs,
            buffered_batches=loader.buffered_batches,
            notes=(
                *loader.notes,
                *_worker_note(config, loader),
                *_service_note(loader),
                *_jit_note(model, ceiling.windows.model),
                *unknown,
            ),
            jit_compile=bool(ceiling.windows.model.jit_compile),
            behind_layers=ceiling.bare is not None,
            ceiling=key,
            warmup=warmup,
            workers=None if loader.record is None else loader.record.workers,
            storage=storage if isinstance(storage, StorageRates) else None,
            warm_only=storage if isinstance(storage, str) else None,
            frozen_by_cache=frozen,
        )

    def _storage_of(self, paths: Sequence[str]) -> StorageRates | str:
        """Returns how fast the files are read, or why they cannot be cold; tries once, because it reads megabytes."""
        if self._storage is None:
            try:
                self._storage = measure_storage(paths)
            except PageCacheError as error:
                self._storage = str(error)
        return self._storage

    def window(self, job: Job, window: str, round_: int) -> Sample:
        """Measures one window of one job."""
        measured = self._jobs[job]
        ceiling = measured.ceiling
        if window == "bare":
            assert ceiling.bare is not None
            batch = _bare_batch(ceiling.batches[0])
            return ceiling.bare.resident(batch, steps=ceiling.steps, round_=round_, window="bare")
        if window == "resident":
            return ceiling.windows.resident(ceiling.batches[0], steps=ceiling.steps, round_=round_)
        if window == "replay":
            return ceiling.windows.replay(ceiling.batches, steps=ceiling.steps, round_=round_)
        if window == "cold":
            return _cold(measured, round_)
        with _service_runs(measured.loader):
            if window != "loader":
                return self._train(job, measured, round_, window)
            ramp_steps = measured.loader.parallel_batches
            return measured.windows.loader(measured.feed, epochs=measured.epochs, ramp_steps=ramp_steps, round_=round_)

    def _train(self, job: Job, measured: Measured, round_: int, window: str) -> Sample:
        ramp_steps = measured.loader.parallel_batches
        return measured.windows.train(
            measured.feed, epochs=measured.epochs, ramp_steps=ramp_steps, round_=round_, window=window
        )

    def stages(self, job: Job, lines: bool) -> tuple[StageTable, tuple[AnnotatedFunction, ...]]:
        """Measures the stages of a job's loader, and the lines of its Python functions if `lines` is true."""
        measured = self._jobs[job]
        names = ["/".join(path.split("/")[-2:]) for path in measured.paths] or None
        data = measured.loader.data
        return adapter(data).stages_and_lines(data, lambda: measured.windows, lines=lines, names=names)

    def close(self) -> None:
        for measured in self._jobs.values():
            measured.loader.close()


def noise_batch(batch_size: int, image_size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns a batch to time a model alone with: images float32 in [0, 1], labels int32."""
    images = np.random.default_rng(0).random((batch_size, *image_size, 3)).astype(np.float32)
    return images, np.zeros((batch_size,), np.int32)


def _cold(measured: Measured, round_: int) -> Sample:
    """Measures one epoch whose files are not in the page cache at its beginning; a second epoch would be warm."""
    # Keras reads some batches before the epoch, to learn their shapes. The epoch reads them again, no longer cold.
    read_before = 0 if measured.loader.record is None else _DRAWN_BEFORE
    try:
        with left_warm(measured.paths):
            drop(measured.paths)
            # Not the repeated data: their iterator would read the next epoch's files, which are warm by then.
            return measured.windows.train(
                measured.loader.data,
                epochs=1,
                ramp_steps=measured.loader.parallel_batches + read_before,
                round_=round_,
                window="cold",
            )
    except PageCacheError as error:
        raise Refused(str(error)) from error


def _why_warm_only(config: PipelineConfig, source: ImageSource) -> str | None:
    """Returns why an epoch does not read the source's files; None if it reads them."""
    if source.arrays is not None:
        return "its images are in memory"
    if config.storage != "files" or source.records is not None:
        return "it reads a prepared copy, not the photos"
    if config.location == "ram":
        return "its files lie on a RAM disk"
    if config.cache != "none":
        return f"it reads the files once and then its cache {'in memory' if config.cache == 'memory' else 'on disk'}"
    return None


def _worker_note(config: PipelineConfig, loader: Loader) -> tuple[str, ...]:
    if loader.record is None or loader.record.workers >= int(config.workers):
        return ()
    return (f"{config.workers} workers were asked for, {loader.record.workers} were busy at once",)


@contextlib.contextmanager
def _service_runs(loader: Loader) -> Iterator[None]:
    """Lets a service make batches during a window, and in an epoch before it, but not in the windows of others.

    Its workers would go on until their buffers are full, and the next window would have these batches for nothing.
    """
    if loader.service is None:
        yield
        return
    for _ in loader.data:
        pass
    try:
        yield
    finally:
        loader.service.client.close()


def _service_note(loader: Loader) -> tuple[str, ...]:
    if loader.service is None:
        return ()
    workers = loader.service.client.workers
    hosts = len({facts.worker.rpartition(":")[0] for facts in workers})
    made = sum(counts.repaired for counts in loader.service.client.counts)
    return (
        f"a service of {len(workers)} worker processes on {hosts} host{'s' if hosts > 1 else ''}"
        + (f"; batches that they did not send, and were made here: {made}" if made else ""),
    )


def _jit_note(model: Any, fed: Any) -> tuple[str, ...]:
    if fed.jit_compile or not model.jit_compile:
        return ()
    return ("XLA does not compile the model with these layers in front",)


def _with_labels(batches: list[Any], dtype: str) -> list[Any]:
    return [(images, np.asarray(labels).astype(dtype)) for images, labels in batches]


def _bare_batch(batch: Any) -> Any:
    """Returns a batch with images as the model takes them without the loader's layers: float32 in [0, 1]."""
    images, labels = batch
    images = np.asarray(images)
    return (images.astype(np.float32) / 255 if images.dtype == np.uint8 else images), labels
