"""Who is measured: all that is known of a pipeline, its model and its device beside the samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from profiles.devices import Device
from profiles.machine.page_cache import StorageRates

# The windows that a row is derived from, by its page cache. Only training is measured with a cold one: beside it stand
# the model alone, and the warm `train` that it is compared with.
WINDOWS_OF = {
    "warm": ("bare", "resident", "replay", "train", "loader", "warmup", "again"),
    "cold": ("bare", "resident", "replay", "train", "cold"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One pipeline that trains one model on one device.

    Attributes:
      variant, model: names.
      device: what trained.
      batch_size: images a batch.
      config: the variant's description, as JSON holds it.
      training: loss, optimizer, `jit_compile`, workers asked for and seen.
      work: in what way its images differ from full decode, bilinear, augmented.
      images: images of an epoch in use.
      buffered_batches: batches that the loader's queues and buffers hold.
      notes: what a reader must know, that is no failure.
      doubts: what a reader must doubt, for a reason that no sample shows.
      page_cache: "warm", or "cold" for a row of its own, in which each epoch finds no file in the page cache.
      storage: how fast the files of a cold row are read.
      cores: that the run may use; None where that is not known.
      frozen_by_cache: random operations in front of a cache.
      decoded_pixels, wanted_pixels: of a mean image, as decoded in every epoch and as the model takes it.
    """

    variant: str
    model: str
    device: Device
    batch_size: int
    config: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    work: tuple[str, ...] = ()
    images: int | None = None
    buffered_batches: int = 0
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    page_cache: str = "warm"
    storage: StorageRates | None = None
    cores: float | None = None
    frozen_by_cache: tuple[str, ...] = ()
    decoded_pixels: float | None = None
    wanted_pixels: float | None = None

    def __post_init__(self) -> None:
        if self.page_cache not in WINDOWS_OF:
            raise ValueError(
                f"`page_cache` must be one of {', '.join(WINDOWS_OF)}. Received: page_cache={self.page_cache!r}."
            )

    @property
    def label(self) -> str:
        """The variant's name, as rows are told apart."""
        return f"{self.variant}, cold" if self.page_cache == "cold" else self.variant

    @property
    def explained(self) -> str:
        """The window that the row is about."""
        return "cold" if self.page_cache == "cold" else "train"
