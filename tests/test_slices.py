"""The tests that take long are run a slice at a time, and none is forgotten."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import PROJECT_ROOT, slices
from tests.claims import PAGE
from tests.slices import UNKNOWN_S, Ran, choose, read_record, write_record


def ran(day: int, seconds: float = 10.0, **changes: str) -> Ran:
    return Ran(**{"outcome": "passed", "seconds": seconds, "date": f"2026-11-{day:02d}", "commit": "c"} | changes)


RECORD = {"a": ran(3), "b": ran(1), "c": ran(2), "long": ran(1, 1000.0), "gone": ran(1)}


def test_a_slice_has_the_tests_whose_last_run_is_longest_ago():
    assert choose("abc", RECORD, 25.0) == ["b", "c"]
    assert choose("abc", RECORD, 30.0) == ["b", "c", "a"]


def test_a_test_that_never_ran_comes_first_and_is_taken_to_need_a_minute():
    assert choose(["a", "b", "new"], RECORD, UNKNOWN_S + 10) == ["new", "b"]
    assert choose(["a", "b", "new"], RECORD, UNKNOWN_S) == ["new"]


def test_slices_that_others_ran_are_left_out_by_turns():
    assert [choose("abc", RECORD, 10.0, skip=skip) for skip in range(4)] == [["b"], ["c"], ["a"], ["b"]]


def test_a_test_longer_than_a_slice_is_in_none():
    assert choose(["long", "a"], RECORD, 300.0) == ["a"]
    assert choose(["long", "a"], RECORD, float("inf")) == ["long", "a"]
    assert choose(["long"], RECORD, 300.0) == []


def test_every_test_is_in_one_slice():
    tests = [f"test {number}" for number in range(20)]
    record = {test: ran(1 + number % 5, 40.0 + number) for number, test in enumerate(tests)}
    chosen = list(dict.fromkeys(tuple(choose(tests, record, 150.0, skip=skip)) for skip in range(20)))
    assert sorted(itertools.chain(*chosen)) == sorted(tests)
    assert all(sum(record[test].seconds for test in one) <= 150.0 for one in chosen)


def test_a_record_is_read_as_it_was_written(tmp_path: Path):
    assert read_record(tmp_path / "none.json") == {}
    write_record(tmp_path / "record.json", RECORD)
    assert read_record(tmp_path / "record.json") == RECORD
    assert len((tmp_path / "record.json").read_text().splitlines()) == len(RECORD) + 2


CASES = """
import os
import pytest

def test_passes():
    pass

def test_fails():
    assert 1 == 2

def test_breaks():
    raise OSError("broken")

def test_passes_when_repeated(counted=[]):
    counted.append(1)
    assert len(counted) == 2
"""
CONFTEST = """
from tests import slices
pytest_plugins = ["tests.slices"]
slices.Disturbance.found = lambda self: {found!r}
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("found", "failed", "code"), [(None, "failed", 1), ("other programs took 1.50 cores", "undecided", 1)]
)
def test_a_failure_is_repeated_once_and_undecided_where_the_machine_was_disturbed(
    found: str | None, failed: str, code: int, tmp_path: Path
):
    (tmp_path / "conftest.py").write_text(CONFTEST.format(found=found))
    (tmp_path / "test_cases.py").write_text(CASES)
    record = tmp_path / "record.json"
    words = [
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
        "--slice",
        "300",
        "--record",
        str(record),
        "--at",
        "abc",
        "--only-new",
    ]

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pytest", *words, str(tmp_path)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(PROJECT_ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    ended = run()
    outcomes = {test.partition("::")[2]: each["outcome"] for test, each in json.loads(record.read_text()).items()}
    assert outcomes == {
        "test_passes": "passed",
        "test_fails": failed,
        "test_breaks": "failed",
        "test_passes_when_repeated": "passed",
    }
    assert ended.returncode == code, ended.stdout
    assert (f"undecided: {found}" in ended.stdout) == (failed == "undecided")
    assert {each.commit for each in read_record(record).values()} == {"abc"}
    assert run().returncode == pytest.ExitCode.NO_TESTS_COLLECTED  # all ran at this commit


CASES_OF_A_MINUTE = """
import time

def test_one():
    time.sleep(60)

def test_other():
    time.sleep(60)
"""


@pytest.mark.long
def test_a_test_that_takes_longer_than_a_slice_is_stopped_and_in_none_any_more(tmp_path: Path):
    (tmp_path / "conftest.py").write_text(CONFTEST.format(found=None))
    (tmp_path / "test_cases.py").write_text(CASES_OF_A_MINUTE)
    both = ["test_cases.py::test_one", "test_cases.py::test_other"]
    write_record(tmp_path / "record.json", {test: ran(1, 0.5) for test in both})
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *["-q", "-rs", "-p", "no:cacheprovider", "--slice", "2", "--record", "record.json", "--at", "abc", "."],
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(PROJECT_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert "takes longer than 2 s" in ended.stdout and "the time of the slice is over" in ended.stdout
    found = read_record(tmp_path / "record.json")
    [late] = [test for test in both if found[test] == ran(1, 0.5)]
    assert choose(both, found, 2.0) == [late]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A machine of two cores: the part of their time that others take, and how long a loop of known length takes."""
    machine = SimpleNamespace(others=0.0, canary_ns=100)
    monkeypatch.setattr(slices, "Others", lambda: SimpleNamespace(ratio=lambda: machine.others))
    monkeypatch.setattr(slices, "usable_cores", lambda: 2.0)
    monkeypatch.setattr(slices, "canary_ns", lambda: machine.canary_ns)
    return machine


def test_other_programs_disturb(machine: SimpleNamespace):
    disturbance = slices.Disturbance()
    machine.others = 0.05
    assert disturbance.found() is None
    machine.others = 0.25
    assert disturbance.found() == "other programs took 0.50 cores"


def test_a_slower_machine_disturbs(machine: SimpleNamespace):
    disturbance = slices.Disturbance()
    machine.canary_ns = 119
    assert disturbance.found() is None
    machine.canary_ns = 130
    assert disturbance.found() == "a loop of known length took 1.30 times as long as before"


def test_the_page_says_when_all_ran_last(tmp_path: Path):
    record, page = tmp_path / "record.json", tmp_path / "page.md"
    write_record(record, RECORD | {"d": ran(5, 50.0, outcome="undecided"), "e": ran(9, commit="other")})
    page.write_text("Before.\n\nLast run of all: never.\n\nAfter.\n")
    slices.main(str(record), "c", str(page))
    said = "Last run of all: 2026-11-05, commit c: 5 passed, 1 undecided, in 18 minutes."
    assert page.read_text() == f"Before.\n\n{said}\n\nAfter.\n"


def test_the_page_of_the_claims_has_the_sentence_that_is_replaced():
    assert PAGE.read_text().count("\nLast run of all: ") == 1
