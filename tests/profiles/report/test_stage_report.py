"""A stage table as text."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from tests.builders import STAGE_TABLE as TABLE
from unstall.profiles.report.terminal import print_stages
from unstall.profiles.stage_table import Stage, StageTable
from unstall.profiles.unit import IMAGE


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


SCRIPT = "a_training_script_with_a_long_name.py"
LAMBDAS = StageTable(
    stages=(
        Stage(name="list_files, from_tensor_slices", kind="other tf.data", cpu_us_per_image=3, wait_us_per_image=0),
        Stage(name="shuffle", kind="shuffle", cpu_us_per_image=4, wait_us_per_image=-1, buffer_size=100_000),
        *(
            Stage(
                name=name,
                kind="map",
                location=f"{SCRIPT}:{line}",
                cpu_us_per_image=12_345.6,
                wait_us_per_image=1234.5,
                parallelism=16,
                autotuned=True,
            )
            for name, line in (("<lambda>", 31), ("<lambda>", 132), ("decode_and_resize_an_image_of_any_size", 7))
        ),
        Stage(
            name="prefetch",
            kind="prefetch",
            cpu_us_per_image=0,
            wait_us_per_image=None,
            buffer_size=16,
            autotuned=True,
            buffer_fill_ratio=1.0,
        ),
    ),
    cores=16,
)


@pytest.mark.parametrize("width", [60, 71, 72, 80, 90, 99, 100, 120])
@pytest.mark.parametrize("table", [TABLE, LAMBDAS])
def test_no_line_is_longer_than_the_console_is_wide(table: StageTable, width: int) -> None:
    text = printed(table, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_every_function_has_its_file_and_line_at_any_width(width: int) -> None:
    # A long name is folded into several lines of its column: read downwards, with blanks between columns left out.
    lines = printed(LAMBDAS, width).splitlines()
    where = lines[2].index("where")
    column = "".join(line[where if width >= 100 else 0 :].split()[0] for line in lines[3:] if line[where:].strip())
    for line in (31, 132, 7):
        assert f"{SCRIPT}:{line}" in column


def test_a_narrow_terminal_has_names_and_places_in_one_column() -> None:
    assert (
        printed(TABLE, 80)
        == """
stages of mine
stage, where           CPU us wait us share img/s    calls    buffer
load_image train.py:12    430      20  100% 4,649 2 (auto)         -
shuffle                     0       0    0%     -        -       512
prefetch                   -3       -    0%     -        - 4 (auto),
                                                            25% full
us: microseconds per image, one thing at a time; img/s: what 2 cores could give
a stage.
The loader as it runs: 440 us of CPU per image (the stages sum to 427), 1.9
cores busy, 4 workers asked for, 2 seen.
An image takes 2.25 ms (median), 3.96 ms (p99); slowest: dogs/2.jpg (4.0 ms),
cats/1.jpg (0.5 ms).
"""
    )


def test_what_full_buffers_hold_is_said_where_it_is_much() -> None:
    shuffle = Stage(name="shuffle", kind="shuffle", cpu_us_per_image=4, wait_us_per_image=0, buffer_size=1000)
    small, large = (replace(shuffle, bytes_per_element=size) for size in (3000, 300_000))
    assert "hold" not in printed(StageTable(stages=(small,), cores=2), 80)
    prefetch = replace(shuffle, name="prefetch", buffer_size=2, bytes_per_element=5_000_000)
    text = printed(StageTable(stages=(large, prefetch), cores=2), 80)
    assert "Full buffers hold 310 MB of memory, that of shuffle 300 MB." in text


def test_a_loader_without_stages_says_why() -> None:
    assert printed(StageTable(cores=2, reason="it is read once")) == "\nmine: no stages: it is read once.\n"
