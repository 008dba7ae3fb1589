"""The three decoders that loaders use, each asked for its verdict on the same bytes.

JPEGs are decoded at an eighth of their size: the compressed data are read whole all the same, and that is what fails
or warns; only the arithmetic behind it is left out. A test holds both verdicts together, over every kind of bad file
and over thousands of damaged ones.
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

from pipeline.sources import FORMATS
from pipeline.text import shown

_JPEG_BEGIN = b"\xff\xd8\xff"
_SCALE = 8
# Of what a decoder says; a flood has the same line again and again.
_MOST_SAID_BYTES = 4096
# Said of whole images, and of no use to anybody: libpng on colour profiles, Pillow on palettes with transparency.
_CHATTER = re.compile(r"iCCP|sRGB|cHRM|gAMA|Palette images with Transparency")
# In front of a line that TensorFlow logs: level, date, time, thread, place. In front of one of OpenCV's: level, time,
# place, function; behind it: where in its code that was.
_LOGGED = re.compile(
    r"^[IWEF]\d{4} [\d:.]+ +\d+ [\w.]+:\d+\] |^\[ *[A-Z]+:\d+@[\d.]+\] global \S+ \S+ (?:\w+\(''\): )?|: OpenCV\(.*$"
)


class DecodeError(Exception):
    """A decoder refuses an image; the message says why, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a decoder made of an image.

    Attributes:
      error: why it refused it, or None.
      warnings: what it said of an image that it did decode, one line each.
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
    except Exception as error:  # Pillow's readers raise what they come upon in somebody else's bytes
        raise DecodeError(_first_line(re.sub(r" <_io.*?>", "", str(error))) or type(error).__name__) from error


def opencv(encoded: bytes, scaled: bool) -> Any:
    """Decodes as the `py_dataset` loader does, and `tf_data` where it resamples once."""
    import cv2

    # OpenCV 4.10 cannot turn blue, green, red around while it decodes: the pixels that nobody looks at here stay so.
    flags = getattr(cv2, "IMREAD_COLOR_RGB", cv2.IMREAD_COLOR) | cv2.IMREAD_IGNORE_ORIENTATION
    if scaled and encoded.startswith(_JPEG_BEGIN):
        flags |= 64  # at 1/8; cv2 names it for blue, green, red only
    try:
        image: Any = cv2.imdecode(np.frombuffer(encoded, np.uint8), flags)
    except cv2.error as error:
        raise DecodeError(_first_line(error.err or str(error))) from error
    if image is None:
        raise DecodeError("no image")
    return image


DECODERS: dict[str, Callable[[bytes, bool], Any]] = {"TensorFlow": tensorflow, "Pillow": pillow, "OpenCV": opencv}


def judge(name: str, encoded: bytes, *, scaled: bool = True) -> Verdict:
    """Asks one decoder, and hears what it says by Python's warnings and by C's standard error.

    That must be a file, opened to append: it is emptied before. If the decoder takes the process with it, the file
    holds the decoder's name in its first line, and behind it what it said last; it is empty when a decoder is done.

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
    said = heard(begin) + [_first_line(str(one.message)) for one in caught]
    os.ftruncate(2, 0)
    if error is not None:
        return Verdict(error=shown("; ".join(dict.fromkeys([error, *said[:1]]))))
    return Verdict(warnings=tuple(shown(line) for line in dict.fromkeys(said) if not _CHATTER.search(line)))


def heard(begin: int) -> list[str]:
    """Returns the lines that were written to standard error behind `begin`."""
    if os.fstat(2).st_size == begin:
        return []
    with open("/dev/fd/2", "rb") as file:
        file.seek(begin)
        text = file.read(_MOST_SAID_BYTES).decode("utf-8", "replace")
    return [_LOGGED.sub("", line).strip() for line in text.splitlines() if line.strip()]


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0].strip().rstrip(".")[:200]
