"""Every promise of docs/claims.md has a test that .ci/run runs, and every full case stands there."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import PROJECT_ROOT
from tests.claims import Claim, read_claims

CLAIMS = read_claims()
# The libraries that .ci/run installs for their tests.
INSTALLED = set(re.findall(r"--libraries ([\w,]+)", (PROJECT_ROOT / ".ci" / "run").read_text())[0].split(","))


def function_of(test: str) -> Callable[..., Any]:
    file, _, name = test.partition("::")
    function: Callable[..., Any] = getattr(importlib.import_module(file.removesuffix(".py").replace("/", ".")), name)
    return function


def marks_of_cases(function: Callable[..., Any]) -> list[list[pytest.Mark]]:
    """Returns the marks of each case: those of the module, of the function, and of a value that it is run with."""
    of_module = getattr(sys.modules[function.__module__], "pytestmark", [])
    own = [*(of_module if isinstance(of_module, list) else [of_module]), *getattr(function, "pytestmark", [])]
    own = [getattr(mark, "mark", mark) for mark in own]
    values = [value for mark in own if mark.name == "parametrize" for value in mark.args[1]]
    of_values = [[getattr(mark, "mark", mark) for mark in getattr(value, "marks", ())] for value in values]
    return [[*own, *marks] for marks in of_values] or [own]


def runs_in_ci(marks: list[pytest.Mark]) -> bool:
    libraries = {mark.args[0] for mark in marks if mark.name == "needs"}
    return not {mark.name for mark in marks} & {"slow", "claims", "gpu"} and libraries <= INSTALLED


def is_full(marks: list[pytest.Mark]) -> bool:
    return "claims" in {mark.name for mark in marks}


def test_promises_are_read():
    assert len(CLAIMS) > 20
    assert len({claim.text for claim in CLAIMS}) == len(CLAIMS)
    lines = (PROJECT_ROOT / "docs" / "claims.md").read_text().splitlines()
    assert len([line for line in lines if line.startswith("| ")]) == 1 + len(CLAIMS)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.text)
def test_a_promise_has_tests_that_run_where_the_page_says(claim: Claim):
    assert claim.in_ci
    assert [test for test in claim.in_ci if not any(map(runs_in_ci, marks_of_cases(function_of(test))))] == []
    assert [test for test in claim.full if not any(map(is_full, marks_of_cases(function_of(test))))] == []


def test_every_full_case_stands_on_the_page():
    named = {test for claim in CLAIMS for test in claim.full}
    there = set()
    for path in sorted((PROJECT_ROOT / "tests").rglob("test_*.py")):
        if path != Path(__file__) and "mark.claims" in path.read_text(encoding="utf-8"):
            file = str(path.relative_to(PROJECT_ROOT))
            module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
            there |= {
                f"{file}::{name}"
                for name, function in vars(module).items()
                if name.startswith("test_") and any(map(is_full, marks_of_cases(function)))
            }
    assert there == named


def test_a_mark_of_a_value_counts_for_its_case():
    @pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.claims)])
    @pytest.mark.needs("torch")
    def both(number):
        pass

    @pytest.mark.slow
    def neither():
        pass

    marks = marks_of_cases(both)
    assert [(runs_in_ci(case), is_full(case)) for case in marks] == [(True, False), (False, True)]
    assert [(runs_in_ci(case), is_full(case)) for case in marks_of_cases(neither)] == [(False, False)]
