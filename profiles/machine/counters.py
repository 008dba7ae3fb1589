"""Reads the machine's counters once: CPU per core, memory of a process tree, disk reads, GPUs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import psutil

from profiles import clock

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the counters of the machine said at one moment; None is what it does not tell.

    Attributes:
      at_ns: when.
      cpu_ratio: of each core, since the reading before.
      memory_bytes: resident, summed over the watched process and its children; a page that they share counts for each.
      disk_read_bytes: of all disks, since the machine started.
      gpu_ratio: of each GPU: the part of the driver's last sampling period in which a kernel ran.
      gpu_memory_bytes: in use on each GPU, by whomever.
      gpu_celsius: temperature of each GPU's chip.
      gpu_watts: that each GPU draws, its board and memory with it.
    """

    at_ns: int
    cpu_ratio: tuple[float, ...]
    memory_bytes: int | None
    disk_read_bytes: int | None
    gpu_ratio: tuple[float | None, ...]
    gpu_memory_bytes: tuple[int | None, ...]
    gpu_celsius: tuple[float | None, ...] = ()
    gpu_watts: tuple[float | None, ...] = ()


class Probe:
    """Reads the machine's counters."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.cores = _cores(len(psutil.cpu_percent(percpu=True)))  # from this call on the next one counts
        self._gpus = _Gpus()

    def read(self) -> Reading:
        percents = psutil.cpu_percent(percpu=True)
        gpus = self._gpus.read()
        return Reading(
            at_ns=clock.now_ns(),
            cpu_ratio=tuple(round(percents[core] / 100, 3) for core in self.cores),
            memory_bytes=_tree_bytes(self._pid),
            disk_read_bytes=_disk_read_bytes(),
            gpu_ratio=tuple(gpu.ratio for gpu in gpus),
            gpu_memory_bytes=tuple(gpu.memory_bytes for gpu in gpus),
            gpu_celsius=tuple(gpu.celsius for gpu in gpus),
            gpu_watts=tuple(gpu.watts for gpu in gpus),
        )

    def close(self) -> None:
        self._gpus.close()


def _cores(count: int) -> tuple[int, ...]:
    """Returns those that this process may use, or all where that cannot be known."""
    allowed = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()
    return allowed if allowed and allowed[-1] < count else tuple(range(count))


def _tree_bytes(pid: int) -> int | None:
    try:
        root = psutil.Process(pid)
        total = root.memory_info().rss
        children = root.children(recursive=True)
    except psutil.Error:
        return None
    for child in children:
        with contextlib.suppress(psutil.Error):  # it ended meanwhile
            total += child.memory_info().rss
    return total


def _disk_read_bytes() -> int | None:
    try:
        counters = psutil.disk_io_counters()
    except (OSError, NotImplementedError):
        return None
    return None if counters is None else counters.read_bytes


class _Gpu(NamedTuple):
    """What one GPU tells."""

    ratio: float | None
    memory_bytes: int | None
    celsius: float | None
    watts: float | None


class _Gpus:
    """The NVIDIA GPUs, if there is a driver and the package that asks it; else none."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        try:
            import pynvml
        except ImportError:
            return
        self._nvml = pynvml
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]

    def read(self) -> list[_Gpu]:
        return [self._read(handle) for handle in self._handles]

    def _read(self, handle: Any) -> _Gpu:
        nvml = self._nvml
        return _Gpu(
            ratio=self._ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
            memory_bytes=self._ask(lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).used)),
            celsius=self._ask(lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))),
            watts=self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
        )

    def _ask(self, question: Callable[[], _Number]) -> _Number | None:
        try:
            return question()
        except self._nvml.NVMLError:  # a GPU that is divided does not tell its use, and some have no power meter
            return None

    def close(self) -> None:
        if self._handles:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
