"""Derives from windows the rate of each subject, what its workers and its client spend, and what limits a service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from unstall.benchmarks.service.plan import Asked
from unstall.benchmarks.service.samples import MeasuredService, Measurements, Window
from unstall.pipeline.service import NO_SERVICE
from unstall.profiles.report import Document
from unstall.profiles.statistics import Interval, geometric_mean, median, shared_ratio

ServiceDocument = Document[Asked, Measurements]

# Below this share of waiting the consumer, not the service, is the limit.
_FED_RATIO = 0.05
# A link or a host that is used so far is full.
_FULL_RATIO = 0.85
# Workers that wait so long for their next chunk would make noticeably more batches without.
_SPLIT_RATIO = 0.25
# A worker with less than this part of the others' rate is slow.
_SLOW_RATIO = 0.67


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerResult:
    """What a worker did over all windows.

    Attributes:
      worker: host and process.
      images_per_sec: its share of the rate.
      cpu_us_per_image, cpu_ms_per_megabyte: CPU time of its process.
      busy_ratio: CPU time over its cores' time; workers of one host share these cores.
      split_wait_ratio: share of its time in which it waited for its next chunk.
      costs_us: by stage, as the worker measured them at its start.
      slow: whether it has much less than the other workers' rate.
    """

    worker: str
    images_per_sec: float
    cpu_us_per_image: float
    cpu_ms_per_megabyte: float
    busy_ratio: float
    split_wait_ratio: float
    costs_us: dict[str, float]
    slow: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceResult:
    """The result of a subject.

    Attributes:
      service: the config's `service`.
      images_per_sec: geometric mean over the rounds.
      ratio, interval: the rate over that of the consumer's own threads, and the 95 % interval; None without them.
      wait_ratio, end_ratio: shares of the time in which the consumer waited; in which the client did at an epoch's end.
      client_us_per_image, client_ms_per_megabyte: CPU time of the consumer's process.
      link_ratio: how far the link is used; None where no rate is stated.
      served, repaired, twice, batches: over all windows.
      cause: the key of `CAUSES` that says what limits the service; "" for threads.
    """

    service: str
    images_per_sec: float
    ratio: float | None
    interval: Interval | None
    wait_ratio: float
    end_ratio: float
    client_us_per_image: float
    client_ms_per_megabyte: float | None
    link_ratio: float | None
    served: int
    repaired: int
    twice: int
    batches: int
    cause: str
    workers: tuple[WorkerResult, ...]

    def to_dict(self) -> dict[str, Any]:
        low, high = self.interval or (None, None)
        fields = asdict(self)
        del fields["interval"]
        return fields | {"ratio_low": low, "ratio_high": high}


# What limits a service, and what to do about it.
CAUSES: dict[str, str] = {
    "fed": "batches are ready when the consumer asks: the service is no limit",
    "epoch end": "the consumer waits at the end of an epoch for its last batches: a worker is slow, or was lost",
    "network": "the link to the workers is full: smaller images, or a faster link; more workers do not help",
    "split wait": "workers wait for the dispatcher's next chunk: its host, or the way to it, is slow",
    "receive": "this process's own cores are full, with receiving and what else it does: more workers do not help",
    "starved": "the cores of the workers' hosts are full: more workers help on other hosts only, or a cheaper pipeline",
    "workers idle": "neither cores nor link are full: workers wait for something else, such as their disk",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What is derived from a document."""

    subjects: tuple[ServiceResult, ...]


def derive(document: ServiceDocument) -> Results:
    """Derives the result of each subject of which a window was measured."""
    measured = {subject.service: subject for subject in document.samples.subjects if subject.windows}
    threads = measured.get(NO_SERVICE)
    return Results(subjects=tuple(_result(subject, threads, document) for subject in measured.values()))


def _result(subject: MeasuredService, threads: MeasuredService | None, document: ServiceDocument) -> ServiceResult:
    windows = subject.windows
    rates = {window.round: window.images_per_sec for window in windows}
    others = {window.round: window.images_per_sec for window in threads.windows} if threads else {}
    ratio, interval = shared_ratio(rates, others)
    wall_ns, images = sum(window.wall_ns for window in windows), sum(window.images for window in windows)
    client_ns = sum(window.client_cpu_ns for window in windows)
    received = sum(window.received_bytes for window in windows)
    link = document.plan.link_bytes_per_sec
    wait_ratio = sum(window.wait_ns for window in windows) / wall_ns
    end_ratio = min(wait_ratio, sum(window.end_wait_ns for window in windows) / wall_ns)
    link_ratio = received / (wall_ns / 1e9) / link if link and received else None
    workers = _workers(subject)
    machine_ratio = sum(window.machine_cpu_ns for window in windows) / wall_ns / document.samples.cores
    return ServiceResult(
        service=subject.service,
        images_per_sec=geometric_mean(list(rates.values())),
        ratio=ratio,
        interval=interval,
        wait_ratio=wait_ratio,
        end_ratio=end_ratio,
        client_us_per_image=client_ns / 1e3 / images,
        client_ms_per_megabyte=client_ns / 1e6 / (received / 1e6) if received else None,
        link_ratio=link_ratio,
        served=sum(window.served for window in windows),
        repaired=sum(window.repaired for window in windows),
        twice=sum(window.twice for window in windows),
        batches=sum(window.batches for window in windows),
        cause=cause_of(
            wait_ratio=wait_ratio,
            end_ratio=end_ratio,
            link_ratio=link_ratio,
            client_ratio=client_ns / wall_ns / document.samples.cores,
            host_ratios=_host_ratios(workers, document.samples.host, machine_ratio),
            split_ratio=median([worker.split_wait_ratio for worker in workers]) if workers else 0.0,
        )
        if subject.service != NO_SERVICE
        else "",
        workers=workers,
    )


def cause_of(
    *,
    wait_ratio: float,
    end_ratio: float,
    link_ratio: float | None,
    client_ratio: float,
    host_ratios: Sequence[float],
    split_ratio: float,
) -> str:
    """Returns what limits a service, a key of `CAUSES`.

    The rules are asked in an order in which an earlier cause explains a later sign: a full link leaves workers idle.

    Args:
      wait_ratio, end_ratio: shares of the consumer's time that it waits, and waits at an epoch's end.
      link_ratio: how far the link is used, or None.
      client_ratio: how far the cores of the consumer's process are used by it.
      host_ratios: how far the cores of each host of workers are used.
      split_ratio: share of the workers' time without a chunk.
    """
    if wait_ratio < _FED_RATIO:
        return "fed"
    if end_ratio > wait_ratio / 2:
        return "epoch end"
    if link_ratio is not None and link_ratio >= _FULL_RATIO:
        return "network"
    if client_ratio >= _FULL_RATIO:
        return "receive"
    if host_ratios and median(host_ratios) >= _FULL_RATIO:
        return "starved"
    if split_ratio >= _SPLIT_RATIO:
        return "split wait"
    return "workers idle"


def _host_ratios(workers: Sequence[WorkerResult], here: str, machine_ratio: float) -> tuple[float, ...]:
    """Returns how far the cores of each host of workers are used: here by all processes, elsewhere by the workers."""
    hosts: dict[str, float] = {}
    for worker in workers:
        host = worker.worker.rpartition(":")[0]
        hosts[host] = machine_ratio if host == here else hosts.get(host, 0.0) + worker.busy_ratio
    return tuple(hosts.values())


def _workers(subject: MeasuredService) -> tuple[WorkerResult, ...]:
    costs = {facts.worker: dict(facts.costs_us) for facts in subject.facts}
    names = sorted({worker.first.worker for window in subject.windows for worker in window.workers})
    rates = {name: _rate(name, subject.windows) for name in names}
    results = []
    for name in names:
        windows = [worker for window in subject.windows for worker in window.workers if worker.first.worker == name]
        wall_ns = sum(worker.wall_ns for worker in windows)
        cpu_ns = sum(worker.last.cpu_ns - worker.first.cpu_ns for worker in windows)
        images = sum(worker.last.images - worker.first.images for worker in windows)
        received = sum(window.received_bytes for window in subject.windows)
        per_image = received / sum(window.images for window in subject.windows)
        split_ns = sum(worker.last.split_wait_ns - worker.first.split_wait_ns for worker in windows)
        others = [rate for other, rate in rates.items() if other != name]
        results.append(
            WorkerResult(
                worker=name,
                images_per_sec=rates[name],
                cpu_us_per_image=cpu_ns / 1e3 / max(1, images),
                cpu_ms_per_megabyte=cpu_ns / per_image / max(1, images),
                busy_ratio=cpu_ns / wall_ns / windows[0].last.cores,
                split_wait_ratio=split_ns / wall_ns,
                costs_us=costs.get(name, {}),
                slow=bool(others) and rates[name] < _SLOW_RATIO * median(others),
            )
        )
    return tuple(results)


def _rate(name: str, windows: Sequence[Window]) -> float:
    images = sum(
        worker.last.images - worker.first.images
        for window in windows
        for worker in window.workers
        if worker.first.worker == name
    )
    wall_ns = sum(worker.wall_ns for window in windows for worker in window.workers if worker.first.worker == name)
    return images / wall_ns * 1e9
