"""The command that asks for the verdict on one script again and again, and what it makes of the answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.truth import verdicts
from benchmarks.truth.verdicts import ScriptVerdict, print_runs
from profiles.text import Terminal

QUIET, BESIDE = verdicts.LEAST_RIGHT_RATIO


def said(**counts: int) -> list[ScriptVerdict]:
    return [ScriptVerdict(bound=bound, loading_ratio=0.3) for bound, count in counts.items() for _ in range(count)]


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
    assert print_runs(Terminal(width=80), 0.35, {QUIET: said(**quiet), BESIDE: said(**beside)}) is held
    shown = capsys.readouterr().out
    assert "35% of an epoch is loading, input-bound" in shown
    assert ("As promised." in shown) is held
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.slow
def test_a_script_is_run_and_its_verdict_read(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(verdicts._SCRIPT.format(products=verdicts._PRODUCTS, rounds=1))
    assert 0.05 < verdicts._truth(tmp_path) < 0.8
    found = verdicts._run(tmp_path)
    assert found.bound in ("compute", "balanced", "input", "uncertain") and -0.5 < found.loading_ratio < 0.9
