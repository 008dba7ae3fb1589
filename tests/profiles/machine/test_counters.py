"""The machine's counters: exact numbers from planted ones, and nothing worse than None where there are none."""

from __future__ import annotations

import os
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from unstall.profiles import clock
from unstall.profiles.machine import counters
from unstall.profiles.machine.counters import Probe, Reading

S = 1_000_000_000


class FakeError(Exception):
    """What psutil or NVML raises."""


def a_process(rss: int, children: tuple[Any, ...] = ()) -> Any:
    return SimpleNamespace(
        memory_info=lambda: SimpleNamespace(rss=rss), children=lambda recursive: children if recursive else ()
    )


def gone() -> Any:
    raise FakeError


@pytest.fixture
def fake_psutil(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Three cores of which this process may use the first and the last; a process 7 with a child that is gone."""
    tree = a_process(1000, (a_process(200), SimpleNamespace(memory_info=gone), a_process(30)))
    percents = iter([[9.0, 9.0, 9.0], [50.0, 70.0, 12.3]])
    fake = SimpleNamespace(
        Error=FakeError,
        cpu_percent=lambda percpu: next(percents),
        Process={7: tree}.__getitem__,
        disk_io_counters=lambda: SimpleNamespace(read_bytes=4096),
    )
    monkeypatch.setattr(counters, "psutil", fake)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {2, 0})
    monkeypatch.setattr(clock, "now_ns", lambda: 5 * S)
    monkeypatch.setitem(sys.modules, "pynvml", None)  # as if it were not installed
    return fake


def a_fake_nvml(**changes: Any) -> SimpleNamespace:
    """Two GPUs; the second is divided and does not tell its use, and has no power meter."""

    def utilization(handle: str) -> SimpleNamespace:
        if handle == "gpu 1":
            raise FakeError
        return SimpleNamespace(gpu=37, memory=90)

    def power_mw(handle: str) -> int:
        if handle == "gpu 1":
            raise FakeError
        return 123_450

    calls: list[str] = []
    working = {
        "NVMLError": FakeError,
        "nvmlInit": lambda: calls.append("init"),
        "nvmlShutdown": lambda: calls.append("shutdown"),
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": "gpu {}".format,
        "nvmlDeviceGetUtilizationRates": utilization,
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=2**30 if handle == "gpu 0" else 5, total=2**34),
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlDeviceGetTemperature": lambda handle, sensor: 61 if (handle, sensor) == ("gpu 0", 0) else 40,
        "nvmlDeviceGetPowerUsage": power_mw,
        "calls": calls,
    }
    return SimpleNamespace(**(working | changes))


def test_a_reading_has_the_cores_in_use_the_memory_of_the_tree_and_the_disks(fake_psutil: SimpleNamespace) -> None:
    probe = Probe(7)
    assert probe.cores == (0, 2)
    assert probe.read() == Reading(
        at_ns=5 * S,
        cpu_ratio=(0.5, 0.123),
        memory_bytes=1230,
        disk_read_bytes=4096,
        gpu_ratio=(),
        gpu_memory_bytes=(),
    )
    probe.close()


def test_gpus_are_read_and_what_one_does_not_tell_is_none(
    fake_psutil: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml = a_fake_nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    probe = Probe(7)
    reading = probe.read()
    assert (reading.gpu_ratio, reading.gpu_memory_bytes) == ((0.37, None), (2**30, 5))
    assert (reading.gpu_celsius, reading.gpu_watts) == ((61.0, 40.0), (123.45, None))
    probe.close()
    assert nvml.calls == ["init", "shutdown"]


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"])
def test_without_a_driver_there_are_no_gpus_and_not_a_word(
    fake_psutil: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], broken: str
) -> None:
    def refuse(*arguments: Any) -> None:
        raise FakeError

    monkeypatch.setitem(sys.modules, "pynvml", a_fake_nvml(**{broken: refuse}))
    probe = Probe(7)
    assert probe.read().gpu_ratio == ()
    probe.close()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("error", [FileNotFoundError, NotImplementedError])
def test_a_machine_without_disk_counters_has_no_disk_reads(
    fake_psutil: SimpleNamespace, error: type[Exception]
) -> None:
    def refuse() -> None:
        raise error

    fake_psutil.disk_io_counters = refuse
    assert Probe(7).read().disk_read_bytes is None


def test_a_machine_without_disks_has_no_disk_reads(fake_psutil: SimpleNamespace) -> None:
    fake_psutil.disk_io_counters = lambda: None
    assert Probe(7).read().disk_read_bytes is None


def test_a_watched_process_that_is_gone_has_no_memory(fake_psutil: SimpleNamespace) -> None:
    fake_psutil.Process = lambda pid: gone()
    assert Probe(7).read().memory_bytes is None


@pytest.mark.parametrize("affinity", [set(), {0, 3}])
def test_where_the_cores_in_use_cannot_be_told_all_count(
    fake_psutil: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, affinity: set[int]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: affinity)
    assert Probe(7).cores == (0, 1, 2)


def test_a_reading_costs_little_cpu_time() -> None:
    probe = Probe(os.getpid())
    before_ns = time.thread_time_ns()
    for _ in range(20):
        probe.read()
    probe.close()
    assert (time.thread_time_ns() - before_ns) / 20 < 0.05 * S  # measured: about 1 ms
