"""Derives rates, what was decoded in vain, who waits for whom, and which process the others wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unstall.benchmarks.trainers.plan import Asked
from unstall.benchmarks.trainers.samples import Measurements, ProcessEpoch
from unstall.benchmarks.trainers.subjects import BY_FILES, BY_KERAS, SUBJECTS
from unstall.profiles.report import Document
from unstall.profiles.statistics import Interval, geometric_mean, shared_ratio

TrainersDocument = Document[Asked, Measurements]

# A process is a straggler if, in every round, its own work takes so much longer than that of the next one. Source: this
# part of the time of a step, at least, is saved where its work is as short as theirs.
_STRAGGLER_RATIO = 0.1
# What makes the own work of a process longer than that of others, in the order of `_own_ns`.
CAUSES = {
    "loading": "its loader takes",
    "alone": "its own compute takes",
    "between": "its work between steps, such as callbacks, takes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """What a process did over all rounds.

    Attributes:
      process: its number.
      decoded_ratio: images that it decoded, over those that it trained on.
      loading_ratio: share of its epochs in which it waited for a batch.
      others_ratio: share in which it waited for processes whose batch came later.
    """

    process: int
    decoded_ratio: float
    loading_ratio: float
    others_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A process for which all others wait.

    Attributes:
      process: its number.
      cause: a key of `CAUSES`: the part of its own work that exceeds that of the next process by most.
      longer_ms: by how much its own work is longer, each step.
      step_ratio: that time, over the whole time of a step.
    """

    process: int
    cause: str
    longer_ms: float
    step_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainersResult:
    """The result of a subject.

    Attributes:
      subject: its name.
      trainers: how many.
      images_per_sec: of all trainers together, geometric mean over the rounds.
      ratio, interval: that rate over the rate of one trainer, and the 95 % interval; None without it, or for it.
      decoded_ratio: images that all processes decoded, over those that they trained on.
      processes: of each process.
      straggler: or None.
    """

    subject: str
    trainers: int
    images_per_sec: float
    ratio: float | None
    interval: Interval | None
    decoded_ratio: float
    processes: tuple[ProcessResult, ...]
    straggler: Straggler | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What is derived from a document.

    Attributes:
      remedy_ratio, remedy_interval: the rate with divided files over that with a divided dataset; None without both.
    """

    subjects: tuple[TrainersResult, ...]
    remedy_ratio: float | None = None
    remedy_interval: Interval | None = None


def derive(document: TrainersDocument) -> Results:
    """Derives the result of each subject of which an epoch was measured, in the order of the plan."""
    order = document.plan.subjects.index
    rounds: dict[str, dict[int, list[ProcessEpoch]]] = {}
    for epoch in sorted(document.samples.epochs, key=lambda epoch: (order(epoch.subject), epoch.round, epoch.process)):
        rounds.setdefault(epoch.subject, {}).setdefault(epoch.round, []).append(epoch)
    rates = {name: _rates(by_number) for name, by_number in rounds.items()}
    by_sharding = {SUBJECTS[name].sharded_by: of_rounds for name, of_rounds in rates.items()}
    remedy_ratio, remedy_interval = shared_ratio(by_sharding.get(BY_FILES, {}), by_sharding.get(BY_KERAS, {}))
    results = []
    for name, by_number in rounds.items():
        ratio, interval = shared_ratio(rates[name], rates.get(SUBJECTS[name].baseline, {}))
        epochs = list(by_number.values())
        results.append(
            TrainersResult(
                subject=name,
                trainers=document.plan.trainers if SUBJECTS[name].several else 1,
                images_per_sec=geometric_mean(list(rates[name].values())),
                ratio=ratio,
                interval=interval,
                decoded_ratio=_decoded_ratio([epoch for of_round in epochs for epoch in of_round]),
                processes=_processes(epochs),
                straggler=straggler_of(epochs),
            )
        )
    return Results(subjects=tuple(results), remedy_ratio=remedy_ratio, remedy_interval=remedy_interval)


def _rates(rounds: Mapping[int, Sequence[ProcessEpoch]]) -> dict[int, float]:
    """Returns the images/sec of all processes together, by round: an epoch lasts until the last process has ended."""
    return {
        number: sum(epoch.trained for epoch in epochs) / max(epoch.wall_ns for epoch in epochs) * 1e9
        for number, epochs in rounds.items()
    }


def _decoded_ratio(epochs: Sequence[ProcessEpoch]) -> float:
    return sum(epoch.decoded for epoch in epochs) / sum(epoch.trained for epoch in epochs)


def _processes(rounds: Sequence[Sequence[ProcessEpoch]]) -> tuple[ProcessResult, ...]:
    waited_ns = np.sum([_waited_for_others_ns(epochs) for epochs in rounds], axis=0)
    results = []
    for number, epochs in enumerate(zip(*rounds, strict=True)):
        wall_ns = sum(epoch.wall_ns for epoch in epochs)
        results.append(
            ProcessResult(
                process=number,
                decoded_ratio=_decoded_ratio(epochs),
                loading_ratio=sum(sum(epoch.wait_ns) for epoch in epochs) / wall_ns,
                others_ratio=float(waited_ns[number]) / wall_ns,
            )
        )
    return tuple(results)


def _waited_for_others_ns(epochs: Sequence[ProcessEpoch]) -> NDArray[np.int64]:
    """Returns how long each process waited in its steps for processes whose batch came later, (processes,).

    All processes leave a step together, when the gradients of all are summed. So the process that entered last has the
    shortest step, and the others waited for as long as theirs are longer: no clock of one host is compared with that
    of another.
    """
    steps_ns = np.array([epoch.step_ns for epoch in epochs])
    return np.asarray((steps_ns - steps_ns.min(axis=0)).sum(axis=1))


def _own_ns(epoch: ProcessEpoch, alone_ns: int) -> list[float]:
    """Returns the parts of a process' own work, each step, in the order of `CAUSES`.

    A process that waits for others has no longer work of its own: its loader goes on meanwhile, so that its batches lie
    ready, and a step without other trainers takes as long as anywhere.
    """
    steps, loading_ns = len(epoch.wait_ns), sum(epoch.wait_ns)
    between_ns = epoch.wall_ns - loading_ns - sum(epoch.step_ns)
    return [loading_ns / steps, alone_ns, between_ns / steps]


def straggler_of(rounds: Sequence[Sequence[ProcessEpoch]]) -> Straggler | None:
    """Returns the process whose own work is the longest in every round, if the others noticeably wait for it.

    Args:
      rounds: of each round the epochs of all processes, in their order.
    Returns:
      The process; None if there is none, or where a step without others was not measured.
    """
    slowest: set[int] = set()
    longer_ns: list[NDArray[np.float64]] = []
    ratios: list[float] = []
    for epochs in rounds:
        own = [_own_ns(epoch, epoch.alone_ns) for epoch in epochs if epoch.alone_ns is not None]
        if len(own) < max(2, len(epochs)):
            return None
        own_ns = np.array(own)
        second, first = np.argsort(own_ns.sum(axis=1))[-2:]
        slowest.add(int(first))
        longer_ns.append(own_ns[first] - own_ns[second])
        ratios.append(float(longer_ns[-1].sum()) * len(epochs[first].wait_ns) / epochs[first].wall_ns)
    if len(slowest) > 1 or min(ratios) < _STRAGGLER_RATIO:
        return None
    mean_ns = np.mean(longer_ns, axis=0)
    return Straggler(
        process=slowest.pop(),
        cause=list(CAUSES)[int(mean_ns.argmax())],
        longer_ms=float(mean_ns.sum()) / 1e6,
        step_ratio=sum(ratios) / len(ratios),
    )
