"""Tables on a narrow terminal: nothing of a name is lost."""

from __future__ import annotations

import io

from rich.console import Console

from unstall.benchmarks.lab.tables import Table, print_table


def test_names_that_are_too_long_are_folded_and_numbers_are_not():
    name = 60 * "x"
    text = io.StringIO()
    table = Table(columns=("subject", "img/s", "straggler"), rows=[(name, "12,345", name)], words=("straggler",))
    print_table(Console(file=text, width=80), table)
    assert "…" not in text.getvalue()
    assert text.getvalue().count("x") == 2 * len(name) and "12,345" in text.getvalue()
