"""How near to the truth our own figures are: a case of every part, often enough to tell a bias from noise.

`pytest -m claims tests/truth` runs the groups that need no GPU, `pytest -m gpu tests/truth` the others, and
`pytest -m slow tests/truth` each case of each group once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests import PROJECT_ROOT
from tests.checks import with_gpus
from tests.planted import planted
from tests.truth import groups
from tests.truth.bounds import LEAST_REPEATS, LOOPS, ON_GPU, PLANTED
from tests.truth.figures import COLUMNS, REPEATED, Figure, check

_MEASURED = """
import dataclasses, json, sys
from tests.truth import groups
figures = getattr(groups, sys.argv[1])(sys.argv[2], *map(int, sys.argv[3:]))
print(json.dumps([dataclasses.asdict(figure) for figure in figures]))
"""


def measured(how: str, group: str, *words: object) -> list[Figure]:
    """Measures a group in a process of its own, which sees the GPU if the group needs one."""
    command = [sys.executable, "-c", _MEASURED, how, group, *map(str, words)]
    env = with_gpus() if group in ON_GPU else None
    ended = subprocess.run(command, cwd=PROJECT_ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return [Figure(**{**fields, **_tuples(fields)}) for fields in json.loads(ended.stdout.splitlines()[-1])]


def _tuples(fields: dict[str, Any]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(fields[name]) for name in ("truth", "measured")}


def judge(group: str, figures: list[Figure], tabulate: Any) -> None:
    """Tabulates figures, and asserts that all are as near to the truth as promised."""
    checks = [check(group, figure) for figure in figures]
    tabulate(group, COLUMNS if checks[0].bias is None else REPEATED, [each.row for each in checks])
    assert [each for each in checks if not each.holds] == []


def marked(group: str, otherwise: pytest.MarkDecorator) -> list[pytest.MarkDecorator]:
    needed = [pytest.mark.needs(LOOPS[group])] if group in LOOPS else []
    return [pytest.mark.gpu if group in ON_GPU else otherwise, *needed]


@pytest.mark.parametrize(
    "group",
    # Of the four grids, the two that have each device and each kind of loader once.
    [
        pytest.param(group, marks=marked(group, pytest.mark.claims))
        for group in PLANTED
        if group not in ("grid-cpu", "grid-emulated-ahead")
    ],
)
def test_repeats_are_as_near_to_the_truth_as_promised(group: str, repeats: Any, tabulate: Any) -> None:
    judge(group, measured("repeated", group, repeats(LEAST_REPEATS)), tabulate)


@pytest.mark.parametrize(
    ("group", "number"),
    [
        pytest.param(group, number, marks=marked(group, pytest.mark.slow))
        for group in PLANTED
        if group not in ON_GPU
        for number in range(len(groups.CASES[group]))
    ],
)
@planted
def test_each_case_is_near_the_truth(group: str, number: int, tabulate: Any) -> None:
    judge(group, list(next(groups.CASES[group][number]())), tabulate)


@pytest.mark.gpu
@pytest.mark.parametrize("group", ON_GPU)
def test_each_case_on_a_gpu_is_near_the_truth(group: str, tabulate: Any) -> None:
    judge(group, measured("once", group), tabulate)
