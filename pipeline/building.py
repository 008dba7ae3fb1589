"""Builds a loader from a description, `PipelineConfig`: the function `build` serves all kinds of loaders."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from unstall.needs import missing
from unstall.pipeline.address import Address, parse_address
from unstall.pipeline.cache import cache_root, remove_scratch, scratch_folder
from unstall.pipeline.config import AUTO, OUR_LOADERS, PYTHON_LOADERS, PipelineConfig
from unstall.pipeline.errors import SourceError, UnavailableError
from unstall.pipeline.prepared.copies import cached_copy, has_cached_copy, prepared_copy
from unstall.pipeline.service.account import usable_cores
from unstall.pipeline.sources.folder import copied_to_ram, folder_of_links
from unstall.pipeline.sources.source import ImageSource
from unstall.pipeline.sources.stored import MappedImages
from unstall.pipeline.stages.batching import batches_per_call, yields_batches
from unstall.text import printable

if TYPE_CHECKING:
    from unstall.pipeline.loaders.py_dataset import WorkerRecord
    from unstall.pipeline.loaders.python_batches import PythonBatches
    from unstall.pipeline.loaders.served import Served


# The formats that each loader can decode. Some need a newer library than is installed: see `unread_here`.
READS = {
    "tf_data": {"JPEG", "PNG", "BMP", "GIF", "WEBP"},
    "py_dataset": {"JPEG", "PNG", "BMP", "GIF", "WEBP"},
    "python_batches": {"JPEG", "PNG", "BMP", "GIF", "WEBP"},
    "image_data_generator": {"JPEG", "PNG", "BMP"},
    "image_dataset_from_directory": {"JPEG", "PNG", "BMP", "GIF"},
}
RAM_DISK = Path("/dev/shm")
# A cache may take this part of the free memory, or of the free disk.
_ROOM_RATIO = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """Batches of `(images, labels)` for `fit`, for any number of epochs, until the loader is closed.

    Attributes:
      data: a `tf.data.Dataset` or a `keras.utils.PyDataset`, of one epoch.
      endless: the epochs one after the other without an end, for one iterator; None without the config's
        `one_iterator`.
      images: images an epoch.
      batches: batches an epoch.
      parallel_batches: how many batches may be prepared at the same time.
      buffered_batches: how many finished batches may wait in queues and buffers.
      device_layers: layers that belong in front of the model, to run on the device.
      notes: what a reader of the results must know about the loader, such as a copy that was just prepared for it.
      record: which workers served the batches; None for tf.data.
      service: the client of the service whose workers make the batches, or None.
      workers: our own worker processes, or None.
      folders: temporary folders of this loader, which `close` removes.
    """

    data: Any
    images: int
    batches: int
    endless: Any = None
    parallel_batches: int = 1
    buffered_batches: int = 0
    device_layers: tuple[Any, ...] = ()
    notes: tuple[str, ...] = ()
    record: WorkerRecord | None = None
    service: Served | None = None
    workers: PythonBatches | None = None
    folders: tuple[Path, ...] = ()

    @property
    def fit_arguments(self) -> dict[str, Any]:
        """What `fit` is given to train.

        With one iterator, a second `fit` begins with the draws of a later epoch than the next: tf.data has read on.
        """
        return {"x": self.data} if self.endless is None else {"x": self.endless, "steps_per_epoch": self.batches}

    def close(self) -> None:
        """Ends the loader's workers and removes its copies on the RAM disk; prepared copies and caches are kept."""
        try:
            parts: tuple[Any, ...] = (self.data, self.service, self.workers)
            for part in parts:
                if hasattr(part, "close"):
                    part.close()
        finally:
            for folder in self.folders:
                remove_scratch(folder)

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def build(
    config: PipelineConfig, source: ImageSource, *, whole: ImageSource | None = None, device: str = "/CPU:0"
) -> Loader:
    """Builds a loader of `source` as `config` says.

    Args:
      config: the description, with the model's `image_size`.
      source: the images; every one is served once an epoch.
      whole: the source of which `source` is a part, if it is one. There must be room for a copy or a cache of it all.
      device: TensorFlow's name of the device that trains; only `prefetch_to_device` uses it.
    Raises:
      UnavailableError: if the loader cannot read this source, or there is no room.
    """
    whole = whole or source
    folders: list[Path] = []
    notes: list[str | None] = []
    try:
        if config.storage != "files":
            source, note = prepared_copy(source, config)
            notes.append(note)
        _check_readable(config, source)
        if config.location == "ram":
            source = _in_ram(source, whole, folders)
        if config.cache == "disk":
            source, note = _cached(config, source, whole)
            notes.append(note)
        if address := parse_address(config.service):
            loader = _served(config, source, address)
        elif config.loader == "tf_data":
            loader = _tf_data(config, source, whole.images, device)
        else:
            loader = _BUILD[config.loader](config, source)
        return replace(loader, notes=(*(note for note in notes if note), *loader.notes), folders=tuple(folders))
    except BaseException as error:
        for folder in folders:
            remove_scratch(folder)
        if isinstance(error, SourceError):
            raise UnavailableError(str(error)) from error
        raise


def unread_here(config: PipelineConfig) -> set[str]:
    """Returns the formats that a loader's decoder can read, but not in the version that is installed."""
    if config.loader in ("py_dataset", "python_batches") or config.composed:
        from unstall.pipeline.stages.opencv_decode import READS_GIF

        return set() if READS_GIF else {"GIF"}
    if config.loader == "tf_data":
        import tensorflow as tf

        return set() if hasattr(tf.io, "decode_webp") else {"WEBP"}  # TensorFlow reads them since 2.20
    return set()


def _check_readable(config: PipelineConfig, source: ImageSource) -> None:
    if config.augment_with == "albumentations" and (line := missing("albumentations' augmentation", "albumentations")):
        raise UnavailableError(line)
    unreadable = sorted(set(source.formats) - (READS[config.loader] - unread_here(config)))
    if unreadable:
        raise UnavailableError(f"{config.loader} cannot read {', '.join(unreadable)} files")
    if source.arrays is not None and config.loader not in OUR_LOADERS:
        raise UnavailableError(f"{config.loader} reads folders only, not arrays")
    if source.records is not None and config.loader not in OUR_LOADERS:
        raise UnavailableError(f"{config.loader} cannot read TFRecord files")


def _cached(config: PipelineConfig, source: ImageSource, whole: ImageSource) -> tuple[ImageSource, str | None]:
    height, width = config.image_size
    try:
        cache_root().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        folder = printable(cache_root())
        reason = f"the cache folder {folder} cannot be made ({error.strerror}): name another in UNSTALL_CACHE"
        raise UnavailableError(reason) from error
    needed_bytes, free_bytes = whole.images * height * width * 3 * 4, shutil.disk_usage(cache_root()).free
    try:
        _check_room(needed_bytes, free_bytes, "room on disk for the cache")
    except UnavailableError:
        if not has_cached_copy(whole, config):
            raise
    return cached_copy(source, config)


def _in_ram(source: ImageSource, whole: ImageSource, folders: list[Path]) -> ImageSource:
    if source.records is not None or isinstance(source.arrays, MappedImages):
        raise UnavailableError("only files of single images are copied to the RAM disk, not copies in large files")
    if source.arrays is not None:
        raise UnavailableError("arrays are in memory already")
    if not RAM_DISK.is_dir() or not os.access(RAM_DISK, os.W_OK):
        raise UnavailableError(f"there is no RAM disk at {RAM_DISK}")
    folders.append(scratch_folder(RAM_DISK))
    needed_bytes = sum(os.path.getsize(path) for path in whole.paths)
    _check_room(needed_bytes, shutil.disk_usage(folders[-1]).free, "room on the RAM disk")
    return copied_to_ram(source, folders[-1] / "photos")


def _tf_data(config: PipelineConfig, source: ImageSource, whole_images: int, device: str) -> Loader:
    import tensorflow as tf

    from unstall.pipeline.stages import augment, output, read

    notes = []
    height, width = config.image_size
    if config.cache == "memory":
        _check_room(whole_images * height * width * 3 * 4, psutil.virtual_memory().available, "memory for the cache")
    if config.prefetch_to_device and device == "/CPU:0":
        notes.append("prefetch_to_device is the same as prefetch on a CPU")
    with tf.device("/CPU:0"):
        # `batches_of` makes whole batches of what `epoch` yields, and of several epochs one after the other.
        batches_of: Callable[[Any], Any] = _as_they_are
        if config.composed:
            epoch, batches_of = read.composed_stages(source, config, whole_images)
        else:
            epoch = output.cached_in_memory(read.read(source, config), config)
            if config.augment_at == "element":
                epoch = augment.augment(epoch, source.images, config)
            if not yields_batches(source, config):
                epoch = epoch.batch(config.batch_size)
            if config.augment_at == "batch":
                epoch = augment.with_draws(epoch, source.images, config)
                batches_of = augment.augmenter(config)

        def with_last_stages(dataset: Any) -> Any:
            dataset = output.rescale(batches_of(dataset), config)
            return output.prefetch(output.with_options(dataset, config), config, device)

        data = with_last_stages(epoch)
        # Repeated here, so that parallel calls for whole batches go on over the end of an epoch.
        endless = with_last_stages(epoch.repeat()) if config.one_iterator else None
    return Loader(
        data=data,
        endless=endless,
        images=source.images,
        batches=math.ceil(source.images / config.batch_size),
        parallel_batches=parallel_batches(config, source, whole_images),
        buffered_batches=_prefetched(config),
        device_layers=_device_layers(config),
        notes=tuple(notes),
    )


def _as_they_are(batches: Any) -> Any:
    return batches


def _served(config: PipelineConfig, source: ImageSource, address: Address) -> Loader:
    from unstall.pipeline.loaders.served import Served

    service = Served(source, config, address)
    return Loader(
        data=service.dataset(),
        endless=service.dataset(endless=True) if config.one_iterator else None,
        images=source.images,
        batches=service.client.batches,
        parallel_batches=len(service.client.workers) * parallel_batches(config, source),
        buffered_batches=_prefetched(config),
        device_layers=_device_layers(config),
        service=service,
    )


def parallel_batches(config: PipelineConfig, source: ImageSource, whole_images: int | None = None) -> int:
    """Returns how many batches a loader may prepare at the same time; `whole_images` as for `batches_per_call`.

    In tf.data these are more than two only where a map works on whole batches. tf.data's tuner may then start as many
    calls as the process's affinity has CPUs, even if a control group's quota allows fewer. Source: TensorFlow,
    `NumSchedulableCPUs`.
    """
    if config.loader in PYTHON_LOADERS:
        return int(config.workers)
    by_batch = config.augmentation is not None and config.augment_at == "batch"
    calls = 1 if config.workers == 1 else 2
    if calls > 1 and by_batch:
        calls = max(calls, usable_cores() if config.workers == AUTO else int(config.workers))
    return calls * (batches_per_call(source, config, whole_images) if config.loader == "tf_data" else 1)


def _prefetched(config: PipelineConfig) -> int:
    # tf.data's tuner seldom makes a buffer of batches larger than two batches per core.
    return 2 * usable_cores() if config.prefetch == AUTO else int(config.prefetch)


def _device_layers(config: PipelineConfig) -> tuple[Any, ...]:
    import keras

    from unstall.pipeline.stages import augment

    layers: list[Any] = []
    if config.output_dtype == "uint8":
        layers.append(keras.layers.Rescaling(1 / 255))
    if config.augmentation is not None and config.augment_at == "device":
        layers += augment.keras_layers(config.augmentation, seed=config.seed)
    return tuple(layers)


def _check_room(needed_bytes: int, free_bytes: int, what: str) -> None:
    if needed_bytes > _ROOM_RATIO * free_bytes:
        raise UnavailableError(f"not enough {what}: {needed_bytes / 1e6:.0f} MB needed, {free_bytes / 1e6:.0f} MB free")


def _py_dataset(config: PipelineConfig, source: ImageSource) -> Loader:
    from unstall.pipeline.loaders.py_dataset import ImagePyDataset

    data = ImagePyDataset(source, config)
    return Loader(
        data=data,
        images=source.images,
        batches=data.num_batches,
        parallel_batches=parallel_batches(config, source),
        buffered_batches=config.max_queue_size if config.workers != 1 else 0,
        record=data.record,
    )


def _python_batches(config: PipelineConfig, source: ImageSource) -> Loader:
    from unstall.pipeline.loaders.python_batches import PythonBatches
    from unstall.pipeline.stages import output

    made = PythonBatches(source, replace(config, storage="files"), workers=int(config.workers))
    return Loader(
        data=output.from_python(made.__iter__, len(made), config, dtype=config.output_dtype),
        images=source.images,
        batches=len(made),
        parallel_batches=parallel_batches(config, source),
        buffered_batches=int(config.workers),
        workers=made,
    )


def _image_data_generator(config: PipelineConfig, source: ImageSource) -> Loader:
    from unstall.pipeline.loaders.keras import image_data_generator

    data = image_data_generator(source, config, _folder(config, source))
    notes = ["draws come from NumPy's global random state"]
    if config.workers != 1:
        how = "forked workers repeat draws" if config.use_multiprocessing else "threads race for it"
        notes = [f"{notes[0]}: {how}"]
    return Loader(
        data=data,
        images=source.images,
        batches=len(data),
        parallel_batches=parallel_batches(config, source),
        buffered_batches=config.max_queue_size if config.workers != 1 else 0,
        notes=tuple(notes),
        record=data.record,
    )


def _image_dataset_from_directory(config: PipelineConfig, source: ImageSource) -> Loader:
    from unstall.pipeline.loaders.keras import image_dataset_from_directory

    return Loader(
        data=image_dataset_from_directory(source, config, _folder(config, source)),
        images=source.images,
        batches=math.ceil(source.images / config.batch_size),
        parallel_batches=parallel_batches(config, source),
        buffered_batches=_prefetched(config),
        device_layers=_device_layers(config),
        notes=() if config.workers == 1 else ("Keras' layers draw in the order in which threads come to them",),
    )


def _folder(config: PipelineConfig, source: ImageSource) -> Path:
    """Returns a folder of links to the source's files.

    For a copy on the RAM disk the links lie beside the copy, in the folder that `_in_ram` made, which is removed whole.
    """
    return folder_of_links(source, source.root.parent / "links" if source.root and config.location == "ram" else None)


_BUILD = {
    "py_dataset": _py_dataset,
    "python_batches": _python_batches,
    "image_data_generator": _image_data_generator,
    "image_dataset_from_directory": _image_dataset_from_directory,
}
