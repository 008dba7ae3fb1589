"""What a measurement leaves behind: raw samples, one a window."""

from __future__ import annotations

from dataclasses import dataclass

# The train function of each window does: `resident` one batch on the device, over and over; `bare` the same on the
# model without the layers that a loader put in front; `replay` real batches from host memory; `train` fetch, then
# step; `cold` is one epoch of `train` whose files are not in the page cache; `loader` fetch and nothing else; `warmup`
# is a first `train`, and `again` one of rounds that had no say in what is fastest.
WINDOWS = ("bare", "resident", "replay", "train", "cold", "loader", "warmup", "again")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One window of one subject in one round.

    Attributes:
      window: one of `WINDOWS`.
      round: counts from 0.
      images: images in steady steps.
      wall_ns: from the first steady step to the end of the last, the device synchronised at both, over all epochs.
      wait_ns: of that, inside `next(iterator)`.
      step_ns: each steady step, wait included, as the host saw it.
      epochs: epochs in the window.
      epoch_images: images in all steps of all epochs.
      epoch_ns: from "epoch begins" to "iterator gone", over all epochs.
      first_batch_ns: of each epoch, from its beginning to its first batch.
      outer_ns: one clock around the whole `fit`; around the epoch, where a script's own `fit` was watched.
      claimed_ns: set-up, edges and steps, each timed by itself: what `outer_ns` ought to be. None: they were not.
      cpu_ns: CPU time of this process and its children over the epochs.
      canary_ns: the canary loop, right before the window.
      others_ratio: what other programs took of the cores' time; None where it is not known.
      whole: whether every epoch came to its end. Of one that was left before it, the edges are unknown.
    """

    window: str
    round: int
    images: int
    wall_ns: int
    wait_ns: int
    step_ns: tuple[int, ...]
    epochs: int
    epoch_images: int
    epoch_ns: int
    first_batch_ns: tuple[int, ...]
    outer_ns: int
    claimed_ns: int | None
    cpu_ns: int
    canary_ns: int
    others_ratio: float | None = None
    whole: bool = True

    def __post_init__(self) -> None:
        if self.window not in WINDOWS:
            raise ValueError(f"`window` must be one of {', '.join(WINDOWS)}. Received: window={self.window!r}.")
        if self.images < 1 or self.wall_ns < 1:
            raise ValueError(
                "A sample needs at least one image and one nanosecond. "
                f"Received: images={self.images}, wall_ns={self.wall_ns}."
            )

    @property
    def s_per_image(self) -> float:
        return self.wall_ns / self.images / 1e9

    @property
    def wait_s_per_image(self) -> float:
        return self.wait_ns / self.images / 1e9

    @property
    def epoch_s_per_image(self) -> float:
        return self.epoch_ns / self.epoch_images / 1e9

    def whole_s_per_image(self, images: int | None = None) -> float:
        """Returns the time of an image in a whole epoch: a steady one's, and its part of the epoch's edges.

        Args:
          images: of an epoch in use, over which the edges are spread; those of the measured epoch unless given.
        Returns:
          Seconds; those of a steady image where no edges are known, of an epoch that was left before its end.
        """
        if not self.whole:
            return self.s_per_image
        measured_images = self.epoch_images / self.epochs
        edges_s = (self.epoch_s_per_image - self.s_per_image) * measured_images
        # Edges that came out below nothing, by noise, are not spread over fewer images than were measured.
        spread_over = max(images or 0, measured_images) if edges_s < 0 else images or measured_images
        return self.s_per_image + edges_s / spread_over

    @property
    def cpu_s_per_image(self) -> float:
        return self.cpu_ns / self.epoch_images / 1e9

    @property
    def unclaimed_ratio(self) -> float | None:
        """Part of the outer clock that no step and no edge accounts for; None where that was not timed."""
        if self.claimed_ns is None:
            return None
        return 1 - self.claimed_ns / self.outer_ns
