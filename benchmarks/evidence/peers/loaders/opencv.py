"""Reads, decodes and augments single images with OpenCV, for loaders that leave these steps to another library."""

from __future__ import annotations

import cv2
import numpy as np

from unstall.benchmarks.evidence.peers.loaders.work import FLIP_PROBABILITY, SIDE, draw_affine, draw_crop

# OpenCV's flag for decoding a JPEG at a fraction of its size, by the divisor.
REDUCED = {
    1: cv2.IMREAD_COLOR,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}


def load(path: str) -> np.ndarray:
    """Reads a file to (64, 64, 3) uint8 RGB, decoded at its full size."""
    image = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    if image is None:
        raise ValueError(f"{path} cannot be decoded by OpenCV.")
    image = cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


def scaled_ratio(height: int, width: int) -> int:
    """Returns the largest of 8, 4, 2, 1 that, as a divisor, leaves both sides at least as long as the output's."""
    least = min(height, width)
    return next((ratio for ratio in (8, 4, 2) if -(-least // ratio) >= SIDE), 1)


def augment(image: np.ndarray, random: np.random.Generator, out: np.ndarray | None = None) -> np.ndarray:
    """Applies a newly drawn shear, zoom and flip to a (64, 64, 3) image."""
    return cv2.warpAffine(
        image,
        np.array(draw_affine(random)),
        (SIDE, SIDE),
        dst=out,
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_REPLICATE,
    )


def crop(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Returns a newly drawn random resized crop of a (64, 64, 3) image, flipped or not."""
    top, left, height, width = draw_crop(random)
    cropped = cv2.resize(image[top : top + height, left : left + width], (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
    return cv2.flip(cropped, 1) if random.random() < FLIP_PROBABILITY else cropped
