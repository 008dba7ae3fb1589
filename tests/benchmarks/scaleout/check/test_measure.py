"""The order of a check, by children that measure nothing; and a real pool of one worker on a core of its own."""

from __future__ import annotations

import importlib
import json
import os
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
from rich.console import Console

from tests.builders import CONSTANTS, a_checked_pool
from tests.planted import planted
from unstall.benchmarks.lab import command
from unstall.benchmarks.lab.child import ChildDied, JobRefused
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.scaleout import __main__ as scaleout
from unstall.benchmarks.scaleout import child as costs
from unstall.benchmarks.scaleout.check import child as trainer
from unstall.benchmarks.scaleout.check import measure
from unstall.benchmarks.scaleout.check.plan import LOOPBACK_POOLS, CheckAsked, CheckPlan
from unstall.benchmarks.scaleout.check.samples import PoolWindow
from unstall.benchmarks.scaleout.samples import CutCosts
from unstall.pipeline import from_folder

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
    """Answers at once; what is planted for a method is raised. Each of its windows has one image more."""

    windows = 0

    notes: list[str]
    raises: dict[str, Exception]

    def __init__(self, session, device, log, *arguments, prefix=()):
        self.notes.append(f"{session.partition(':')[2]} {' '.join(prefix)}".strip())

    def ask(self, method, *arguments, timeout_s):
        said = method if method != "start" else f"start {len(arguments[1])} {arguments[2]}"
        if method in ("worker", "trainer_us", "loader_us"):
            assert arguments[1:] == (measure._RUNS,)  # few: the next round has more
        self.notes.append(said)
        if method in self.raises:
            raise self.raises.pop(method)
        answers = {"constants": CONSTANTS, "worker": (4000.0, 5.0), "trainer_us": 7.0, "loader_us": 3.0}
        if method == "window":
            self.windows += 1
            return replace(WINDOW, images=self.windows)
        return answers.get(method)

    def close(self):
        self.notes.append("child closed")


@pytest.fixture
def notes(monkeypatch):
    notes: list[str] = []
    monkeypatch.setattr(measure, "Child", type("Child", (FakeChild,), {"notes": notes, "raises": {}}))
    killed = lambda children: notes.extend(["child killed"] * len(children))  # noqa: E731
    monkeypatch.setattr(measure, "kill_all", killed)
    monkeypatch.setattr(measure, "Cores", lambda *arguments: FakeHosts(notes, *arguments))
    return notes


def a_run(photos, folder, pools=POOLS) -> measure.Run:
    asked = CheckAsked(pools=pools, loopback=True, rounds=2, data="photos")
    plan = CheckPlan(asked=asked, data=str(photos), out=folder)
    return measure.Run(plan, from_folder(photos), command.progress_bar(Console(quiet=True)))


def test_constants_are_measured_first_and_costs_right_before_each_window(photos, tmp_path, notes):
    run = a_run(photos, tmp_path)
    written = []
    run.measure(lambda: written.append([pool.name for pool in run.document(complete=False).samples.pools]))
    assert notes[:3] == ["ScaleoutSession", "constants", "child closed"]
    asked = [note for note in notes if note in ("constants", "worker", "trainer_us", "loader_us", "window")]
    assert asked == [
        "constants",
        *("worker", "trainer_us", "window") * 2,
        *("loader_us", "window") * 2,
        *("worker", "trainer_us", "window") * 2,
    ]
    assert written == [["two"], ["two", "alone"], ["two", "alone", "three"]]
    document = run.document(complete=True)
    cut = CutCosts(served="batches", worker_us=4000.0, trainer_us=7.0, bytes_per_image=5.0)
    rounds = [[(round_.cut, round_.loader_us) for round_ in pool.rounds] for pool in document.samples.pools]
    assert rounds == [[(cut, None)] * 2, [(None, 3.0)] * 2, [(cut, None)] * 2]
    assert [[round_.window.images for round_ in pool.rounds] for pool in document.samples.pools] == [[1, 2]] * 3
    assert document.samples.constants == CONSTANTS and document.left_out == ()
    assert list(tmp_path.iterdir()) == []  # the log is gone


def test_hosts_get_their_quotas_once_all_have_started_and_the_children_end_before_them(photos, tmp_path, notes):
    a_run(photos, tmp_path, POOLS[:1]).measure(lambda: None)
    costs_and_window = [
        f"give {(1.0, 0.4, 0.2, mean((0.4, 0.2)))}",  # the workers' mean, for what is before the cut
        "worker",
        "give (1.0, 0.4, 0.2, 1.0)",
        "trainer_us",
        "window",
    ]
    assert notes[3:] == [
        "4 hosts, 1000000.0",
        "ScaleoutSession on 3",
        "TrainerSession on 0",
        "backend",
        "start 2 (('on', '1'), ('on', '2'))",
        *costs_and_window * 2,
        "child closed",
        "child closed",
        "hosts closed",
    ]


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("backend", ChildDied("no memory")),
        ("start", JobRefused("no port")),
        ("worker", JobRefused("no service")),
        ("trainer_us", ChildDied("it hung")),
        ("window", ChildDied("it is gone")),
    ],
)
def test_a_pool_that_fails_is_left_out_and_the_others_are_measured(photos, tmp_path, notes, method, error):
    measure.Child.raises[method] = error
    run = a_run(photos, tmp_path)
    run.measure(lambda: None)
    document = run.document(complete=True)
    assert [(left_out.who, left_out.reason) for left_out in document.left_out] == [("two", str(error))]
    assert [pool.name for pool in document.samples.pools] == ["alone", "three"]
    assert notes.count("hosts closed") == 3
    assert [path.name for path in tmp_path.iterdir()] == ["child.log"]


def test_without_costs_no_pool_is_measured(photos, tmp_path, notes):
    measure.Child.raises["constants"] = JobRefused("no service")
    run = a_run(photos, tmp_path)
    with pytest.raises(UserError, match=r"^scaleout: no service$") as caught:
        run.measure(lambda: None)
    assert caught.value.exit_code == 3 and notes[-1] == "constants"
    run.kill()  # as the command does after an error
    assert notes[-1] == "child killed"


def test_a_check_that_is_stopped_ends_its_hosts_and_keeps_whole_rounds(photos, tmp_path, notes, monkeypatch):
    run = a_run(photos, tmp_path)

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.measure(stop)
    assert [len(pool.rounds) for pool in run.document(complete=False).samples.pools] == [2]
    run = a_run(photos, tmp_path)
    ask = FakeChild.ask

    def stop_at_the_second_window(self, method, *arguments, timeout_s):
        if method == "window" and self.windows:
            raise KeyboardInterrupt
        return ask(self, method, *arguments, timeout_s=timeout_s)

    monkeypatch.setattr(FakeChild, "ask", stop_at_the_second_window)
    notes.clear()
    with pytest.raises(KeyboardInterrupt):
        run.measure(lambda: None)
    run.kill()
    assert notes[-3:] == ["child killed", "child killed", "hosts closed"]
    assert [len(pool.rounds) for pool in run.document(complete=False).samples.pools] == [1]


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
    assert all(round_["window"]["worker_us"] for pool in document["samples"]["pools"] for round_ in pool["rounds"])
    return {result["name"]: result["ratio"] for result in document["results"]}


@pytest.mark.long
@planted
@two_cores
def test_the_rate_of_a_real_pool_is_predicted(tmp_path, monkeypatch):
    """A worker process at the end of a link of 40 Mbit/s: predicted from costs without one, in short runs."""
    monkeypatch.setattr(measure, "Child", ChildHere)
    for name, value in {
        "_RUN_NS": 200_000_000,
        "_RUNS": 3,
        "_RECEIVING_SERVICES": 1,
        "_IDLE_NS": 1_000_000_000,
    }.items():
        monkeypatch.setattr(costs, name, value)
    for name, value in {"_WARM_NS": 1_500_000_000, "_WINDOW_NS": 2_000_000_000}.items():
        monkeypatch.setattr(trainer, name, value)
    ratios = checked(["--only", "mbit", "--rounds", "1"], tmp_path / "out")
    assert ratios == {"1 worker, 40 mbit": pytest.approx(1, abs=0.15)}


@pytest.mark.claims  # four pools in processes of their own: some three minutes
@planted
@two_cores
def test_the_rate_of_each_pool_of_cores_is_predicted(tmp_path):
    ratios = checked([], tmp_path / "out")
    assert ratios == {pool.name: pytest.approx(1, abs=0.15) for pool in LOOPBACK_POOLS}
