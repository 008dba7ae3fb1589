"""Derives rates, what was decoded in vain, who waits for whom, and which process the others wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unstall.benchmarks.trainers.plan import Asked
from unstall.benchmarks.trainers.samples import AutoShard, MeasuredTrainers, Measurements, ProcessEpoch
from unstall.benchmarks.trainers.subjects import BY_FILES, BY_KERAS, SUBJECTS
from unstall.profiles.report import Document
from unstall.profiles.statistics import Interval, geometric_mean, shared_ratio

TrainersDocument = Document[Asked, Measurements]

# A process is a straggler if, in every round, its own work takes so much longer than that of the next one. Source: this
# part of the time of a step, at least, is saved where its work is as short as theirs.
_STRAGGLER_RATIO = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """What a process did over all rounds. The four shares are of its epochs' time, and add up to it.

    Attributes:
      process: its number.
      images_per_sec: that it trained on.
      decoded_ratio: images that it decoded, over those that it trained on.
      loading_ratio: share in which it waited for a batch.
      others_ratio: share in which it waited for processes whose batch came later.
      step_ratio: the remaining share of its steps: computing, and the exchange of gradients.
      between_ratio: share between its steps, where Keras and callbacks run.
      own_ms: what its own work takes, each step: waiting for its batch, a step without other trainers, and what lies
        between steps; None where the step alone was not measured.
    """

    process: int
    images_per_sec: float
    decoded_ratio: float
    loading_ratio: float
    others_ratio: float
    step_ratio: float
    between_ratio: float
    own_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaResult:
    """What a replica did in a process that feeds several. The five shares are of the epochs' time, and add up to it.

    Attributes:
      replica: its number.
      loading_ratio: share of the epoch in which all replicas waited for a batch.
      compute_ratio: share until it had its own gradients.
      others_ratio: share in which it then waited for the slowest replica of the step.
      exchange_ratio: remaining share of the steps, in which all replicas sum their gradients and update the weights.
      between_ratio: share between the steps.
    """

    replica: int
    loading_ratio: float
    compute_ratio: float
    others_ratio: float
    exchange_ratio: float
    between_ratio: float


# What makes the own work of a process longer than that of others.
CAUSES = {
    "loading": "its loader takes",
    "alone": "its own compute takes",
    "between": "its work between steps, such as callbacks, takes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A process for which all others wait.

    Attributes:
      process: its number.
      cause: a key of `CAUSES`: the part of its own work that is longest beside that of the next process.
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
      replicas: where one process has several that are timed.
      straggler: or None.
      auto_shard: what TensorFlow says of the dataset, or None.
    """

    subject: str
    trainers: int
    images_per_sec: float
    ratio: float | None
    interval: Interval | None
    decoded_ratio: float
    processes: tuple[ProcessResult, ...]
    replicas: tuple[ReplicaResult, ...]
    straggler: Straggler | None
    auto_shard: AutoShard | None


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
    """Derives the result of each subject of which an epoch was measured."""
    measured = {subject.subject: subject for subject in document.samples.subjects if subject.epochs}
    rates = {name: _rates(subject) for name, subject in measured.items()}
    by_sharding = {SUBJECTS[name].sharded_by: rates[name] for name in measured}
    remedy_ratio, remedy_interval = shared_ratio(by_sharding.get(BY_FILES, {}), by_sharding.get(BY_KERAS, {}))
    return Results(
        subjects=tuple(
            _result(subject, rates[name], rates.get(SUBJECTS[name].baseline, {}), document.plan.trainers)
            for name, subject in measured.items()
        ),
        remedy_ratio=remedy_ratio,
        remedy_interval=remedy_interval,
    )


def _rounds(subject: MeasuredTrainers) -> dict[int, list[ProcessEpoch]]:
    """Returns the epochs of each round, in the order of the processes."""
    rounds: dict[int, list[ProcessEpoch]] = {}
    for epoch in sorted(subject.epochs, key=lambda epoch: (epoch.round, epoch.process)):
        rounds.setdefault(epoch.round, []).append(epoch)
    return rounds


def _rates(subject: MeasuredTrainers) -> dict[int, float]:
    """Returns the images/sec of all processes together, by round: an epoch lasts until the last process has ended."""
    return {
        number: sum(epoch.trained for epoch in epochs) / max(epoch.wall_ns for epoch in epochs) * 1e9
        for number, epochs in _rounds(subject).items()
    }


def _result(
    subject: MeasuredTrainers, rates: Mapping[int, float], of_one: Mapping[int, float], trainers: int
) -> TrainersResult:
    ratio, interval = shared_ratio(rates, of_one)
    rounds = list(_rounds(subject).values())
    return TrainersResult(
        subject=subject.subject,
        trainers=trainers if SUBJECTS[subject.subject].several else 1,
        images_per_sec=geometric_mean(list(rates.values())),
        ratio=ratio,
        interval=interval,
        decoded_ratio=_decoded_ratio(subject.epochs),
        processes=tuple(_process(number, rounds) for number in range(len(rounds[0]))),
        replicas=_replicas(subject.epochs),
        straggler=straggler_of(rounds),
        auto_shard=subject.auto_shard,
    )


def _decoded_ratio(epochs: Sequence[ProcessEpoch]) -> float:
    return sum(epoch.decoded for epoch in epochs) / sum(epoch.trained for epoch in epochs)


def _process(number: int, rounds: Sequence[Sequence[ProcessEpoch]]) -> ProcessResult:
    epochs = [epochs[number] for epochs in rounds]
    wall_ns = sum(epoch.wall_ns for epoch in epochs)
    waited_ns = sum(_waited_for_others_ns(number, epochs) for epochs in rounds)
    own_ns = [sum(parts.values()) for epoch in epochs if (parts := _own_parts_ns(epoch)) is not None]
    loading_ratio = sum(sum(epoch.wait_ns) for epoch in epochs) / wall_ns
    step_ratio = sum(sum(epoch.step_ns) for epoch in epochs) / wall_ns
    return ProcessResult(
        process=number,
        images_per_sec=sum(epoch.trained for epoch in epochs) / wall_ns * 1e9,
        decoded_ratio=_decoded_ratio(epochs),
        loading_ratio=loading_ratio,
        others_ratio=waited_ns / wall_ns,
        step_ratio=step_ratio - waited_ns / wall_ns,
        between_ratio=1 - loading_ratio - step_ratio,
        own_ms=sum(own_ns) / len(own_ns) / 1e6 if own_ns else None,
    )


def _waited_for_others_ns(number: int, epochs: Sequence[ProcessEpoch]) -> int:
    """Returns how long a process waited in its steps for processes whose batch came later.

    All processes leave a step together, when the gradients of all are summed. So the process that entered last has the
    shortest step, and the others waited for as long as theirs are longer: no clock of one host is compared with that
    of another.
    """
    mine = epochs[number].step_ns
    return sum(step_ns - min(steps) for step_ns, *steps in zip(mine, *(epoch.step_ns for epoch in epochs), strict=True))


def _own_parts_ns(epoch: ProcessEpoch) -> dict[str, float] | None:
    """Returns the parts of a process' own work, each step, by the keys of `CAUSES`.

    A process that waits for others has no longer work of its own: its loader goes on meanwhile, so that its batches lie
    ready, and a step without other trainers takes as long as anywhere.

    Returns:
      The parts; None where a step without others was not measured.
    """
    if epoch.alone_ns is None:
        return None
    steps, loading_ns = len(epoch.wait_ns), sum(epoch.wait_ns)
    between_ns = epoch.wall_ns - loading_ns - sum(epoch.step_ns)
    return {"loading": loading_ns / steps, "alone": float(epoch.alone_ns), "between": between_ns / steps}


def straggler_of(rounds: Sequence[Sequence[ProcessEpoch]]) -> Straggler | None:
    """Returns the process whose own work is the longest in every round, if the others noticeably wait for it.

    Args:
      rounds: of each round the epochs of all processes, in their order.
    """
    slowest: set[int] = set()
    longer_ns: list[float] = []
    ratios: list[float] = []
    by_part = dict.fromkeys(CAUSES, 0.0)
    for epochs in rounds:
        parts = [own for epoch in epochs if (own := _own_parts_ns(epoch)) is not None]
        if len(parts) < 2:
            return None
        second, first = sorted(range(len(parts)), key=lambda number: sum(parts[number].values()))[-2:]
        slowest.add(first)
        by_part = {part: ns + parts[first][part] - parts[second][part] for part, ns in by_part.items()}
        longer_ns.append(sum(parts[first].values()) - sum(parts[second].values()))
        ratios.append(longer_ns[-1] * len(epochs[first].wait_ns) / epochs[first].wall_ns)
    if len(slowest) > 1 or min(ratios) < _STRAGGLER_RATIO:
        return None
    return Straggler(
        process=slowest.pop(),
        cause=max(by_part, key=lambda part: by_part[part]),
        longer_ms=sum(longer_ns) / len(longer_ns) / 1e6,
        step_ratio=sum(ratios) / len(ratios),
    )


def _replicas(epochs: Sequence[ProcessEpoch]) -> tuple[ReplicaResult, ...]:
    timed = [epoch for epoch in epochs if epoch.replica_ns]
    if not timed:
        return ()
    wall_ns = sum(epoch.wall_ns for epoch in timed)
    loading_ns = sum(sum(epoch.wait_ns) for epoch in timed)
    step_ns = sum(sum(epoch.step_ns) for epoch in timed)
    slowest_ns = sum(max(steps) for epoch in timed for steps in zip(*epoch.replica_ns, strict=True))
    results = []
    for number in range(len(timed[0].replica_ns)):
        compute_ns = sum(sum(epoch.replica_ns[number]) for epoch in timed)
        results.append(
            ReplicaResult(
                replica=number,
                loading_ratio=loading_ns / wall_ns,
                compute_ratio=compute_ns / wall_ns,
                others_ratio=(slowest_ns - compute_ns) / wall_ns,
                exchange_ratio=(step_ns - slowest_ns) / wall_ns,
                between_ratio=1 - (loading_ns + step_ns) / wall_ns,
            )
        )
    return tuple(results)
