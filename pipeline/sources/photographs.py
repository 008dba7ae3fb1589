"""Draws synthetic photographs that cost as much to read and decode as real ones.

Sizes, bits per pixel, JPEG settings and coefficient counts follow summary statistics of 2,000 photographs of cats and
dogs; no pixel comes from them. Every constant without another source was measured on those 2,000.
"""

from __future__ import annotations

import functools
import io
import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

VERSION = 1  # Of the pixels; part of the name of a folder of photographs.
CLASS_NAMES = ("discs", "stripes")

_QUALITY = 70  # The quantisation tables of all 2,000 are libjpeg's at quality 70, with its default Huffman tables.
_HEADER_BYTES = 623  # Markers and tables before the coefficients, the same in every one of them.

# 21 quantiles each, from 0 to 1 in steps of 0.05.
_QUANTILES = np.linspace(0.0, 1.0, 21)
_LONG_SIDE_PX = (59, 208, 276, 301, 335, 360, 399, 433, 467, 499, 499, 499, 499, 499, 499, 500, 500, 500, 500, 500, 500)
_SHORT_TO_LONG = (0.169, 0.621, 0.664, 0.675, 0.717, 0.746, 0.748, 0.748, 0.748, 0.752, 0.752,
                  0.752, 0.753, 0.786, 0.816, 0.854, 0.883, 0.915, 0.952, 0.982, 1.0)  # fmt: skip
_LANDSCAPE_RATIO = 0.69
# log(coefficient bits per pixel) = slope * log(pixels) + intercept + residual, fitted by least squares.
_LOG_BITS_SLOPE, _LOG_BITS_INTERCEPT = -0.1455, 1.8645
_LOG_BITS_RESIDUAL = (-1.058, -0.453, -0.34, -0.27, -0.222, -0.185, -0.148, -0.115, -0.083, -0.053, -0.019,
                      0.013, 0.047, 0.077, 0.122, 0.179, 0.238, 0.299, 0.387, 0.523, 1.094)  # fmt: skip
# Additive recurrence with even coverage in 4 dimensions, so that a few hundred photographs already have the mean of
# all. Source: M. Roberts, "The Unreasonable Effectiveness of Quasirandom Sequences", phi_4.
_RECURRENCE = 1.1673039782614187 ** -np.arange(1.0, 5.0)

_TEXTURE_SIDE_PX = 1024
# Amplitude falls about as 1/f in photographs (Field, J. Opt. Soc. Am. A 4 (1987), 2379); 1.15 brings the share of
# nonzero coefficients at every frequency within 0.08 of the measured one.
_TEXTURE_EXPONENT = 1.15
_EDGE_PX = 2.5  # A lens spreads an edge over a few pixels.
# The largest lean of a stripe. With any angle, a tiny network reached only 0.75 accuracy in 3 epochs of 1,600.
_LEAN_RAD = 0.45
_ENCODES = 3
_BITS_TOLERANCE_RATIO = 0.03


def encode_photo(index: int, seed: int) -> bytes:
    """Makes one photograph: the same bytes for the same `index` and `seed`.

    Args:
      index: which photograph, from 0. Its class is `CLASS_NAMES[index % 2]`.
      seed: which series of photographs, from 0.
    Returns:
      A baseline JPEG, 4:2:0, at quality 70.
    Raises:
      ValueError: if `index` or `seed` is negative.
    """
    if index < 0 or seed < 0:
        raise ValueError(f"`index` and `seed` must be at least 0. Received: index={index}, seed={seed}.")
    rng = np.random.default_rng((seed, index))
    width, height, target_bits = _draw_size(index, seed)
    mask = (_disc_mask, _stripe_mask)[index % 2](rng, width, height)
    bits_per_px = target_bits / (width * height)
    luma, chroma = _paint(rng, mask, min(1.0, math.sqrt(bits_per_px)))
    detail = _detail(rng, width, height)

    # Bits grow about as a power of the detail's amplitude; 2 corrections bring nearly all within the tolerance.
    # The first guess and the power are a fit over 400 generated photographs.
    amplitude, power = 6.0 * bits_per_px**1.8, 0.6
    log_last: tuple[float, float] | None = None
    for _ in range(_ENCODES):
        encoded = _encode(luma + np.float32(amplitude) * detail, chroma)
        log_bits = math.log((len(encoded) - _HEADER_BYTES) * 8)
        missing = math.log(target_bits) - log_bits
        if abs(missing) < _BITS_TOLERANCE_RATIO:
            break
        if log_last and abs(log_last[0] - math.log(amplitude)) > 0.01:
            slope = (log_bits - log_last[1]) / (math.log(amplitude) - log_last[0])
            power = min(max(slope, 0.3), 1.2)
        log_last = (math.log(amplitude), log_bits)
        amplitude *= math.exp(min(max(missing / power, -2.5), 2.5))
    return encoded


def _draw_size(index: int, seed: int) -> tuple[int, int, float]:
    """Draws the width and height in pixels and the coefficient bits of one photograph."""
    start = np.random.default_rng(seed).random(4)
    shares = (start + (index + 1) * _RECURRENCE) % 1.0
    long_px = int(np.interp(shares[0], _QUANTILES, _LONG_SIDE_PX))
    short_px = max(round(long_px * float(np.interp(shares[1], _QUANTILES, _SHORT_TO_LONG))), 16)
    width, height = (long_px, short_px) if shares[2] < _LANDSCAPE_RATIO else (short_px, long_px)
    residual = float(np.interp(shares[3], _QUANTILES, _LOG_BITS_RESIDUAL))
    log_bits_per_px = _LOG_BITS_SLOPE * math.log(width * height) + _LOG_BITS_INTERCEPT + residual
    return width, height, width * height * math.exp(log_bits_per_px)


@functools.cache
def _texture() -> np.ndarray:
    """Makes the 1/f texture that every photograph's detail is cut from: float32, mean 0, deviation 1."""
    side = _TEXTURE_SIDE_PX
    white = np.random.default_rng(VERSION).standard_normal((side, side))
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None, :])
    # Below 1/32 cycles per pixel a texture is lighting, which `_paint` draws by itself.
    gain = np.maximum(frequency, 1 / 32) ** -_TEXTURE_EXPONENT * np.minimum(frequency * 32, 1.0)
    texture = np.fft.irfft2(np.fft.rfft2(white) * gain, s=(side, side))
    return (texture / texture.std()).astype(np.float32)


def _field(rng: np.random.Generator, width: int, height: int, cells: int) -> np.ndarray:
    """Draws a smooth field of deviation about 1, of at most `cells` cells a side: float32 (height, width)."""
    from PIL import Image

    cells = max(min(cells, min(width, height) // 8), 2)
    coarse = rng.standard_normal((cells, cells), dtype=np.float32)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def _detail(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    """Cuts a piece of texture and gives it sharp and blurred regions: float32 (height, width)."""
    top, left = rng.integers(0, _TEXTURE_SIDE_PX - np.array([height, width]) + 1)
    piece = _texture()[top : top + height, left : left + width]
    # The spread of nonzero coefficients over the blocks of one photograph (0.54 of their mean) sets 0.45 and 0.45.
    sharpness = np.float32(0.45) * _field(rng, width, height, 6) + np.float32(0.45) * _field(rng, width, height, 24)
    return piece * np.exp(sharpness)


def _rows_and_columns(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(height, dtype=np.float32)[:, None], np.arange(width, dtype=np.float32)[None, :]


def _soft_step(inside_px: np.ndarray) -> np.ndarray:
    return np.clip(inside_px / np.float32(_EDGE_PX) + np.float32(0.5), 0, 1)


def _disc_mask(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    """Draws round discs: float32 (height, width) in [0, 1]."""
    mask = np.zeros((height, width), np.float32)
    y, x = _rows_and_columns(height, width)
    for _ in range(rng.integers(9, 17)):
        radius = rng.uniform(0.05, 0.10) * math.sqrt(width * height)
        distance = np.hypot(x - np.float32(rng.uniform(0, width)), y - np.float32(rng.uniform(0, height)))
        np.maximum(mask, _soft_step(np.float32(radius) - distance), out=mask)
    return mask


def _stripe_mask(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    """Draws slightly wavy upright bars: float32 (height, width) in [0, 1]."""
    period = rng.uniform(0.11, 0.20) * math.sqrt(width * height)
    angle = rng.uniform(-_LEAN_RAD, _LEAN_RAD)
    y, x = _rows_and_columns(height, width)
    across = x * np.float32(math.cos(angle) / period) + y * np.float32(math.sin(angle) / period)
    across = across + np.float32(0.08) * _field(rng, width, height, 4) + np.float32(rng.random())
    from_middle = np.abs(across - np.floor(across) - np.float32(0.5))
    share = rng.uniform(0.35, 0.6)
    return _soft_step((np.float32(share / 2) - from_middle) * np.float32(period))


def _paint(
    rng: np.random.Generator, mask: np.ndarray, strength: float
) -> tuple[np.ndarray, tuple[Image.Image, Image.Image]]:
    """Colours the ground and the objects under uneven light.

    Both classes draw their colours alike, and objects are as often darker as brighter than the ground.

    Args:
      strength: factor of the contrasts; less for a photograph that must do with few bits.
    Returns:
      The luma, float32 (height, width), and the blue and red chroma as images.
    """
    height, width = mask.shape
    middle, contrast = rng.uniform(80, 150), strength * rng.uniform(60, 120) * rng.choice((-1, 1))
    light = np.float32(rng.uniform(15, 45)) * _field(rng, width, height, 3)
    luma = light + np.float32(middle - contrast / 2) + np.float32(contrast) * mask
    chroma = []
    for _ in range(2):
        ground, step = rng.normal(128, 9), rng.normal(0, 12)
        patches, spots = np.float32(strength) * rng.uniform((2, 1), (9, 5)).astype(np.float32)
        plane = patches * _field(rng, width, height, 8) + spots * _field(rng, width, height, 40) + np.float32(ground)
        chroma.append(_image(plane + np.float32(step) * mask))
    return luma, (chroma[0], chroma[1])


def _image(plane: np.ndarray) -> Image.Image:
    from PIL import Image

    return Image.fromarray(np.clip(plane + np.float32(0.5), 0, 255).astype(np.uint8))


def _encode(luma: np.ndarray, chroma: tuple[Image.Image, Image.Image]) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    photo = Image.merge("YCbCr", (_image(luma), *chroma))
    photo.save(buffer, "JPEG", quality=_QUALITY, subsampling="4:2:0", optimize=False, progressive=False)
    return buffer.getvalue()
