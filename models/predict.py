"""Classifies pictures with a trained model.

Pictures are read as training reads photos: three channels of 8 bits, EXIF orientation ignored.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unstall.models.opening import ModelError
from unstall.models.saved import Finished, check_file, open_finished

# Larger pictures are refused before decoding: 50 megapixels are 600 MB as float32. `pipeline.sources.headers` has the
# same limit; a test compares the two.
MAX_PIXELS = 50_000_000
# Pillow runs Ghostscript for these formats: too risky for pictures from anywhere.
_FORMATS_OF_OTHER_PROGRAMS = {"EPS"}


class PictureError(ValueError):
    """A picture that cannot be read; the message says why."""


def read_picture(path: str) -> NDArray[np.uint8]:
    """Returns (height, width, 3) uint8: the first frame, without alpha, as the file holds it.

    Raises:
      PictureError: if the file is not regular, not a picture, broken, or has more than `MAX_PIXELS`.
    """
    if not os.path.isfile(path):
        raise PictureError("not a regular file" if os.path.exists(path) else "does not exist")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about large pictures, which are refused below, and odd metadata
            with Image.open(path, formats=_formats()) as picture:
                width, height = picture.size
                if width * height > MAX_PIXELS:
                    raise PictureError(
                        f"{width}x{height} pixels, over the limit of {MAX_PIXELS // 10**6} megapixels; make it smaller"
                    )
                return _pixels(picture)
    except PictureError:
        raise
    except OSError as error:
        raise PictureError(f"cannot be read: {error.strerror}" if error.errno else _reason(error)) from error
    # Pillow's readers raise many types; each means that the file is broken.
    except Exception as error:
        raise PictureError(f"not a readable picture: {error}") from error


def _reason(error: OSError) -> str:
    return "not a picture" if isinstance(error, Image.UnidentifiedImageError) else f"not a readable picture: {error}"


def _pixels(picture: Image.Image) -> NDArray[np.uint8]:
    if picture.mode.startswith("I;16"):
        # Take the high byte, as TensorFlow and OpenCV do. Pillow's conversion makes every level above 255 white.
        grey = (np.asarray(picture) >> 8).astype(np.uint8)
        return np.repeat(grey[:, :, np.newaxis], 3, axis=2)
    return np.asarray(picture.convert("RGB"))


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in Image.ID if name not in _FORMATS_OF_OTHER_PROGRAMS)


def import_keras() -> None:
    """Imports Keras and makes its backend look for devices. What they write to stderr is shown only if this fails."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), 2)
        try:
            import keras

            keras.ops.zeros(())
        except BaseException:
            captured.seek(0)
            os.write(stderr, captured.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified:
    """A picture, and the probability of each class.

    Attributes:
      picture: the path, as given.
      probabilities: by name of the class; they sum to 1.
    """

    picture: str
    probabilities: dict[str, float]

    @property
    def class_name(self) -> str:
        """The most probable class; the first of several that are equally probable."""
        return max(self.probabilities, key=lambda name: self.probabilities[name])

    @property
    def probability(self) -> float:
        return self.probabilities[self.class_name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unclassified:
    """A picture that could not be classified, and why."""

    picture: str
    error: str


def run(arguments: argparse.Namespace) -> int:
    """Classifies the pictures that a command line names. Returns the exit code."""
    try:
        check_file(arguments.model)
        import_keras()
        finished = open_finished(arguments.model)
    except ModelError as error:
        print(printable(str(error)), file=sys.stderr)
        return 2
    results = []
    width = max(len(printable(picture)) for picture in arguments.pictures)
    for result in classify(finished, arguments.pictures):
        results.append(result)
        if arguments.json:
            continue
        name = printable(result.picture)
        if isinstance(result, Classified):
            print(f"{name:<{width}}  {printable(result.class_name)}  {result.probability:.1%}", flush=True)
        else:
            print(f"{name}: {printable(result.error)}.", file=sys.stderr, flush=True)
    if arguments.json:
        print(json.dumps([_to_dict(result) for result in results], indent=1))
    return 1 if any(isinstance(result, Unclassified) for result in results) else 0


def classify(finished: Finished, pictures: Sequence[str]) -> Iterator[Classified | Unclassified]:
    """Yields a result for each picture, in order.

    Args:
      finished: the model and its class names.
      pictures: paths.
    """
    for picture in pictures:
        try:
            pixels = read_picture(picture)
        except PictureError as error:
            yield Unclassified(picture=picture, error=" ".join(str(error).split()).rstrip("."))
            continue
        # Not `model.predict`, which traces the model, and compiles it with XLA, for every picture size anew.
        outputs = np.asarray(finished.model(pixels[np.newaxis], training=False), np.float64)[0]
        probabilities = probabilities_of(outputs)
        if probabilities is None:
            yield Unclassified(picture=picture, error="the model gives no probabilities for it")
        else:
            yield Classified(
                picture=picture, probabilities=dict(zip(finished.class_names, probabilities.tolist(), strict=True))
            )


def probabilities_of(outputs: np.ndarray) -> np.ndarray | None:
    """Returns the probability of each class, shape (classes,); None if the outputs are not probabilities.

    Args:
      outputs: (1,), the probability of the second of two classes; or (classes,), which are divided by their sum as the
        loss does, since a network may end in sigmoids.
    """
    if not np.all((outputs >= 0) & (outputs <= 1)):  # NaN fails, too
        return None
    if outputs.shape == (1,):
        return np.array([1 - outputs[0], outputs[0]])
    return outputs / outputs.sum() if outputs.any() else None


def _to_dict(result: Classified | Unclassified) -> dict[str, object]:
    if isinstance(result, Unclassified):
        return {"picture": result.picture, "error": result.error}
    return {
        "picture": result.picture,
        "class": result.class_name,
        "probability": result.probability,
        "probabilities": result.probabilities,
    }


def printable(text: str) -> str:
    """Returns a text that is safe to print: what is not printable UTF-8 is escaped."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
