"""The record of an epoch, which is all that is kept of its steps, and the sample that a window of epochs comes to."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from unstall.profiles.machine.strain import Strain
from unstall.profiles.samples import Sample

# The last so many epochs of a run are kept: enough for any statistic, with bounded memory on long runs.
KEPT_EPOCHS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRecord:
    """The times of one epoch of a watched `fit` or loop, or of a window. None stands for unknown.

    Attributes:
      epoch: number of the epoch, from 0.
      steps, images: of the whole epoch.
      steady_steps, steady_images: without the first steps of the epoch and without steps that traced the model.
      steady_ns: wall time of the steady steps, and of Keras and callbacks between them.
      steady_wait_ns: part of `steady_ns` inside `next(iterator)` while the device had nothing to compute.
      between_ns: part of `steady_ns` between the steps.
      first_batch_ns: from the beginning of the epoch to the first batch.
      before_ns: from the beginning of the epoch to the call of the first step, without the hooks of callbacks.
      wall_ns: from the call of the first step to the end of the last step, without loops inside the steps.
      after_ns: from the end of the last step to the beginning of validation or the end of the epoch. The iterator is
        torn down in this time.
      traced_ns: part of `wall_ns`: what steps that traced and compiled took longer than steady steps.
      other_ns: from the end of `after_ns` to the end of the epoch, without `watch_ns`: validation. And loops inside the
        steps.
      watch_ns: what the watch took for readings at both ends of the epoch. No other field has it.
      cpu_ns: CPU time of this process and its workers in the epoch, without `other_ns`; 0 in a window, where it is read
        for all epochs together.
      step_ns: times of the steady steps in their order; of those of a watched epoch at most 256, drawn evenly, and last
        the time of the epoch's last step.
      first_steps_ns: (wait, rest) of the first calls of steady steps, in their order; see `Sample`.
      asynchronous: whether the times are those of a host that runs ahead of its device, so that the host's wait is not
        the device's wait. Only a loop of TensorFlow on a GPU is timed so.
      callbacks_ns: part of `between_ns` inside the batch hooks of callbacks; None where the hooks were not timed.
      all_waits_ns: part of `wall_ns` inside `next(iterator)`, of all steps; None if unknown.
      all_callbacks_ns: part of `wall_ns` inside the batch hooks of callbacks; 0 where the hooks were not timed.
      edge_callbacks_ns: inside hooks of callbacks before the first step and behind the last. No other field has it.
      claimed_ns: sum of edges, steps and batch hooks, each timed separately. It should equal `outer_ns`. None where the
        hooks were not timed.
      whole: whether the epoch ran to its end: False where an error or the user ended `fit` before.
      batch_size: images in the epoch's largest batch.
      others_ratio: part of the cores' time that other programs took during the epoch; None where unknown.
      strain: on the machine during the epoch; None where unknown.
    """

    epoch: int
    steps: int
    images: int | None
    steady_steps: int
    steady_images: int | None
    steady_ns: int
    steady_wait_ns: int | None
    between_ns: int
    first_batch_ns: int | None
    before_ns: int
    wall_ns: int
    after_ns: int
    traced_ns: int
    other_ns: int
    cpu_ns: int
    step_ns: tuple[int, ...]
    asynchronous: bool
    first_steps_ns: tuple[tuple[int, int], ...] = ()
    callbacks_ns: int | None = None
    claimed_ns: int | None = None
    whole: bool = True
    batch_size: int | None = None
    others_ratio: float | None = None
    strain: Strain | None = None
    all_waits_ns: int | None = None
    all_callbacks_ns: int = 0
    edge_callbacks_ns: int = 0
    watch_ns: int = 0

    @property
    def outer_ns(self) -> int:
        """The time of the epoch by one clock, with validation, without hooks before its first step and after its last.

        Each of the four summands begins where the previous one ends, but for `watch_ns` before the last and for loops
        inside the steps, so that the sum depends on the first and the last reading only.
        """
        return self.before_ns + self.wall_ns + self.after_ns + self.other_ns

    @property
    def steps_ns(self) -> int:
        """The part of `wall_ns` without waiting, tracing and callbacks; with the waiting where that is unknown."""
        return self.wall_ns - self.traced_ns - self.all_callbacks_ns - (self.all_waits_ns or 0)

    @property
    def images_per_sec(self) -> float | None:
        """Images per second in steady steps; None if unknown."""
        if not self.steady_images or not self.steady_ns:
            return None
        return self.steady_images / self.steady_ns * 1e9

    @property
    def step_s(self) -> float:
        """The mean seconds of a steady step without its wait, where that is known; there must be a steady step."""
        return (self.steady_ns - (self.steady_wait_ns or 0)) / self.steady_steps / 1e9

    @property
    def epoch_images_per_sec(self) -> float | None:
        """Images per second in the epoch with its edges, without tracing and validation; None if unknown."""
        return self.images / self.epoch_ns * 1e9 if self.images and self.epoch_ns else None

    @property
    def wait_ms_per_step(self) -> float | None:
        """The host's mean wait for a batch in steady steps, in milliseconds; None if unknown."""
        if self.steady_wait_ns is None or not self.steady_steps:
            return None
        return self.steady_wait_ns / self.steady_steps / 1e6

    @property
    def epoch_ns(self) -> int:
        """The time of the epoch's steps and edges, without tracing and validation."""
        return self.before_ns + self.wall_ns - self.traced_ns + self.after_ns

    @property
    def loading_ratio(self) -> float | None:
        """Part of the epoch in which nothing was computed: waiting and edges, without callbacks. None if unknown.

        Does not contain what the loader takes by using the model's cores: that would need the rate of the model alone.
        Where the hooks of callbacks were not timed, they count as compute.
        """
        if self.asynchronous or self.steady_wait_ns is None or not self.steady_steps:
            return None
        busy_ns = self.steady_ns - self.steady_wait_ns - (self.callbacks_ns or 0)
        steps_ns = busy_ns / self.steady_steps * self.steps
        if self.images and self.steady_images:
            steps_ns = busy_ns / self.steady_images * self.images
        return 1 - steps_ns / (self.epoch_ns - self.all_callbacks_ns)


def sample_of(
    records: Sequence[EpochRecord],
    *,
    window: str,
    round_: int,
    epoch_ns: int,
    outer_ns: int,
    cpu_ns: int,
    canary_ns: int,
    claimed_ns: int | None = None,
    others_ratio: float | None = None,
) -> Sample:
    """Returns the sample that the epochs of a window come to; their images and waits must be known.

    Args:
      records: of the epochs, at least one.
      window, round_, epoch_ns, outer_ns, cpu_ns, canary_ns, claimed_ns, others_ratio: of the sample.
    """
    first_batches_ns = [
        record.before_ns if record.first_batch_ns is None else record.first_batch_ns for record in records
    ]
    return Sample(
        window=window,
        round=round_,
        images=sum(record.steady_images or 0 for record in records),
        wall_ns=max(1, sum(record.steady_ns for record in records)),
        # The host may wait while a device behind it computes.
        wait_ns=sum(min(record.steady_wait_ns or 0, record.steady_ns) for record in records),
        step_ns=tuple(itertools.chain.from_iterable(record.step_ns for record in records)),
        first_steps_ns=records[0].first_steps_ns,
        epochs=len(records),
        epoch_images=sum(record.images or record.steady_images or 0 for record in records),
        epoch_ns=max(1, epoch_ns),
        first_batch_ns=tuple(first_batches_ns),
        outer_ns=max(1, outer_ns),
        claimed_ns=claimed_ns,
        cpu_ns=cpu_ns,
        canary_ns=canary_ns,
        others_ratio=others_ratio,
        whole=all(record.whole for record in records),
        strain=records[-1].strain,
    )
