"""A stage table as text."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from profiles.report.text import print_stages
from profiles.stage_table import StageTable, without_stages
from profiles.unit import IMAGE
from tests.builders import STAGE_TABLE as TABLE


def printed(table: StageTable, width: int = 100) -> str:
    file = io.StringIO()
    print_stages(Console(file=file, width=width), "mine", table, IMAGE)
    return "".join(line.rstrip() + "\n" for line in file.getvalue().splitlines())


def test_a_table_is_printed_as_the_golden_text() -> None:
    assert (
        printed(TABLE)
        == """
stages of mine
stage      where       CPU us wait us share bytes img/s    calls             buffer
load_image train.py:12    430      20  100% 49 kB 4,649 2 (auto)                  -
shuffle    shuffle          0       0    0%     -     -        -                512
prefetch   prefetch        -3       -    0%     -     -        - 4 (auto), 25% full
us: microseconds per image, one thing at a time; img/s: what 2 cores could give a stage.
The loader as it runs: 440 us of CPU per image (the stages sum to 427), 1.9 cores busy, 4 workers
asked for, 2 seen.
An image takes 2.25 ms (median), 3.96 ms (p99); slowest: dogs/2.jpg (4.0 ms), cats/1.jpg (0.5 ms).
"""
    )


@pytest.mark.parametrize("width", [80, 90, 100, 120])
def test_no_line_is_longer_than_the_console_is_wide(width: int) -> None:
    assert max(len(line) for line in printed(TABLE, width).splitlines()) <= width


def test_a_loader_without_stages_says_why() -> None:
    assert printed(without_stages("it is read once", cores=2)) == "\nmine: no stages: it is read once.\n"
