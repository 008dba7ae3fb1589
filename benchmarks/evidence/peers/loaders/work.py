"""The work that every peer does, in plain numbers, and the ways in which loaders are iterated.

This module imports only NumPy: a peer may run under another interpreter, which lacks this project's other dependencies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from unstall.pipeline import PipelineConfig

# Name -> what is read, what is served, and the steps between; every peer of a work does exactly these steps.
WORKS = {
    "cold": "JPEG files to float32 in [0, 1]: read, decode, 64x64, shear and zoom, flip",
    "prepared": "a prepared file of 64x64 uint8 to uint8: random resized crop, flip",
    "prepared-float": "the same file to float32 in [0, 1]: random resized crop, flip",
}
# The work of the well-known Keras cat/dog tutorial, at the size of its network.
SIDE, BATCH = 64, 32
SHEAR_DEGREES, ZOOM_RANGE, FLIP_PROBABILITY = 0.2, 0.2, 0.5
# Ranges of a crop's area, as a fraction of the image's, and of its width over its height: torchvision's defaults of
# RandomResizedCrop.
CROP_AREA, CROP_ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)
# After this many draws that do not fit into the image, torchvision and FFCV take the whole image.
_CROP_TRIES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a loader is to serve.

    Attributes:
      work: a name in `WORKS`.
      images: number of images in an epoch.
      labels: the label of each image.
      paths: the file of each image; empty for a prepared work.
      formats: Pillow's name of each format among the files.
      jpeg_sizes: (height, width) of each JPEG file, as its header says; 0 for files of other formats.
      array: the .npy file of (images, 64, 64, 3) uint8 from which prepared formats are made.
      folder: where the loader may write; removed after the run.
      workers: number of threads or processes; None where the library decides.
      processes: whether the workers are processes.
      config: the pipeline to build, for loaders that this project builds; else None.
    """

    work: str
    images: int
    labels: tuple[int, ...]
    folder: str
    paths: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    jpeg_sizes: tuple[tuple[int, int], ...] = ()
    array: str = ""
    workers: int | None = None
    processes: bool = False
    config: PipelineConfig | None = None

    @property
    def batches(self) -> int:
        """Number of batches in an epoch; the last batch may be short."""
        return math.ceil(self.images / BATCH)

    @property
    def dtype(self) -> str:
        return dtype_of(self.work)


def dtype_of(work: str) -> str:
    """Returns the dtype that the batches of a work must have."""
    return "uint8" if work == "prepared" else "float32"


class Sink(Protocol):
    """Receives what a loader serves."""

    def begin(self) -> None:
        """Called just before the first batch is requested."""

    def take(self, images: Any, labels: Any) -> None:
        """Called with each batch."""

    def count(self, images: int) -> None:
        """Called instead of `take`, with a number of images, by a loader that serves no batches."""


class Loader(Protocol):
    def feed(self, epochs: int, sink: Sink) -> None:
        """Serves this many whole epochs; afterwards, threads and processes rest as soon as their buffers are full."""


class AllEpochs:
    """A loader that is given the number of epochs beforehand, and reads from one epoch into the next."""

    def __init__(self, batches_of: Callable[[int], Iterable[tuple[Any, Any]]]) -> None:
        self._batches_of = batches_of

    def feed(self, epochs: int, sink: Sink) -> None:
        batches = self._batches_of(epochs)
        sink.begin()
        for images, labels in batches:
            sink.take(images, labels)


class Endless:
    """A loader without an end, whose buffers fill up between windows.

    Batches that lie ready are taken out before the clock starts, so that a window counts no image that was made before
    the window.

    Args:
      per_epoch: number of batches in an epoch.
      buffered: largest number of batches that can lie ready after a pause.
    """

    def __init__(self, batches: Iterator[tuple[Any, Any]], *, per_epoch: int, buffered: int) -> None:
        self._batches, self._per_epoch, self._buffered = batches, per_epoch, buffered
        self._fresh = True

    def feed(self, epochs: int, sink: Sink) -> None:
        for _ in range(0 if self._fresh else self._buffered):
            next(self._batches)
        self._fresh = False
        sink.begin()
        for _ in range(epochs * self._per_epoch):
            images, labels = next(self._batches)
            sink.take(images, labels)


def draw_affine(random: np.random.Generator) -> list[list[float]]:
    """Draws shear, zoom and flip as one (2, 3) map from output to input pixels, about the centre.

    Computes with plain floats: for a single image, calls of NumPy would take longer than the arithmetic. Source:
    `pipeline.augmentation.Draw.affine`.
    """
    uniform = random.random(4).tolist()
    shear = math.radians((2 * uniform[0] - 1) * SHEAR_DEGREES)
    zoom_x = 1 + (2 * uniform[1] - 1) * ZOOM_RANGE
    zoom_y = 1 + (2 * uniform[2] - 1) * ZOOM_RANGE
    return affine_map(shear, zoom_x, zoom_y, flip=uniform[3] < FLIP_PROBABILITY)


def affine_map(shear: float, zoom_x: float, zoom_y: float, *, flip: bool) -> list[list[float]]:
    """Returns the (2, 3) map from output to input pixels; `shear` in radians."""
    centre = SIDE / 2 - 0.5
    xx = -zoom_x if flip else zoom_x
    xy, yy = -math.sin(shear) * zoom_y, math.cos(shear) * zoom_y
    return [[xx, xy, centre - (xx + xy) * centre], [0.0, yy, centre - yy * centre]]


def draw_affines(random: np.random.Generator, images: int) -> np.ndarray:
    """Draws as `draw_affine` does, for many images at once. Returns (images, 2, 3) float64."""
    uniform = random.random((4, images))
    shear = np.radians((2 * uniform[0] - 1) * SHEAR_DEGREES)
    zoom_x, zoom_y = 1 + (2 * uniform[1:3] - 1) * ZOOM_RANGE
    centre = SIDE / 2 - 0.5
    matrices = np.zeros((images, 2, 3))
    matrices[:, 0, 0] = np.where(uniform[3] < FLIP_PROBABILITY, -zoom_x, zoom_x)
    matrices[:, 0, 1], matrices[:, 1, 1] = -np.sin(shear) * zoom_y, np.cos(shear) * zoom_y
    matrices[:, :, 2] = centre - matrices[:, :, :2].sum(2) * centre
    return matrices


def draw_crop(random: np.random.Generator) -> tuple[int, int, int, int]:
    """Draws (top, left, height, width) of a crop out of a 64x64 image. Source: torchvision's RandomResizedCrop."""
    low, high = math.log(CROP_ASPECT[0]), math.log(CROP_ASPECT[1])
    for _ in range(_CROP_TRIES):
        area, aspect, top, left = random.random(4).tolist()
        pixels = SIDE * SIDE * (CROP_AREA[0] + area * (CROP_AREA[1] - CROP_AREA[0]))
        ratio = math.exp(low + aspect * (high - low))
        height, width = round(math.sqrt(pixels / ratio)), round(math.sqrt(pixels * ratio))
        if 0 < height <= SIDE and 0 < width <= SIDE:
            return int(top * (SIDE - height + 1)), int(left * (SIDE - width + 1)), height, width
    return 0, 0, SIDE, SIDE


def draw_crops(random: np.random.Generator, images: int) -> np.ndarray:
    """Draws as `draw_crop` does, for many images at once. Returns (images, 4) int64: top, left, height, width."""
    boxes = np.tile(np.array([0, 0, SIDE, SIDE]), (images, 1))
    left = np.arange(images)  # the images without a crop that fits
    low, high = math.log(CROP_ASPECT[0]), math.log(CROP_ASPECT[1])
    for _ in range(_CROP_TRIES):
        area, aspect, top, at = random.random((4, len(left)))
        pixels = SIDE * SIDE * (CROP_AREA[0] + area * (CROP_AREA[1] - CROP_AREA[0]))
        ratio = np.exp(low + aspect * (high - low))
        height, width = np.rint(np.sqrt(pixels / ratio)), np.rint(np.sqrt(pixels * ratio))
        drawn = np.stack([top * (SIDE - height + 1), at * (SIDE - width + 1), height, width], axis=1).astype(np.int64)
        fits = (height > 0) & (height <= SIDE) & (width > 0) & (width <= SIDE)
        boxes[left[fits]] = drawn[fits]
        left = left[~fits]
    return boxes


def to_output(images: np.ndarray, job: Job) -> np.ndarray:
    """Returns a batch of uint8 images as the work wants them."""
    if job.dtype == "uint8":
        return images
    return np.multiply(images, np.float32(1 / 255), dtype=np.float32)
