"""Reads the machine's counters once: CPU per core, memory of a process tree, disk reads, GPUs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import psutil

from unstall.profiles import clock

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The counters of the machine at one moment. None stands for what the machine does not report.

    Attributes:
      at_ns: time of the reading, by `clock.now_ns`.
      cpu_ratio: for each core, the part of the time since the previous reading in which the core was busy.
      memory_bytes: resident memory of the watched process and its children; a shared page counts once for each.
      disk_read_bytes: read from all disks since the machine started.
      gpu_ratio: for each GPU, the part of the driver's last sampling period in which a kernel ran.
      gpu_memory_bytes: in use on each GPU, by all processes.
      gpu_celsius: temperature of each GPU's chip.
      gpu_watts: power that each GPU draws, including its board and memory.
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
    """Reads the machine's counters.

    Args:
      pid: the process whose memory is read, with that of its children.

    Attributes:
      cores: numbers of the cores that are read: those that this process may use.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        # The first `read` gives the load of the cores since this call of `cpu_percent`.
        self.cores = _cores(len(psutil.cpu_percent(percpu=True)))
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
    """Returns the numbers of the cores that this process may use, or of all `count` cores if that is unknown."""
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
        with contextlib.suppress(psutil.Error):  # the child has ended in the meantime
            total += child.memory_info().rss
    return total


def _disk_read_bytes() -> int | None:
    try:
        counters = psutil.disk_io_counters()
    except (OSError, NotImplementedError):
        return None
    return None if counters is None else counters.read_bytes


class _Gpu(NamedTuple):
    """A reading of one GPU."""

    ratio: float | None
    memory_bytes: int | None
    celsius: float | None
    watts: float | None


class _Gpus:
    """The NVIDIA GPUs; none without a driver or without nvidia-ml-py, the package that asks the driver."""

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
        except self._nvml.NVMLError:  # a divided GPU (MIG) does not report its load; some GPUs have no power meter
            return None

    def close(self) -> None:
        if self._handles:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
