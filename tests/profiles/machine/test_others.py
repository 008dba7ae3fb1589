"""What other programs take of the cores: a planted one is found, our own work and our own children are not others."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest

from tests.fakes import FakeClock
from tests.planted import planted
from unstall.profiles import clock
from unstall.profiles.machine.others import Others

_BURN = "print(flush=True)\nwhile True: pass"
# For a child of `multiprocessing`; not a function of this file, with which the child would import TensorFlow.
_BURN_ONCE_BEGUN = "begun.set()\nwhile True: pass"


def others_while_burning() -> float:
    others = Others()
    until = time.perf_counter() + 0.6
    while time.perf_counter() < until:
        pass
    ratio = others.ratio()
    assert ratio is not None
    return ratio


def test_a_moment_says_nothing() -> None:
    assert Others().ratio() is None


def test_what_the_kernel_counts_twice_or_waits_is_not_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    core = SimpleNamespace(user=5.0, system=1.0, idle=90.0, iowait=4.0, guest=2.0, guest_nice=0.0)

    class Times(tuple):
        __slots__ = ()

        def __getattr__(self, name: str) -> float:
            return getattr(core, name)

    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: [Times(vars(core).values())] * 4)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {1, 3}, raising=False)
    assert clock.machine_cpu_ns() == (12_000_000_000, 2)


def test_others_have_what_the_cores_did_beside_this_process(
    fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unstall.profiles.machine.others.usable_cores", lambda: 2)
    busy_ns = iter([0, 500_000_000])
    monkeypatch.setattr(clock, "machine_cpu_ns", lambda: (next(busy_ns), 2))
    others = Others()
    fake_clock.spend(cpu_s=0.3, wait_s=0.7)
    assert others.ratio() == 0.1


def test_under_a_quota_nothing_is_said(fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts the whole host: others have quotas of their own."""
    monkeypatch.setattr("unstall.profiles.machine.others.usable_cores", lambda: 0.5)
    others = Others()
    fake_clock.spend(cpu_s=0.15)
    assert others.ratio() is None


@pytest.mark.parametrize("error", [PermissionError("no"), psutil.AccessDenied()])
def test_where_the_system_does_not_tell_nothing_is_said(
    fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse() -> None:
        raise error

    monkeypatch.setattr(clock, "machine_cpu_ns", refuse)
    others = Others()
    fake_clock.spend(cpu_s=0.15)
    assert others.ratio() is None and others.own_cpu_ns() == 150_000_000


def test_cores_that_cannot_be_told_by_their_place_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 4096}, raising=False)
    assert clock.machine_cpu_ns() == (0, 0)


@pytest.mark.long
@planted
def test_a_program_that_burns_a_core_is_found() -> None:
    cores = len(psutil.Process().cpu_affinity())
    quiet = others_while_burning()
    with subprocess.Popen([sys.executable, "-S", "-c", _BURN], stdout=subprocess.PIPE) as neighbour:
        assert neighbour.stdout is not None
        neighbour.stdout.readline()
        beside = others_while_burning()
        neighbour.kill()
    # On a machine with one core it takes half of it.
    assert beside - quiet == pytest.approx(1 / max(cores, 2), abs=0.12)


@planted
def test_our_own_work_and_our_own_children_are_not_others() -> None:
    spawn = multiprocessing.get_context("spawn")
    begun = spawn.Event()
    child = spawn.Process(target=exec, args=(_BURN_ONCE_BEGUN, {"begun": begun}))
    child.start()
    assert begun.wait(60)
    beside = others_while_burning()
    child.kill()
    child.join()
    assert beside < 0.15
