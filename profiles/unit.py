"""What the batches of a training hold, in words: images, or samples of any other kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

# The ranks and channels by which a batch is taken for images: gray, RGB, RGB with transparency.
_RANK, _CHANNELS = 4, (1, 3, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What a batch holds several of. A loader's work and a training's speed are given for each of them.

    Attributes:
      noun: "image", or "sample" for any other data.
      files: from how many files the loader makes one, as the user says.
    """

    noun: Literal["image", "sample"] = "image"
    files: int = 1

    def __post_init__(self) -> None:
        if self.files < 1 or (self.files > 1 and self.noun == "image"):
            raise ValueError(
                "A unit is made of at least one file, and an image of one. "
                f"Received: noun={self.noun!r}, files={self.files}."
            )

    def of_files(self, files: int) -> Unit:
        """Returns the unit that is made of so many files; of several files, it is a sample."""
        return Unit(noun=self.noun if files == 1 else "sample", files=files)

    @property
    def plural(self) -> str:
        return f"{self.noun}s"

    @property
    def rate(self) -> str:
        """The head of a narrow column: "img/s"."""
        return "img/s" if self.noun == "image" else "samples/s"

    @property
    def with_files(self) -> str:
        """The noun with the number of files, where there are several: "sample (2 files)"."""
        return self.noun if self.files == 1 else f"{self.noun} ({self.files} files)"

    @property
    def article(self) -> str:
        return "an" if self.noun == "image" else "a"


IMAGE = Unit()
SAMPLE = Unit(noun="sample")


def unit_of(inputs: Any, *, channels_axis: int) -> Unit:
    """Returns what a batch holds: images if one of its inputs has four axes, one of them for 1, 3 or 4 channels.

    Args:
      inputs: of a batch, without labels: an array, a tensor, a `TensorSpec`, or several in lists and mappings.
      channels_axis: the axis of the channels, by the convention of the framework: -1 or 1.
    """
    return IMAGE if any(_is_image(shape, channels_axis) for shape in _shapes(inputs)) else SAMPLE


def pixels_in(inputs: Any, *, channels_axis: int) -> int | None:
    """Returns the pixels of an image of a batch, as `unit_of` finds it; None where the batch holds no images."""
    image = next((shape for shape in _shapes(inputs) if _is_image(shape, channels_axis)), None)
    if image is None:
        return None
    height, width = [size for axis, size in enumerate(image) if axis not in (0, channels_axis % _RANK)]
    return None if height is None or width is None else height * width


def common_unit(units: Iterable[Unit]) -> Unit:
    """Returns the unit for the head of a table that has rows of these units."""
    different = set(units)
    return different.pop() if len(different) == 1 else SAMPLE


def _is_image(shape: Sequence[int | None], channels_axis: int) -> bool:
    return len(shape) == _RANK and shape[channels_axis] in _CHANNELS


def _shapes(inputs: Any) -> list[tuple[int | None, ...]]:
    """Returns the shapes of all arrays; leaves out what has no shape, or one of an unknown rank."""
    if isinstance(inputs, Mapping):
        inputs = list(inputs.values())
    if isinstance(inputs, (list, tuple)):
        return [shape for part in inputs for shape in _shapes(part)]
    try:
        return [tuple(inputs.shape)]
    except (AttributeError, TypeError, ValueError):  # a `TensorShape` of unknown rank cannot be iterated over
        return []


def images_in(batch: Any) -> int | None:
    """Returns the length of the first tensor of a batch, or of its first list of texts or numbers; None without one."""
    try:
        listed: int | None = None
        while isinstance(batch, Mapping | tuple | list):
            listed = None if isinstance(batch, Mapping) else len(batch)
            batch = next(iter(batch.values() if isinstance(batch, Mapping) else batch), None)
        return listed if isinstance(batch, str | bytes | int | float) else int(batch.shape[0])
    except Exception:  # a batch can be any object of the script, and its attributes can run any code
        return None
