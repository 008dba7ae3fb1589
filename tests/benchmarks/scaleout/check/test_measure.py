"""The order of a check, by children that measure nothing; and a real pool of one worker on a core of its own."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.lab import command
from benchmarks.lab.child import ChildDied, JobRefused
from benchmarks.lab.options import UserError
from benchmarks.scaleout import __main__ as scaleout
from benchmarks.scaleout import child as costs
from benchmarks.scaleout.check import child as trainer
from benchmarks.scaleout.check import measure
from benchmarks.scaleout.check.plan import LOOPBACK_POOLS, CheckAsked, CheckPlan
from benchmarks.scaleout.check.samples import PoolWindow
from pipeline import from_folder
from tests.builders import CONSTANTS, CUTS, a_checked_pool
from tests.planted import planted

WINDOW = PoolWindow(images=250, wall_ns=10**9, client_cpu_ns=10**8, worker_us=(4000.0,))
POOLS = (
    a_checked_pool("two", worker_cores=(0.4, 0.2), link_bytes_per_sec=1e6),
    a_checked_pool("alone", worker_cores=()),
    a_checked_pool("three", worker_cores=(0.1,) * 3),
)


class FakeHosts:
    """Emulates nothing, and notes what was asked of it."""

    relay = None

    def __init__(self, notes: list[str], hosts: int, link_bytes_per_sec: float | None, delay_s: float) -> None:
        self._notes = notes
        notes.append(f"{hosts} hosts, {link_bytes_per_sec}")

    def address(self, number: int) -> str:
        return f"host-{number}"

    def prefix(self, number: int) -> tuple[str, ...]:
        return ("on", str(number))

    def give(self, cores: tuple[float, ...]) -> None:
        self._notes.append(f"give {cores}")

    def close(self) -> None:
        self._notes.append("hosts closed")


class FakeChild:
    """Answers at once; what is planted for a method is raised."""

    notes: list[str]
    raises: dict[str, Exception]

    def __init__(self, session, device, log, *arguments, prefix=()):
        self.notes.append(f"{session.partition(':')[2]} {' '.join(prefix)}".strip())

    def ask(self, method, *arguments, timeout_s):
        said = method if method != "start" else f"start {len(arguments[1])} {arguments[2]}"
        self.notes.append(said)
        if method in self.raises:
            raise self.raises.pop(method)
        answers = {"constants": CONSTANTS, "cut": CUTS[2], "trainer_us": 7.0, "loader_us": 4000.0, "window": WINDOW}
        return answers.get(method)

    def close(self):
        self.notes.append("child closed")

    kill = close


@pytest.fixture
def notes(monkeypatch):
    notes: list[str] = []
    monkeypatch.setattr(measure, "Child", type("Child", (FakeChild,), {"notes": notes, "raises": {}}))
    monkeypatch.setattr(measure, "Cores", lambda *arguments: FakeHosts(notes, *arguments))
    return notes


def a_run(photos, folder, pools=POOLS) -> measure.Run:
    asked = CheckAsked(pools=pools, loopback=True, rounds=2, data="photos")
    plan = CheckPlan(asked=asked, data=str(photos), out=folder)
    return measure.Run(plan, from_folder(photos), command.progress_bar(Console(quiet=True)))


def test_constants_are_measured_first_and_the_costs_of_a_pool_right_before_it(photos, tmp_path, notes):
    run = a_run(photos, tmp_path)
    written = []
    run.measure(lambda: written.append([pool.name for pool in run.document(complete=False).samples.pools]))
    assert notes[:3] == ["ScaleoutSession", "constants", "child closed"]
    asked = [note for note in notes if note in ("constants", "cut", "trainer_us", "loader_us", "window")]
    assert asked == [
        "constants",
        "cut",
        "trainer_us",
        *("window",) * 2,
        "cut",
        "loader_us",
        *("window",) * 2,
        "cut",
        "trainer_us",
        *("window",) * 2,
    ]
    assert written == [["two"], ["two", "alone"], ["two", "alone", "three"]]
    document = run.document(complete=True)
    assert [len(pool.windows) for pool in document.samples.pools] == [2, 2, 2]
    assert [pool.loader_us for pool in document.samples.pools] == [0.0, 4000.0, 0.0]
    assert [pool.cut.trainer_us for pool in document.samples.pools] == [7.0, CUTS[2].trainer_us, 7.0]
    assert document.samples.constants == CONSTANTS and document.left_out == ()
    assert list(tmp_path.iterdir()) == []  # the log is gone


def test_hosts_get_their_quotas_once_all_have_started_and_the_child_ends_before_them(photos, tmp_path, notes):
    a_run(photos, tmp_path, POOLS[:1]).measure(lambda: None)
    assert notes[3:] == [
        "1 hosts, None",
        "ScaleoutSession on 0",
        "backend",
        f"give {((0.4 + 0.2) / 2,)}",  # the workers' mean: what is before the cut is measured so
        "cut",
        "give (1.0,)",
        "trainer_us",
        "child closed",
        "hosts closed",
        "3 hosts, 1000000.0",
        "TrainerSession on 0",
        "start 2 (('on', '1'), ('on', '2'))",
        "give (1.0, 0.4, 0.2)",
        "window",
        "window",
        "child closed",
        "hosts closed",
    ]


@pytest.mark.parametrize(
    ("method", "error"),
    [("cut", JobRefused("no service")), ("start", JobRefused("no port")), ("window", ChildDied("it is gone"))],
)
def test_a_pool_that_fails_is_left_out_and_the_others_are_measured(photos, tmp_path, notes, method, error):
    measure.Child.raises[method] = error
    run = a_run(photos, tmp_path)
    run.measure(lambda: None)
    document = run.document(complete=True)
    assert [(left_out.who, left_out.reason) for left_out in document.left_out] == [("two", str(error))]
    assert [pool.name for pool in document.samples.pools] == ["alone", "three"]
    assert notes.count("hosts closed") == (5 if method == "cut" else 6)
    assert [path.name for path in tmp_path.iterdir()] == ["child.log"]


def test_without_costs_no_pool_is_measured(photos, tmp_path, notes):
    measure.Child.raises["constants"] = JobRefused("no service")
    with pytest.raises(UserError, match=r"^scaleout: no service$") as caught:
        a_run(photos, tmp_path).measure(lambda: None)
    assert caught.value.exit_code == 3 and notes[-1] == "child closed"


def test_a_check_that_is_stopped_ends_its_hosts(photos, tmp_path, notes):
    run = a_run(photos, tmp_path)

    def stop() -> None:
        raise KeyboardInterrupt

    measure.Child.raises["window"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run.measure(stop)
    run.kill()
    assert notes[-2:] == ["child closed", "hosts closed"]


CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
two_cores = pytest.mark.skipif(CORES < 2, reason="needs two cores: one for a worker, one for the trainer")


class ChildHere:
    """Does the work of a child in the process of the test."""

    def __init__(self, session, device, log, *arguments, prefix=()):
        module, _, name = session.partition(":")
        self._session = getattr(importlib.import_module(module), name)(*arguments)

    def ask(self, method, *arguments, timeout_s):
        return getattr(self._session, method)(*arguments)

    def close(self):
        if hasattr(self._session, "close"):
            self._session.close()

    kill = close


def checked(words: list[str], out: Path) -> dict[str, float]:
    """Runs a check. Returns predicted over measured images/sec, by pool."""
    data = ["--check", "--loopback", "--data", "generated:320"]
    assert scaleout.main([*data, *words, "--out", str(out)]) in (0, 1)
    document = json.loads((out / "results.json").read_text())
    assert document["left_out"] == []
    assert all(window["worker_us"] for pool in document["samples"]["pools"] for window in pool["windows"])
    return {result["name"]: result["ratio"] for result in document["results"]}


@planted
@two_cores
def test_the_rate_of_a_real_pool_is_predicted(tmp_path, monkeypatch):
    """A worker process at the end of a link of 40 Mbit/s: predicted from costs without one, in short runs."""
    monkeypatch.setattr(measure, "Child", ChildHere)
    for name, value in {"_RUN_NS": 200_000_000, "_RUNS": 3}.items():
        monkeypatch.setattr(costs, name, value)
    for name, value in {"_WARM_NS": 1_500_000_000, "_WINDOW_NS": 2_000_000_000}.items():
        monkeypatch.setattr(trainer, name, value)
    ratios = checked(["--only", "mbit", "--rounds", "1"], tmp_path / "out")
    assert ratios == {"1 worker, 40 mbit": pytest.approx(1, abs=0.15)}


@pytest.mark.claims  # three pools in processes of their own: some two minutes
@planted
@two_cores
def test_the_rate_of_each_pool_of_cores_is_predicted(tmp_path):
    ratios = checked([], tmp_path / "out")
    assert ratios == {pool.name: pytest.approx(1, abs=0.15) for pool in LOOPBACK_POOLS}
