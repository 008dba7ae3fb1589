"""The raw samples of several trainers: each step of an epoch of each process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEpoch:
    """An epoch of a process; the epoch before it, of the same `fit`, is not measured.

    Attributes:
      subject: the name of what was trained.
      round: the number of the round, from 0.
      process: the number of the process, from 0.
      trained: images that this process trained on.
      decoded: images that its pipeline has made in the epoch, whoever trained on them.
      wall_ns: from the beginning of the epoch to the end of its last step.
      wait_ns: (steps,), until the batch of the step was there.
      step_ns: (steps,), from then to the end of the step; in it a process waits for the gradients of others.
      alone_ns: of a step of a copy of the model that has no other trainers, in the same round; None where not measured.
    """

    subject: str
    round: int
    process: int
    trained: int
    decoded: int
    wall_ns: int
    wait_ns: tuple[int, ...]
    step_ns: tuple[int, ...]
    alone_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """The epochs of all subjects, rounds and processes, in the order in which they were measured."""

    epochs: tuple[ProcessEpoch, ...]
