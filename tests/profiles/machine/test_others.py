"""What other programs take of the cores: a planted one is found, our own work and our own children are not others."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest

from profiles import clock
from profiles.machine import Others
from tests.planted import planted

_BURN = "while True: pass"


def burn(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def others_while(seconds: float) -> float:
    others = Others()
    burn(seconds)
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


def test_under_a_quota_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts the whole host: others have quotas of their own."""
    monkeypatch.setattr("profiles.machine.others.usable_cores", lambda: 0.5)
    others = Others()
    burn(0.15)
    assert others.ratio() is None


@pytest.mark.parametrize("error", [PermissionError("no"), psutil.AccessDenied()])
def test_where_the_system_does_not_tell_nothing_is_said(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse() -> None:
        raise error

    monkeypatch.setattr(clock, "machine_cpu_ns", refuse)
    others = Others()
    burn(0.15)
    assert others.ratio() is None and others.own_cpu_ns() > 0.05e9


def test_cores_that_cannot_be_told_by_their_place_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 4096}, raising=False)
    assert clock.machine_cpu_ns() == (0, 0)


@planted
def test_a_program_that_burns_a_core_is_found() -> None:
    cores = len(psutil.Process().cpu_affinity())
    quiet = others_while(1.0)
    with subprocess.Popen([sys.executable, "-c", _BURN]) as neighbour:
        time.sleep(0.3)
        beside = others_while(1.0)
        neighbour.kill()
    # On a machine with one core it takes half of it.
    assert beside - quiet == pytest.approx(1 / max(cores, 2), abs=0.12)


@planted
def test_our_own_work_and_our_own_children_are_not_others() -> None:
    child = multiprocessing.get_context("spawn").Process(target=burn, args=(5.0,))
    child.start()
    time.sleep(1.0)
    beside = others_while(1.0)
    child.kill()
    child.join()
    assert beside < 0.15
