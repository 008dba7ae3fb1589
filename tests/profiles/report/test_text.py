"""The table and the verdict, against golden text."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from tests import PROJECT_ROOT
from tests.builders import a_cold_result, a_result, a_sample, rounds_of
from unstall.profiles.report.terminal import print_results, print_stages, verdict_lines
from unstall.profiles.results.result import Result
from unstall.profiles.results.verdict import judge, what_the_cache_hides
from unstall.profiles.stage_table import Stage, StageTable
from unstall.profiles.unit import IMAGE

GOLDEN = PROJECT_ROOT / "tests" / "golden"


def printed(results: list[Result], *, width: int = 100, baseline: str | None = "generator", **settings: Any) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, color_system=None, legacy_windows=False)
    print_results(console, judge(results), baseline=baseline, **settings)
    return "".join(line.rstrip() + "\n" for line in file.getvalue().splitlines())


def a_run() -> list[Result]:
    """Returns a run as the main job has it: two devices, other work, notes, a flag, a loader that was not measured."""
    cpu = {"device": "cpu", "model": "cats-dogs-128"}
    replay = [a_sample("replay", ms=4.5, wait_ms=0.2)]
    return [
        a_result(notes=("its draws may repeat",), work=("nearest",)),
        a_result("tf-data-prefetch", train=rounds_of("train", 5, 5.2, 5.1, wait_ms=1, edge_ms=5), loader_ms=5),
        a_result(
            "tf-data-no-augment",
            train=rounds_of("train", 4.3, 4.2, 4.2, wait_ms=0.1, edge_ms=1, claimed_ns=1),
            loader_ms=2,
            work=("nearest", "no augmentation"),
        ),
        a_result(train=[*rounds_of("train", 9, 8, 9, wait_ms=2, edge_ms=3), *replay], loader_ms=None, **cpu),
        a_result("directory", train=rounds_of("train", 0.021, 0.02, 0.02), loader_ms=0.0101, resident_ms=0.0099, **cpu),
    ]


def test_edges_that_are_unknown_are_a_dash() -> None:
    text = printed([a_result(train=rounds_of("train", 5, 5, 5, edge_ms=5, whole=False))])
    row = next(line for line in text.splitlines() if line.startswith("generator "))
    *_, edges, _first_batch, _speed_up = row.split()
    assert edges == "-"


def test_loading_that_comes_to_less_than_nothing_is_nothing() -> None:
    text = printed([a_result(device="cpu", train=rounds_of("train", 3.7, 3.7, 3.7), loader_ms=None)])
    row = next(line for line in text.splitlines() if line.startswith("generator "))
    assert "0%" in row.split() and "100%" in row.split() and "108%" not in row
    assert "compute-bound: 0% of an epoch is loading" in text


def test_stages_that_take_nothing_are_no_table_of_zeros() -> None:
    slices = Stage(name="from_tensor_slices", kind="source", cpu_us_per_image=0.1, wait_us_per_image=0.2)
    batch = Stage(name="batch", kind="batch", cpu_us_per_image=0.2, wait_us_per_image=-0.3)
    file = io.StringIO()
    print_stages(Console(file=file, width=80), "fit 1", StageTable(stages=(slices, batch), cores=2.0), IMAGE)
    assert file.getvalue() == "\nstages of fit 1: none takes 0.5 us of an image.\n"


LEFT_OUT = (("py-dataset-processes (cats-dogs-64, cpu)", "it hung: no batch for 60 s"),)


@pytest.mark.parametrize("width", [100, 80, 140])
def test_a_run_is_printed_as_the_golden_text(width: int) -> None:
    golden = (GOLDEN / f"profiles_text_report_{width}.txt").read_text(encoding="utf-8")
    assert printed(a_run(), width=width, left_out=LEFT_OUT) == golden


@pytest.mark.parametrize("width", [60, 80, 90, 99, 100, 120])
@pytest.mark.parametrize("baseline", ["generator", None])
def test_no_line_is_longer_than_the_console_is_wide(width: int, baseline: str | None) -> None:
    text = printed(a_run(), width=width, baseline=baseline, left_out=LEFT_OUT)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text


def test_a_long_name_is_folded_and_not_cut() -> None:
    name = "a-variant-with-a-name-that-is-longer-than-any-column-could-ever-hope-to-be-wide"
    lines = printed([a_result(name)], width=80).splitlines()
    assert max(len(line) for line in lines) <= 80
    table = lines[next(number for number, line in enumerate(lines) if line.startswith("variant")) + 1 :]
    assert "".join(line.split()[0] for line in table[: table.index("")]) == name


def test_without_a_baseline_there_is_no_speed_up() -> None:
    assert "speed-up" in printed(a_run()[:2])
    assert "speed-up" not in printed(a_run()[:2], baseline=None)
    assert "speed-up" not in printed(a_run()[1:2])


def test_a_speed_up_without_a_shared_round_is_left_blank() -> None:
    alone = a_result("alone", train=rounds_of("train", 5, round=9), loader_ms=4)
    (row,) = [line for line in printed([a_result(), alone]).splitlines() if line.startswith("alone (")]
    assert row.split()[-1] == "-"


@pytest.mark.parametrize("name", ["v[red]x[/]", "[/bold]", "[link=http://x]y", "back\\", ":boom:"])
def test_markup_in_the_name_of_a_variant_is_plain_text(name: str) -> None:
    assert name in printed([a_result(name)], baseline=None).split("\n\n")[0]


@pytest.mark.parametrize("name", ["nets[red].keras", "[/bold]", "m[link=http://x]"])
def test_markup_in_the_name_of_a_model_is_plain_text(name: str) -> None:
    assert f"{name} on emulated:2500" in printed([a_result(model=name)], baseline=None)


def test_markup_in_remarks_and_reasons_is_plain_text() -> None:
    text = printed(
        [a_result(notes=("a [red] note",), work=("[b]odd[/b] work",))], left_out=[("[i]who[/i]", "why [/] not")]
    )
    assert "(1) a [red] note" in text
    assert "(a) other work per image: [b]odd[/b] work" in text
    assert "left out [i]who[/i]: why [/] not" in text


def test_equal_remarks_share_a_footnote() -> None:
    both = [
        a_result("one", notes=("same",), work=("nearest",)),
        a_result("two", notes=("same", "own"), work=("nearest",)),
    ]
    lines = printed(both, baseline=None).splitlines()
    assert [line for line in lines if line.startswith("(")] == [
        "(a) other work per image: nearest",
        "(1) same",
        "(2) own",
    ]
    assert any(line.startswith("one (a,1) ") for line in lines)
    assert any(line.startswith("two (a,1,2) ") for line in lines)


def test_what_was_not_measured_is_a_dash() -> None:
    (row,) = [
        line for line in printed([a_result(device="gpu", loader_ms=None)], baseline=None).splitlines() if "833" in line
    ]
    assert row.split() == ["generator", "833", "0%", "-", "2,500", "67%", "33%", "50%", "-", "17%", "0.01"]


def test_a_cold_row_stands_beside_its_warm_one() -> None:
    fast = [*rounds_of("train", 5, 5, 5, wait_ms=1), *rounds_of("cold", 10, 10, 10, wait_ms=6)]
    rows = [
        a_result(),
        a_cold_result(),
        a_result("tf-data", train=fast, loader_ms=None),
        a_result("tf-data", train=fast, loader_ms=None, page_cache="cold"),
        a_result("tf-data-cache", train=rounds_of("train", 5, 5, 5, wait_ms=1), loader_ms=4),
    ]
    lines = printed(rows).splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("variant"))
    assert [" ".join(line.split()) for line in lines[head : head + 6]] == [
        "variant img/s ± loader model load% comp% fetch prep interf edges 1st s speed-up",
        # 10 ms and 2 of edges.
        "generator 833 0% 1,111 2,500 67% 33% - 50% 0% 17% 0.01 1.00x",
        # 16 ms and 2 of edges: 6 more than warm, 12 waiting; the speed-up is over the cold baseline.
        "generator, cold 556 0% - 2,500 78% 22% 33% 33% 0% 11% 0.01 1.00x",
        "tf-data 2,000 0% - 2,500 20% 80% - 20% 0% 0% 0.00 2.40x",
        "tf-data, cold 1,000 0% - 2,500 60% 40% 50% 10% 0% 0% 0.01 1.80x",
        "tf-data-cache 2,000 0% 2,500 2,500 20% 80% - 20% 0% 0% 0.00 2.40x",
    ]


def test_a_cold_row_without_a_cold_baseline_has_no_speed_up() -> None:
    lines = printed([a_result(), a_cold_result("tf-data")]).splitlines()
    (row,) = [line for line in lines if line.startswith("tf-data, cold ")]
    assert row.split()[-1] == "-"


@pytest.mark.parametrize("width", [80, 100])
def test_cold_rows_fit_the_console(width: int) -> None:
    rows = [a_result("tf-data-autotune"), a_cold_result("tf-data-autotune", notes=("n",), device="emulated:2500")]
    text = printed(rows, width=width, baseline="tf-data-autotune")
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text


def test_verdicts_are_on_warm_rows_and_what_storage_costs_them_follows() -> None:
    rows = [a_result(), a_cold_result(), a_result("fast", train=rounds_of("train", 5, 5, 5)), a_cold_result("other")]
    lines = verdict_lines(judge(rows), "generator")
    assert [line.split()[0] for line in lines] == ["generator", "fast", "generator:"]
    assert lines[2] == what_the_cache_hides(rows[1])


def test_cold_rows_alone_are_judged() -> None:
    first, second = verdict_lines(judge([a_cold_result()]), "generator")
    assert first.startswith("generator, cold, on cats-dogs-64, emulated:2500, is ")
    assert second == what_the_cache_hides(a_cold_result())


def test_each_model_and_device_has_a_table_of_its_own() -> None:
    lines = printed(a_run()).splitlines()
    assert [line for line in lines if line.endswith(("on emulated:2500", "on cpu"))] == [
        "cats-dogs-64 on emulated:2500",
        "cats-dogs-128 on cpu",
    ]


def test_the_verdict_is_on_the_baseline_and_on_the_fastest() -> None:
    verdicts = judge(a_run()[:3])
    first, second = verdict_lines(verdicts, "generator")
    assert first.startswith("generator on ") and second.startswith("tf-data-no-augment on ")


def test_the_verdict_is_on_the_slowest_where_there_is_no_baseline() -> None:
    verdicts = judge(a_run()[1:3])
    assert [line.split()[0] for line in verdict_lines(verdicts, "generator")] == [
        "tf-data-prefetch",
        "tf-data-no-augment",
    ]


def test_a_variant_alone_has_one_verdict() -> None:
    assert len(verdict_lines(judge([a_result()]), "generator")) == 1


def test_nothing_is_printed_of_no_results_but_who_was_left_out() -> None:
    assert printed([], left_out=LEFT_OUT) == (
        "left out py-dataset-processes (cats-dogs-64, cpu): it hung: no batch for 60 s\n"
    )
