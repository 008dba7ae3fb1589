"""The command that asks for the verdict on one script again and again, and what it makes of the answers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.builders import a_truth_document
from unstall.benchmarks.truth import verdicts
from unstall.benchmarks.truth.promises import LEAST_RIGHT_RATIO
from unstall.benchmarks.truth.report import KIND
from unstall.benchmarks.truth.results import PLAIN, derive, loading_of
from unstall.benchmarks.truth.samples import Attempt, Case, Group
from unstall.profiles.text import Terminal

QUIET, BESIDE = LEAST_RIGHT_RATIO
# By plain runs, 35 % of an epoch is loading.
TRUTH = Case(name=PLAIN, attempts=(Attempt(answer="", figures={"loaded_s": (2.0,), "ready_s": (1.3,)}),))


def runs_of(where: str, **counts: int) -> Case:
    attempts = [
        Attempt(answer=bound, figures={"loading_ratio": (0.3,)})
        for bound, count in counts.items()
        for _ in range(count)
    ]
    return Case(name=where, attempts=tuple(attempts))


@pytest.mark.parametrize(
    ("quiet", "beside", "held"),
    [
        ({"input": 36, "uncertain": 4}, {"input": 20, "uncertain": 20}, True),
        ({"input": 35, "uncertain": 5}, {"input": 20, "uncertain": 20}, False),
        ({"input": 38, "compute": 2}, {"input": 38, "balanced": 2}, True),
        ({"input": 40}, {"input": 37, "balanced": 3}, False),
        ({"input": 40}, {"input": 19, "uncertain": 21}, False),
    ],
    ids=["as promised", "hides behind the word", "two are wrong", "three are wrong", "hides beside a neighbour"],
)
def test_verdicts_must_be_right_and_must_not_hide(
    quiet: dict[str, int], beside: dict[str, int], held: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    group = Group(name="verdicts", cases=(TRUTH, runs_of(QUIET, **quiet), runs_of(BESIDE, **beside)))
    document = a_truth_document(group, part="verdicts", options={"runs": 40})
    results = derive(document)
    assert results.exit_code == int(not held)
    KIND.print(Terminal(width=80), document, results)
    shown = capsys.readouterr().out
    assert "35% of an epoch is loading, input-bound" in shown
    assert ("2 of 2 figures are as near to the truth as promised." in shown) is held
    assert max(map(len, shown.splitlines())) <= 80


def test_a_neighbour_ends_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    lives, sleeps = iter([True, True, False]), iter([1, 2])
    parent = SimpleNamespace(is_alive=lambda: next(lives))
    monkeypatch.setattr(verdicts.multiprocessing, "parent_process", lambda: parent)
    monkeypatch.setattr(verdicts, "_STAYS_S", (0.0, 0.0))
    monkeypatch.setattr(verdicts.clock, "sleep_until_ns", lambda at_ns: next(sleeps))
    verdicts._come_and_go(0.5)
    assert list(sleeps) == []


@pytest.mark.slow
def test_a_script_is_run_and_its_verdict_read(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(verdicts._SCRIPT.format(products=verdicts._PRODUCTS, rounds=1))
    assert 0.05 < loading_of(verdicts.plain(tmp_path)) < 0.8
    profiled = verdicts.profiled(tmp_path)
    assert profiled.answer in ("compute", "balanced", "input", "uncertain")
    assert -0.5 < profiled.figures["loading_ratio"][0] < 0.9
