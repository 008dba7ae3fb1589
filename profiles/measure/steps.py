"""One account of steps: the times of each, which steps of an epoch are steady, and what they come to."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from unstall.profiles import clock
from unstall.profiles.measure.ahead import Ahead
from unstall.profiles.measure.epochs import EpochRecord
from unstall.profiles.measure.sums import NOTHING_DRAWN, Edges, Hooks, IteratorCount, KeptSteps, Machine, Pieces, Sums
from unstall.profiles.results.flags import Flag, FlagKind

# So many first steps are not steady where nobody knows how long the epoch will be, nor all that works for its loader:
# buffers fill, and workers start. Nor are they where batches lie ready: the first steps of a model take longer.
RAMP_STEPS = 2
# An epoch needs so many batches for each that a shuffle holds, or no part of it is steady. As many as `check_buffers`
# wants for each batch in a buffer.
_BATCHES_PER_SHUFFLED_BATCH = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """Which steps of an epoch are steady. Where none is, the last one before `first` and `end` stands for them.

    Attributes:
      first, end: number of the first steady step, from 0, and of the first step after it that is not steady; `end` is
        None where all steps to the end of the epoch are.
      doubts: reasons to doubt the rate of these steps.
    """

    first: int
    end: int | None = None
    doubts: tuple[Flag, ...] = ()


def steady_part(ahead: Ahead, steps: int | None = None, *, tail: bool = True) -> Steady:
    """Returns which steps of an epoch are steady, by how far its loader works ahead of the model.

    Batches that are made at the same time arrive at the same time, so that the number of steady steps must be a
    multiple of theirs. Where an epoch is too short for that, all of its steps count: the rate is the epoch's own.

    Args:
      ahead: of the loader, as far as it is known.
      steps: of the epoch; None if that is not known when its steps are added up, as in a script, which can leave an
        epoch at any step, and for batches that lie ready and are made by nobody.
      tail: whether the last steps are steady in which buffered batches lie ready, so that nothing is loaded any more.
        Leave them out only where `ahead` has the size of the buffers, and not the most that it may come to.
    """
    parallel, shuffled = ahead.parallel_batches, ahead.shuffled_batches
    if steps is None:
        return Steady(first=max(RAMP_STEPS, parallel))
    if _BATCHES_PER_SHUFFLED_BATCH * shuffled > steps:
        text = (
            f"a shuffle holds up to {min(shuffled, steps)} of an epoch's {steps} batches, which are made before "
            "its first step: no part of the epoch is steady, and all rates are those of whole epochs"
        )
        return Steady(first=0, end=steps, doubts=(Flag(kind=FlagKind.BUFFERED, text=text),))
    if parallel > 1 and steps < 2 * parallel:
        text = (
            f"the loader makes up to {parallel} batches at the same time, and an epoch has {steps}: no part of it is "
            "steady, and all rates are those of whole epochs"
        )
        return Steady(first=0, end=steps, doubts=(Flag(kind=FlagKind.SHORT, text=text),))
    end = steps if tail else min(max(steps - ahead.buffered_batches, 2 * parallel), steps)
    return Steady(first=parallel + end % parallel, end=end)


class Step(NamedTuple):
    """The times of a step, by `clock.now_ns`; or of a call that makes several steps.

    A named tuple, since one is made in each step of a script: a frozen dataclass takes three times as long to make.

    Attributes:
      asked_ns: when the host asked for the batch.
      fetched_ns: when it had the batch; None where only TensorFlow saw that.
      done_ns: when the step ended. On a device behind the host the host had only handed it over by then, until
        `on_device` says more.
      images: in the batches; None if unknown.
      steps: that the call made.
      traced: whether the call traced or compiled the model.
      hooks: (start, end) of each batch hook of callbacks since the step before.
      apart_ns: how long loops inside the step took, which have records of their own.
      resumes: whether the device was waited for since the step before, which is no pause between two steps then.
    """

    asked_ns: int
    fetched_ns: int | None
    done_ns: int
    images: int | None
    steps: int = 1
    traced: bool = False
    hooks: tuple[tuple[int, int], ...] = ()
    apart_ns: int = 0
    resumes: bool = False

    @property
    def ns(self) -> int:
        """Of the whole step, without loops inside it."""
        return self.done_ns - self.asked_ns - self.apart_ns

    @property
    def wait_ns(self) -> int | None:
        return None if self.fetched_ns is None else self.fetched_ns - self.asked_ns

    @property
    def own_ns(self) -> int:
        """Of the step without its wait, where that is known."""
        return self.ns - (self.wait_ns or 0)

    @property
    def hooks_ns(self) -> int:
        return hooks_since(0, self.hooks) if self.hooks else 0

    def on_device(self, free_ns: int | None, done_ns: int) -> Step:
        """Returns the step as a device behind the host sees it: only what the host does while it is idle counts.

        Args:
          free_ns: when the device had finished the step before; None for the first step, for which it was idle.
          done_ns: when the device had finished this step.
        """
        assert self.fetched_ns is not None
        idle_ns = min(0 if free_ns is None else free_ns, done_ns)
        fetched_ns = max(self.fetched_ns, idle_ns)
        return self._replace(
            asked_ns=max(self.asked_ns, idle_ns),
            fetched_ns=fetched_ns,
            done_ns=done_ns,
            hooks=tuple((max(start_ns, idle_ns), end_ns) for start_ns, end_ns in self.hooks if end_ns > idle_ns),
            apart_ns=min(self.apart_ns, done_ns - fetched_ns),
        )


def hooks_since(moment_ns: int, hooks: Sequence[tuple[int, int]]) -> int:
    """Returns how many nanoseconds the batch hooks ran after `moment_ns`. Each hook is (start, end)."""
    return sum(max(0, end_ns - max(start_ns, moment_ns)) for start_ns, end_ns in hooks)


@dataclass(slots=True)
class TimedEpoch:
    """The steps of an epoch that are added up when it is over: its length decides which of them are steady."""

    begin_ns: int
    end_ns: int = 0
    steps: list[Step] = field(default_factory=list)

    def record(self, steady: Steady, number: int = 0) -> EpochRecord:
        """Returns the record of the epoch, which must have a step."""
        epoch = Epoch(number=number, steady=steady, begin_ns=self.begin_ns)
        for step in self.steps:
            epoch.add(step)
        epoch.end_steps(ended_ns=self.end_ns)
        return epoch.record(now_ns=self.end_ns)


class Epoch:
    """Adds up the steps of one epoch.

    Args:
      number: of the epoch, from 0.
      steady: which of its steps are steady.
      random_: draws the steps whose times are kept; None keeps those of all steady steps.
      begin_ns: when the epoch began, if it is over already. Unless given it begins now, and what the machine does until
        its steps have ended is read as well.

    Attributes:
      steps, calls: so far, without those that `settle` has not added yet. One call can make several steps.
      unread_steps: steps since the last `read`.
      last_ns: when the last call ended.
      ended: whether the steps of the epoch have ended.
    """

    def __init__(
        self, *, number: int, steady: Steady, random_: random.Random | None = None, begin_ns: int | None = None
    ) -> None:
        made_ns = clock.now_ns()
        self._machine = Machine() if begin_ns is None else None
        began_ns = clock.now_ns() if begin_ns is None else begin_ns
        self.calls = self.unread_steps = self.last_ns = 0
        self.ended = False
        self._number, self._part = number, steady
        self._edges = Edges(begin_ns=began_ns, opening_watch_ns=began_ns - made_ns if begin_ns is None else 0)
        self._hooks, self._pieces = Hooks(), Pieces()
        self._handed_over: deque[Step] = deque()
        self._all, self._steady = Sums(), Sums()
        self._kept = KeptSteps(random_)
        # The last early step that did not trace. It stands for the steady steps of an epoch that has none.
        self._instead: Step | None = None
        self._traced_ns: list[int] = []
        self._batch_size: int | None = None
        # What tf.data had counted at the last `read`, and when that was.
        self._read, self._read_ns = NOTHING_DRAWN, 0

    @property
    def steps(self) -> int:
        return self._all.steps

    @property
    def begun_steps(self) -> int:
        """Steps so far, with those that a device behind the host may not have finished."""
        return self.steps + sum(step.steps for step in self._handed_over)

    def add(self, step: Step) -> None:
        """Adds a call that has ended; `read` adds the images of batches that only TensorFlow saw later."""
        ns, wait_ns, hooks_ns = step.ns, step.wait_ns, step.hooks_ns
        pause_ns = None if step.resumes or not self.calls else step.asked_ns - self.last_ns
        if self.calls:
            self._all.callbacks_ns += hooks_ns
        else:
            self._open(step)
        self._edges.apart_ns += step.apart_ns
        if step.traced:
            self._traced_ns.append(step.own_ns)
        elif step.fetched_ns is None:
            if self.calls:
                self._steady.add_pause(pause_ns, hooks_ns)
                self._kept.add(ns, None, step.steps, self.calls)
        elif self._part.end is None or self.calls < self._part.end:
            if self.calls < self._part.first:
                self._instead = step
            else:
                self._steady.add(step.steps, step.images, ns + (pause_ns or 0), wait_ns)
                self._steady.add_pause(pause_ns, hooks_ns)
                self._kept.add(ns, wait_ns, step.steps, self.calls)
        self._all.add(step.steps, step.images, ns, wait_ns)
        if step.fetched_ns is None:
            self.unread_steps += step.steps
        else:
            self._note_batch(step.images, step.steps)
        self.calls += 1
        self.last_ns = step.done_ns

    def hand_over(self, step: Step) -> None:
        """Notes a step that the host has handed to a device behind it; `settle` adds it."""
        self._handed_over.append(step)

    def settle(self, done_ns: Sequence[int]) -> None:
        """Adds the next of the steps that were handed over, which the device has finished at the given times."""
        for moment_ns in done_ns:
            self.add(self._handed_over.popleft().on_device(self.last_ns if self.calls else None, moment_ns))

    def read(self, counted: IteratorCount) -> None:
        """Adds the batches and images that tf.data has counted since the last `read`; their waiting stays unknown.

        Args:
          counted: since the epoch began.
        """
        more = counted - self._read
        stretch = Step(
            asked_ns=self._read_ns, fetched_ns=None, done_ns=self.last_ns, images=more.images, steps=more.steps
        )
        if self._read.steps:
            self._steady.add(stretch.steps, stretch.images, stretch.ns, None)
        elif not self._traced_ns:
            self._instead = stretch
        self._note_batch(more.images, more.steps)
        self._all.steps, self._all.images = counted.steps, counted.images
        self._read, self._read_ns, self.unread_steps = counted, self.last_ns, 0

    def add_whole_call(self, entered_ns: int, left_ns: int) -> None:
        """Adds the time of a whole call of the train function on the host, including the work of the watch.

        What Keras does for the call after its batch hook is the call's: on JAX it hands the model's state over there.
        """
        pieces = self._pieces
        pieces.calls_ns += left_ns - (pieces.hook_ended_ns if pieces.hook_ended_ns > pieces.left_ns else entered_ns)
        pieces.left_ns = left_ns

    def add_fetch(self, ns: int) -> None:
        """Adds the time of fetching a batch between two hooks, which is a part of no call."""
        self._pieces.calls_ns += ns

    def add_watch(self, ns: int) -> None:
        """Leaves out what the watch has taken after the last step."""
        self._edges.watched_ns += ns

    def add_hook(self, before_ns: int, done_ns: int) -> None:
        """Adds a call of one of Keras' batch hooks, which runs this hook of all callbacks."""
        pieces = self._pieces
        if not pieces.hooks:
            pieces.opening_ns = before_ns - self._edges.begin_ns - self._hooks.before_ns
        pieces.hooks += 1
        pieces.hooks_ns += done_ns - before_ns
        pieces.hook_ended_ns = done_ns
        self._hooks.since_call.append((before_ns, done_ns))

    def take_hooks(self) -> tuple[tuple[int, int], ...]:
        """Returns (start, end) of each batch hook since the last call of this method."""
        hooks, self._hooks.since_call = tuple(self._hooks.since_call), []
        return hooks

    def leave_out(self, before_ns: int, done_ns: int) -> None:
        """Leaves out a hook of callbacks that ran before the first step, or after the last."""
        if self.ended:
            self._hooks.after_ns += done_ns - before_ns
        elif not self._pieces.hooks:
            self._hooks.before_ns += done_ns - before_ns

    def end_steps(self, *, whole: bool = True, ended_ns: int | None = None) -> None:
        """Notes that the steps of the epoch have ended.

        Args:
          whole: whether all steps were made.
          ended_ns: when they ended, if what came since belongs to no step that counts; else now.
        """
        edges = self._edges
        self.ended, edges.whole = True, whole
        self._hooks.last_ns = hooks_since(self.last_ns, self.take_hooks())
        edges.ended_ns = clock.now_ns() if ended_ns is None else ended_ns
        if self._machine is not None:
            self._machine.read()
            edges.closing_watch_ns = clock.now_ns() - edges.ended_ns if ended_ns is None else 0

    def record(self, *, asynchronous: bool = False, now_ns: int | None = None) -> EpochRecord:
        """Returns the record of the epoch, which ends now unless `now_ns` says when."""
        steady, machine, edges, hooks = self._steady, self._machine, self._edges, self._hooks
        if not steady.steps and (step := self._instead) is not None:
            steady.add(step.steps, step.images, step.ns, step.wait_ns)
            self._kept.add(step.ns, step.wait_ns, step.steps, self.calls)
        steady_ns = steady.ns + steady.unknown_pauses_ns
        own_ns = (steady_ns - (steady.wait_ns or 0)) // steady.steps if steady.steps else 0
        now_ns = clock.now_ns() if now_ns is None else now_ns
        # Each call has a hook before it and one after it; the last hook is missing if the call ended `fit`.
        hooked = self._pieces.hooks >= 2 * self.calls - 1
        return EpochRecord(
            epoch=self._number,
            steps=self.steps,
            images=self._all.images,
            steady_steps=steady.steps,
            steady_images=steady.images if steady.steps else None,
            steady_ns=steady_ns,
            steady_wait_ns=steady.wait_ns if steady.steps else None,
            between_ns=steady.pauses_ns + steady.unknown_pauses_ns,
            first_batch_ns=edges.first_batch_ns,
            before_ns=edges.first_ns - edges.begin_ns - hooks.before_ns - hooks.first_ns,
            wall_ns=self.last_ns - edges.first_ns - edges.apart_ns,
            after_ns=edges.ended_ns - self.last_ns - hooks.last_ns - edges.watched_ns,
            traced_ns=sum(max(0, ns - own_ns) for ns in self._traced_ns),
            other_ns=now_ns - edges.ended_ns - edges.closing_watch_ns - hooks.after_ns + edges.apart_ns,
            cpu_ns=0 if machine is None else machine.cpu_ns,
            step_ns=self._kept.step_ns,
            asynchronous=asynchronous,
            first_steps_ns=() if asynchronous else tuple(self._kept.first_steps_ns),
            callbacks_ns=steady.callbacks_ns if hooked else None,
            claimed_ns=self._claimed_ns(now_ns) if hooked else None,
            whole=edges.whole,
            batch_size=self._batch_size,
            others_ratio=None if machine is None else machine.others_ratio,
            strain=None if machine is None else machine.strain,
            all_waits_ns=self._all.wait_ns,
            all_callbacks_ns=self._all.callbacks_ns,
            edge_callbacks_ns=hooks.edges_ns,
            watch_ns=edges.opening_watch_ns + edges.closing_watch_ns + edges.watched_ns,
        )

    def _open(self, step: Step) -> None:
        edges, hooks = self._edges, self._hooks
        edges.first_ns, hooks.first_ns = step.asked_ns, step.hooks_ns
        if step.fetched_ns is None:
            self._read_ns = step.asked_ns
        else:
            edges.first_batch_ns = step.fetched_ns - edges.begin_ns - hooks.before_ns - hooks.first_ns

    def _note_batch(self, images: int | None, steps: int) -> None:
        if images and steps:
            self._batch_size = max(self._batch_size or 0, math.ceil(images / steps))

    def _claimed_ns(self, now_ns: int) -> int:
        """Returns the sum of the opening edge, the calls, the batch hooks, and the closing edge with validation.

        Calls that the watch did not see are missing from the sum, and so is time between calls and hooks: this is what
        the check of this sum finds. So the opening edge ends at Keras' first batch hook, and the closing edge begins
        after the last hook: edges from and to calls that were seen would contain calls that were not.
        """
        pieces, edges, hooks = self._pieces, self._edges, self._hooks
        closing_ns = now_ns - max(pieces.hook_ended_ns, pieces.left_ns) - hooks.after_ns
        closing_ns -= edges.closing_watch_ns + edges.watched_ns
        inside_ns = pieces.calls_ns + pieces.hooks_ns - hooks.first_ns - hooks.last_ns
        return pieces.opening_ns + inside_ns + closing_ns
