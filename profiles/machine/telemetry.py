"""Records the machine during a run, in a thread beside it: load of each core, memory, disk reads, GPUs."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from unstall.profiles import clock
from unstall.profiles.devices import Device
from unstall.profiles.machine.counters import Probe, Reading

# The kernel counts CPU time in ticks of 10 ms; a ratio over fewer than ten ticks is too coarse.
LEAST_INTERVAL_S = 0.1
_STOP_S = 2.0
# A GPU's load and power are averages over the past, up to this long. Source: NVML's `nvmlUtilization_t` (1/6 s to 1 s)
# and `nvmlDeviceGetPowerUsage` (1 s).
GPU_AVERAGED_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The beginning of something, `seconds` after the recorder started.

    Attributes:
      phase: True for the beginning of a stretch of the run that contains windows, such as a round.
    """

    seconds: float
    text: str
    phase: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The machine during a run. A row is the stretch between two readings; columns have one value for each row.

    Attributes:
      seconds: end of each row's stretch, since the recorder started; the first stretch begins at 0.
      cores: numbers of the cores that this process may use.
      cpu_ratio: a column for each core: the part of the stretch in which any program used the core.
      memory_bytes: resident memory of the watched processes.
      disk_read_bytes_per_sec: of all disks, for any program.
      gpu_ratio, gpu_memory_bytes, gpu_celsius, gpu_watts: a column for each GPU; files of early versions lack the last
        two.
      marks: what began when, in order of time.
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
    """Derives a trace from readings of counters.

    Args:
      readings: in order of time. The first is where the first stretch begins, so that it makes no row.
      marks: in order of time.
      start_ns: when the recorder started, by `clock.now_ns`.
      cores: numbers of the cores that `cpu_ratio` of a reading is about.
    """
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
    """Averages over a part of a trace; None where the trace has no values.

    Attributes:
      cpu_ratio: mean load of all cores, from 0 to 1.
      gpu_ratio, gpu_celsius, gpu_watts: of the GPU with the highest average each, since one trains and others may idle.
    """

    cpu_ratio: float | None
    gpu_ratio: float | None
    gpu_celsius: float | None = None
    gpu_watts: float | None = None


def spans(trace: Trace, text: str) -> tuple[tuple[float, float], ...]:
    """Returns the (begin, end) in seconds of everything marked `text`; each ends at the next mark of any text."""
    end_s = trace.seconds[-1] if trace.seconds else 0.0
    ends = [mark.seconds for mark in trace.marks[1:]] + [end_s]
    return tuple((mark.seconds, end) for mark, end in zip(trace.marks, ends, strict=False) if mark.text == text)


def settled(parts: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Returns (begin, end) parts without their first second, in which a GPU still averages over the time before."""
    return tuple((since + GPU_AVERAGED_S, to) for since, to in parts if since + GPU_AVERAGED_S < to)


def during(trace: Trace, parts: Sequence[tuple[float, float]]) -> MachineUse:
    """Averages a trace over (begin, end) parts in seconds. Each row weighs as long as it overlaps with the parts."""
    begins = (0.0, *trace.seconds[:-1])
    weights = [
        sum(max(0.0, min(end, to) - max(begin, since)) for since, to in parts)
        for begin, end in zip(begins, trace.seconds, strict=False)
    ]

    def mean(column: Sequence[float | None]) -> float | None:
        weighted = [(value, weight) for value, weight in zip(column, weights, strict=True) if value is not None]
        total = sum(weight for _, weight in weighted)
        return sum(value * weight for value, weight in weighted) / total if total else None

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
    """Returns a line that says why the load of the GPU is unknown; nothing where it is known or no GPU was used."""
    if trace.gpu_ratio or all(device.kind != "gpu" for device in devices):
        return []
    return ["How busy the GPU was is unknown: nvidia-ml-py, which asks its driver, is missing or sees none."]


class Recorder:
    """Records the machine in a thread of its own, until the `with` block ends.

    Memory is that of this process and its children. An error while reading leaves a gap in the trace and never stops
    the run.

    Args:
      interval_s: seconds between two readings. A mark brings the next reading forward: windows do not share rows.
    Raises:
      ValueError: if `interval_s` is below `LEAST_INTERVAL_S`.
    """

    def __init__(self, interval_s: float = 0.5) -> None:
        if not interval_s >= LEAST_INTERVAL_S:
            raise ValueError(f"`interval_s` must be at least {LEAST_INTERVAL_S}. Received: interval_s={interval_s}.")
        self._interval_s = interval_s
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
        """Ends the recording and keeps the readings. Waits at most 2 s for the thread, in case a GPU driver hangs."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def mark(self, text: str) -> None:
        """Notes that something begins now, which ends what was marked before."""
        self._add(text, phase=False)

    def phase(self, text: str) -> None:
        """Notes that a stretch of the run with windows in it, such as a round, begins now."""
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
            probe = Probe(os.getpid())
            self._cores = probe.cores
            self._read(probe)
            while not self._stopping.wait(LEAST_INTERVAL_S):
                self._wake.wait(self._interval_s - LEAST_INTERVAL_S)
                self._wake.clear()
                self._read(probe)
            probe.close()

    def _read(self, probe: Probe) -> None:
        with contextlib.suppress(Exception):  # an error of the recorder must not stop the run
            self._readings.append(probe.read())
