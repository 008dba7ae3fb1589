"""Raw samples: the times that one window of a measurement recorded. All results are derived from samples."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.profiles.machine.strain import Strain

# What is repeated in each window:
#   resident  a training step on one batch that lies on the device
#   bare      as `resident`, on the model without the layers that a loader put in front of it
#   replay    a training step on real batches from host memory
#   train     fetching a batch, and a training step on it
#   cold      as `train`, for one epoch, while the page cache holds none of the files
#   loader    fetching a batch
#   warmup    as `train`, for the first epoch
#   again     as `train`, in rounds that were measured after the fastest variant had been chosen
WINDOWS = ("bare", "resident", "replay", "train", "cold", "loader", "warmup", "again")
# Of so many steps of a window both the wait and the rest are kept, in their order, for a timeline.
FIRST_STEPS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One window of one subject in one round. Steady steps are all but the first few of an epoch.

    Attributes:
      window: one of `WINDOWS`.
      round: number of the round, from 0.
      images: images in steady steps.
      wall_ns: from the first steady step to the end of the last, summed over the epochs: at both ends the device has
        finished the steps before.
      wait_ns: the part of `wall_ns` inside `next(iterator)`, in which a device behind the host may compute.
      step_ns: time of each steady step on the host, its wait included.
      first_steps_ns: (wait, rest) of the first steady steps, at most `FIRST_STEPS`, in their order.
      epochs: epochs in the window.
      epoch_images: images in all steps of all epochs.
      epoch_ns: from the beginning of an epoch until its iterator is gone, summed over the epochs.
      first_batch_ns: from the beginning of each epoch to its first batch.
      outer_ns: one clock around the whole `fit`, or around the epoch of a script's own `fit`.
      claimed_ns: sum of set-up, edges and steps, each timed separately. It should equal `outer_ns`. None where they
        were not timed.
      cpu_ns: CPU time of this process and its children during the epochs.
      canary_ns: time of `clock.canary_ns`, right before the window.
      others_ratio: share of the cores' time that other programs took; None where that is unknown.
      strain: on the machine during the epoch of a script's `fit`; None elsewhere.
      whole: whether every epoch ran to its end. Otherwise the epoch's edges are unknown.
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
    first_steps_ns: tuple[tuple[int, int], ...] = ()
    others_ratio: float | None = None
    whole: bool = True
    strain: Strain | None = None

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
        """Returns the time per image in a whole epoch: in a steady step, plus the image's part of the epoch's edges.

        Args:
          images: images of an epoch in real use, over which the edges are spread; None for those of the measured epoch.
        Returns:
          Seconds per image; without edges where an epoch did not run to its end.
        """
        if not self.whole:
            return self.s_per_image
        measured_images = self.epoch_images / self.epochs
        edges_s = (self.epoch_s_per_image - self.s_per_image) * measured_images
        # Noise can make the edges negative; fewer images than measured would multiply that noise.
        spread_over = max(images or 0, measured_images) if edges_s < 0 else images or measured_images
        return self.s_per_image + edges_s / spread_over

    @property
    def cpu_s_per_image(self) -> float:
        return self.cpu_ns / self.epoch_images / 1e9

    @property
    def unclaimed_ratio(self) -> float | None:
        """Part of `outer_ns` that no step and no edge accounts for; None where steps and edges were not timed."""
        if self.claimed_ns is None:
            return None
        return 1 - self.claimed_ns / self.outer_ns
