"""The three decoders that loaders use, and what each says about the bytes of an image.

JPEGs are decoded at an eighth of their size, which is faster: errors and warnings come from reading the compressed
data, and these are still read whole. A test checks that decoding at full size gives the same verdicts, over every kind
of bad file and over thousands of damaged ones.
"""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from unstall.pipeline.sources import FORMATS
from unstall.text import printable

_JPEG_BEGIN = b"\xff\xd8\xff"
_SCALE = 8
# The part of a decoder's log that is read: a longer log repeats the same line.
_MOST_LOG_BYTES = 4096
# Warnings about sound images, which are left out: libpng's on colour profiles, Pillow's on palettes with transparency.
_HARMLESS = re.compile(r"iCCP|sRGB|cHRM|gAMA|Palette images with Transparency")
# What is cut from logged lines. TensorFlow begins a line with level, date, time, thread and place in its code; OpenCV
# begins it with level, time, place and function, and ends it with the place in its code.
_LOG_MARKS = re.compile(
    r"^[IWEF]\d{4} [\d:.]+ +\d+ [\w.]+:\d+\] |^\[ *[A-Z]+:\d+@[\d.]+\] global \S+ \S+ (?:\w+\(''\): )?|: OpenCV\(.*$"
)


class DecodeError(Exception):
    """A decoder refuses an image; the message says why, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a decoder accepts an image.

    Attributes:
      error: why the decoder refuses the image; None if it decodes it.
      warnings: what the decoder logged about an image that it decoded, one line each.
    """

    error: str | None = None
    warnings: tuple[str, ...] = ()


def tensorflow(encoded: bytes, scaled: bool) -> Any:
    """Decodes as the `tf_data` and `image_dataset_from_directory` loaders do."""
    import tensorflow as tf

    try:
        with tf.device("/CPU:0"):
            if encoded.startswith(_JPEG_BEGIN):
                return tf.io.decode_jpeg(encoded, channels=3, ratio=_SCALE if scaled else 1)
            return tf.io.decode_image(encoded, channels=3, expand_animations=False)
    except tf.errors.OpError as error:
        message = re.sub(r"\{\{.*?\}\}|\[Op:\w+\].*", "", error.message, flags=re.DOTALL)
        raise DecodeError(_first_line(message)) from error


def pillow(encoded: bytes, scaled: bool) -> Any:
    """Decodes as Keras' `load_img` does, for the `image_data_generator` loader."""
    try:
        with Image.open(io.BytesIO(encoded), formats=tuple(FORMATS)) as image:
            if scaled:
                image.draft("RGB", (max(1, image.width // _SCALE), max(1, image.height // _SCALE)))
            return image.convert("RGB")
    except Exception as error:  # on damaged bytes Pillow's readers raise exceptions of any class
        raise DecodeError(_first_line(re.sub(r" <_io.*?>", "", str(error))) or type(error).__name__) from error


def opencv(encoded: bytes, scaled: bool) -> Any:
    """Decodes as the `py_dataset` loader does, and `tf_data` where it resamples once."""
    import cv2

    # OpenCV 4.10 decodes to blue, green, red only. The order does not matter here, since the pixels are not used.
    flags = getattr(cv2, "IMREAD_COLOR_RGB", cv2.IMREAD_COLOR) | cv2.IMREAD_IGNORE_ORIENTATION
    if scaled and encoded.startswith(_JPEG_BEGIN):
        flags |= 64  # decode at 1/8 of the size; cv2 has a name for this flag with blue, green, red only
    try:
        image: Any = cv2.imdecode(np.frombuffer(encoded, np.uint8), flags)
    except cv2.error as error:
        raise DecodeError(_first_line(error.err or str(error))) from error
    if image is None:
        raise DecodeError("no image")
    return image


DECODERS: dict[str, Callable[[bytes, bool], Any]] = {"TensorFlow": tensorflow, "Pillow": pillow, "OpenCV": opencv}


def judge(name: str, encoded: bytes, *, scaled: bool = True) -> Verdict:
    """Decodes an image with one decoder, and collects its Python warnings and what it writes to standard error.

    Standard error must be a file that is opened for appending. It is emptied before and after. If the decoder crashes
    the process, the file keeps the decoder's name in its first line, and in the next lines what the decoder wrote.

    Args:
      name: a key of `DECODERS`.
      encoded: an image file's bytes.
      scaled: whether a JPEG is decoded at an eighth of its size.
    """
    os.ftruncate(2, 0)
    begin = os.write(2, f"{name}\n".encode())
    error = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            DECODERS[name](encoded, scaled)
        except DecodeError as refusal:
            error = str(refusal)
    lines = logged_since(begin) + [_first_line(str(warning.message)) for warning in caught]
    os.ftruncate(2, 0)
    if error is not None:
        return Verdict(error=printable("; ".join(dict.fromkeys([error, *lines[:1]]))))
    return Verdict(warnings=tuple(printable(line) for line in dict.fromkeys(lines) if not _HARMLESS.search(line)))


def logged_since(begin: int) -> list[str]:
    """Returns the lines of standard error, a file, from the byte `begin` on."""
    if os.fstat(2).st_size == begin:
        return []
    with open("/dev/fd/2", "rb") as file:
        file.seek(begin)
        text = file.read(_MOST_LOG_BYTES).decode("utf-8", "replace")
    return [_LOG_MARKS.sub("", line).strip() for line in text.splitlines() if line.strip()]


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0].strip().rstrip(".")[:200]
