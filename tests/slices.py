"""Runs tests that take long a slice at a time: `pytest -m "slow or claims" --slice=SECONDS --record=FILE`.

A slice holds the tests whose last run is longest ago, as many as took less than so many seconds then. The record has
the last run of each test; a test is written there as soon as it ends, so that a run that was stopped can be resumed:
`--at COMMIT --only-new` leaves out what has run at that commit. A test that fails is repeated once. If it fails again
with an AssertionError while the machine was disturbed, it is undecided: shown as skipped, with what disturbed it. What
turns out to take longer than a slice is stopped, and is in no slice any more; and no test begins after that time.
"""

from __future__ import annotations

import datetime
import json
import math
import re
import statistics
import sys
import time
from collections.abc import Generator, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from unstall.profiles.clock import canary_ns
from unstall.profiles.machine.others import Others
from unstall.profiles.provenance import usable_cores
from unstall.profiles.report.writing_files import write_atomically

UNDECIDED = "undecided"
# How pytest-timeout says that a test was stopped; and what is said of a test that had no time left.
_TIMEOUT, _LATE = "Timeout (>", "the time of the slice is over"
# What a test without a record is taken to need, in seconds.
UNKNOWN_S = 60.0
# The machine is disturbed where other programs take more cores than this on average while a test runs, or where a loop
# of known length takes this many times as long as it took at its best.
MOST_OTHER_CORES, CANARY_RATIO = 0.15, 1.2
_CANARIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The last run of a test.

    Attributes:
      outcome: passed, failed, skipped or undecided.
      seconds: that it took, repetitions included.
      date: UTC, in ISO format to the second.
    """

    outcome: str
    seconds: float
    date: str
    commit: str


def read_record(path: Path) -> dict[str, Ran]:
    """Returns the last run of each test, by the test's id; empty where there is no file."""
    if not path.exists():
        return {}
    return {test: Ran(**ran) for test, ran in json.loads(path.read_text()).items()}


def write_record(path: Path, record: Mapping[str, Ran]) -> None:
    """Writes the record, a line for each test, in their order."""
    lines = [f"{json.dumps(test)}: {json.dumps(asdict(ran))}" for test, ran in sorted(record.items())]
    write_atomically(path, "{\n" + ",\n".join(lines) + "\n}\n")


def choose(tests: Iterable[str], record: Mapping[str, Ran], limit_s: float, *, skip: int = 0) -> list[str]:
    """Returns the tests whose last run is longest ago, in that order, as many as take less than `limit_s` together.

    A test that takes longer than `limit_s` on its own is in no slice.

    Args:
      skip: slices that are left out: others have run them, and have not written so into this record.
    """
    seconds = {test: record[test].seconds if test in record else UNKNOWN_S for test in tests}
    waiting = sorted(
        (test for test in seconds if seconds[test] <= limit_s),
        key=lambda test: (record[test].date if test in record else "", test),
    )
    slices: list[list[str]] = [[]]
    left_s = limit_s
    for test in waiting:
        if seconds[test] > left_s:
            slices.append([])
            left_s = limit_s
        slices[-1].append(test)
        left_s -= seconds[test]
    return slices[skip % len(slices)]


class Disturbance:
    """What other programs did to this machine while something ran."""

    def __init__(self) -> None:
        self._quietest_ns = min(canary_ns() for _ in range(_CANARIES))
        self.begin()

    def begin(self) -> None:
        self._others = Others()

    def found(self) -> str | None:
        """Returns how the machine was disturbed since `begin`; None if it was not."""
        others = (self._others.ratio() or 0.0) * usable_cores()
        now_ns = statistics.median(canary_ns() for _ in range(_CANARIES))
        self._quietest_ns = min(self._quietest_ns, now_ns)
        if others > MOST_OTHER_CORES:
            return f"other programs took {others:.2f} cores"
        if now_ns > CANARY_RATIO * self._quietest_ns:
            return f"a loop of known length took {now_ns / self._quietest_ns:.2f} times as long as before"
        return None


class Slices:
    """Chooses the tests of a slice, and keeps the record of what ran."""

    def __init__(self, config: pytest.Config) -> None:
        self._limit_s: float = config.getoption("slice")
        self._path = Path(config.getoption("record"))
        self._commit: str = config.getoption("at")
        self._skip: int = config.getoption("skip_slices")
        self._only_new: bool = config.getoption("only_new")
        self._record = read_record(self._path)
        self._disturbance = Disturbance()
        self._seconds: dict[str, float] = {}
        self._began_s = time.monotonic()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        waiting = [item.nodeid for item in items if not (self._only_new and self._has_run(item.nodeid))]
        order = {
            test: place for place, test in enumerate(choose(waiting, self._record, self._limit_s, skip=self._skip))
        }
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in order])
        items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])
        for item in items:
            if self._limit_s < math.inf:
                item.add_marker(pytest.mark.timeout(self._limit_s), append=False)
            if item.get_closest_marker("flaky") is None:
                item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=2))

    def _has_run(self, test: str) -> bool:
        return test in self._record and self._record[test].commit == self._commit

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if time.monotonic() - self._began_s > self._limit_s:
            pytest.skip(_LATE)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        if call.when == "setup":
            self._disturbance.begin()
        report = yield
        if report.failed and call.excinfo is not None and _TIMEOUT in str(call.excinfo.value):
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, f"takes longer than {self._limit_s:g} s")
        failed = call.when == "call" and call.excinfo is not None and call.excinfo.errisinstance(AssertionError)
        if failed and _is_last_try(item) and (how := self._disturbance.found()):
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, f"{UNDECIDED}: {how}; {call.excinfo}"[:500])
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid
        self._seconds[test] = self._seconds.get(test, 0.0) + report.duration
        late = isinstance(report.longrepr, tuple) and _LATE in report.longrepr[2]
        if late or report.outcome == "rerun" or not (report.when == "call" or report.failed or report.skipped):
            return
        undecided = isinstance(report.longrepr, tuple) and UNDECIDED in report.longrepr[2]
        self._record[test] = Ran(
            outcome=UNDECIDED if undecided else report.outcome,
            seconds=math.ceil(self._seconds[test] * 10) / 10,
            date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            commit=self._commit,
        )
        write_record(self._path, self._record)


def _is_last_try(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("flaky")
    return mark is None or getattr(item, "execution_count", 1) > mark.kwargs["reruns"]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("slices", "tests that take long, a slice at a time")
    group.addoption("--slice", type=float, metavar="SECONDS", help="run the tests whose last run is longest ago")
    group.addoption("--record", metavar="FILE", help="of each test's last run; read, and written after each test")
    group.addoption("--at", default="", metavar="COMMIT", help="what is written into the record")
    group.addoption("--only-new", action="store_true", help="leave out what has run at that commit")
    group.addoption("--skip-slices", type=int, default=0, metavar="N", help="leave out the first slices")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("slice") is None:
        return
    if not config.getoption("record"):
        raise pytest.UsageError("--slice needs --record FILE")
    config.pluginmanager.register(Slices(config), "slices")


def said(record: Mapping[str, Ran], commit: str) -> str:
    """Returns a sentence on the tests that ran at a commit."""
    here = [ran for ran in record.values() if ran.commit == commit]
    outcomes = [ran.outcome for ran in here]
    counts = ", ".join(f"{outcomes.count(name)} {name}" for name in sorted(set(outcomes)))
    minutes = sum(ran.seconds for ran in here) / 60
    return (
        f"Last run of all: {max(ran.date for ran in here)[:10]}, commit {commit}: {counts}, in {minutes:.0f} minutes."
    )


def main(record: str, commit: str, page: str) -> None:
    """Writes that sentence into a page, in place of the one that begins in the same way."""
    sentence = said(read_record(Path(record)), commit)
    text = Path(page).read_text(encoding="utf-8")
    write_atomically(Path(page), re.sub(r"^Last run of all: .*$", sentence, text, flags=re.MULTILINE))
    print(sentence)


if __name__ == "__main__":
    main(*sys.argv[1:])
