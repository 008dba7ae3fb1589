"""The times of an epoch of a watched `fit` or loop: sums while the epoch runs, and the record at its end.

Over 400 lines: each figure of the record is a sum of the tally, and both are read together.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from unstall.profiles import clock
from unstall.profiles.machine.others import Others
from unstall.profiles.machine.strain import Strain, StrainMeter
from unstall.profiles.samples import FIRST_STEPS

# The last so many epochs of a run are kept: enough for any statistic, with bounded memory on long runs.
KEPT_EPOCHS = 200
# The times of so many steps of an epoch are kept, drawn evenly, with bounded memory on long epochs.
_KEPT_STEPS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRecord:
    """The times of one epoch of a watched `fit` or loop. None stands for unknown.

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
      cpu_ns: CPU time of this process and its workers in the epoch, without `other_ns`.
      step_ns: times of at most 256 steady steps, drawn evenly, and last the time of the epoch's last step.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class IteratorCount:
    """Batches and images that were drawn from an iterator; the images are None if unknown."""

    steps: int
    images: int | None

    def __add__(self, more: IteratorCount) -> IteratorCount:
        return IteratorCount(steps=self.steps + more.steps, images=_plus(self.images, more.images))

    def __sub__(self, before: IteratorCount) -> IteratorCount:
        images = None if before.images is None else _plus(self.images, -before.images)
        return IteratorCount(steps=self.steps - before.steps, images=images)


NOTHING_DRAWN = IteratorCount(steps=0, images=0)


def hooks_since(moment_ns: int, hooks: Sequence[tuple[int, int]]) -> int:
    """Returns the time of batch hooks, each (beginning, end), behind a moment, in nanoseconds."""
    return sum(max(0, end_ns - max(begin_ns, moment_ns)) for begin_ns, end_ns in hooks)


class Tally:
    """Sums up the times of one epoch while it runs.

    Attributes:
      steps, calls: of the train function so far. One call can make several steps.
      unread_steps: steps since the last `read`.
      read_steps: steps until the last `read`.
      last_ns: when the last call ended.
      ended: whether the steps of the epoch have ended.
    """

    def __init__(self, *, epoch: int, expected_steps: int | None, ramp_steps: int, random_: random.Random) -> None:
        made_ns = clock.now_ns()
        self.expected_steps = expected_steps
        self.steps = self.calls = self.unread_steps = self.read_steps = self.last_ns = 0
        self.ended = False
        self._whole = False
        self._batch_size: int | None = None
        self._epoch = epoch
        self._ramp_steps = ramp_steps
        self._random = random_
        self._others = Others()
        self._others_ratio: float | None = None
        self._strain_meter = StrainMeter()
        self._strain: Strain | None = None
        self._begin_ns = clock.now_ns()
        self._opening_watch_ns, self._closing_watch_ns = self._begin_ns - made_ns, 0
        self._cpu_ns = self._first_ns = self._ended_ns = self._read_ns = 0
        self._watched_ns = self._apart_ns = 0
        self._first_batch_ns: int | None = None
        self._images: int | None = 0
        self._read_images: int | None = 0
        self._steady_images: int | None = 0
        self._steady_wait_ns: int | None = 0
        self._steady_steps = self._steady_ns = self._between_ns = 0
        self._traced_ns: list[int] = []
        self._step_ns: list[int] = []
        self._first_steps_ns: list[tuple[int, int]] = []
        self._last_step_ns: int | None = None
        # For `claimed_ns`: each call of the train function and each batch hook has two clock readings of its own.
        self._calls_ns = self._opening_ns = self._hooks = self._hooks_ns = self._hook_ended_ns = self._left_ns = 0
        self._callbacks_ns = self._all_callbacks_ns = self._before_hooks_ns = self._after_hooks_ns = 0
        self._first_hooks_ns = self._last_hooks_ns = 0
        self._hooks_before_call: list[tuple[int, int]] = []
        self._all_waits_ns: int | None = 0
        # The last early step that did not trace. It stands for the steady steps of an epoch that has none.
        self._instead: tuple[int, int, int | None, int | None] | None = None

    def add(
        self,
        before_ns: int,
        fetched_ns: int,
        done_ns: int,
        images: int | None,
        steps: int,
        *,
        traced: bool,
        hooks_ns: int = 0,
        apart_ns: int = 0,
    ) -> None:
        """Adds a call whose fetching of batches was timed.

        Args:
          before_ns, fetched_ns, done_ns: when the call asked for a batch, when it had the batch, and when it ended.
          images: in its batches; None if unknown.
          steps: that the call made.
          traced: whether the call traced the model.
          hooks_ns: time of the batch hooks since the call before.
          apart_ns: time of loops inside the step, which have records of their own.
        """
        wait_ns = fetched_ns - before_ns
        own_ns = done_ns - fetched_ns - apart_ns
        self._apart_ns += apart_ns
        if not self.calls:
            self._first_ns, self._first_hooks_ns = before_ns, hooks_ns
            self._first_batch_ns = fetched_ns - self._begin_ns - self._before_hooks_ns - hooks_ns
        else:
            self._all_callbacks_ns += hooks_ns
        self._all_waits_ns = _plus(self._all_waits_ns, wait_ns)
        if traced:
            self._traced_ns.append(own_ns)
        elif self.calls < self._ramp_steps:
            self._instead = (steps, wait_ns + own_ns, images, wait_ns)
        else:
            self._between_ns += before_ns - self.last_ns
            self._callbacks_ns += hooks_ns
            self._steady(steps, done_ns - self.last_ns - apart_ns, images, wait_ns)
            self._draw((wait_ns + own_ns) // steps)
            if len(self._first_steps_ns) < FIRST_STEPS:
                self._first_steps_ns.append((wait_ns, own_ns))
        self._images = _plus(self._images, images)
        self._note_batch(images, steps)
        self._end_call(done_ns, steps)

    def add_whole_call(self, entered_ns: int, left_ns: int) -> None:
        """Adds the time of a whole call of the train function on the host, including the work of the watch.

        What Keras does for the call behind its batch hook is the call's: on JAX it hands the model's state over there.
        """
        self._calls_ns += left_ns - (self._hook_ended_ns if self._hook_ended_ns > self._left_ns else entered_ns)
        self._left_ns = left_ns

    def add_watch(self, ns: int) -> None:
        """Leaves out what the watch has taken behind the last step."""
        self._watched_ns += ns

    def add_fetch(self, ns: int) -> None:
        """Adds the time of fetching a batch between two hooks, which is a part of no call."""
        self._calls_ns += ns

    def add_call(self, before_ns: int, done_ns: int, steps: int, *, traced: bool, hooks_ns: int = 0) -> None:
        """Adds a call whose batches only TensorFlow saw; `read` adds their images later."""
        self._all_waits_ns = None
        if not self.calls:
            self._first_ns, self._read_ns, self._first_hooks_ns = before_ns, before_ns, hooks_ns
        else:
            self._all_callbacks_ns += hooks_ns
        if traced:
            self._traced_ns.append(done_ns - before_ns)
        elif self.calls:
            self._between_ns += before_ns - self.last_ns
            self._callbacks_ns += hooks_ns
            self._draw((done_ns - before_ns) // steps)
        self.unread_steps += steps
        self._end_call(done_ns, steps)

    def add_hook(self, before_ns: int, done_ns: int) -> None:
        """Adds a call of one of Keras' batch hooks, which runs this hook of all callbacks."""
        if not self._hooks:
            self._opening_ns = before_ns - self._begin_ns - self._before_hooks_ns
        self._hooks += 1
        self._hooks_ns += done_ns - before_ns
        self._hooks_before_call.append((before_ns, done_ns))
        self._hook_ended_ns = done_ns

    def take_hooks(self) -> tuple[tuple[int, int], ...]:
        """Returns (beginning, end) of each batch hook since the last call of this method."""
        hooks, self._hooks_before_call = tuple(self._hooks_before_call), []
        return hooks

    def leave_out(self, before_ns: int, done_ns: int) -> None:
        """Leaves out a hook of callbacks that ran before the first step, or behind the last."""
        if self.ended:
            self._after_hooks_ns += done_ns - before_ns
        elif not self._hooks:
            self._before_hooks_ns += done_ns - before_ns

    def read(self, counted: IteratorCount) -> None:
        """Adds the batches and images that tf.data has counted since the last `read`; their waiting stays unknown.

        Args:
          counted: since the epoch began.
        """
        stretch_ns, steps = self.last_ns - self._read_ns, counted.steps - self.read_steps
        images = None if counted.images is None or self._read_images is None else counted.images - self._read_images
        if self.read_steps:
            self._steady(steps, stretch_ns, images, None)
        elif not self._traced_ns:
            self._instead = (steps, stretch_ns, images, None)
        self._note_batch(images, steps)
        self.steps, self._images = counted.steps, counted.images
        self._read_ns, self.read_steps, self._read_images = self.last_ns, counted.steps, counted.images
        self.unread_steps = 0

    def end_steps(self, *, whole: bool = True, left_ns: int | None = None) -> None:
        """Notes that the steps of the epoch have ended.

        Args:
          whole: whether all steps were made.
          left_ns: when the last of them ended, if what came since belongs to a step that is left out; else now.
        """
        self._whole = whole
        self.ended = True
        self._last_hooks_ns = hooks_since(self.last_ns, self.take_hooks())
        self._ended_ns = clock.now_ns() if left_ns is None else left_ns
        self._cpu_ns = self._others.own_cpu_ns()
        self._others_ratio = self._others.ratio()
        self._strain = self._strain_meter.read()
        self._closing_watch_ns = 0 if left_ns is not None else clock.now_ns() - self._ended_ns

    def record(self, *, asynchronous: bool) -> EpochRecord:
        """Returns the record of the epoch, which ends now."""
        if not self._steady_steps and self._instead is not None:
            self._steady(*self._instead)
            self._draw(self._instead[1] // max(1, self._instead[0]))
        step_ns = 0
        if self._steady_steps:
            step_ns = (self._steady_ns - (self._steady_wait_ns or 0)) // self._steady_steps
        now_ns = clock.now_ns()
        # Each call has a hook before it and one behind it; the last hook is missing if the call ended `fit`.
        hooked = self._hooks >= 2 * self.calls - 1
        return EpochRecord(
            epoch=self._epoch,
            steps=self.steps,
            images=self._images,
            steady_steps=self._steady_steps,
            steady_images=self._steady_images if self._steady_steps else None,
            steady_ns=self._steady_ns,
            steady_wait_ns=self._steady_wait_ns if self._steady_steps else None,
            between_ns=self._between_ns,
            first_batch_ns=self._first_batch_ns,
            before_ns=self._first_ns - self._begin_ns - self._before_hooks_ns - self._first_hooks_ns,
            wall_ns=self.last_ns - self._first_ns - self._apart_ns,
            after_ns=self._ended_ns - self.last_ns - self._last_hooks_ns - self._watched_ns,
            traced_ns=sum(max(0, ns - step_ns) for ns in self._traced_ns),
            other_ns=now_ns - self._ended_ns - self._closing_watch_ns - self._after_hooks_ns + self._apart_ns,
            cpu_ns=self._cpu_ns,
            step_ns=(*self._step_ns, *(() if self._last_step_ns is None else (self._last_step_ns,))),
            asynchronous=asynchronous,
            first_steps_ns=() if asynchronous else tuple(self._first_steps_ns),
            callbacks_ns=self._callbacks_ns if hooked else None,
            claimed_ns=self._claimed_ns(now_ns) if hooked else None,
            whole=self._whole,
            batch_size=self._batch_size,
            others_ratio=self._others_ratio,
            strain=self._strain,
            all_waits_ns=self._all_waits_ns,
            all_callbacks_ns=self._all_callbacks_ns,
            edge_callbacks_ns=self._edge_callbacks_ns,
            watch_ns=self._opening_watch_ns + self._closing_watch_ns + self._watched_ns,
        )

    @property
    def _edge_callbacks_ns(self) -> int:
        return self._before_hooks_ns + self._first_hooks_ns + self._last_hooks_ns + self._after_hooks_ns

    def _claimed_ns(self, now_ns: int) -> int:
        """Returns the sum of the opening edge, the calls, the batch hooks, and the closing edge with validation.

        Calls that the watch did not see are missing from the sum, and so is time between calls and hooks: this is what
        the check of this sum finds. So the opening edge ends at Keras' first batch hook, and the closing edge begins
        behind the last hook: edges from and to calls that were seen would contain calls that were not.
        """
        closing_ns = now_ns - max(self._hook_ended_ns, self._left_ns) - self._after_hooks_ns
        closing_ns -= self._closing_watch_ns + self._watched_ns
        edge_hooks_ns = self._first_hooks_ns + self._last_hooks_ns
        return self._opening_ns + self._calls_ns + self._hooks_ns - edge_hooks_ns + closing_ns

    def _note_batch(self, images: int | None, steps: int) -> None:
        if images and steps:
            self._batch_size = max(self._batch_size or 0, math.ceil(images / steps))

    def _end_call(self, done_ns: int, steps: int) -> None:
        self.steps += steps
        self.calls += 1
        self.last_ns = done_ns

    def _steady(self, steps: int, wall_ns: int, images: int | None, wait_ns: int | None) -> None:
        self._steady_steps += steps
        self._steady_ns += wall_ns
        self._steady_images = _plus(self._steady_images, images)
        self._steady_wait_ns = _plus(self._steady_wait_ns, wait_ns)

    def _draw(self, step_ns: int) -> None:
        """Keeps the time of the last step, and an even draw of the steps before it. Source: Vitter's algorithm R."""
        before_ns, self._last_step_ns = self._last_step_ns, step_ns
        if before_ns is None:
            return
        if len(self._step_ns) < _KEPT_STEPS - 1:
            self._step_ns.append(before_ns)
        elif (place := self._random.randrange(self.calls)) < _KEPT_STEPS - 1:
            self._step_ns[place] = before_ns


def _plus(total: int | None, more: int | None) -> int | None:
    return None if total is None or more is None else total + more
