"""Draws the random numbers of an augmentation and the order of an epoch; other modules apply them.

Every loader and library of this project applies the same draw: crop, shear, zoom and horizontal flip, composed into
one affine map per image.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unstall.pipeline.augmentation import Augmentation

if TYPE_CHECKING:
    from numpy.typing import NDArray


def drawn(
    augmentation: Augmentation,
    images: int,
    *,
    seed: int,
    epoch: int,
    rows: NDArray[np.int64] | None = None,
    first: int = 0,
) -> Draw:
    """Draws the numbers of an epoch; row k belongs to the k-th image served.

    The numbers depend on `seed` and `epoch` alone, and not on the number of workers.

    Args:
      images: number of images in the epoch, or after `first` in it.
      seed: the pipeline's seed, at least 0.
      epoch: counts from 0.
      rows: indices of the rows to return; by default all.
      first: the image of the epoch that row 0 belongs to. The rows before it are not drawn.
    """
    columns = 8 if augmentation.crops else 4
    generator = np.random.Philox(np.random.SeedSequence([seed, epoch, 1]))
    generator.advance(first * columns // 4)  # each of its steps gives four numbers
    uniform = np.random.Generator(generator).random((images, columns))
    if rows is not None:
        uniform = uniform[rows]
    crop = np.tile([0.0, 0.0, 1.0, 1.0], (len(uniform), 1))
    if augmentation.crops:
        crop = _draw_crop(uniform[:, 4:], augmentation.crop_area, augmentation.crop_aspect)
    return Draw(
        shear_degrees=(2 * uniform[:, 0] - 1) * augmentation.shear_degrees,
        zoom_x=1 + (2 * uniform[:, 1] - 1) * augmentation.zoom_range,
        zoom_y=1 + (2 * uniform[:, 2] - 1) * augmentation.zoom_range,
        flip=uniform[:, 3] < augmentation.flip_probability,
        crop=crop,
    )


def _draw_crop(
    uniform: NDArray[np.float64], area: tuple[float, float], aspect: tuple[float, float]
) -> NDArray[np.float64]:
    """Returns boxes, (images, 4): left, top, width, height as ratios of the image's sides.

    A box that would be longer than a side of the image is cut to that side; torchvision draws again in that case.
    """
    areas = area[0] + uniform[:, 0] * (area[1] - area[0])
    low, high = np.log(aspect)
    aspects = np.exp(low + uniform[:, 1] * (high - low))
    width, height = np.minimum(np.sqrt(areas * aspects), 1.0), np.minimum(np.sqrt(areas / aspects), 1.0)
    return np.stack([uniform[:, 2] * (1 - width), uniform[:, 3] * (1 - height), width, height], axis=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """The random numbers of an epoch, or of some of its images.

    Attributes:
      shear_degrees, zoom_x, zoom_y: (images,) float64.
      flip: (images,) bool.
      crop: (images, 4) float64: left, top, width and height of a box, as ratios of the image's sides.
    """

    shear_degrees: NDArray[np.float64]
    zoom_x: NDArray[np.float64]
    zoom_y: NDArray[np.float64]
    flip: NDArray[np.bool_]
    crop: NDArray[np.float64]

    def affine(self, height: int, width: int) -> NDArray[np.float32]:
        """Returns the maps from output to input pixels, (images, 2, 3) float32, for (x, y, 1) column vectors.

        A map zooms, then shears, about the image's centre, then flips: what Keras' `apply_affine_transform` and
        `flip_axis` do one after the other. (Where an image is not square, Keras 3.15 swaps height and width in its
        centre; this method does not.) It starts from the crop, resized to the image's size.

        Args:
          height, width: of input and output, in pixels.
        """
        shear = np.deg2rad(self.shear_degrees)
        mirror = np.where(self.flip, -1.0, 1.0)
        centre_x, centre_y = width / 2 - 0.5, height / 2 - 0.5
        xx = self.zoom_x * mirror
        xy = -np.sin(shear) * self.zoom_y
        yy = np.cos(shear) * self.zoom_y
        zero = np.zeros_like(xx)
        x_row = np.stack([xx, xy, centre_x - xx * centre_x - xy * centre_y], axis=1)
        y_row = np.stack([zero, yy, centre_y - yy * centre_y], axis=1)
        left, top, crop_width, crop_height = self.crop.T
        x_row, y_row = _to_crop(x_row, left * width, crop_width), _to_crop(y_row, top * height, crop_height)
        return np.stack([x_row, y_row], axis=1).astype(np.float32)


def _to_crop(row: NDArray[np.float64], begin: NDArray[np.float64], scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the maps' rows for one axis, (images, 3), that lead into a crop instead of the whole image.

    Args:
      row: (images, 3), the maps' rows into the whole image. Pixels have their centres at .5.
      begin: (images,), first pixel of the crop.
      scale: (images,), the crop's side over the image's side.
    """
    moved = row * scale[:, np.newaxis]
    moved[:, 2] += begin + scale / 2 - 0.5
    return moved


def epoch_order(images: int, *, seed: int, epoch: int) -> NDArray[np.int64]:
    """Returns the order of one epoch, a permutation of `range(images)`, from `seed` and `epoch` alone."""
    return _random_of_order(seed, epoch).permutation(images)


def _random_of_order(seed: int, epoch: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch, 0])))


class LongOrder:
    """The order of one epoch of many images, from `seed` and `epoch` alone, of which any part can be computed.

    A place of the epoch is a row and a column of a square that has hardly more cells than there are images. By turns
    the row is moved by a random number of cells that belongs to the column, and the column by one that belongs to the
    row. A place that comes to a cell whose number is not that of an image is moved again.

    Source: a generalized Feistel cipher with cycle walking (Black and Rogaway, 2002), of four rounds (Luby and Rackoff,
    1988).
    """

    def __init__(self, images: int, *, seed: int, epoch: int) -> None:
        random = _random_of_order(seed, epoch)
        self._images = images
        self._side = math.isqrt(images - 1) + 1
        self._moves = random.integers(self._side, size=(4, self._side))

    def __call__(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the images at some places of the epoch, (places,)."""
        moved = self._moved(places)
        while len(outside := np.flatnonzero(moved >= self._images)):
            moved[outside] = self._moved(moved[outside])
        return moved

    def _moved(self, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        row, column = np.divmod(cells, self._side)
        for moves in self._moves:
            row, column = column, (row + moves[column]) % self._side  # row and column change places
        return row * self._side + column


def block_windows(
    images: int, *, images_per_block: int, blocks_in_window: int, seed: int, epoch: int
) -> Iterator[NDArray[np.int64]]:
    """Yields one epoch's order of the rows of a file that is larger than memory: a permutation, cut into windows.

    A window holds some blocks of contiguous rows, chosen at random from the whole file; its rows are shuffled together.
    So a block is read sequentially, and every row comes once. The shuffle is not a full one: all rows of a block come
    in the same window. With B = `blocks_in_window`, a batch of n rows comes from B * (1 - (1 - 1/B)**n) blocks on
    average: 25 of 64 for a batch of 32. Classes are mixed all the same if the file holds its rows in random order.

    Args:
      images: number of rows in the file.
      images_per_block: at least 1; the last block holds what is left.
      blocks_in_window: at least 1; as many as fit in memory.
      seed: the pipeline's seed, at least 0.
      epoch: counts from 0.
    """
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch, 2])))
    blocks = random.permutation(-(-images // images_per_block))
    for start in range(0, len(blocks), blocks_in_window):
        begins = blocks[start : start + blocks_in_window] * images_per_block
        rows = (begins[:, np.newaxis] + np.arange(images_per_block)).ravel()
        yield random.permutation(rows[rows < images])
