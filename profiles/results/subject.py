"""The subject of a measurement: all that is known of a pipeline, its model and its device, apart from the samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from unstall.profiles.code_line import CodeLine
from unstall.profiles.devices import Device
from unstall.profiles.machine.page_cache import StorageRates
from unstall.profiles.results.facts import Facts
from unstall.profiles.results.flags import Flag
from unstall.profiles.unit import IMAGE, Unit

# The names of the windows that a row of the report is derived from, by the page cache of that row. With a cold page
# cache only training is measured; the windows of the model alone and the warm `train` are used for both rows.
WINDOWS_OF = {
    "warm": ("bare", "resident", "replay", "train", "loader", "warmup", "again"),
    "cold": ("bare", "resident", "replay", "train", "cold"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One pipeline that trains one model on one device.

    Attributes:
      variant, model: names.
      device: the device that trained.
      batch_size: images a batch.
      config: the variant's description, as JSON holds it.
      facts: what is known of its data and its training; "training" in files.
      work: how its images differ from fully decoded, bilinearly resized and augmented ones.
      images: images of an epoch of the user's training.
      buffered_batches: batches that the loader's queues and buffers hold.
      notes: facts that a reader of the results must know, and that are no failures.
      doubts: reasons to doubt the results that cannot be seen in the samples.
      page_cache: "warm", or "cold" for a row in which no epoch finds a file in the page cache.
      storage: how fast the files of a cold row are read.
      cores: how many the run may use; None where unknown.
      frozen_by_cache: random operations in front of a cache, which repeats their first draws in every epoch.
      decoded_pixels, wanted_pixels: pixels of a mean image as it is decoded in every epoch, and as the model takes it.
      unit: what its batches hold: images, or samples of other data. All "images" in the names of figures are these.
      place: the line of a script where it trains; None outside of scripts.
    """

    variant: str
    model: str
    device: Device
    batch_size: int
    config: Mapping[str, Any] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts, metadata={"key": "training"})
    work: tuple[str, ...] = ()
    images: int | None = None
    buffered_batches: int = 0
    notes: tuple[str, ...] = ()
    doubts: tuple[Flag, ...] = ()
    page_cache: str = "warm"
    storage: StorageRates | None = None
    cores: float | None = None
    frozen_by_cache: tuple[str, ...] = ()
    decoded_pixels: float | None = None
    wanted_pixels: float | None = None
    unit: Unit = IMAGE  # as in files that were written before there was a unit
    place: CodeLine | None = None

    def __post_init__(self) -> None:
        if self.page_cache not in WINDOWS_OF:
            raise ValueError(
                f"`page_cache` must be one of {', '.join(WINDOWS_OF)}. Received: page_cache={self.page_cache!r}."
            )

    @property
    def label(self) -> str:
        """The variant's name, with "cold" where the row is of a cold page cache."""
        return f"{self.variant}, cold" if self.page_cache == "cold" else self.variant

    @property
    def label_without_place(self) -> str:
        """The label without the line of a script: "fit 1" of "fit 1 (train.py:42)"."""
        return self.label if self.place is None else self.label.removesuffix(f" ({self.place})")

    @property
    def explained(self) -> str:
        """The name of the window of training that the row explains."""
        return "cold" if self.page_cache == "cold" else "train"
