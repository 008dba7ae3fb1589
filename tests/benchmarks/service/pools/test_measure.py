"""The order of a check, by children that measure nothing; and real pools, held against their predictions."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

from tests.benchmarks.service.pools import measure, trainer
from tests.benchmarks.service.pools.built import a_checked_pool
from tests.benchmarks.service.pools.hosts import HostsError, why_not
from tests.benchmarks.service.pools.measure import Check
from tests.benchmarks.service.pools.pools import LOOPBACK_POOLS, POOLS, CheckedPool
from tests.benchmarks.service.pools.results import PoolResult, PoolWindow, result_of
from tests.builders import CONSTANTS
from tests.planted import planted
from unstall.benchmarks.lab.child import ChildDied, JobRefused
from unstall.benchmarks.service.planning import child as costs
from unstall.benchmarks.service.planning.samples import Constants, CutCosts
from unstall.pipeline import ImageSource, from_folder, open_source

WINDOW = PoolWindow(images=250, wall_ns=10**9, worker_us=(4000.0,))
TWO = a_checked_pool("two", worker_cores=(0.4, 0.2), link_bytes_per_sec=1e6)
ALONE = a_checked_pool("alone", worker_cores=())


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


@pytest.fixture
def check(photos, tmp_path) -> Check:
    return Check(from_folder(photos), tmp_path / "child.log", loopback=True)


def test_constants_are_measured_on_this_host(check, notes):
    assert check.constants() == CONSTANTS
    assert notes == ["CostsSession", "constants", "child closed"]


def test_costs_are_measured_right_before_each_window(check, notes):
    cut = CutCosts(served="batches", worker_us=4000.0, trainer_us=7.0, bytes_per_image=5.0)
    for pool, asked, of_each in (
        (TWO, ["worker", "trainer_us", "window"], (cut, None)),
        (ALONE, ["loader_us", "window"], (None, 3.0)),
    ):
        notes.clear()
        rounds = check.rounds_of(pool, 2)
        assert [note for note in notes if note in ("worker", "trainer_us", "loader_us", "window")] == asked * 2
        assert [(round_.cut, round_.loader_us) for round_ in rounds] == [of_each] * 2
        assert [round_.window.images for round_ in rounds] == [1, 2]


def test_hosts_get_their_quotas_once_all_have_started_and_the_children_end_before_them(check, notes):
    check.rounds_of(TWO, 2)
    costs_and_window = [
        f"give {(1.0, 0.4, 0.2, mean((0.4, 0.2)))}",  # the workers' mean, for what is before the cut
        "worker",
        "give (1.0, 0.4, 0.2, 1.0)",
        "trainer_us",
        "window",
    ]
    assert notes == [
        "4 hosts, 1000000.0",
        "CostsSession on 3",
        "TrainerSession on 0",
        "backend",
        "start 2 (('on', '1'), ('on', '2'))",
        *costs_and_window * 2,
        "child closed",
        "child closed",
        "hosts closed",
    ]


FAILURES = {
    "backend": ChildDied("no memory"),
    "start": JobRefused("no port"),
    "worker": JobRefused("no service"),
    "trainer_us": ChildDied("it hung"),
    "window": ChildDied("it is gone"),
}


@pytest.mark.parametrize("method", FAILURES)
def test_a_pool_that_fails_is_undecided_and_leaves_no_hosts_and_the_next_is_measured(check, notes, method):
    measure.Child.raises[method] = FAILURES[method]
    with pytest.raises(pytest.skip.Exception, match=rf"^undecided: two could not be measured: {FAILURES[method]}$"):
        measured(check, TWO, CONSTANTS)
    assert notes[-3:] == ["child killed", "child killed", "hosts closed"]
    assert measured(check, ALONE, CONSTANTS).name == "alone"
    assert notes[-1] == "hosts closed"


def test_constants_that_cannot_be_measured_are_an_error_and_leave_no_child(check, notes):
    measure.Child.raises["constants"] = JobRefused("no service")
    with pytest.raises(JobRefused, match=r"^no service$"):
        check.constants()
    assert notes[-1] == "child killed"


def test_a_check_that_is_stopped_ends_its_children_and_hosts(check, notes):
    measure.Child.raises["window"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        measured(check, TWO, CONSTANTS)
    assert notes[-3:] == ["child killed", "child killed", "hosts closed"]


def test_pools_have_names_of_their_own_and_leave_room_on_two_cores():
    assert (len(POOLS), len(LOOPBACK_POOLS)) == (15, 4)
    for pools in (POOLS, LOOPBACK_POOLS):
        assert len({pool.name for pool in pools}) == len(pools)
    for pool in POOLS:
        assert sum(pool.worker_cores) + pool.trainer_cores <= 1.6 + 1e-9, pool.name


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


def measured(check: Check, pool: CheckedPool, constants: Constants, rounds: int = measure.ROUNDS) -> PoolResult:
    """Measures a pool and prints its row. A pool that cannot be measured on this machine decides nothing: skips."""
    try:
        result = result_of(pool, check.rounds_of(pool, rounds), constants)
    except (ChildDied, JobRefused, HostsError) as error:
        pytest.skip(f"undecided: {pool.name} could not be measured: {error}")
    print(f"\n{result}")
    return result


on_cores = pytest.mark.skipif(bool(why_not(loopback=True)), reason=why_not(loopback=True) or "can")
on_hosts = pytest.mark.skipif(bool(why_not(loopback=False)), reason=why_not(loopback=False) or "can")
Alone = Callable[[], AbstractContextManager[None]]


@pytest.mark.long
@planted
@on_cores
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
    check = Check(open_source("generated:320"), tmp_path / "child.log", loopback=True)
    [pool] = [pool for pool in LOOPBACK_POOLS if "mbit" in pool.name]
    [round_] = check.rounds_of(pool, 1)
    assert round_.window.worker_us
    assert result_of(pool, [round_], check.constants()).ratio == pytest.approx(1, abs=0.15)


@pytest.fixture(scope="module")
def on_cores_here(tmp_path_factory: pytest.TempPathFactory) -> tuple[Check, Constants]:
    check = Check(open_source("generated:320"), tmp_path_factory.mktemp("log") / "child.log", loopback=True)
    return check, check.constants()


@pytest.mark.claims  # four pools in processes of their own: some three minutes
@planted
@on_cores
@pytest.mark.parametrize("pool", LOOPBACK_POOLS, ids=lambda pool: pool.name)
def test_the_rate_of_each_pool_of_cores_is_predicted(pool: CheckedPool, on_cores_here: tuple[Check, Constants]):
    check, constants = on_cores_here
    result = result_of(pool, check.rounds_of(pool), constants)
    assert not result.missed, result


@pytest.fixture(scope="module")
def on_hosts_here(real_photos: Path, tmp_path_factory: pytest.TempPathFactory, alone: Alone) -> tuple[Check, Constants]:
    source: ImageSource = open_source(str(real_photos / "train"))
    check = Check(source, tmp_path_factory.mktemp("log") / "child.log", loopback=False)
    with alone():
        return check, check.constants()


@pytest.mark.slow  # 15 pools of namespaces with quotas: a quarter of an hour
@on_hosts
@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: pool.name)
def test_the_rate_of_each_pool_of_emulated_hosts_is_predicted(
    pool: CheckedPool, on_hosts_here: tuple[Check, Constants], alone: Alone
):
    check, constants = on_hosts_here
    with alone():
        result = measured(check, pool, constants)
    assert not result.missed, result
