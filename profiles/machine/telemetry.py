"""Samples the machine beside a run: CPU per core, memory, disk reads, GPUs; a thread that never gets in the way."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from profiles import clock
from profiles.devices import Device
from profiles.machine.counters import Probe, Reading

# The kernel counts CPU time in ticks of 10 ms: over less than ten of them a ratio says little.
LEAST_INTERVAL_S = 0.1
_STOP_S = 2.0
# A GPU says how busy it was, and what it drew, over the time before, up to so long. Source: NVML's `nvmlUtilization_t`
# (1/6 s to 1 s) and `nvmlDeviceGetPowerUsage` (1 s).
GPU_AVERAGED_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that began, `seconds` after the recorder; a `phase` is a stretch of the run with windows in it."""

    seconds: float
    text: str
    phase: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The machine during a run, a row each time it was read.

    Attributes:
      seconds: since the recorder began, at the end of each row's stretch; the first stretch begins at 0.
      cores: numbers of the cores that this process may use.
      cpu_ratio: for each core, busy in each stretch; by anybody.
      memory_bytes: of the watched processes.
      disk_read_bytes_per_sec: of all disks, for anybody.
      gpu_ratio, gpu_memory_bytes, gpu_celsius, gpu_watts: for each GPU; the last two are empty in traces of old.
      marks: what began when, in order.
    """

    seconds: tuple[float, ...]
    cores: tuple[int, ...]
    cpu_ratio: tuple[tuple[float, ...], ...]
    memory_bytes: tuple[int | None, ...]
    disk_read_bytes_per_sec: tuple[float | None, ...]
    gpu_ratio: tuple[tuple[float | None, ...], ...]
    gpu_memory_bytes: tuple[tuple[int | None, ...], ...]
    marks: tuple[Mark, ...]
    gpu_celsius: tuple[tuple[float | None, ...], ...] = ()
    gpu_watts: tuple[tuple[float | None, ...], ...] = ()

    def __post_init__(self) -> None:
        columns = (
            *self.cpu_ratio,
            self.memory_bytes,
            self.disk_read_bytes_per_sec,
            *self.gpu_ratio,
            *self.gpu_memory_bytes,
            *self.gpu_celsius,
            *self.gpu_watts,
        )
        lengths = sorted({len(self.seconds), *map(len, columns)})
        if len(lengths) > 1:
            raise ValueError(f"All columns of a trace must be of one length. Received: lengths={lengths}.")


def trace_of(readings: Sequence[Reading], marks: Sequence[Mark], *, start_ns: int, cores: Sequence[int]) -> Trace:
    """Derives rates from counters; the first reading is where they begin, and no row of its own."""
    rows = readings[1:]
    disk = [
        None
        if before.disk_read_bytes is None or row.disk_read_bytes is None
        else round(max(0, row.disk_read_bytes - before.disk_read_bytes) * 1e9 / (row.at_ns - before.at_ns))
        for before, row in zip(readings, rows, strict=False)
    ]
    return Trace(
        seconds=tuple(_seconds(row.at_ns - start_ns) for row in rows),
        cores=tuple(cores),
        cpu_ratio=tuple(tuple(row.cpu_ratio[index] for row in rows) for index in range(len(cores))),
        memory_bytes=tuple(row.memory_bytes for row in rows),
        disk_read_bytes_per_sec=tuple(disk),
        gpu_ratio=tuple(zip(*(row.gpu_ratio for row in rows), strict=True)),
        gpu_memory_bytes=tuple(zip(*(row.gpu_memory_bytes for row in rows), strict=True)),
        marks=tuple(marks),
        gpu_celsius=tuple(zip(*(row.gpu_celsius for row in rows), strict=True)),
        gpu_watts=tuple(zip(*(row.gpu_watts for row in rows), strict=True)),
    )


def _seconds(ns: int) -> float:
    return round(ns / 1e9, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineUse:
    """Averages over a part of a trace; None where the trace has nothing.

    Attributes:
      cpu_ratio: of all cores.
      gpu_ratio, gpu_celsius, gpu_watts: of the GPU that was busiest, hottest, drew most: one trains, others may idle.
    """

    cpu_ratio: float | None
    gpu_ratio: float | None
    gpu_celsius: float | None = None
    gpu_watts: float | None = None


def spans(trace: Trace, text: str) -> tuple[tuple[float, float], ...]:
    """Returns when that which is marked `text` ran: from each such mark to the next of any kind, in seconds."""
    end_s = trace.seconds[-1] if trace.seconds else 0.0
    ends = [mark.seconds for mark in trace.marks[1:]] + [end_s]
    return tuple((mark.seconds, end) for mark, end in zip(trace.marks, ends, strict=False) if mark.text == text)


def settled(parts: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Returns what of these parts a GPU's own averages are of: without the first second, in which they are older."""
    return tuple((since + GPU_AVERAGED_S, to) for since, to in parts if since + GPU_AVERAGED_S < to)


def during(trace: Trace, parts: Sequence[tuple[float, float]]) -> MachineUse:
    """Averages over these parts of a trace, a row for as long as it overlaps with them."""
    begins = (0.0, *trace.seconds[:-1])
    weights = [
        sum(max(0.0, min(end, to) - max(begin, since)) for since, to in parts)
        for begin, end in zip(begins, trace.seconds, strict=False)
    ]

    def mean(column: Sequence[float | None]) -> float | None:
        known = [(value, weight) for value, weight in zip(column, weights, strict=True) if value is not None]
        total = sum(weight for _, weight in known)
        return sum(value * weight for value, weight in known) / total if total else None

    def means(columns: Sequence[Sequence[float | None]]) -> list[float]:
        return [number for column in columns if (number := mean(column)) is not None]

    cpu = means(trace.cpu_ratio)
    return MachineUse(
        cpu_ratio=sum(cpu) / len(cpu) if cpu else None,
        gpu_ratio=max(means(trace.gpu_ratio), default=None),
        gpu_celsius=max(means(trace.gpu_celsius), default=None),
        gpu_watts=max(means(trace.gpu_watts), default=None),
    )


def unread_gpu(devices: Iterable[Device], trace: Trace) -> list[str]:
    """Returns why nothing is said of how busy the GPU was, in a line; nothing where it is, or none was measured."""
    if trace.gpu_ratio or all(device.kind != "gpu" for device in devices):
        return []
    return ["How busy the GPU was is unknown: nvidia-ml-py, which asks its driver, is missing or sees none."]


class Recorder:
    """Records the machine in a thread of its own, until the `with` block ends.

    What goes wrong in there leaves a gap in the trace, and the run alone.

    Args:
      interval_s: between two readings; a mark brings the next one forward, so that windows have rows of their own.
      pid: the process whose memory counts, with all its children; this one by default.
    """

    def __init__(self, interval_s: float = 0.5, pid: int | None = None) -> None:
        if not interval_s >= LEAST_INTERVAL_S:
            raise ValueError(f"`interval_s` must be at least {LEAST_INTERVAL_S}. Received: interval_s={interval_s}.")
        self._interval_s = interval_s
        self._pid = os.getpid() if pid is None else pid
        self._start_ns = clock.now_ns()
        self._cores: tuple[int, ...] = ()
        self._readings: list[Reading] = []
        self._marks: list[Mark] = []
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._read_until_stopped, name="unstall telemetry", daemon=True)

    def __enter__(self) -> Self:
        self._start_ns = clock.now_ns()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the recording; what it has is kept. Waits 2 s at most, should a driver hang."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def mark(self, text: str) -> None:
        """Says that something begins now, and that what was marked before is over."""
        self._add(text, phase=False)

    def phase(self, text: str) -> None:
        """Says that a stretch of the run begins now: a round, with windows in it."""
        self._add(text, phase=True)

    def _add(self, text: str, *, phase: bool) -> None:
        self._marks.append(Mark(seconds=_seconds(clock.now_ns() - self._start_ns), text=text, phase=phase))
        self._wake.set()

    @property
    def trace(self) -> Trace:
        """What was recorded so far."""
        return trace_of(tuple(self._readings), tuple(self._marks), start_ns=self._start_ns, cores=self._cores)

    def _read_until_stopped(self) -> None:
        with contextlib.suppress(Exception):
            probe = Probe(self._pid)
            self._cores = probe.cores
            self._read(probe)
            while not self._stopping.wait(LEAST_INTERVAL_S):
                self._wake.wait(self._interval_s - LEAST_INTERVAL_S)
                self._wake.clear()
                self._read(probe)
            probe.close()

    def _read(self, probe: Probe) -> None:
        with contextlib.suppress(Exception):  # the run matters, not this
            self._readings.append(probe.read())
