"""The machine beside a run: exact numbers from planted counters, and one real process that burns a core."""

from __future__ import annotations

import itertools
import multiprocessing
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from unstall.profiles import clock
from unstall.profiles.machine import counters, telemetry
from unstall.profiles.machine.counters import Reading
from unstall.profiles.machine.telemetry import MachineUse, Mark, Recorder, Trace, during, spans, trace_of

S = 1_000_000_000


def a_reading(at_s: float, *cpu: float, **changes: Any) -> Reading:
    values: dict[str, Any] = {
        "at_ns": round(at_s * S),
        "cpu_ratio": cpu,
        "memory_bytes": 1000,
        "disk_read_bytes": 0,
        "gpu_ratio": (),
        "gpu_memory_bytes": (),
    }
    return Reading(**(values | changes))


def a_trace(readings: list[Reading], marks: tuple[Mark, ...] = (), cores: tuple[int, ...] = (0, 1)) -> Trace:
    return trace_of(readings, marks, start_ns=10 * S, cores=cores)


FOUR = [
    a_reading(10.0, 0, 0, disk_read_bytes=500, gpu_ratio=(0.9, 0.0), gpu_memory_bytes=(1, 2)),
    a_reading(10.5, 0.2, 1.0, disk_read_bytes=1500, gpu_ratio=(0.1, 0.0), gpu_memory_bytes=(3, 4)),
    a_reading(12.5, 0.4, 0.6, disk_read_bytes=1500, memory_bytes=3000, gpu_ratio=(0.5, 0.0), gpu_memory_bytes=(5, 6)),
    a_reading(13.0, 1.0, 0.0, disk_read_bytes=3500, gpu_ratio=(None, 0.0), gpu_memory_bytes=(7, None)),
]
MARKS = (
    Mark(seconds=0.0, text="round 1", phase=True),
    Mark(seconds=0.5, text="a"),
    Mark(seconds=1.5, text="b"),
    Mark(seconds=2.0, text="round 2", phase=True),
    Mark(seconds=2.5, text="a"),
)


def test_a_row_says_what_happened_since_the_reading_before() -> None:
    trace = a_trace(FOUR, MARKS)
    assert trace.seconds == (0.5, 2.5, 3.0)
    assert trace.cpu_ratio == ((0.2, 0.4, 1.0), (1.0, 0.6, 0.0))
    assert trace.memory_bytes == (1000, 3000, 1000)
    assert trace.disk_read_bytes_per_sec == (2000, 0, 4000)
    assert trace.gpu_ratio == ((0.1, 0.5, None), (0.0, 0.0, 0.0))
    assert trace.gpu_memory_bytes == ((3, 5, 7), (4, 6, None))


def test_disk_reads_that_were_not_told_or_ran_backwards_are_not_made_up() -> None:
    counters = (None, 5, 3, None)
    trace = a_trace([a_reading(10 + at, 0, 0, disk_read_bytes=value) for at, value in enumerate(counters)])
    assert trace.disk_read_bytes_per_sec == (None, 0, None)


@pytest.mark.parametrize("readings", [[], FOUR[:1]])
def test_a_run_shorter_than_two_readings_leaves_an_empty_trace(readings: list[Reading]) -> None:
    trace = a_trace(readings, MARKS[:2])
    assert trace.seconds == () and trace.marks == MARKS[:2]
    assert during(trace, spans(trace, "a")) == MachineUse(cpu_ratio=None, gpu_ratio=None)


# The first reading is where the others begin, and no row.
HOT = [a_reading(10.0 + at, 0, 0, gpu_celsius=(50.0 + at, 30.0), gpu_watts=(100.0 * at, None)) for at in range(3)]


def test_temperature_and_power_of_gpus_are_kept_and_averaged() -> None:
    trace = a_trace(HOT)
    assert (trace.gpu_celsius, trace.gpu_watts) == (((51.0, 52.0), (30.0, 30.0)), ((100.0, 200.0), (None, None)))
    assert during(trace, [(0.5, 2.0)]) == MachineUse(
        cpu_ratio=0.0, gpu_ratio=None, gpu_celsius=pytest.approx(51 + 2 / 3), gpu_watts=pytest.approx(500 / 3)
    )


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must be of one length\. Received: lengths=\[1, 3\]\."):
        replace(a_trace(FOUR), memory_bytes=(1,))


def test_a_window_runs_from_its_mark_to_the_next_of_any_kind() -> None:
    trace = a_trace(FOUR, MARKS)
    assert spans(trace, "a") == ((0.5, 1.5), (2.5, 3.0))
    assert spans(trace, "b") == ((1.5, 2.0),)
    assert spans(trace, "c") == ()


@pytest.mark.parametrize(
    ("parts", "cpu", "gpu"),
    [
        ([(0.0, 0.5)], 0.6, 0.1),
        ([(0.5, 2.5)], 0.5, 0.5),
        # 0.25 s of a row with 0.6, 0.75 s of one with 0.5.
        ([(0.25, 1.25)], 0.525, 0.4),
        # 1 s of one with 0.5, and 0.5 s of a last one whose GPU is unknown.
        ([(0.5, 1.5), (2.5, 3.0)], 0.5, 0.5),
        ([(0.0, 0.5), (0.5, 1.0)], 0.55, 0.3),
        ([(0.0, 99.0)], (0.5 * 0.6 + 2.5 * 0.5) / 3, (0.5 * 0.1 + 2 * 0.5) / 2.5),
        ([(7.0, 9.0)], None, None),
        ([], None, None),
    ],
)
def test_averages_weigh_each_row_by_its_part_in_the_window(
    parts: list[tuple[float, float]], cpu: float | None, gpu: float | None
) -> None:
    use = during(a_trace(FOUR), parts)
    assert use.cpu_ratio == (None if cpu is None else pytest.approx(cpu))
    assert use.gpu_ratio == (None if gpu is None else pytest.approx(gpu))


def recorder_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "unstall telemetry"]


@pytest.mark.parametrize("interval_s", [0, 0.09, -1, float("nan")])
def test_an_interval_that_says_little_is_refused(interval_s: float) -> None:
    with pytest.raises(ValueError, match=rf"`interval_s` must be at least 0\.1\. Received: interval_s={interval_s}\."):
        Recorder(interval_s)


def test_marks_and_phases_are_kept_in_order_with_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now_ns", lambda: 100 * S)
    recorder = Recorder()
    for at_s, say, text in ((101, recorder.phase, "round 1"), (101.25, recorder.mark, "a"), (103, recorder.mark, "b")):
        monkeypatch.setattr(clock, "now_ns", lambda at_s=at_s: round(at_s * S))
        say(text)
    assert recorder.trace.marks == (
        Mark(seconds=1.0, text="round 1", phase=True),
        Mark(seconds=1.25, text="a"),
        Mark(seconds=3.0, text="b"),
    )


def test_a_recorder_that_cannot_read_anything_leaves_the_run_alone(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*arguments: Any, **settings: Any) -> None:
        raise RuntimeError("no counters here")

    monkeypatch.setattr(counters.psutil, "cpu_percent", refuse)
    with Recorder(0.1) as recorder:
        recorder.mark("a")
        wait_until(lambda: not recorder_threads())
    assert recorder.trace.seconds == () and len(recorder.trace.marks) == 1
    assert capfd.readouterr() == ("", "")


def test_a_reading_that_fails_is_a_gap_and_the_next_ones_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = counters._tree_bytes

    def fails_second(pid: int) -> int | None:
        calls.append(pid)
        if len(calls) == 2:
            raise RuntimeError("once")
        return real(pid)

    monkeypatch.setattr(counters, "_tree_bytes", fails_second)
    with Recorder(0.1) as recorder:
        wait_until(lambda: len(calls) >= 4)
    assert len(recorder.trace.seconds) == len(calls) - 2  # one failed, one is where it begins


def wait_until(holds: Any, most_s: float = 10) -> None:
    end = time.monotonic() + most_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_driver_that_hangs_does_not_keep_the_run_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, release = threading.Event(), threading.Event()
    monkeypatch.setattr(counters, "_tree_bytes", lambda pid: reading.set() or (release.wait(30) and 0))
    monkeypatch.setattr(telemetry, "_STOP_S", 0.1)
    recorder = Recorder(0.1)
    try:
        with recorder:
            assert reading.wait(10)
            start = time.monotonic()
        assert 0.1 <= time.monotonic() - start < 10
        assert recorder_threads()[0].daemon
    finally:
        release.set()
        wait_until(lambda: not recorder_threads())


def test_the_thread_ends_with_the_block_also_when_the_run_fails() -> None:
    recorder = Recorder(60)

    def fail() -> None:
        with recorder:
            assert len(recorder_threads()) == 1
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert recorder_threads() == []
    recorder.stop()  # once more does no harm


def test_a_mark_brings_the_next_reading_forward() -> None:
    with Recorder(60) as recorder:
        wait_until(lambda: bool(recorder._readings))
        time.sleep(0.15)
        recorder.mark("a")
        wait_until(lambda: len(recorder.trace.seconds) == 1)
    trace = recorder.trace
    assert trace.marks[0].seconds - 0.001 <= trace.seconds[0] < trace.marks[0].seconds + 5


def test_no_two_readings_are_closer_than_the_counters_can_tell() -> None:
    with Recorder(0.1) as recorder:
        until = time.monotonic() + 30
        while len(recorder.trace.seconds) < 3 and time.monotonic() < until:
            recorder.mark("a")
            time.sleep(0.01)
    seconds = (0.0, *recorder.trace.seconds)
    assert len(seconds) > 3
    assert min(b - a for a, b in itertools.pairwise(seconds)) > 0.08


def burn(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@pytest.fixture
def burner() -> Iterator[Any]:
    process = multiprocessing.get_context("spawn").Process(target=burn, args=(2.0,))
    yield process
    process.kill()
    process.join()


@pytest.mark.long
def test_a_process_that_burns_a_core_is_seen_and_its_memory_counted(burner: Any) -> None:
    # What the other cores do is somebody else's: at least one core's worth is busy while it burns.
    with Recorder(0.2) as recorder:
        wait_until(lambda: bool(recorder.trace.seconds))
        recorder.mark("burn")
        burner.start()
        burner.join()
        recorder.mark("over")
    trace = recorder.trace
    use = during(trace, spans(trace, "burn"))
    assert use.cpu_ratio is not None
    cores = use.cpu_ratio * len(trace.cores)
    # Its interpreter takes some tenths of a second to start.
    assert 0.7 <= cores <= len(trace.cores) + 0.01
    assert all(0 <= ratio <= 1 for column in trace.cpu_ratio for ratio in column)
    known = [value for value in trace.memory_bytes if value is not None]
    assert max(known) - known[0] > 5 * 2**20  # a Python process with nothing in it takes some 10 MB
