"""What is left of a comparison: tables within 80 columns, strict JSON, a page that fetches and runs nothing."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.builders import EMULATED, GPU, PRICES, a_gpu, an_epoch, rows_of_all
from tests.builders import a_device_row as a_row
from tests.builders import a_devices_document as a_document
from tests.checks import Page, assert_follows_from_its_file, assert_harmless
from unstall.benchmarks.devices.experiments import EXPERIMENTS
from unstall.benchmarks.devices.findings import findings_of
from unstall.benchmarks.devices.flops import Work
from unstall.benchmarks.devices.plots import bars_of
from unstall.benchmarks.devices.report import KIND, derive
from unstall.benchmarks.devices.tables import (
    EFFORTS,
    digits_text,
    effort_cells,
    footnotes,
    print_findings,
    rate_cells,
    rate_columns,
    rate_lines,
    share_text,
)
from unstall.profiles.devices import parse_device
from unstall.profiles.report import write


def shown(print_: Any, *arguments: Any) -> str:
    console = Console(file=io.StringIO(), width=80)
    print_(console, *arguments)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_first_table_says_how_fast_how_long_and_how_much_is_loading() -> None:
    cpu, gpu, emulated = rows_of_all()
    assert rate_columns([cpu]) == (
        "device",
        "img/s",
        "model",
        "load%",
        "predict",
        "epoch",
        "15 epochs",
        "cost",
        "x cpu",
    )
    assert [line[-1] for line in rate_lines([cpu, gpu, emulated])] == ["-", "5.00x", "1.00x"]
    assert rate_cells(cpu) == ("cpu", "1,000", "2,000", "50%", "5,000", "2.0 s", "30.0 s*", "0.0002")
    assert rate_cells(gpu) == ("gpu (jax)", "5,000", "20,000", "75%", "5,000", "400 ms", "6.0 s*", "0.0004")
    assert rate_cells(emulated)[5:] == ("1.0 s*", "15.0 s*", "-")


def test_the_second_table_says_what_a_device_makes_of_itself() -> None:
    cpu, gpu, emulated = rows_of_all()
    assert len(EFFORTS) == len(effort_cells(cpu))
    # Whatever else runs on a GPU of this machine is not the CPU's.
    assert effort_cells(cpu) == ("cpu", "80%", "-", "-", "-", "3", "3", "38%", "76%", "40%")
    assert effort_cells(gpu)[:5] == ("gpu (jax)", "80%", "30%", "60", "200")
    assert effort_cells(emulated) == ("emulated:5000", "80%", "-", "-", "-", "3", "-", "-", "-", "-")


@pytest.mark.parametrize(
    ("ratio", "text"), [(None, "-"), (0.0, "0.0%"), (0.0123, "1.2%"), (0.0996, "10%"), (0.5, "50%"), (-0.11, "-11%")]
)
def test_small_shares_have_a_decimal(ratio: float | None, text: str) -> None:
    assert share_text(ratio) == text


@pytest.mark.parametrize(("number", "text"), [(27_534.0, "27,500"), (71.24, "71.2"), (0.01234, "0.0123")])
def test_large_numbers_have_three_digits_and_no_exponent(number: float, text: str) -> None:
    assert digits_text(number) == text


def test_a_device_is_not_folded_where_all_columns_are_as_wide_as_they_get() -> None:
    slow = a_row(prices=PRICES, epochs=(an_epoch(119.0),), train_ms=9_000, resident_ms=8_000)
    text = shown(print_findings, findings_of("mnist", EXPERIMENTS["mnist"], [slow, a_row(EMULATED)]))
    assert "emulated:5000 " in text and max(map(len, text.splitlines())) <= 80


def test_footnotes_say_what_was_drawn_out_or_made_up_or_not_counted_once() -> None:
    unknown = Work(forward_flops=None, training_flops=None, reason="no reason", activation_bytes=1, input_bytes=1)
    row = a_row(generated=True, target=0.9, work=unknown, notes=("a note",), rounds=1)
    assert footnotes([row, row]) == [
        "* cpu: training, extrapolated from 1 of 15 epochs",
        "FLOPs not counted: no reason",
        "mnist is made up: its accuracy says nothing of the published data",
        "accuracy is that of test data",
        "a note",
        "cpu: few rounds: 1, too few for an interval",
    ]
    assert footnotes([a_row(EMULATED)]) == ["* emulated:5000: an epoch, extrapolated from windows of training"]
    named = parse_device("emulated:a100-resnet50")
    assert footnotes([a_row(named)])[-1] == "emulated:a100-resnet50 is a rate for 224x224 images"


def test_an_experiment_is_printed_within_80_columns() -> None:
    text = shown(print_findings, findings_of("mnist", EXPERIMENTS["mnist"], rows_of_all()))
    assert max(map(len, text.splitlines())) <= 80
    lines = " ".join(text.split())
    assert "mnist: an extremely simple network on MNIST digits mnist-digits, arrays, batch 128" in lines
    assert "cpu 1,000 2,000 50% 5,000 2.0 s 30.0 s* 0.0002 -" in lines
    assert "computes 10.0x as fast as the CPU and trains 5.00x as fast: loading takes 50% of the advantage" in lines
    assert "published, and here published on here on" in lines
    assert "13x Tesla P100 5x gpu (jax)" in lines


def test_bars_are_as_long_as_the_time_of_an_example() -> None:
    drawn = bars_of([a_row(), a_gpu()])
    assert re.findall(r"<title>(.*?: .*?)</title>", drawn) == ["cpu: 1 ms", "gpu (jax): 0.2 ms"]
    widths = [float(tag["width"] or 0) for name, tag in Page(drawn).tags if name == "rect"]
    assert widths[:3] == [50.0, 40.0, 10.0]
    assert sum(widths[3:]) == pytest.approx(20)


def page(*words: str, **changes: Any) -> str:
    document = a_document(*words, **changes)
    return KIND.page(document, derive(document))


def test_both_files_are_written_and_the_results_are_strict_json(tmp_path: Path) -> None:
    document = a_document()
    write(tmp_path, document, KIND, derive(document))
    content = json.loads((tmp_path / "results.json").read_text(), parse_constant=pytest.fail)
    assert content["command"] == "devices" and content["complete"] is True
    assert [row["device"]["name"] for row in content["results"]] == ["cpu", "gpu", "emulated:5000"]
    assert content["experiments"][0]["advantages"][0]["lost_ratio"] == pytest.approx(0)
    assert content["left_out"] == [{"who": "someone", "reason": "<b>some reason</b>"}]
    assert content["plan"]["prices"] == PRICES
    assert (tmp_path / "report.html").read_text() == page()


@pytest.mark.parametrize("words", [(), ("--experiment", "deeper"), ("--precision", "mixed_bfloat16")])
def test_all_that_follows_from_a_document_follows_from_its_file(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert_follows_from_its_file(KIND, a_document(*words), tmp_path)


def test_the_page_fetches_and_runs_nothing_and_escapes_what_it_shows() -> None:
    text = page()
    seen = Page(text)
    assert_harmless(seen)
    assert not re.search(r"(https?:)?//[a-z]|url\(|@import|javascript:", text, re.IGNORECASE)
    assert "<b>some reason</b>" in seen.text and "GPU figures were measured here, with Keras on jax, H100." in seen.text
    for title in ("GPU temperature", "GPU power", "CPU use"):
        assert title in seen.text


def test_a_run_that_was_stopped_says_so_on_its_page() -> None:
    assert "This run was stopped before its end" in page(complete=False)


def test_a_gpu_is_named_with_the_backend_that_it_was_measured_on() -> None:
    assert rate_cells(a_row(GPU, backend="tensorflow"))[0] == "gpu (tensorflow)"
