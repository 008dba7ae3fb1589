"""Tables of what tests measured: printed after the run, and written into the documents with `--write-tables`.

A test calls the fixture `tabulate`. On a page of docs/ the table NAME stands between `<!-- table: NAME -->` and
`<!-- /table -->`; a run replaces the tables of the tests that ran, and no others.

    pytest -m claims --write-tables                  # all tables of a whole run
    pytest -m claims tests/truth -k stages --repeats 3
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import PROJECT_ROOT
from unstall.profiles import provenance

DOCS = PROJECT_ROOT / "docs"
_PROPERTY = "table"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("measured tables")
    group.addoption("--write-tables", action="store_true", help="write what tests measured into the tables of docs/")
    group.addoption(
        "--repeats", type=int, metavar="N", help="how often tests of tests/truth repeat what they measure (theirs)"
    )


@pytest.fixture
def repeats(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """Returns how often something is repeated: as often as usual, or as `--repeats` says."""
    return lambda usual: request.config.getoption("repeats") or usual


@pytest.fixture
def tabulate(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Keeps rows of a table. Tests that give rows to a table of the same name share it.

    The arguments are the table's name, its columns, its rows, and a sentence to stand below the table.
    """

    def keep(name: str, columns: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> None:
        record_property(_PROPERTY, [name, list(columns), [list(row) for row in rows], note])  # xdist passes lists on

    return keep


def kept(reports: Iterable[pytest.TestReport]) -> dict[str, str]:
    """Returns the text of each table of which these tests have kept rows."""
    tables: dict[str, tuple[list[str], list[list[str]], str]] = {}
    for report in reports:
        # A test that was run again has kept its rows more than once: the last ones count.
        last = {value[0]: value[1:] for name, value in report.user_properties if name == _PROPERTY}
        for name, (columns, rows, note) in last.items():
            tables.setdefault(name, (columns, [], note))[1].extend(rows)
    return {name: text_of(*table) for name, table in tables.items()}


def text_of(columns: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> str:
    """Returns a table in Markdown, with a line that says when and where it was measured."""
    machine = provenance.machine()
    packages = ", ".join(f"{name} {machine['packages'][name]}" for name in ("tensorflow", "keras"))
    lines = [
        f"Measured on {datetime.datetime.now(datetime.UTC):%Y-%m-%d}: {machine['cpu']}, {machine['usable_cores']:g} "
        f"cores, Python {machine['python']}, {packages}, commit {machine['git_commit'][:7]}.",
        "",
        *(f"| {' | '.join(cells)} |" for cells in (columns, [":-" for _ in columns], *rows)),
        *(["", note] if note else []),
    ]
    return "\n".join(lines) + "\n"


def write(tables: dict[str, str], folder: Path = DOCS) -> list[str]:
    """Writes each table where the pages of a folder have a place for it. Returns the names of the tables written."""
    written = []
    for page in sorted(folder.glob("*.md")):
        before = page.read_text(encoding="utf-8")

        def place(found: re.Match[str]) -> str:
            if found[2] not in tables:
                return found[0]
            written.append(found[2])
            return f"{found[1]}\n{tables[found[2]]}\n{found[3]}"

        after = re.sub(
            r"^(<!-- table: ([^\n]+) -->)\n.*?^(<!-- /table -->)$", place, before, flags=re.DOTALL | re.MULTILINE
        )
        if after != before:
            page.write_text(after, encoding="utf-8")
    return written


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    tables = kept(report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, []))
    for name, text in tables.items():
        terminalreporter.section(f"table: {name}")
        terminalreporter.write_line(text)
    if config.getoption("write_tables"):
        terminalreporter.write_line(f"written into docs/: {', '.join(write(tables)) or 'no table'}")
