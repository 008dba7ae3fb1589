"""The sums of an epoch, in groups of what belongs together: `measure.steps.Epoch` fills them in."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from unstall.profiles.machine.others import Others
from unstall.profiles.machine.strain import Strain, StrainMeter
from unstall.profiles.samples import FIRST_STEPS

# The times of so many steps of a watched epoch are kept, with bounded memory on long epochs.
_KEPT_STEPS = 256


@dataclass(slots=True)
class Edges:
    """Moments at both ends of an epoch, and what is no part of it.

    Attributes:
      begin_ns, first_ns, ended_ns: when the epoch began, its first step began, and its steps ended.
      first_batch_ns: from the beginning of the epoch to its first batch; None if only TensorFlow saw that.
      opening_watch_ns, closing_watch_ns, watched_ns: what the watch took at both ends, and after the last step.
      apart_ns: how long loops inside the steps took.
      whole: whether all steps were made.
    """

    begin_ns: int
    opening_watch_ns: int
    first_ns: int = 0
    first_batch_ns: int | None = None
    ended_ns: int = 0
    closing_watch_ns: int = 0
    watched_ns: int = 0
    apart_ns: int = 0
    whole: bool = False


@dataclass(slots=True)
class Hooks:
    """Hooks of callbacks that count for no step.

    Attributes:
      before_ns, after_ns: hooks at both ends of the epoch.
      first_ns, last_ns: batch hooks before the first call and after the last.
      since_call: (start, end) of each batch hook since the last call.
    """

    before_ns: int = 0
    first_ns: int = 0
    last_ns: int = 0
    after_ns: int = 0
    since_call: list[tuple[int, int]] = field(default_factory=list)

    @property
    def edges_ns(self) -> int:
        return self.before_ns + self.first_ns + self.last_ns + self.after_ns


@dataclass(slots=True)
class Pieces:
    """What `claimed_ns` sums up: each call of the train function and each batch hook, by two readings of its own.

    Attributes:
      opening_ns: from the beginning of the epoch to the first batch hook.
      calls_ns, left_ns: of all calls, and when the last one was left.
      hooks, hooks_ns, hook_ended_ns: how many batch hooks there were, their time, and when the last one ended.
    """

    opening_ns: int = 0
    calls_ns: int = 0
    left_ns: int = 0
    hooks: int = 0
    hooks_ns: int = 0
    hook_ended_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IteratorCount:
    """Batches and images that were drawn from an iterator; the images are None if unknown."""

    steps: int
    images: int | None

    def __add__(self, more: IteratorCount) -> IteratorCount:
        return IteratorCount(steps=self.steps + more.steps, images=plus(self.images, more.images))

    def __sub__(self, before: IteratorCount) -> IteratorCount:
        images = None if before.images is None else plus(self.images, -before.images)
        return IteratorCount(steps=self.steps - before.steps, images=images)


NOTHING_DRAWN = IteratorCount(steps=0, images=0)


@dataclass(slots=True)
class Sums:
    """Sums of steps; None stands for unknown.

    Attributes:
      ns: of the steps, with the known pauses before them.
      pauses_ns, pauses, unknown_pauses: the time between steps, and how often that is known and unknown.
      callbacks_ns: of the batch hooks before the steps.
    """

    steps: int = 0
    images: int | None = 0
    ns: int = 0
    wait_ns: int | None = 0
    pauses_ns: int = 0
    pauses: int = 0
    unknown_pauses: int = 0
    callbacks_ns: int = 0

    def add(self, steps: int, images: int | None, ns: int, wait_ns: int | None) -> None:
        self.steps += steps
        self.images = plus(self.images, images)
        self.ns += ns
        self.wait_ns = plus(self.wait_ns, wait_ns)

    def add_pause(self, pause_ns: int | None, hooks_ns: int) -> None:
        """Adds the time between a step and the one before it, and that of the batch hooks in it."""
        self.callbacks_ns += hooks_ns
        if pause_ns is None:
            self.unknown_pauses += 1
        else:
            self.pauses += 1
            self.pauses_ns += pause_ns

    @property
    def unknown_pauses_ns(self) -> int:
        """The time of the unknown pauses: the mean of the known ones stands for each."""
        return self.unknown_pauses * (self.pauses_ns // self.pauses) if self.pauses else 0


class KeptSteps:
    """The times of steady steps that are kept.

    Args:
      random_: draws them evenly, with the last step of all, so that they are no more than 256; None keeps all.

    Attributes:
      first_steps_ns: (wait, rest) of the first calls, in their order.
    """

    def __init__(self, random_: random.Random | None) -> None:
        self.first_steps_ns: list[tuple[int, int]] = []
        self._random = random_
        self._step_ns: list[int] = []
        self._last_ns: int | None = None

    @property
    def step_ns(self) -> tuple[int, ...]:
        return (*self._step_ns, *(() if self._last_ns is None else (self._last_ns,)))

    def add(self, ns: int, wait_ns: int | None, steps: int, calls: int) -> None:
        """Adds a call of several steps, its wait included, before which so many calls were made.

        Source of the even draw: Vitter's algorithm R.
        """
        if wait_ns is not None and len(self.first_steps_ns) < FIRST_STEPS:
            self.first_steps_ns.append((wait_ns, ns - wait_ns))
        before_ns, self._last_ns = self._last_ns, ns // max(1, steps)
        if before_ns is None:
            return
        if self._random is None or len(self._step_ns) < _KEPT_STEPS - 1:
            self._step_ns.append(before_ns)
        elif (place := self._random.randrange(calls)) < _KEPT_STEPS - 1:
            self._step_ns[place] = before_ns


class Machine:
    """What the machine does during an epoch.

    Attributes:
      cpu_ns, others_ratio, strain: of `EpochRecord`, by the last `read`.
    """

    def __init__(self) -> None:
        self.cpu_ns = 0
        self.others_ratio: float | None = None
        self.strain: Strain | None = None
        self._others, self._strain_meter = Others(), StrainMeter()

    def read(self) -> None:
        self.cpu_ns = self._others.own_cpu_ns()
        self.others_ratio = self._others.ratio()
        self.strain = self._strain_meter.read()


def plus(total: int | None, more: int | None) -> int | None:
    """Returns a sum; None where a part of it is unknown."""
    return None if total is None or more is None else total + more
