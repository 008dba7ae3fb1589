"""Tells how a served image was made from its photo: decoded whole or at a fraction, resampled how, and how often.

A loader draws a map for each image, and tells nobody. So the map is estimated here: by the place and the size at which
the served image, shrunk, matches the photo best (OpenCV's `matchTemplate`), then by aligning the two (its
`findTransformECC`; Evangelidis and Psarakis, 2008). Through that map, the photo is made again in each possible way. The
way whose pixels differ least from the served ones is the loader's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from PIL import Image

from unstall.benchmarks.evidence.peers.loaders.work import CROP_AREA, CROP_ASPECT, SIDE, ZOOM_RANGE
from unstall.pipeline import ImageSource, PipelineConfig
from unstall.pipeline.stages.compose import through_resize
from unstall.pipeline.stages.opencv_decode import OpenCVDecoder

# How many images of the sample are made again: a peer takes a second.
_IMAGES = 32
# Pixels between the sizes at which a served image is looked for, and the width of the border for maps that reach out.
_SIZE_STEP, _MARGIN = 3, 8
# The side of the filter that smooths both images before the first alignment, in pixels.
_SMOOTH, _SHARP = 5, 1
_ALIGNED = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 30, 1e-6)
_SIDES = range(round(SIDE * (1 - ZOOM_RANGE)), round(SIDE * (1 + ZOOM_RANGE)) + 1, _SIZE_STEP)
_CROP_SIDES = range(16, SIDE + 1, _SIZE_STEP)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """Pixels from which an image is resampled, and how.

    Attributes:
      pixels: (height, width, 3) float32 from 0 to 255.
      nearest: whether the nearest pixel is taken; or else four are interpolated.
      area: whether a box of whole pixels is resized, each output pixel averaging what it covers.
    """

    pixels: np.ndarray
    nearest: bool = False
    area: bool = False

    def made(self, matrix: np.ndarray) -> np.ndarray:
        """Returns (64, 64, 3) float32; `matrix` maps its pixels to those of the photo at 64x64."""
        through = self.through(matrix)
        how = cv2.INTER_NEAREST if self.nearest else cv2.INTER_LINEAR
        return cv2.warpAffine(
            self.pixels, through, (SIDE, SIDE), flags=how | cv2.WARP_INVERSE_MAP, borderMode=cv2.BORDER_REPLICATE
        )

    def through(self, matrix: np.ndarray) -> np.ndarray:
        """Returns the map to pixels of this base, which may be larger than 64x64."""
        return through_resize(matrix[np.newaxis], np.array([self.pixels.shape[:2]]), (SIDE, SIDE))[0]


class Renditions:
    """The photos of a sample, from which served images are made again.

    Args:
      sample: the photos, whose numbers the loader served as labels.
      plain: (images, 64, 64, 3) uint8, the same photos at 64x64: what prepared files hold.
    """

    def __init__(self, sample: ImageSource, plain: np.ndarray) -> None:
        self._plain = plain
        self._full, self._scaled = (
            OpenCVDecoder(sample, PipelineConfig(decode=decode)) for decode in ("full", "scaled")
        )

    def differences(self, work: str, served: np.ndarray) -> dict[str, tuple[float, ...]]:
        """Returns by rendition the mean absolute difference of each compared image's pixels, from 0 to 255.

        Args:
          served: (images, 64, 64, 3) float32 in [0, 1]; an image that was not served is NaN.
        """
        found: dict[str, list[float]] = {}
        for number in range(0, len(served), max(1, len(served) // _IMAGES)):
            image = np.ascontiguousarray(served[number] * 255, np.float32)
            if np.isnan(image).any():
                continue
            bases = self._photo_bases(number) if work == "cold" else self._prepared_bases(number)
            start = _estimated(image, self._plain[number].astype(np.float32), crops=work != "cold")
            for name, base in bases.items():
                found.setdefault(name, []).append(_least_difference(image, base, start))
        return {name: tuple(each) for name, each in found.items()}

    def _photo_bases(self, number: int) -> dict[str, _Base]:
        bases = {}
        for decode, decoder in (("full decode", self._full), ("scaled decode", self._scaled)):
            image = decoder(number)
            small = cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_LINEAR).astype(np.float32)
            bases[f"{decode}, bilinear"] = _Base(pixels=small)
            bases[f"{decode}, antialiased"] = _Base(pixels=_pillow(image, Image.Resampling.BILINEAR))
            bases[f"{decode}, nearest"] = _Base(pixels=_pillow(image, Image.Resampling.NEAREST))
            bases[f"{decode}, nearest warp"] = _Base(pixels=small, nearest=True)
            bases[f"{decode}, one resampling"] = _Base(pixels=image.astype(np.float32))
        return bases

    def _prepared_bases(self, number: int) -> dict[str, _Base]:
        pixels = self._plain[number].astype(np.float32)
        return {
            "bilinear": _Base(pixels=pixels),
            "area": _Base(pixels=pixels, area=True),
            "nearest": _Base(pixels=pixels, nearest=True),
        }


def _pillow(image: np.ndarray, how: Image.Resampling) -> np.ndarray:
    return np.asarray(Image.fromarray(image).resize((SIDE, SIDE), how), np.float32)


def _least_difference(image: np.ndarray, base: _Base, start: np.ndarray) -> float:
    """Returns the difference from the image made again, through the estimated map or one aligned to its pixels."""
    candidates = [start]
    aligned = _align(image, base.pixels, base.through(start), _SHARP)
    if aligned is not None:
        # Back from the base's pixels to those at 64x64.
        candidates += list(through_resize(aligned[np.newaxis], np.array([[SIDE, SIDE]]), base.pixels.shape[:2]))
    if base.area:
        made = (box for matrix in candidates for box in _boxes(base.pixels, matrix))
    else:
        made = (base.made(matrix) for matrix in candidates)
    return min(float(np.abs(each - image).mean()) for each in made)


def _estimated(image: np.ndarray, plain: np.ndarray, *, crops: bool) -> np.ndarray:
    """Returns the (2, 3) map from a served image's pixels to those of its photo at 64x64."""
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    padded = np.pad(cv2.cvtColor(plain, cv2.COLOR_RGB2GRAY), _MARGIN, mode="edge")
    least, matrix = np.inf, np.eye(2, 3)
    for mirrored in (False, True):
        looked_for = cv2.flip(grey, 1) if mirrored else grey
        for height, width in _sides(crops):
            shrunk = cv2.resize(looked_for, (width, height), interpolation=cv2.INTER_AREA)
            differences = cv2.matchTemplate(padded, shrunk, cv2.TM_SQDIFF) / (height * width)
            low, _, (left, top), _ = cv2.minMaxLoc(differences)
            if low < least:
                least = low
                matrix = _box_map(left - _MARGIN, top - _MARGIN, height, width, mirrored)
    aligned = _align(image, plain, matrix, _SMOOTH)
    return matrix if aligned is None else aligned


def _sides(crops: bool) -> Iterator[tuple[int, int]]:
    sides = _CROP_SIDES if crops else _SIDES
    for height in sides:
        for width in sides:
            fits = CROP_ASPECT[0] * 0.9 < width / height < CROP_ASPECT[1] * 1.1
            if not crops or (fits and height * width > CROP_AREA[0] * 0.9 * SIDE**2):
                yield height, width


def _box_map(left: int, top: int, height: int, width: int, mirrored: bool) -> np.ndarray:
    """Returns the (2, 3) map of an output of 64x64 pixels onto a box of the photo."""
    x, y = width / SIDE, height / SIDE
    matrix = np.array([[x, 0, left + x / 2 - 0.5], [0, y, top + y / 2 - 0.5]])
    if mirrored:
        matrix[0] = [-x, 0, left + width - 0.5 - x / 2]
    return matrix


def _boxes(pixels: np.ndarray, matrix: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the boxes of whole pixels, each resized to 64x64, whose edges lie within a pixel of what a map covers."""
    (x, _, left), (_, y, top) = matrix.tolist()
    # The edges of the first and of the last output pixel, which are half a pixel from their centres.
    ranges = []
    for scale, at in ((y, top), (x, left)):
        edges = sorted((at - scale / 2 + 0.5, at + scale * (SIDE - 0.5) + 0.5))
        low, high = (min(max(round(edge), 0), SIDE) for edge in edges)
        ranges.append([(a, b) for a in _near(low) for b in _near(high) if a < b])
    for (first, last), (begin, end) in itertools.product(*ranges):
        box = cv2.resize(pixels[first:last, begin:end], (SIDE, SIDE), interpolation=cv2.INTER_AREA)
        yield cv2.flip(box, 1) if x < 0 else box


def _near(edge: int) -> list[int]:
    return [near for near in (edge - 1, edge, edge + 1) if 0 <= near <= SIDE]


def _align(image: np.ndarray, pixels: np.ndarray, start: np.ndarray, smooth: int) -> np.ndarray | None:
    """Returns the map under which `pixels` correlate best with the image; None where the search leads nowhere."""
    grey, other = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    # OpenCV's own annotations do not know that the mask may be left out.
    align: Any = cv2.findTransformECC
    try:
        _, aligned = align(grey, other, start.astype(np.float32), cv2.MOTION_AFFINE, _ALIGNED, None, smooth)
    except cv2.error:
        return None
    return np.asarray(aligned, np.float64)
