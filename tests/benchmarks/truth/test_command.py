"""The command that holds our figures against planted truth: its arithmetic, and a small run of each part."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import PIL.Image
import pytest

from tests.builders import TRACEML_PAIRS, a_counting_group, a_document, a_truth_document
from tests.checks import assert_follows_from_its_file, tables_of
from unstall.benchmarks.lab.show import _Kinds
from unstall.benchmarks.truth import groups, watching
from unstall.benchmarks.truth import photos as photos_part
from unstall.benchmarks.truth.__main__ import COMMANDS, main
from unstall.benchmarks.truth.parser import PARTS
from unstall.benchmarks.truth.plan import part_of
from unstall.benchmarks.truth.promises import DECODERS, TIMES_MS, Bound
from unstall.benchmarks.truth.report import KIND
from unstall.benchmarks.truth.results import PLAIN, derive
from unstall.benchmarks.truth.samples import Attempt, Case, Figure, Group
from unstall.profiles.report import load


def a_grid(name: str, cells: int, share_off: float = 1.0, rate: float = 101.0) -> Group:
    figures = []
    for load_ms, step_ms in list(itertools.product(TIMES_MS, TIMES_MS))[:cells]:
        case = f"load {load_ms:g} ms, step {step_ms:g} ms"
        figures.append(Figure(case=case, name="loading, %", truth=(50.0,), measured=(50.0 + share_off,)))
        figures.append(Figure(case=case, name="images/sec", truth=(100.0,), measured=(rate,)))
    return Group(name=name, figures=tuple(figures))


def repeated(*errors: float) -> Group:
    """Returns a share that was measured so many points off, repeat by repeat."""
    measured = tuple(50.0 + error for error in errors)
    figure = Figure(case="load 10 ms", name="loading, %", truth=(50.0,) * len(errors), measured=measured)
    return Group(name="grid-cpu", figures=(figure,))


def a_monitored_group(*ratios: float, case: str = "tf-data-cache") -> Group:
    """Returns rates with the monitor that are so many times those without, pair by pair."""
    figure = Figure(case=case, name="epochs/sec", truth=(2.0,) * len(ratios), measured=tuple(2 * r for r in ratios))
    return Group(name="watching", figures=(figure,))


PHOTOS = Group(
    name="photos",
    figures=(
        Figure(case="generated photos", name="photos", truth=(8,), measured=(8,)),
        Figure(case="generated photos", name="bits per pixel", truth=(1.2,), measured=(1.21,)),
        Figure(case="generated photos", name=DECODERS[0], truth=(100.0, 200.0, 90.0), measured=(90.0, 240.0, 81.0)),
    ),
)
INTERVALS = (
    Group(
        name="simulated",
        figures=tuple(
            Figure(case=f"gaussian, {rounds} rounds", name="coverage, %", truth=(95.0,), measured=(94.8,))
            for rounds in (*range(3, 11), 12, 15)
        ),
    ),
    Group(
        name="real",
        figures=tuple(
            Figure(case=f"v on m, run 1, pair {pair}", name="s/image", truth=(1.0, 1.1, 0.9), measured=(1.1, 1.0, 0.9))
            for pair in range(20)
        ),
    ),
)
VERDICTS = Group(
    name="verdicts",
    cases=(
        Case(name=PLAIN, attempts=(Attempt(answer="", figures={"loaded_s": (2.0, 2.0), "ready_s": (1.0, 1.0)}),)),
        Case(name="quiet", attempts=(Attempt(answer="input", figures={"loading_ratio": (0.45,)}),)),
    ),
)
GATE = (
    Group(
        name="tries",
        cases=(
            Case(
                name="slower-20",
                attempts=(
                    Attempt(
                        answer="regression",
                        figures={"A epoch": (100.0,) * 10, "B epoch": (80.0,) * 10, "ratio": (0.8,)},
                    ),
                    Attempt(answer="failed", figures={}),
                ),
            ),
        ),
    ),
    Group(name="faults", figures=(Figure(case="no data", name="exit code", truth=(3,), measured=(1,)),)),
)
ATTRIBUTERS = (
    Group(
        name="shares",
        figures=tuple(
            Figure(case="load 5 ms, step 20 ms", name=tool, truth=(20.0, 21.0), measured=(20.3, 20.8))
            for tool in ("unstall", "TraceML")
        ),
    ),
    TRACEML_PAIRS,
)
DOCUMENTS = {
    "planted": a_truth_document(a_grid("grid-cpu", 9), a_counting_group(1001.0, 1020.0)),
    "planted, repeated": a_truth_document(repeated(*[-1.0, 1.5] * 10), options={"repeats": 20}),
    "planted, stopped": a_truth_document(a_grid("grid-cpu", 4), complete=False),
    "watching": a_truth_document(
        a_monitored_group(1.0, 1.001, 0.999), part="watching", options={"model": "m", "pairs": 3}
    ),
    "photos": a_truth_document(
        PHOTOS, part="photos", options={"against": "train", "rounds": 3}, dataset=a_document([])["dataset"]
    ),
    "gate": a_truth_document(*GATE, part="gate", options={"tries": 2}),
    "intervals": a_truth_document(*INTERVALS, part="intervals", options={"simulations": 2000, "real": 20}),
    "verdicts": a_truth_document(VERDICTS, part="verdicts", options={"runs": 1}),
    "attributers": a_truth_document(*ATTRIBUTERS, part="attributers", options={"rounds": 2, "pairs": 3}),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_all_that_follows_from_a_document_follows_from_its_file(name: str, tmp_path: Path) -> None:
    assert_follows_from_its_file(KIND, DOCUMENTS[name], tmp_path)
    assert max(map(len, tables_of(KIND, DOCUMENTS[name]).splitlines())) <= 80


def test_each_part_has_a_document_among_those_that_are_tried() -> None:
    assert {document.plan.part for document in DOCUMENTS.values()} == set(PARTS) == set(COMMANDS)


@pytest.mark.parametrize(("off", "holds"), [(0.0, True), (3.0, True), (-3.0, True), (3.1, False), (-3.1, False)])
def test_a_figure_holds_up_to_its_bound(off: float, holds: bool) -> None:
    assert Bound(most=3.0, in_points=True).holds(off) is holds


@pytest.mark.parametrize(
    ("errors", "holds"),
    [
        ([-2.5, 2.5] * 10, True),
        ([-2.5, 2.5] * 9 + [-2.5, 8.0], True),
        ([-2.5, 2.5] * 9 + [-8.0, 8.0], False),
        ([1.4, 1.6] * 10, False),
        ([-1.4, -1.6] * 10, False),
        ([0.8, 0.9] * 10, True),
        ([5.0 - 2.5, 5.0 + 2.5] * 10, False),
    ],
    ids=[
        "noise on both sides",
        "one of twenty is further off",
        "two of twenty are further off",
        "all are within the bound, on one side of the truth",
        "the same on the other side",
        "a bias below a third of the bound",
        "a bias of five points",
    ],
)
def test_repeats_hide_noise_and_no_bias(errors: list[float], holds: bool) -> None:
    (check,) = derive(a_truth_document(repeated(*errors), options={"repeats": len(errors)})).checks
    assert check.holds is holds
    assert check.bias is not None and check.bias.mean == pytest.approx(sum(errors) / len(errors))


def test_few_repeats_are_judged_by_their_median() -> None:
    document = a_truth_document(repeated(*[1.5] * 18, 9.0), options={"repeats": 19})
    (check,) = derive(document).checks
    assert check.bias is None and check.holds and check.off == 1.5
    tables = tables_of(KIND, document)
    assert "Medians of 19 repeats. From 20 repeats on, the mean is tested against zero." in tables and "+1.5" in tables


def test_figures_of_different_numbers_of_repeats_are_shown_by_their_medians() -> None:
    """A file that somebody changed, or a run that ended between two figures."""
    (many,), (few,) = (repeated(*[0.5] * count).figures for count in (20, 19))
    document = a_truth_document(Group(name="grid-cpu", figures=(many, few)), options={"repeats": 20})
    assert "Medians of 19 repeats." in tables_of(KIND, document)


def test_a_typical_case_is_measured_as_often_as_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rates = itertools.cycle((998.0, 1002.0, 1004.0))
    monkeypatch.setitem(groups._TYPICAL, "counting", lambda: (a_counting_group(rate).figures for rate in rates))
    assert main(["--only", "counting", "--repeats", "21", "--out", str(tmp_path / "out")]) == 0
    assert "21     21 +0.1%" in capsys.readouterr().out
    document, _ = load(tmp_path / "out", _Kinds())
    ((figure,),) = (group.figures for group in document.samples.groups)
    assert figure.measured == (998.0, 1002.0, 1004.0) * 7 and figure.truth == (1000.0,) * 21


def test_batches_on_their_way_to_a_gpu_are_measured_alone_and_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--only", "transfer", "--only", "edges"]) == 2
    assert main(["--only", "transfer"]) == 3
    assert capsys.readouterr().err.splitlines() == [
        "--only transfer needs a GPU, which the other parts must not see: name only parts of grid-gpu, "
        "watched-gpu, transfer.",
        "--only transfer needs a GPU that Keras can use, and there is none here.",
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("rates", "exit_code"), [((1005.0, 991.0), 0), ((1005.0, 1090.0), 1)])
def test_the_exit_code_says_whether_every_figure_holds(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    rates: tuple[float, ...],
    exit_code: int,
) -> None:
    cases = (f"{number} steps" for number in range(2))
    measured = [a_counting_group(rate, case=case).figures for rate, case in zip(rates, cases, strict=True)]
    monkeypatch.setitem(groups._GROUPS, "counting", [lambda figures=figures: iter([figures]) for figures in measured])
    assert main(["--only", "counting", "--out", str(tmp_path / "out")]) == exit_code
    assert f"{2 - exit_code} of 2 figures are as near to the truth as promised." in capsys.readouterr().out
    content = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [check["holds"] for check in content["checks"]] == [True, exit_code == 0]
    assert [check["off"] for check in content["checks"]] == pytest.approx([rate / 1000 - 1 for rate in rates])


def test_a_part_with_options_of_its_own_comes_first_and_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert part_of(["--only", "watching", "--pairs", "3"]) == part_of(["--only=watching", "--pairs", "3"])
    assert part_of(["--only", "watching", "--pairs", "3"]) == ("watching", ["--pairs", "3"])
    assert main(["--only", "edges", "--only", "watching"]) == 2
    assert "--only watching has options of its own, and is given first and alone." in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("edges", "--repeats", "0"), "--repeats must be at least 1. Received: 0."),
        (("watching", "--pairs", "2"), "--pairs must be at least 3. Received: 2."),
        (("photos", "--data", "pets", "--rounds", "0"), "--rounds must be at least 1. Received: 0."),
        (("gate", "--tries", "0"), "--tries must be at least 1. Received: 0."),
        (("intervals", "--simulations", "10"), "--simulations must be at least 100. Received: 10."),
        (("intervals", "--real", "-1"), "--real must be at least 0. Received: -1."),
        (("verdicts", "--runs", "0"), "--runs must be at least 1. Received: 0."),
    ],
)
def test_numbers_that_make_no_sense_are_refused_in_a_line(
    words: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--only", *words]) == 2
    assert capsys.readouterr().err == f"{message}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_cell_of_a_grid_names_both_figures_and_a_stopped_grid_has_empty_cells() -> None:
    lines = tables_of(KIND, a_truth_document(a_grid("grid-cpu", 4, share_off=-4.0, rate=96.0))).splitlines()
    assert lines[0] == ""
    assert lines[1].startswith("grid-cpu: Loaders and models that sleep")
    assert [line.split() for line in lines if "ms " in line and "+" not in line and "-4.0" in line] == [
        ["load", "2", "ms", *["-4.0", "-4.0%"] * 3],
        ["load", "10", "ms", "-4.0", "-4.0%"],
    ]
    assert "Largest: 4.0 points, 4.0%." in " ".join(" ".join(lines).split())
    assert lines[-1] == "0 of 8 figures are as near to the truth as promised."


@pytest.mark.parametrize(
    ("ratios", "exit_code", "line"),
    [
        ([(0.998, 1.0, 1.002)], 0, "The monitor changes images/sec by less than 1 %."),
        ([(0.94, 0.95, 0.96)], 1, "The monitor costs more than 1 %."),
        ([(1.04, 1.05, 1.06)], 1, "Training was more than 1 % faster with the monitor: the comparison is wrong."),
        ([(0.985, 0.99, 0.995)], 4, "Not shown that the monitor changes images/sec by less than 1 %"),
        ([(1.005, 1.01, 1.015)], 4, "Not shown that the monitor changes images/sec by less than 1 %"),
        ([(0.9, 1.0, 1.1)], 4, "Not shown that the monitor changes images/sec by less than 1 %"),
        ([(0.9, 1.0, 1.1), (0.94, 0.95, 0.96)], 1, "The monitor costs more than 1 %."),
        ([(0.998, 1.0, 1.002), (0.9, 1.0, 1.1)], 4, "Not shown that the monitor changes images/sec by less than 1 %"),
        ([(1.0, 1.0)], 4, "Not shown that the monitor changes images/sec by less than 1 %"),
    ],
    ids=[
        "inside",
        "below",
        "above",
        "reaches below",
        "reaches above",
        "too wide",
        "refuted and not shown",
        "shown and not shown",
        "stopped after two pairs",
    ],
)
def test_the_monitors_cost_is_judged_on_both_sides_of_1(
    ratios: list[tuple[float, ...]], exit_code: int, line: str
) -> None:
    figures = tuple(figure for of_one in ratios for figure in a_monitored_group(*of_one).figures)
    document = a_truth_document(
        Group(name="watching", figures=figures), part="watching", options={"model": "m", "pairs": 3}
    )
    assert derive(document).exit_code == exit_code
    shown = tables_of(KIND, document, width=400)
    assert line in shown
    held = sum(check.holds is True for check in derive(document).checks)
    assert shown.splitlines()[-1] == f"{held} of {len(ratios)} figures are as near to the truth as promised."


def test_the_monitors_pairs_are_kept_after_each(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def pairs(model: str, variant: str, count: int) -> Iterator[tuple[float, float]]:
        assert model == "cats-dogs-128"
        for number in range(count):
            yield 2.0, 2.0 + number / 1000

    monkeypatch.setattr(watching, "epochs_per_sec", pairs)
    words = ["--only", "watching", "--model", "cats-dogs-128", "--pairs", "3", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    document, _ = load(tmp_path / "out", _Kinds())
    (group,) = document.samples.groups
    assert [figure.case for figure in group.figures] == ["tf-data-cache", "tf-data-prefetch"]
    assert group.figures[0].truth == (2.0,) * 3 and group.figures[0].measured == (2.0, 2.001, 2.002)


def test_generated_photos_are_held_against_real_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos = tmp_path / "photos"
    for name in ("cats", "dogs"):
        (photos / name).mkdir(parents=True)
        for number in range(2):
            PIL.Image.new("RGB", (16, 16)).save(photos / name / f"{number}.jpg")  # much smaller than generated photos
    words = ["--only", "photos", "--data", str(photos), "--rounds", "2", "--out", str(tmp_path / "out")]
    assert main(words) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip() == "generated photos against real ones"
    assert "of 6 figures are as near to the truth as promised." in "\n".join(lines)
    document, _ = load(tmp_path / "out", _Kinds())
    (group,) = document.samples.groups
    assert [len(figure.truth) for figure in group.figures] == [1, 1, 1, 1, 2, 2, 2]
    assert str(photos) not in (tmp_path / "out" / "results.json").read_text()


def test_rates_of_photos_are_compared_round_by_round() -> None:
    bits, rate = derive(DOCUMENTS["photos"]).checks
    assert bits.off == pytest.approx(1.21 / 1.2 - 1)
    assert rate.off == pytest.approx(-0.1)  # the median of 0.9, 1.2 and 0.9
    assert "OpenCV, full size, photos/sec on one core" in tables_of(KIND, DOCUMENTS["photos"])


def test_a_photo_that_cannot_be_decoded_is_named_by_the_doctor(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(encoded: bytes) -> None:
        raise OSError("truncated")

    monkeypatch.setattr(photos_part, "_decoders", lambda: dict.fromkeys(DECODERS, broken))
    assert main(["--only", "photos", "--data", str(photos), "--out", str(tmp_path / "out")]) == 2
    assert "a photo cannot be decoded by OpenCV: truncated. unstall doctor" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
