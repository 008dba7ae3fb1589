"""The sums of an epoch of a watched `fit`, as it runs, and what they come to."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from profiles import clock
from profiles.machine.others import Others

# Epochs kept of a run: enough for any statistic, and no more on very long runs.
KEPT_EPOCHS = 200
# Step times kept of an epoch: an even draw, so that memory stays bounded on very long ones.
_KEPT_STEPS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRecord:
    """What one epoch of a watched `fit` came to. What could not be known is None.

    Attributes:
      epoch: its number, from 0.
      steps, images: all that were trained on.
      steady_steps, steady_images: without the first steps of the epoch and those that traced the model.
      steady_ns: wall time of the steady steps and of what Keras and callbacks did between them.
      steady_wait_ns: of that, inside `next(iterator)`; on an asynchronous device what the host waited.
      between_ns: of that, between the steps.
      first_batch_ns: from "epoch begins" to the first batch.
      before_ns: from "epoch begins" to the first step's call.
      wall_ns: from there to the end of the last step.
      after_ns: from there until the iterator is torn down: to validation or "epoch ends".
      traced_ns: of `wall_ns`, beyond what steady steps take: tracing and compiling.
      other_ns: after that, to the end of the epoch: validation.
      cpu_ns: CPU time of this process and its workers, over the epoch without `other_ns`.
      step_ns: some steady steps, at most 256, drawn evenly; the last of them is the last of the epoch.
      asynchronous: whether the device runs on behind the host, so that the host's wait is not the device's.
      callbacks_ns: of `between_ns`, inside the batch hooks of callbacks; None where the hooks were not timed.
      claimed_ns: edges, steps and batch hooks, each timed by itself: what `outer_ns` ought to be. None where the hooks
        were not timed, and on an asynchronous device.
      whole: whether its steps came to their end: not where `fit` was left by an error or by the user.
      batch_size: images of its largest batch.
      others_ratio: what other programs took of the cores' time meanwhile; None where it is not known.
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
    callbacks_ns: int | None = None
    claimed_ns: int | None = None
    whole: bool = True
    batch_size: int | None = None
    others_ratio: float | None = None

    @property
    def outer_ns(self) -> int:
        """One clock around the epoch, validation included.

        Each of the four begins where the one before it ends, so that only the first and the last reading count.
        """
        return self.before_ns + self.wall_ns + self.after_ns + self.other_ns

    @property
    def images_per_sec(self) -> float | None:
        """Images over the seconds of steady steps."""
        if not self.steady_images or not self.steady_ns:
            return None
        return self.steady_images / self.steady_ns * 1e9

    @property
    def epoch_images_per_sec(self) -> float | None:
        """Images over the seconds of the epoch, its edges included, without tracing and validation."""
        return self.images / self.epoch_ns * 1e9 if self.images and self.epoch_ns else None

    @property
    def wait_ms_per_step(self) -> float | None:
        """The host's wait for a batch, in a steady step."""
        if self.steady_wait_ns is None or not self.steady_steps:
            return None
        return self.steady_wait_ns / self.steady_steps / 1e6

    @property
    def epoch_ns(self) -> int:
        """The epoch's steps and edges, without tracing and validation."""
        return self.before_ns + self.wall_ns - self.traced_ns + self.after_ns

    @property
    def loading_ratio(self) -> float | None:
        """Part of the epoch in which nothing was computed: waiting and edges.

        What a loader takes from the model by using its cores is not in it: that needs the model's own rate.
        """
        if self.asynchronous or self.steady_wait_ns is None or not self.steady_steps:
            return None
        steps_ns = (self.steady_ns - self.steady_wait_ns) / self.steady_steps * self.steps
        if self.images and self.steady_images:
            steps_ns = (self.steady_ns - self.steady_wait_ns) / self.steady_images * self.images
        return 1 - steps_ns / self.epoch_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What tf.data says of an iterator: batches and images until now."""

    steps: int
    images: int | None


class Tally:
    """Sums up one epoch.

    Attributes:
      steps, calls: until now; a call can make several steps.
      unread_steps: of calls whose wait nobody has asked for yet.
      read_steps: of those before.
      last_ns: when the last call ended.
      ended: whether the steps are over.
    """

    def __init__(self, *, epoch: int, expected_steps: int | None, ramp_steps: int, random_: random.Random) -> None:
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
        self._begin_ns = clock.now_ns()
        self._cpu_ns = self._first_ns = self._ended_ns = self._read_ns = 0
        self._first_batch_ns: int | None = None
        self._images: int | None = 0
        self._read_images: int | None = 0
        self._steady_images: int | None = 0
        self._steady_wait_ns: int | None = 0
        self._steady_steps = self._steady_ns = self._between_ns = 0
        self._traced_ns: list[int] = []
        self._step_ns: list[int] = []
        self._last_step_ns: int | None = None
        # For `claimed_ns`: each call of the train function and each batch hook by two readings of its own.
        self._calls_ns = self._opening_ns = self._hooks = self._hooks_ns = self._hook_ended_ns = 0
        self._hooks_before_call_ns = self._callbacks_ns = 0
        # Of an epoch without any steady step, the first that did not trace stands for all.
        self._instead: tuple[int, int, int | None, int | None] | None = None

    def add(
        self, before_ns: int, fetched_ns: int, done_ns: int, images: int | None, steps: int, *, traced: bool
    ) -> None:
        """Adds a call whose batches were timed."""
        wait_ns = fetched_ns - before_ns
        if not self.calls:
            self._first_ns, self._first_batch_ns = before_ns, fetched_ns - self._begin_ns
        if traced:
            self._traced_ns.append(done_ns - fetched_ns)
        elif self.calls < self._ramp_steps:
            self._instead = (steps, done_ns - before_ns, images, wait_ns)
        else:
            self._between_ns += before_ns - self.last_ns
            self._callbacks_ns += self._hooks_before_call_ns
            self._steady(steps, done_ns - self.last_ns, images, wait_ns)
            self._draw((done_ns - before_ns) // steps)
        self._images = _plus(self._images, images)
        self._note_batch(images, steps)
        self._end_call(done_ns, steps)

    def add_whole_call(self, entered_ns: int, left_ns: int) -> None:
        """Adds a call of the train function together with what watching it took."""
        self._calls_ns += left_ns - entered_ns

    def add_call(self, before_ns: int, done_ns: int, steps: int, *, traced: bool) -> None:
        """Adds a call that made several steps; `read` says later how long it waited."""
        if not self.calls:
            self._first_ns = self._read_ns = before_ns
        if traced:
            self._traced_ns.append(done_ns - before_ns)
        elif self.calls:
            self._between_ns += before_ns - self.last_ns
            self._callbacks_ns += self._hooks_before_call_ns
            self._draw((done_ns - before_ns) // steps)
        self.unread_steps += steps
        self._end_call(done_ns, steps)

    def add_hook(self, before_ns: int, done_ns: int) -> None:
        """Adds one of Keras' batch hooks, with all callbacks in it."""
        if not self._hooks:
            self._opening_ns = before_ns - self._begin_ns
        self._hooks += 1
        self._hooks_ns += done_ns - before_ns
        self._hooks_before_call_ns += done_ns - before_ns
        self._hook_ended_ns = done_ns

    def read(self, told: Told) -> None:
        """Takes in what tf.data says of the calls since the last time; how long they waited it does not say."""
        stretch_ns, steps = self.last_ns - self._read_ns, told.steps - self.read_steps
        images = None if told.images is None or self._read_images is None else told.images - self._read_images
        if self.read_steps:
            self._steady(steps, stretch_ns, images, None)
        elif not self._traced_ns:
            self._instead = (steps, stretch_ns, images, None)
        self._note_batch(images, steps)
        self.steps, self._images = told.steps, told.images
        self._read_ns, self.read_steps, self._read_images = self.last_ns, told.steps, told.images
        self.unread_steps = 0

    def rest(self) -> None:
        """Notes that an asynchronous device has come to rest: what it still had to do belongs to the steps."""
        now_ns = clock.now_ns()
        if self._steady_steps:
            self._steady_ns += now_ns - self.last_ns
        self.last_ns = now_ns

    def end_steps(self, *, whole: bool = True) -> None:
        self._whole = whole
        self.ended = True
        self._ended_ns = clock.now_ns()
        self._cpu_ns = self._others.own_cpu_ns()
        self._others_ratio = self._others.ratio()

    def record(self, *, asynchronous: bool) -> EpochRecord:
        """Returns the sums; the epoch ends now."""
        if not self._steady_steps and self._instead is not None:
            self._steady(*self._instead)
            self._draw(self._instead[1] // max(1, self._instead[0]))
        step_ns = 0
        if self._steady_steps:
            step_ns = (self._steady_ns - (self._steady_wait_ns or 0)) // self._steady_steps
        now_ns = clock.now_ns()
        # A call has a hook before it and one behind it, unless `fit` was left in between.
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
            before_ns=self._first_ns - self._begin_ns,
            wall_ns=self.last_ns - self._first_ns,
            after_ns=self._ended_ns - self.last_ns,
            traced_ns=sum(max(0, ns - step_ns) for ns in self._traced_ns),
            other_ns=now_ns - self._ended_ns,
            cpu_ns=self._cpu_ns,
            step_ns=(*self._step_ns, *(() if self._last_step_ns is None else (self._last_step_ns,))),
            asynchronous=asynchronous,
            callbacks_ns=self._callbacks_ns if hooked else None,
            claimed_ns=self._claimed_ns(now_ns) if hooked and not asynchronous else None,
            whole=self._whole,
            batch_size=self._batch_size,
            others_ratio=self._others_ratio,
        )

    def _claimed_ns(self, now_ns: int) -> int:
        """Adds up the opening edge, the calls, the batch hooks, and the closing edge with validation.

        Calls that the watch did not see, and time between calls and hooks, are missing from the sum. The opening edge
        ends at Keras' first batch hook and the closing one begins behind the last: edges up to the first and from the
        last call that was seen would contain the calls that were not.
        """
        closing_ns = now_ns - max(self._hook_ended_ns, self.last_ns)
        return self._opening_ns + self._calls_ns + self._hooks_ns + closing_ns

    def _note_batch(self, images: int | None, steps: int) -> None:
        if images and steps:
            self._batch_size = max(self._batch_size or 0, math.ceil(images / steps))

    def _end_call(self, done_ns: int, steps: int) -> None:
        self._hooks_before_call_ns = 0
        self.steps += steps
        self.calls += 1
        self.last_ns = done_ns

    def _steady(self, steps: int, wall_ns: int, images: int | None, wait_ns: int | None) -> None:
        self._steady_steps += steps
        self._steady_ns += wall_ns
        self._steady_images = _plus(self._steady_images, images)
        self._steady_wait_ns = _plus(self._steady_wait_ns, wait_ns)

    def _draw(self, step_ns: int) -> None:
        """Keeps the last step, and an even draw of those before it. Source: Vitter's algorithm R."""
        before_ns, self._last_step_ns = self._last_step_ns, step_ns
        if before_ns is None:
            return
        if len(self._step_ns) < _KEPT_STEPS - 1:
            self._step_ns.append(before_ns)
        elif (place := self._random.randrange(self.calls)) < _KEPT_STEPS - 1:
            self._step_ns[place] = before_ns


def _plus(total: int | None, more: int | None) -> int | None:
    return None if total is None or more is None else total + more
