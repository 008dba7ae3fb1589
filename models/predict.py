"""Classifies pictures with a trained model.

python -m models predict FILE.keras PICTURE ...

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
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from models.opening import ModelError
from models.saved import Finished, check_file, open_finished

# Refused before decoding: 50 megapixels are 600 MB as float32. The limit of `pipeline.sources.folder`; a test
# compares them.
MAX_PIXELS = 50_000_000
# Pillow hands these to another program, Ghostscript, which a picture from anywhere had better not reach.
_OTHER_PROGRAMS = {"EPS"}


class PictureError(ValueError):
    """A picture that cannot be read; the message says why."""


def read_picture(path: str) -> NDArray[np.uint8]:
    """Returns (height, width, 3) uint8: the first frame, without alpha, as the file holds it.

    Raises:
      PictureError: if it is no regular file, no picture, broken, or larger than `MAX_PIXELS`.
    """
    if not os.path.isfile(path):
        raise PictureError("not a regular file" if os.path.exists(path) else "does not exist")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large pictures, which are refused below, and of odd metadata
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
    # Each format's reader raises its own kinds; all mean that the file is broken.
    except Exception as error:
        raise PictureError(f"not a readable picture: {error}") from error


def _reason(error: OSError) -> str:
    return "not a picture" if isinstance(error, Image.UnidentifiedImageError) else f"not a readable picture: {error}"


def _pixels(picture: Image.Image) -> NDArray[np.uint8]:
    if picture.mode.startswith("I;16"):
        # The high byte, as TensorFlow and OpenCV decode 16 bits; Pillow would make white of all above 255.
        grey = (np.asarray(picture) >> 8).astype(np.uint8)
        return np.repeat(grey[:, :, np.newaxis], 3, axis=2)
    return np.asarray(picture.convert("RGB"))


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in Image.ID if name not in _OTHER_PROGRAMS)


def import_keras() -> None:
    """Imports Keras, and has its backend look for devices; what it writes is shown only if that fails."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            import keras

            keras.ops.zeros(())
        except BaseException:
            said.seek(0)
            os.write(stderr, said.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified:
    """What a model says of a picture.

    Attributes:
      picture: its path, as given.
      probabilities: of each class, by name; together 1.
    """

    picture: str
    probabilities: dict[str, float]

    @property
    def class_name(self) -> str:
        """The most probable one; of two that are equal, the first."""
        return max(self.probabilities, key=lambda name: self.probabilities[name])

    @property
    def probability(self) -> float:
        return self.probabilities[self.class_name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unclassified:
    """A picture that the model could not be asked about, and why."""

    picture: str
    error: str


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0; 1 if a picture could not be classified; 2 if the model cannot be used."""
    arguments = _parser().parse_args(argv)
    try:
        check_file(arguments.model)
        import_keras()
        finished = open_finished(arguments.model)
    except ModelError as error:
        print(shown(str(error)), file=sys.stderr)
        return 2
    found = []
    width = max(len(shown(picture)) for picture in arguments.pictures)
    for one in classify(finished, arguments.pictures):
        found.append(one)
        if arguments.json:
            continue
        if isinstance(one, Classified):
            print(f"{shown(one.picture):<{width}}  {shown(one.class_name)}  {one.probability:.1%}", flush=True)
        else:
            print(f"{shown(one.picture)}: {shown(one.error)}.", file=sys.stderr, flush=True)
    if arguments.json:
        print(json.dumps([_to_dict(one) for one in found], indent=1))
    return 1 if any(isinstance(one, Unclassified) for one in found) else 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        super().error(shown(message))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m models predict",
        description="Says of each picture its class and how probable that is. The model's file holds how pictures are "
        "prepared: they are given as they are.",
        epilog="Exit codes: 0 all classified; 1 some were not, each with its reason on stderr; 2 the model cannot be "
        "used.",
    )
    parser.add_argument("model", metavar="FILE.keras", help="what `python -m benchmarks.train` wrote")
    parser.add_argument("pictures", nargs="+", metavar="PICTURE", help="of any format that Pillow reads")
    parser.add_argument("--json", action="store_true", help="prints a list of objects, with every class's probability")
    return parser


def classify(finished: Finished, pictures: Sequence[str]) -> Iterator[Classified | Unclassified]:
    """Yields what a model says of each picture, in their order.

    Args:
      pictures: paths.
    """
    for picture in pictures:
        try:
            pixels = read_picture(picture)
        except PictureError as error:
            yield Unclassified(picture=picture, error=" ".join(str(error).split()).rstrip("."))
            continue
        # Called and not `predict`: that would be traced, and by XLA compiled, for the size of every picture anew.
        outputs = np.asarray(finished.model(pixels[np.newaxis], training=False), np.float64)[0]
        probabilities = probabilities_of(outputs)
        if probabilities is None:
            yield Unclassified(picture=picture, error="the model gives no probabilities for it")
        else:
            yield Classified(
                picture=picture, probabilities=dict(zip(finished.class_names, probabilities.tolist(), strict=True))
            )


def probabilities_of(outputs: np.ndarray) -> np.ndarray | None:
    """Returns the probability of each class, (classes,), or None where the outputs are none.

    Args:
      outputs: (1,), the probability of the second of two classes; or (classes,), of which the sum is made 1, as the
        loss does: a network can end in sigmoids.
    """
    if not np.all((outputs >= 0) & (outputs <= 1)):  # nor is a number that is none
        return None
    if outputs.shape == (1,):
        return np.array([1 - outputs[0], outputs[0]])
    return outputs / outputs.sum() if outputs.any() else None


def _to_dict(one: Classified | Unclassified) -> dict[str, object]:
    if isinstance(one, Unclassified):
        return {"picture": one.picture, "error": one.error}
    return {
        "picture": one.picture,
        "class": one.class_name,
        "probability": one.probability,
        "probabilities": one.probabilities,
    }


def shown(path: str) -> str:
    """Returns a path that is safe to print: what is not printable UTF-8 is escaped."""
    text = path.encode("utf-8", "backslashreplace").decode()
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
