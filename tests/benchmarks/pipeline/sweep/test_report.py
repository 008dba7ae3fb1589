"""What a sweep prints and draws: the verdict first, within 80 columns; a page that fetches and runs nothing."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.builders import EMULATED, GPU, ONE_VARIANT, a_sweep_document, a_sweep_plan
from tests.checks import Page, assert_follows_from_its_file, assert_harmless, tables_of
from unstall.benchmarks.lab.show import show
from unstall.benchmarks.pipeline.sweep.report import KIND
from unstall.benchmarks.pipeline.sweep.results import derive
from unstall.benchmarks.pipeline.sweep.samples import SweepDocument
from unstall.pipeline.variants import VARIANTS
from unstall.profiles.devices import CPU
from unstall.profiles.report import LeftOut, print_document, write

TWO = {"generator": VARIANTS["generator"], **ONE_VARIANT}
BATCHES = a_sweep_plan(sweeps={"batch-size": (8, 32, 128)})
RISING = {8: (1200.0, 1210.0, 1190.0), 32: (1600.0, 1610.0, 1590.0), 128: (1900.0, 1910.0, 1890.0)}


def printed(document: SweepDocument, typed: str = "photos/train") -> list[str]:
    console = Console(width=80, file=io.StringIO())
    print_document(console, replace(document, typed={document.plan.data: typed}), KIND, derive(document))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def page(document: SweepDocument) -> str:
    return KIND.page(document, derive(document))


def test_the_verdict_comes_first_then_a_row_for_each_value_with_what_is_expected() -> None:
    assert printed(a_sweep_document(BATCHES, RISING)) == [
        "",
        "unstall: batch-size of cats-dogs-64 on cpu: 8, 32, 128",
        "3 rounds; 100 images, 2 classes (cats, dogs), from photos",
        "",
        "RISES          tf-data-autotune: throughput rises from 1,200 to 1,900 img/s from",
        "               batch size 8 to 128 (1.58x from end to end, 1.57 to 1.60). As",
        "               expected: it should be flat or rise.",
        "",
        "                      img/s  at least  # images/sec",
        "tf-data-autotune 8    1,200     1,200  #########################",
        "tf-data-autotune 32   1,600     1,200  ##################################",
        "tf-data-autotune 128  1,900     1,200  ########################################",
        "",
        "NEXT           what tf-data-autotune waits for at the fastest of these:",
        "               unstall pipeline --data photos/train --model cats-dogs-64 --variants tf-data-autotune "
        "--batch-size 128",
    ]


def test_where_a_rate_departs_is_said_below_its_shape() -> None:
    asked = a_sweep_plan(sweeps={"cores": (1, 2)})
    rates = {1: (980.0, 1000.0, 990.0), 2: (1210.0, 1190.0, 1220.0)}
    text = " ".join(" ".join(printed(a_sweep_document(asked, rates, loader=rates))).split())
    assert "RISES tf-data-autotune: throughput rises from 990 to 1,207 img/s from 1 to 2 cores (1.22x" in text
    assert "As expected: it should not fall." in text
    assert "loader at least # images/sec of the loader alone tf-data-autotune 1 990 990" in text
    assert "tf-data-autotune 2 1,207 1,980" in text
    assert (
        "DEPARTS tf-data-autotune: the loader alone should grow in proportion (efficiency 0.8 at least); "
        "fitted 1,210 img/s at 2 cores against 990 at 1: 1.22 times for 2 times as many (efficiency 0.61)." in text
    )
    assert "NEXT a faster pipeline, as tf.data code: unstall tune --data photos/train --model cats-dogs-64" in text


def test_precisions_are_told_as_multiples_of_the_first() -> None:
    asked = a_sweep_plan(sweeps={"precision": ("float32", "mixed_float16")})
    lines = printed(a_sweep_document(asked, {"float32": (1000.0,) * 3, "mixed_float16": (1500.0,) * 3}))
    text = " ".join(" ".join(lines).split())
    assert "FASTEST tf-data-autotune: mixed_float16 is the fastest: throughput is 1,000 img/s with float32" in text
    assert "at least" not in text  # nothing is expected


def test_each_axis_model_and_device_has_a_screen() -> None:
    asked = a_sweep_plan(
        sweeps={"batch-size": (8, 32), "workers": (1, 2)}, models=("cats-dogs-64", "cats-dogs-128"), variants=TWO
    )
    rates = dict.fromkeys((8, 32, 1, 2), (1000.0, 1010.0, 990.0))
    lines = printed(a_sweep_document(asked, rates, devices=(CPU, GPU)))
    assert [line for line in lines if line.startswith("unstall: ")] == [
        f"unstall: {axis} of {model} on {device}: {values}"
        for axis, values in (("batch-size", "8, 32"), ("workers", "1, 2"))
        for device in ("cpu", "gpu")
        for model in ("cats-dogs-64", "cats-dogs-128")
    ]
    assert sum(line.startswith("FLAT ") for line in lines) == 16
    assert max(len(line) for line in lines if "unstall pipeline" not in line) <= 80


def test_what_cannot_be_taken_is_named_with_its_reason() -> None:
    left_out = (LeftOut(who="directory, workers 2 (m), cpu", reason="<b>no workers</b>"),)
    document = a_sweep_document(BATCHES, RISING, left_out=left_out)
    assert "LEFT OUT       directory, workers 2 (m), cpu: <b>no workers</b>." in printed(document)
    assert "directory, workers 2 (m), cpu: <b>no workers</b>" in " ".join(Page(page(document)).text.split())


def test_a_value_without_a_result_has_no_row_and_one_value_is_judged_by_nothing() -> None:
    document = a_sweep_document(BATCHES, {8: (), 32: (1000.0,) * 3, 128: ()})
    text = " ".join(" ".join(printed(document)).split())
    assert "ONE VALUE tf-data-autotune: 1,000 img/s at batch size 32, the only value." in text
    assert "expected" not in text
    assert_harmless(Page(page(document)))


def test_the_tables_of_an_axis() -> None:
    asked = a_sweep_plan(sweeps={"cores": (1, 2)}, variants=TWO)
    rates = {1: (980.0, 1000.0, 990.0), 2: (1210.0, 1190.0, 1220.0)}
    lines = tables_of(KIND, a_sweep_document(asked, rates, loader=rates)).splitlines()
    assert lines[:3] == ["", "cores of cats-dogs-64 on cpu: 1, 2", lines[2]]
    at = lines.index("tf-data-autotune")
    assert lines[at : at + 4] == [
        "tf-data-autotune",
        "cores img/s  ± times      95 % at least loader at least model load%",
        "1       990 1%  1.00         -      990    990      990 4,000   75%",
        "2     1,207 1%  1.22 1.16-1.28      990  1,207    1,980 4,000   70%",
    ]
    assert "generator (other work per image: nearest)" in lines
    assert "img/s: images trained a second, over whole epochs; ± how much one round differs" in lines


def test_tables_of_every_variant_and_axis_fit_80_columns() -> None:
    sweeps: dict[str, Any] = {
        "batch-size": (8, 65_536),
        "workers": (1, 64),
        "image-size": (32, 1024),
        "cores": (1, 128),
        "precision": ("float32", "mixed_float16", "mixed_bfloat16"),
        "steps-per-execution": (1, 1000),
    }
    asked = a_sweep_plan(sweeps=sweeps, variants=VARIANTS)
    rates = {value: (123456.0, 234567.0, 150000.0) for values in sweeps.values() for value in values}
    document = a_sweep_document(asked, rates)
    text = tables_of(KIND, document)
    assert max(map(len, text.splitlines())) <= 80 and "…" not in text
    lines = printed(document)
    assert max(len(line) for line in lines if "unstall " not in line) <= 80 and not any("…" in line for line in lines)


def test_executions_of_several_steps_have_no_model_alone_and_no_share_of_loading() -> None:
    asked = a_sweep_plan(sweeps={"steps-per-execution": (1, 4)})
    results = derive(a_sweep_document(asked, {1: (1000.0,) * 3, 4: (1500.0,) * 3}))
    (curve,) = results.curves
    assert [(one.model_images_per_sec, one.loading_ratio, one.flags) for one in curve.points] == [(None, None, ())] * 2
    assert [one.rate("train") for one in curve.points] == pytest.approx([1000, 1500])


def test_few_rounds_and_slow_moments_of_the_machine_are_told() -> None:
    one = a_sweep_plan(rounds=1)
    assert "Be careful: fewer than 3 rounds show no spread, so that any difference may be" in printed(
        a_sweep_document(one, {8: (1000.0,), 32: (1000.0,)})
    )
    slow = a_sweep_document(BATCHES, RISING, slow_rounds=(1,))
    lines = printed(slow)
    assert lines[3] == "Be careful: the machine was slow before 6 of 21 windows."
    assert all(series.disturbed for curve in derive(slow).curves for series in curve.series.values())
    falling = a_sweep_document(a_sweep_plan(), {8: (1000.0,) * 3, 32: (500.0,) * 3}, slow_rounds=(1,))
    text = " ".join(" ".join(printed(falling)).split())
    assert "0.50 times as much (doubtful: the machine was slow in some rounds)." in text


def test_rates_are_drawn_from_nothing_up_with_what_is_expected_dashed() -> None:
    seen = page(a_sweep_document(BATCHES, RISING))
    assert re.findall(r"<figcaption>(.*?)</figcaption>", seen) == [
        "throughput, images/sec",
        "the loader alone, images/sec",
        "the model alone, images/sec",
    ]
    assert "<title>throughput, images/sec, by batch-size</title>" in seen
    assert re.findall(r"</svg>(.*?)</span>", seen)[1:3] == ["tf-data-autotune", "tf-data-autotune, at least"]
    lines = [tag for name, tag in Page(seen).tags if name == "polyline"]
    assert [line["class"] for line in lines] == ["line0", "line0 dashed"] * 2 + ["line0"]
    grid = [tag["y1"] for name, tag in Page(seen).tags if name == "line" and tag["class"] == "grid"]
    expected = {pair.split(",")[1] for pair in (lines[1]["points"] or "").split()}
    assert len(expected) == 1 and grid[0] not in expected  # flat, and not at zero
    texts = re.findall(r"<text.*?>(.*?)</text>", seen)
    assert texts[:9] == ["0", "500", "1,000", "1,500", "2,000", "8", "32", "128", "batch-size"]


def test_the_page_marks_each_departure_and_runs_its_own_script_alone() -> None:
    asked = a_sweep_plan(sweeps={"batch-size": (8, 32), "cores": (1, 2)}, variants=TWO)
    rates = {8: (1000.0,) * 3, 32: (500.0,) * 3, 1: (700.0,) * 3, 2: (1400.0,) * 3}
    document = a_sweep_document(asked, rates)
    results = derive(document)
    found = [finding for curve in results.curves for finding in curve.findings]
    assert [(one.axis, one.variant, one.figure) for one in found] == [
        ("batch-size", variant, figure) for variant in TWO for figure in ("train", "loader")
    ]
    text = page(document)
    assert text.count('class="wrong"') == 4
    assert text.count('<figure class="chart"') == 6
    assert_harmless(Page(text))
    assert "default-src 'none'" in text
    assert not re.search(r"(src|href)=", text)


def test_a_run_that_was_stopped_says_so_on_its_page() -> None:
    assert "This run was stopped before its end" in page(a_sweep_document(BATCHES, RISING, complete=False))


@pytest.mark.parametrize("axis", ["batch-size", "precision", "steps-per-execution", "cores"])
def test_all_that_follows_from_a_document_follows_from_its_file(axis: str, tmp_path: Path) -> None:
    values: tuple[Any, ...] = ("float32", "mixed_float16") if axis == "precision" else (1, 2)
    asked = a_sweep_plan(sweeps={axis: values}, variants=TWO)
    document = a_sweep_document(asked, dict.fromkeys(values, (1000.0, 990.0, 1010.0)), devices=(CPU, EMULATED))
    assert_follows_from_its_file(KIND, document, tmp_path)


def test_it_is_shown_again_in_every_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = a_sweep_document(BATCHES, RISING)
    write(tmp_path, document, KIND, derive(document))
    assert show([str(tmp_path)]) == 0
    assert "RISES          tf-data-autotune: throughput rises from 1,200" in capsys.readouterr().out
    assert show([str(tmp_path), "--details"]) == 0
    assert "batch-size img/s" in capsys.readouterr().out
    assert show([str(tmp_path), "--csv"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 4 and rows[0].startswith("axis,value,variant,model,device,images_per_sec,spread_ratio,times,")
    assert show([str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [one["value"] for one in answer["points"]] == [8, 32, 128]
    assert answer["points"][2]["times"] == pytest.approx(1.583, abs=1e-3)
    assert answer["points"][2]["times_low"] < answer["points"][2]["times"] < answer["points"][2]["times_high"]
    assert answer["curves"][0]["shape"]["label"] == "RISES" and answer["curves"][0]["as_expected"] is True
    assert [line["label"] for line in answer["answer"]["answers"][0]["verdict"]] == ["RISES"]
    assert show([str(tmp_path), "--as", "github-action-benchmark"]) == 0
    assert "cats-dogs-64 on cpu: tf-data-autotune, batch-size 128" in capsys.readouterr().out
    assert show([str(tmp_path), "--html", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_text() == (tmp_path / "report.html").read_text()
