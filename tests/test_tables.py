"""Tables of what tests measured: where they stand, and which of them a run replaces."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import tables
from tests.truth.bounds import BOUNDS

PAGE = """# A page

<!-- table: edges -->
an old table
<!-- /table -->

between

<!-- table: stages -->
another
<!-- /table -->
"""


def a_report(*rows: tuple[str, list[list[str]]]) -> Any:
    return SimpleNamespace(user_properties=[("table", [name, ["case", "off"], cells, ""]) for name, cells in rows])


def test_a_run_replaces_the_tables_of_the_tests_that_ran_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE)
    texts = tables.kept([a_report(("edges", [["150 ms", "+0.1"]])), a_report(("nowhere", [["1", "2"]]))])
    assert tables.write(texts, tmp_path) == ["edges"]
    page = (tmp_path / "page.md").read_text()
    assert "| case | off |\n| :- | :- |\n| 150 ms | +0.1 |\n\n<!-- /table -->" in page
    assert "an old table" not in page and page.endswith(PAGE.partition("between")[2])
    assert re.search(r"^Measured on \d{4}-\d\d-\d\d: .+, [\d.]+ cores, Python ", page, flags=re.MULTILINE)


def test_rows_of_several_tests_share_a_table_and_a_test_that_ran_again_counts_once() -> None:
    again = a_report(("grid", [["a", "failed"]]), ("grid", [["a", "passed"]]))
    (text,) = tables.kept([again, a_report(("grid", [["b", "passed"]]))]).values()
    assert text.endswith("| a | passed |\n| b | passed |\n")


def test_nothing_is_written_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    said, written = [], []
    reporter = SimpleNamespace(
        stats={"passed": [a_report(("edges", [["a", "b"]]))]}, section=said.append, write_line=said.append
    )
    monkeypatch.setattr(tables, "write", lambda texts: written.append(texts) or ["edges"])
    for asked in (False, True):
        tables.pytest_terminal_summary(reporter, SimpleNamespace(getoption=lambda name, asked=asked: asked))
        assert len(written) == asked
    assert said[0] == "table: edges" and "| a | b |" in said[1] and said[-1] == "written into docs/: edges"


def test_each_table_of_the_documents_is_one_that_tests_keep() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(tables.DOCS.glob("*.md")))
    names = re.findall(r"^<!-- table: (.+) -->$", text, flags=re.MULTILINE)
    assert len(names) == len(set(names)) == text.count("\n<!-- /table -->\n")
    tests = "".join(path.read_text(encoding="utf-8") for path in sorted((tables.DOCS.parent / "tests").rglob("*.py")))
    assert [name for name in names if name not in BOUNDS and f'tabulate("{name}"' not in tests] == ["claims"]
