"""What the README and the docs promise, and the tests that hold it: the table of docs/claims.md.

After `pytest -m claims` the terminal shows a line for each promise whose tests ran. A test can add what it measured:
`record_property("measured", "off by 1.2 points")`. With `--write-tables` a whole run writes these lines into the
documents, as `tests.tables` writes the tables of single tests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from tests import PROJECT_ROOT, tables

PAGE = PROJECT_ROOT / "docs" / "claims.md"
_OUTCOMES = ("passed", "failed", "error", "skipped")
_TEST = re.compile(r"`(tests/[\w/]+\.py::test_\w+)`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One promise.

    Attributes:
      text: the promise.
      in_ci: tests that `.ci/run` runs, as `file::name`.
      full: tests that run with `pytest -m claims`.
    """

    text: str
    in_ci: tuple[str, ...]
    full: tuple[str, ...]


def read_claims() -> list[Claim]:
    """Returns the rows of the page's table."""
    claims = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3 and _TEST.search(cells[1]):
            text, in_ci, full = cells
            claims.append(Claim(text=text, in_ci=tuple(_TEST.findall(in_ci)), full=tuple(_TEST.findall(full))))
    return claims


def _without_parameters(node: str) -> str:
    return node.partition("[")[0]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("markexpr") != "claims":
        return
    ended: dict[str, list[tuple[str, float, list[str]]]] = {}
    for outcome in _OUTCOMES:
        for report in terminalreporter.stats.get(outcome, []):
            measured = [str(value) for name, value in report.user_properties if name == "measured"]
            ended.setdefault(_without_parameters(report.nodeid), []).append((outcome, report.duration, measured))
    terminalreporter.section("claims")
    claims, rows = read_claims(), []
    for claim in claims:
        cases = [case for test in claim.full for case in ended.get(test, [])]
        if not cases:
            continue
        result = _counts([outcome for outcome, _, _ in cases if outcome != "skipped"]) or "skipped"
        measured = "; ".join(text for _, _, texts in cases for text in texts)
        rows.append((claim.text, result, f"{sum(duration for _, duration, _ in cases):.0f} s", measured))
        terminalreporter.write_line(f"| {' | '.join(rows[-1])} |")
    if config.getoption("write_tables") and all(test in ended for claim in claims for test in claim.full):
        of_all = _counts([outcome for cases in ended.values() for outcome, _, _ in cases])
        tables.write({"claims": tables.text_of(("promise", "result", "took", "measured"), rows, f"In all: {of_all}.")})


def _counts(outcomes: list[str]) -> str:
    return ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in _OUTCOMES if outcome in outcomes)
