"""Compares the images of a rewritten pipeline with those of the original: identical, close, or only alike on average.

The third class, `distribution`, has other pixels, from draws of the same distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unstall.benchmarks.tune.parser import CLASSES

# Images are close if they differ by no more than another decoder, another rounding, or one resampling instead of two
# makes of the same photo and draw. Measured on 400 photos of cats and dogs: TensorFlow's and OpenCV's pixels differ by
# 1 level on average; with decoding at a fraction of the size they differ by 5 (30 dB), with one resampling instead of
# two as well by 6 (27 dB), and with another draw by 39.
CLOSE_MEAN_LEVELS, CLOSE_PSNR_DB = 8.0, 25.0
# Rounding to whole levels moves a pixel by half a level at most; the rest is for the arithmetic of float32.
_EXACT_LEVELS = 0.51


@dataclass(frozen=True, slots=True, kw_only=True)
class Exactness:
    """Differences of the images of one epoch, with the same draws, in levels of 255.

    Attributes:
      mean_levels, largest_levels: the mean and the largest of all pixels' absolute differences.
      psnr_db: of all images together; None where they are identical.
    """

    mean_levels: float
    largest_levels: float
    psnr_db: float | None

    @property
    def is_exact(self) -> bool:
        """Whether no pixel differs by more than rounding to whole levels does."""
        return self.largest_levels <= _EXACT_LEVELS

    @property
    def name(self) -> str:
        """The class: `identical` bit for bit; `close` within the bounds above; else `distribution`."""
        if self.psnr_db is None:
            return "identical"
        close = self.mean_levels <= CLOSE_MEAN_LEVELS and self.psnr_db >= CLOSE_PSNR_DB
        return "close" if close else "distribution"


def compare(images: np.ndarray, expected: np.ndarray) -> Exactness:
    """Compares images with the expected ones.

    Args:
      images, expected: (images, height, width, 3), float32 in [0, 1] or uint8, in the same order.
    Raises:
      ValueError: if the two differ in shape, or there is no image.
    """
    if images.shape != expected.shape or not images.size:
        raise ValueError(
            f"Only images of the same number and shape can be compared. Received: {images.shape} and {expected.shape}."
        )
    levels = np.abs(_levels(images) - _levels(expected))
    mean_square = float((levels**2).mean())
    return Exactness(
        mean_levels=float(levels.mean()),
        largest_levels=float(levels.max()),
        psnr_db=20 * math.log10(255) - 10 * math.log10(mean_square) if mean_square else None,
    )


def _levels(images: np.ndarray) -> np.ndarray:
    return images.astype(np.float64) * (1 if images.dtype == np.uint8 else 255)


def allowed(name: str, widest: str) -> bool:
    """Whether a class is no wider than another."""
    return CLASSES.index(name) <= CLASSES.index(widest)
