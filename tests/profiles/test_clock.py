"""The one module that reads a clock; here its readings are planted."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from unstall import profiles
from unstall.profiles import clock

MS = 1_000_000


@pytest.fixture
def at_100_ms(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that stands at 100 ms."""
    monkeypatch.setattr(clock, "now_ns", lambda: 100 * MS)


def test_now_is_the_monotonic_clock() -> None:
    before_ns = time.perf_counter_ns()
    assert before_ns <= clock.now_ns() <= time.perf_counter_ns()
    assert clock.now_ns(lambda: 100 * MS) == 100 * MS


def test_a_script_that_stops_the_clock_and_sleeps_no_more_does_not_stop_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 0)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    before_ns = clock.now_ns()
    clock.sleep_until_ns(before_ns + 5 * MS)
    assert clock.now_ns() - before_ns >= 5 * MS


def test_sleep_lasts_until_the_deadline(at_100_ms: None) -> None:
    slept_s: list[float] = []
    clock.sleep_until_ns(107 * MS, slept_s.append)
    assert slept_s == [0.007]


@pytest.mark.parametrize("deadline_ns", [100 * MS, 99 * MS, 0])
def test_a_deadline_that_has_passed_is_not_slept_for(at_100_ms: None, deadline_ns: int) -> None:
    slept_s: list[float] = []
    clock.sleep_until_ns(deadline_ns, slept_s.append)
    assert slept_s == []


def test_the_canary_is_timed_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([10, 35])
    monkeypatch.setattr(clock, "now_ns", lambda: next(readings))
    assert clock.canary_ns(turns=3) == 25


def test_cpu_time_has_this_process_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before_ns = clock.cpu_ns()
    real = time.process_time_ns
    monkeypatch.setattr(time, "process_time_ns", lambda: real() + 3600 * 1000 * MS)
    assert clock.cpu_ns() - before_ns >= 3600 * 1000 * MS


def test_cpu_time_has_children_in_it_whether_they_live_or_not() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ninput()"
    before_ns = clock.cpu_ns()
    with subprocess.Popen(
        [sys.executable, "-S", "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        living_ns = clock.cpu_ns()
        child.communicate("\n")
    gone_ns = clock.cpu_ns()
    assert living_ns - before_ns >= 280 * MS  # the kernel counts children in ticks of 10 ms
    assert gone_ns - before_ns >= 280 * MS


def test_no_other_module_reads_a_clock_or_sleeps() -> None:
    folder = Path(profiles.__file__).parent
    guilty = [path.name for path in folder.glob("*.py") if "import time" in path.read_text(encoding="utf-8")]
    assert guilty == ["clock.py"]
