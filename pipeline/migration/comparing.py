"""Compares a loader of Keras' with its tf.data equivalent on the data: the files, the pixels, the draws, the rates."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import itertools
import os
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from unstall.pipeline import clock
from unstall.pipeline.errors import first_line
from unstall.pipeline.migration.loaders import Draws, Loader
from unstall.pipeline.migration.writing import module_text
from unstall.pipeline.rates import Rates

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Keras 3's own `keras.preprocessing.image` no longer has the generator.
_legacy = tf.keras.preprocessing.image
# At most so many images are compared and timed, evenly from front to back, and the first of at most so many classes.
MOST_IMAGES = 512
# Fewer, where so many would take more memory than this.
_MOST_BYTES = 200_000_000
_ROUNDS = 3
# Epochs of which the draws are compared, at least one; so many images at least.
_DRAWN_IMAGES = 1024
# Decoders differ by a level or two, and Pillow's resizing is not TensorFlow's: an image whose pixels differ by more on
# average is another one.
_LIKE_LEVELS = 2.0


class Failed(Exception):
    """Keras or TensorFlow refuses the folder or a file; the message says why."""


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, tf.errors.OpError) as error:
        raise Failed(first_line(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What the loader as written and its equivalent did with the same folder.

    Attributes:
      images: in the folder, as (Keras, tf.data) list them.
      compared: how many were compared and timed.
      unlike: how many of these have other pixels, or another label.
      off_levels: the mean difference of a pixel without augmentation, in levels of 255.
      moved_levels: (Keras, tf.data): how far augmentation takes a pixel on average, in levels; None without it.
      rates: of the loader as written, and of the equivalent.
      first_ratio: how many times as fast the equivalent's first epoch is, which is traced and fills the cache.
    """

    images: tuple[int, int]
    compared: int
    unlike: int
    off_levels: float
    moved_levels: tuple[float, float] | None
    rates: Rates
    first_ratio: float


def count_images(loader: Loader, directory: str) -> int:
    """Returns how many images Keras' loader finds in a folder.

    Raises:
      Failed: if Keras refuses the folder.
    """
    with _failures():
        return _images_of(_as_written(loader, directory))


def compare(loader: Loader, cached_bytes: int | None, scratch: Path) -> Compared:
    """Compares on at most `MOST_IMAGES` images of the loader's folder, and the first of as many classes.

    Args:
      loader: with a folder.
      cached_bytes: as in `module_text`; None for no cache.
      scratch: an empty folder, for links to the images that are compared.
    Raises:
      Failed: if Keras or TensorFlow refuses the folder or a file.
    """
    directory = loader.directory
    assert directory is not None
    loader = _without_preprocessing(loader)
    tools = _Module(loader, cached_bytes, scratch)
    with _failures():
        return _compared(loader, tools, directory, scratch / "images")


def _compared(loader: Loader, tools: _Module, directory: str, part: Path) -> Compared:
    plain = _without_draws(loader)
    listed = _images_of(_as_written(loader, directory)), tools.images_of(plain, directory)
    for path in _some_files(plain, directory):
        link = part / os.path.relpath(path, directory)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.abspath(path))
    scale = 1 / (loader.generator.get("rescale") or 1)
    before, after = _arrays(_epoch(_as_written(plain, str(part)))), _arrays(iter(tools.made(plain, str(part))))
    images = min(len(before[0]), len(after[0]))
    off = np.abs(before[0][:images] - after[0][:images]).mean(axis=(1, 2, 3)) * scale
    unlike = int(np.sum((off > _LIKE_LEVELS) | _differ(before[1], after[1], images)))
    moved = _moved(loader, tools, str(part), before[0], scale) if loader.draws.any else None
    rates, first_ratio = _rates(loader, tools, str(part), (len(before[0]), len(after[0])))
    return Compared(
        images=listed,
        compared=len(before[0]),
        unlike=unlike + abs(len(before[0]) - len(after[0])),
        off_levels=float(off.mean()),
        moved_levels=moved,
        rates=rates,
        first_ratio=first_ratio,
    )


class _Module:
    """Writes and imports the module of a loader."""

    def __init__(self, loader: Loader, cached_bytes: int | None, scratch: Path) -> None:
        self._cached = {} if cached_bytes is None else {loader.name: cached_bytes}
        self._scratch = scratch
        self._numbers = itertools.count()

    def _module(self, loader: Loader) -> Any:
        path = self._scratch / f"unstall_migrated_{next(self._numbers)}.py"
        path.write_text(module_text("the script", [loader], self._cached), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)  # where AutoGraph looks for it
        spec.loader.exec_module(module)
        return module

    def made(self, loader: Loader, directory: str) -> tf.data.Dataset:
        """Returns the dataset of a folder."""
        with contextlib.redirect_stdout(io.StringIO()):  # Keras' utility prints how many files it finds
            passed = {"directory": directory} | ({"batch_size": 32} if ("batch_size" in dict(loader.passed)) else {})
            return getattr(self._module(loader), loader.name)(**passed)

    def images_of(self, loader: Loader, directory: str) -> int:
        """Returns how many images the equivalent lists."""
        counting = replace(loader, attributes=("samples",)) if loader.method == "flow_from_directory" else loader
        dataset = self.made(counting, directory)
        return int(dataset.samples if counting is not loader else len(dataset.file_paths))


def _without_preprocessing(loader: Loader) -> Loader:
    passed = tuple((name, code) for name, code in loader.passed if name != "preprocess")
    return replace(loader, preprocessing="", passed=passed, attributes=())


def _without_draws(loader: Loader) -> Loader:
    """Returns the loader without augmentation, in the order of the files."""
    names = ("rescale", "validation_split", "samplewise_center", "samplewise_std_normalization")
    generator = {name: value for name, value in loader.generator.items() if name in names}
    return replace(loader, generator=generator, draws=Draws(), call={**loader.call, "shuffle": False})


def _as_written(loader: Loader, directory: str) -> Any:
    """Returns what the script's call of Keras gives."""
    call = dict(loader.call)
    with contextlib.redirect_stdout(io.StringIO()):
        if loader.method == "flow_from_directory":
            return _legacy.ImageDataGenerator(**loader.generator).flow_from_directory(directory, **call)
        return keras.utils.image_dataset_from_directory(directory, **call)


def _images_of(data: Any) -> int:
    return int(data.samples) if hasattr(data, "samples") else len(data.file_paths)


def _epoch(data: Any) -> Iterator[Any]:
    """Yields an epoch; an iterator of Keras' never ends by itself."""
    return iter(data) if isinstance(data, tf.data.Dataset) else itertools.islice(iter(data), len(data))


def _some_files(plain: Loader, directory: str) -> list[str]:
    """Returns files of a folder, evenly from front to back, and the first of every class.

    A part of the folder has other shares for validation, so that all of its files are taken from.
    """
    whole = replace(plain, call={name: value for name, value in plain.call.items() if name != "subset"})
    if plain.method != "flow_from_directory":
        whole = replace(whole, call={name: value for name, value in whole.call.items() if name != "validation_split"})
    data = _as_written(whole, directory)
    paths = list(data.filepaths if hasattr(data, "filepaths") else data.file_paths)
    height, width = plain.image_size
    most = max(32, min(MOST_IMAGES, _MOST_BYTES // (height * width * plain.channels * 4)))
    return _sample(paths, directory, most)


def _sample(paths: list[str], directory: str, most: int) -> list[str]:
    """Returns at most so many paths, and the first of at most so many classes; their order stays."""
    firsts: dict[tuple[str, ...], str] = {}
    for path in paths:
        firsts.setdefault(Path(os.path.relpath(path, directory)).parts[:-1][:1], path)
    chosen = {*_evenly(paths, most), *_evenly(list(firsts.values()), most)}
    return [path for path in paths if path in chosen]


def _evenly(paths: list[str], most: int) -> list[str]:
    return paths[:: max(1, -(-len(paths) // most))]


def _arrays(batches: Iterator[Any]) -> tuple[NDArray[np.float32], NDArray[Any] | None]:
    """Returns all images and all labels of some batches, or None for labels if there are none."""
    parts = [batch if isinstance(batch, tuple) else (batch, None) for batch in batches]
    if not parts:
        raise Failed("no image is served")
    images = np.concatenate([np.asarray(images, np.float32) for images, _ in parts])
    return images, None if parts[0][1] is None else np.concatenate([np.asarray(labels) for _, labels in parts])


def _differ(before: NDArray[Any] | None, after: NDArray[Any] | None, images: int) -> Any:
    """Returns for each image whether its label differs; labels that are images are compared as images."""
    if before is None or after is None:
        return (before is None) != (after is None)
    if before.shape[1:] != after.shape[1:]:
        return True
    if before.ndim > 2:
        return np.zeros(images, bool)
    return (before[:images] != after[:images]).reshape(images, -1).any(axis=1)


def _moved(
    loader: Loader, tools: _Module, directory: str, plain: NDArray[np.float32], scale: float
) -> tuple[float, float]:
    """Returns how far augmentation moves a pixel on average, of (Keras, tf.data), over some epochs."""
    ordered = replace(loader, call={**loader.call, "shuffle": False})
    moved: tuple[list[float], list[float]] = ([], [])
    theirs, ours = _as_written(ordered, directory), tools.made(ordered, directory)
    for _ in range(max(1, -(-_DRAWN_IMAGES // len(plain)))):
        for side, data in enumerate((theirs, ours)):
            images, _ = _arrays(_epoch(data))
            count = min(len(images), len(plain))
            moved[side].append(float(np.abs(images[:count] - plain[:count]).mean() * scale))
    return statistics.fmean(moved[0]), statistics.fmean(moved[1])


def _rates(loader: Loader, tools: _Module, directory: str, images: tuple[int, int]) -> tuple[Rates, float]:
    """Returns images/sec of each round, and how many times as fast tf.data's first epoch is.

    Args:
      images: how many images of the folder Keras serves, and how many tf.data.
    """
    theirs, ours = _as_written(loader, directory), tools.made(loader, directory)
    first_s = _seconds(ours)
    seconds = [(_seconds(theirs), _seconds(ours)) for _ in range(_ROUNDS)]
    before, after = (tuple(images[side] / times[side] for times in seconds) for side in (0, 1))
    return Rates(before=before, after=after), statistics.median(times[0] for times in seconds) / first_s


def _seconds(data: Any) -> float:
    begin_ns = clock.now_ns()
    for _ in _epoch(data):
        pass
    return (clock.now_ns() - begin_ns) / 1e9
