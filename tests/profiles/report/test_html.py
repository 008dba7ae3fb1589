"""The HTML report: one file, no scripts, no network, nothing of its input taken for markup.

Long because the report is one page of many parts, and all of them are rendered from the documents made here.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.builders import a_cold_result, a_document, a_result, a_telemetry, rounds_of, with_subject
from tests.checks import Page, assert_harmless
from unstall.profiles.machine.telemetry import Trace
from unstall.profiles.report.bars import PART_NAMES
from unstall.profiles.report.html import heat, render
from unstall.profiles.results.result import Result
from unstall.profiles.results.verdict import judge

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</style><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "' onclick='alert(1)",
    "{{ document }}",
    "https://evil.example/x.js",
    "&lt;b&gt;",
]


def page(
    results: list[Result],
    texts: dict[tuple[str, str], list[str]] | None = None,
    telemetry: Trace | None = None,
    **changes: Any,
) -> Page:
    return Page(render(a_document(results, **changes), texts or {}, telemetry))


RUN = [
    a_result(),
    a_result("tf-data-prefetch", train=rounds_of("train", 5, 5, 5, wait_ms=1, edge_ms=5), loader_ms=5),
    a_result("on-a-gpu", device="gpu", loader_ms=None),
    a_result("directory", model="cats-dogs-128", device="cpu"),
]


def test_the_page_fetches_and_runs_nothing() -> None:
    text = render(a_document(RUN), {})
    assert_harmless(Page(text))
    assert not re.search(r"(https?:)?//[a-z]|url\(|@import|javascript:", text, re.IGNORECASE)


def test_the_page_forbids_itself_everything_but_its_style() -> None:
    (policy,) = [a["content"] for tag, a in page(RUN).tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert directives["style-src"] == "'unsafe-inline'"
    assert directives["script-src"].startswith("'sha256-")


def test_edges_that_are_unknown_are_a_dash() -> None:
    known, unknown = (
        render(a_document([a_result(train=rounds_of("train", 5, 5, 5, edge_ms=5, whole=whole))]), {})
        for whole in (True, False)
    )
    assert "<td>9.1%</td>" in known
    assert "<td>9.1%</td>" not in unknown


def test_the_page_is_one_whole_document() -> None:
    text = render(a_document(RUN), {})
    assert text.startswith("<!doctype html>")
    assert text.rstrip().endswith("</html>")


def test_all_results_are_there_under_their_model_and_device() -> None:
    seen = page(RUN)
    for result in RUN:
        assert f"{result.subject.model} on {result.subject.device.name}" in seen.text
        assert seen.text.count(result.subject.variant) >= 2  # its bar and its row
    rows = [tag for tag, _ in seen.tags if tag == "tr"]
    tables = 2 * len({(result.subject.model, result.subject.device.name) for result in RUN})
    predicted = [result for result in RUN if result.loader_images_per_sec is not None]
    # A head and the rows of a compact and of a whole table of each group; and of what was predicted, where it was.
    assert len(rows) == tables + 2 * len(RUN) + len(predicted) + 2


def test_a_row_has_the_figures_of_its_result() -> None:
    text = render(a_document([a_result(work=("nearest", "scaled decode"))]), {})
    row = re.findall(r"<td>(.*?)</td>", text)
    assert row[:7] == ["generator", "833", "0.0%", "67%", "50%", "1,111", "2,500"]
    assert row[7:-7] == [
        "generator",
        "833",
        "0.0%",
        "1,000",
        "1,111",
        "2,500",
        "66.7%",
        "33.3%",
        "50.0%",
        "0.0%",
        "0.0%",
        "16.7%",
        "0.01 s",
        "-, -",
        "nearest, scaled decode",
    ]
    # In turns 1 / (1 / 1,111 + 1 / 2,500), at the same time the smaller of both; 833 of it.
    assert row[-7:] == ["generator", "1,111", "2,500", "769", "1,111", "833", "75%"]


def test_what_was_not_measured_is_a_dash() -> None:
    row = re.findall(r"<td>(.*?)</td>", render(a_document([a_result(device="gpu", loader_ms=None)]), {}))
    assert row[5] == "-" and row[7 + 4] == "-" and row[7 + 9] == "-"


def test_verdicts_are_shown_with_their_group() -> None:
    seen = page(RUN, {("cats-dogs-128", "cpu"): ["It is what it is."]})
    assert seen.text.index("cats-dogs-128 on cpu") < seen.text.index("It is what it is.")


def test_what_the_rules_found_is_shown_under_its_group_with_the_gain() -> None:
    fast = a_result("fast", train=rounds_of("train", 5, 5, 5, wait_ms=1), work=("scaled decode",))
    verdicts = judge([with_subject(one, decoded_pixels=64**2, wanted_pixels=16**2) for one in (a_result(), fast)])
    text = " ".join(page([a_result(), fast], verdicts=[one.to_dict() for one in verdicts]).text.split())
    assert "generator: input-bound input-bound: 67% of an epoch is loading" in text
    assert "Gain, predicted: if loading cost nothing, 3.00 times as fast." in text
    assert "generator: oversized decode Images are decoded at 16 times the pixels that the model takes." in text
    assert "Advice: decode at a fraction of the size, as fast does. " in text
    assert "Gain, measured: 2.40 times as fast (2.40 to 2.40)." in text
    assert "fast: oversized decode Images are decoded at 16 times" in text
    assert "what that costs was not measured (a hypothesis)." in text


def test_every_part_has_a_place_in_the_legend() -> None:
    seen = page(RUN)
    for name in PART_NAMES.values():
        assert name in seen.text


def widths(seen: Page) -> list[float]:
    """The widths of the parts of all bars, without the keys of the legend."""
    return [float(attributes["width"] or 0) for tag, attributes in seen.tags if tag == "rect" and "x" in attributes]


def test_bars_are_drawn_to_the_scale_of_the_slowest() -> None:
    # 1.2 ms an image against 0.55: compute 0.4 of each, then stalls, interference and edges.
    seen = [width for width in widths(page(RUN[:2])) if width > 0.01]
    assert seen == pytest.approx([100 * s / 1.2 for s in (0.4, 0.6, 0.2, 0.4, 0.1, 0.05)], abs=0.01)


def test_a_bar_with_a_negative_part_still_fits() -> None:
    # Steps of 3 ms where the model alone takes 4: interference is negative.
    negative = a_result(train=rounds_of("train", 9, 9, 9, wait_ms=6, edge_ms=20))
    assert negative.attribution.shares.interference == pytest.approx(-0.1 / 1.1)
    seen = widths(page([negative]))
    assert len(seen) == 3 and min(seen) > 0
    assert sum(seen) <= 100.05


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_plain_text_wherever_they_stand(name: str) -> None:
    hostile = a_result(name, model=name, notes=(name,), work=(name,))
    document = a_document(
        [hostile],
        created=name,
        dataset={
            "kind": name,
            "name": name,
            "images": 3,
            "skipped": 1,
            "skipped_files": [{"path": name, "reason": name}],
            "fingerprint": name,
        },
        left_out=[{"who": name, "reason": name}],
    )
    document["provenance"] |= {"cpu": name, "packages": {name: name}, name: name}
    seen = Page(render(document, {(name, "emulated:2500"): [name]}))
    assert_harmless(seen)
    assert seen.text.count(name) >= 16


def test_each_note_and_flag_is_listed_once_with_its_variants() -> None:
    unclaimed = rounds_of("train", 10, 10, 10, claimed_ns=1)
    noted = a_result("noted", notes=("its draws may repeat",))
    flagged = a_result("flagged", train=unclaimed)
    both = a_result("both", notes=("its draws may repeat",), train=unclaimed)
    seen = page([noted, flagged, both, a_result("plain")])
    assert seen.text.count("its draws may repeat: noted, both\n") == 1
    assert seen.text.count("is neither step nor edge: flagged, both\n") == 1
    assert [tag for tag, _ in seen.tags].count("li") == 2


def test_cold_rows_are_told_apart_from_warm_ones() -> None:
    seen = page([a_result(notes=("same",)), a_cold_result(notes=("same",)), a_result("other")])
    bars = re.findall(r"^(.*): [\d.]+ ms/image$", seen.text, re.MULTILINE)
    assert bars == ["generator", "generator, cold", "other"]
    assert "same: generator; generator, cold\n" in seen.text
    rows = re.findall(r"^(generator|generator, cold|other)\n(?=[\d,]+\n)((?:.*\n){9})", seen.text, re.MULTILINE)
    # Stall, and of it storage.
    assert [(name, cells.splitlines()[7:9]) for name, cells in rows] == [
        ("generator", ["50.0%", "-"]),
        ("generator, cold", ["66.7%", "33.3%"]),
        ("other", ["50.0%", "-"]),
    ]


def test_a_page_without_cold_rows_has_no_column_of_theirs() -> None:
    assert "of itstorage" in page([a_result(), a_cold_result()]).text
    assert "of itstorage" not in page([a_result()]).text


def test_what_was_left_out_is_listed_with_its_reason() -> None:
    left_out = [
        {"who": "py-dataset (cats-dogs-64, cpu)", "reason": "it hung"},
        {"who": "gpu", "reason": "no GPU"},
    ]
    seen = page(RUN, left_out=left_out)
    assert "py-dataset (cats-dogs-64, cpu): it hung" in seen.text
    assert "gpu: no GPU" in seen.text
    assert "Left out" not in page(RUN).text


@pytest.mark.parametrize(("skipped", "listed"), [(1, 1), (50, 50), (51, 50), (120, 50)])
def test_skipped_files_are_listed_up_to_fifty(skipped: int, listed: int) -> None:
    files = [{"path": f"cats/{number}.jpg", "reason": "no image"} for number in range(skipped)]
    dataset = a_document([])["dataset"] | {"skipped": skipped, "skipped_files": files}
    seen = page(RUN, dataset=dataset)
    assert f"{skipped} files skipped" in seen.text
    assert seen.text.count(".jpg: no image") == listed
    assert (f"and {skipped - listed} more, in results.json" in seen.text) is (skipped > listed)


def test_a_run_without_results_is_rendered() -> None:
    seen = page([], complete=False, left_out=[{"who": "a (m, cpu)", "reason": "it hung"}])
    assert "stopped before its end" in seen.text
    assert "a (m, cpu): it hung" in seen.text
    assert "tr" not in {tag for tag, _ in seen.tags}


def test_only_a_stopped_run_says_so() -> None:
    assert "stopped before its end" not in page(RUN).text


def test_provenance_is_shown() -> None:
    seen = page(RUN)
    for text in ("a processor, 2 usable cores", "8589934592", "keras 3.15.1, jax unknown", "abc123"):
        assert text in seen.text


@pytest.mark.parametrize(("gpus", "charts"), [(0, 3), (1, 5)])
def test_the_machine_is_drawn_where_it_was_recorded(gpus: int, charts: int) -> None:
    seen = page(RUN, telemetry=a_telemetry(gpus=gpus))
    assert_harmless(seen)
    assert "The machine during the run" in seen.text
    assert [tag for tag, _ in seen.tags].count("figure") == charts
    assert next(a["points"] for tag, a in seen.tags if tag == "polyline") != ""
    assert seen.text.count("round 1\n") >= charts
    assert ("GPU use" in seen.text) is (gpus > 0)


def test_a_run_without_telemetry_has_no_such_section() -> None:
    assert "The machine during the run" not in page(RUN).text


def with_use(cpu_ratio: float | None, gpu_ratio: float | None) -> dict[str, Any]:
    document = a_document([a_result(), a_result("other")])
    for one, part in zip(document["results"], (1.0, None), strict=True):
        one["machine"] = {
            "cpu_ratio": cpu_ratio,
            "gpu_ratio": None if gpu_ratio is None or part is None else gpu_ratio,
        }
    return document


@pytest.mark.parametrize(
    ("cpu_ratio", "gpu_ratio", "cells"),
    [(0.873, None, ["87%"]), (0.873, 0.42, ["87%", "42%"]), (None, 0.42, ["42%"]), (None, None, [])],
)
def test_how_busy_cores_and_gpu_were_is_a_column_where_it_is_known(
    cpu_ratio: float | None, gpu_ratio: float | None, cells: list[str]
) -> None:
    text = render(with_use(cpu_ratio, gpu_ratio), {})
    row = re.findall(r"<td>(.*?)</td>", text.partition('<table class="dense">')[2])
    assert row[14 : 14 + len(cells)] == cells
    assert ("cores<br>busy" in text) is (cpu_ratio is not None)
    assert ("GPU<br>busy" in text) is (gpu_ratio is not None)


def a_stage(name: str = "decode", **changes: Any) -> dict[str, Any]:
    stage = {
        "name": name,
        "kind": "map",
        "location": "train.py:42",
        "python": False,
        "cpu_us_per_image": 820.4,
        "wait_us_per_image": 3.0,
        "share": 0.785,
        "bytes_per_element": 49_152,
        "images_per_sec": 2437.8,
        "parallelism": 4,
        "autotuned": True,
        "buffer_size": None,
        "buffer_fill_ratio": None,
    }
    return stage | changes


def a_table(**changes: Any) -> dict[str, Any]:
    table = {
        "loader_cpu_us_per_image": 1180.0,
        "effective_parallelism": 1.84,
        "tail": {"images": 256, "p50_us": 980.0, "p99_us": 4200.0, "slowest": [{"name": "cats/1.jpg", "us": 9800.0}]},
        "reason": None,
        "flags": [],
    }
    return table | changes


def staged(stages: list[dict[str, Any]], table: dict[str, Any] | None, **changes: Any) -> str:
    document = a_document([a_result()])
    document["results"][0] |= {"stages": stages, "stage_table": table} | changes
    return render(document, {})


def stage_cells(text: str) -> list[list[str]]:
    (body,) = re.findall(r'<table class="stages">.*?<tbody>(.*?)</tbody>', text, re.DOTALL)
    return [re.findall(r"<td>(.*?)</td>", row, re.DOTALL) for row in body.split("</tr>")[:-1]]


def test_a_stage_table_has_the_figures_of_each_stage() -> None:
    rows = [
        a_stage(),
        a_stage("prefetch", buffer_size=8, parallelism=None, buffer_fill_ratio=0.125, autotuned=False),
        a_stage("list", location=None, wait_us_per_image=None, bytes_per_element=60, images_per_sec=None),
        a_stage("batch", bytes_per_element=1_572_864),
    ]
    text = staged(rows, a_table())
    assert_harmless(Page(text))
    cells = [[cell for cell in row if "bar" not in cell] for row in stage_cells(text)]
    assert cells == [
        ["decode", "train.py:42", "820", "3", "78%", "49.2 kB", "2,438", "4 (autotuned)", "-", "-"],
        ["prefetch", "train.py:42", "820", "3", "78%", "49.2 kB", "2,438", "-", "8", "12%"],
        ["list", "map", "820", "-", "78%", "60 B", "-", "4 (autotuned)", "-", "-"],
        ["batch", "train.py:42", "820", "3", "78%", "1.6 MB", "2,438", "4 (autotuned)", "-", "-"],
    ]
    # 823.4, 823.4, 820.4 and 823.4 us, each bar behind the one before; no limit, for the cores are not known.
    begins = [float(x) for x in re.findall(r'class="prep_stall" x="([\d.]+)" width="(?:25.0|24.9)"', text)]
    assert begins == [0.0, 25.0, 50.0, 75.0] and 'class="limit"' not in text


def test_a_stage_table_has_a_line_where_the_model_is_as_fast() -> None:
    """Two cores have 800 us for an image at the model's 2,500 images/sec; the stages take 600 and 400."""
    stages = [a_stage("read", cpu_us_per_image=600.0, wait_us_per_image=0.0)]
    stages.append(a_stage("batch", cpu_us_per_image=300.0, wait_us_per_image=100.0))
    text = staged(stages, a_table(cores=2.0))
    assert re.findall(r'class="prep_stall" x="([\d.]+)" width="([\d.]+)"', text)[-2:] == [
        ("0.0", "60.0"),
        ("60.0", "40.0"),
    ]
    assert text.count('class="limit" x="80.0"') == 2
    assert "cannot keep up with the model" in text


def test_below_a_stage_table_stand_the_loader_the_tail_and_the_flags() -> None:
    text = " ".join(Page(staged([a_stage()], a_table(flags=["the stages do not sum up"]))).text.split())
    assert "The loader as it runs: 1,180 us of CPU per image, 1.8 cores busy" in text
    assert "0.98 ms (median of 256), 4.20 ms (99th percentile). Slowest: cats/1.jpg (9.8 ms)." in text
    assert "the stages do not sum up" in text


def test_a_loader_without_stages_says_why() -> None:
    nothing = a_table(loader_cpu_us_per_image=None, effective_parallelism=None, tail=None, reason="it is read once")
    text = staged([], nothing)
    assert "No stages: it is read once." in text
    assert '<table class="stages">' not in text and "The loader as it runs" not in text


@pytest.mark.parametrize("changes", [{}, {"lines": []}])
def test_a_result_that_was_not_cut_has_no_such_section(changes: dict[str, Any]) -> None:
    assert "stage by stage" not in staged([], None, **changes)
    document = a_document([a_result()])
    for key in ("stages", "stage_table", "lines"):
        document["results"][0].pop(key, None)
    assert "stage by stage" not in render(document, {})


def test_all_but_the_compact_table_is_folded() -> None:
    text = staged([a_stage()], a_table(), lines=[a_function("draw", "x")])
    before, _, behind = text.partition("<details")
    assert '<table class="compact">' in before and "<table" not in re.sub(
        r"(?s)<details.*?</details>", "", f"<details{behind}"
    )
    assert "<details open" not in text


def a_function(name: str, source: str) -> dict[str, Any]:
    lines = [
        {"number": 7, "source": "def draw():", "hits": 0, "us": 0.0, "ratio": 0.0},
        {"number": 8, "source": source, "hits": 1200, "us": 3456.0, "ratio": 0.9},
        {"number": 9, "source": "    return 1", "hits": 1200, "us": 384.0, "ratio": 0.1},
    ]
    return {"function": name, "location": "train.py:7", "total_us": 3840.0, "lines": lines}


def test_source_is_annotated_line_by_line_and_closed_at_first() -> None:
    text = staged([], None, lines=[a_function("draw", "    if a < b:")])
    (closed,) = [attributes for tag, attributes in Page(text).tags if attributes.get("class") == "source"]
    assert "open" not in closed
    assert "draw, train.py:7: 3.8 ms" in text
    body = text.partition('class="source"')[2].partition("</tbody>")[0]
    rows = [re.findall(r"<td.*?>(.*?)</td>", row) for row in body.split("</tr>")[1:-1]]
    assert rows == [
        ["7", "", "", "", "<code>def draw():</code>"],
        ["8", "1,200", "3,456", "90.0%", "<code>    if a &lt; b:</code>"],
        ["9", "1,200", "384", "10.0%", "<code>    return 1</code>"],
    ]
    assert re.findall(r'<td class="(heat\d|)">', body) == [heat(0), heat(0.9), heat(0.1)]


def test_a_line_is_the_hotter_the_more_of_the_time_it_takes() -> None:
    assert [heat(ratio) for ratio in (0.0, 0.03, 0.1, 0.2, 0.4, 0.8)] == ["", *(f"heat{step}" for step in range(1, 6))]
    assert heat(1.0) == heat(1.01) == "heat5"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_stages_lines_and_marks_are_plain_text(name: str) -> None:
    document = a_document([a_result()])
    tail = {"images": 1, "p50_us": 1.0, "p99_us": 1.0, "slowest": [{"name": name, "us": 1.0}]}
    function = a_function(name, name) | {"location": name}
    document["results"][0] |= {
        "stages": [a_stage(name, location=name), a_stage("x", location=None, kind=name)],
        "stage_table": a_table(tail=tail, reason=name, flags=[name]),
        "lines": [function],
    }
    seen = Page(render(document, {}, a_telemetry(name, gpus=1)))
    assert_harmless(seen)
    # Three in the stages, one in the tail, a reason, a flag, three in the source, a band of each of five graphs.
    assert seen.text.count(name) >= 14
