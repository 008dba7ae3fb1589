"""The raw samples of several trainers: each step of an epoch of each process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEpoch:
    """An epoch of a process; the epoch before it, of the same `fit`, is not measured.

    Attributes:
      round: the number of the round, from 0.
      process: the number of the process, from 0.
      trained: images that this process trained on.
      decoded: images that its pipeline has made in the epoch, whoever trained on them.
      wall_ns: from the beginning of the epoch to the end of its last step.
      wait_ns: (steps,), until the batch of the step was there.
      step_ns: (steps,), from then to the end of the step; in it a process waits for the gradients of others.
      alone_ns: of a step of a copy of the model that has no other trainers, in the same round; None where not measured.
      replica_ns: (replicas, steps), until each replica of this process had its own gradients; empty where one process
        has one replica, or its replicas are one program.
    """

    round: int
    process: int
    trained: int
    decoded: int
    wall_ns: int
    wait_ns: tuple[int, ...]
    step_ns: tuple[int, ...]
    alone_ns: int | None = None
    replica_ns: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoShard:
    """What TensorFlow does with a dataset on several hosts, as it did when asked for the part of the first of them.

    Attributes:
      policy: the dataset's option.
      by_files: whether TensorFlow finds a reader of files in the dataset whose list of files it can divide.
      hosts: how many hosts were asked for.
      decoded, served: images that the first host made, and those of them that it would have trained on.
    """

    policy: str
    by_files: bool
    hosts: int
    decoded: int
    served: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTrainers:
    """What was measured of a subject.

    Attributes:
      subject: its name.
      auto_shard: of the subject that TensorFlow distributes, else None.
      epochs: of all processes and rounds.
    """

    subject: str
    auto_shard: AutoShard | None = None
    epochs: tuple[ProcessEpoch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What was measured of all subjects; `cores` are those that all their processes share."""

    cores: int
    subjects: tuple[MeasuredTrainers, ...]
