"""A run on disk: what was printed and drawn is made of the file again, byte for byte, and a bad file is refused."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.builders import (
    STAGE_TABLE,
    a_cold_result,
    a_measurement_document,
    a_result,
    a_telemetry,
    rounds_of,
    with_subject,
)
from unstall.profiles.report import DocumentError, load, write
from unstall.profiles.report.document import RESULTS, content_of, judged_by, write_results
from unstall.profiles.report.measurements import (
    CALL,
    KIND,
    KINDS,
    SCRIPT,
    MeasurementDocument,
    Plan,
    derive,
    unlisted_dataset,
    window_mark,
)
from unstall.profiles.report.show import main
from unstall.profiles.results.facts import Facts
from unstall.profiles.results.flags import Flag, FlagKind
from unstall.profiles.stage_table import AnnotatedFunction, SourceLine
from unstall.profiles.text import Terminal

FAST = a_result(
    "tf-data",
    train=rounds_of("train", 5, 5.1, 5, wait_ms=1, edge_ms=5),
    work=("nearest",),
    facts=Facts(workers_asked=2),
)
LINES = (
    AnnotatedFunction(
        function="decode",
        location="train.py:3",
        total_us=12.5,
        lines=(SourceLine(number=3, source="return decode(x)", hits=2, us=12.5, ratio=1.0),),
    ),
)
UNLISTED = unlisted_dataset("what the script loads", "train.py", None)
FACTS = Facts(parameters=813_217, optimizer="Adam", loss="binary_crossentropy")
CHANGED = Flag(kind=FlagKind.DATA_CHANGED, text="cats/1.jpg (deleted)")
BASELINE = with_subject(replace(a_result(), stages=STAGE_TABLE, lines=LINES), facts=FACTS, images=100)


def a_main_job(**changes: Any) -> MeasurementDocument:
    return a_measurement_document(
        BASELINE,
        with_subject(FAST, facts=FACTS, frozen_by_cache=("flip",), decoded_pixels=1e6, wanted_pixels=4096.0, cores=2.0),
        with_subject(a_cold_result("tf-data"), facts=FACTS, model="other", doubts=(CHANGED,)),
        telemetry=a_telemetry(gpus=1),
        **changes,
    )


def a_script(**changes: Any) -> MeasurementDocument:
    first = a_result("fit 1 (train.py:4)", device="cpu")
    no_ceilings = [sample for sample in a_result("fit 2 (train.py:9)").samples if sample.window == "train"]
    document = a_measurement_document(
        first, command=SCRIPT, plan=Plan(rounds=3, data="train.py"), dataset=UNLISTED, **changes
    )
    measured = document.samples
    second = replace(
        measured.subjects[0], subject=replace(first.subject, variant="fit 2 (train.py:9)"), windows=("fit 2",)
    )
    samples = replace(
        measured, subjects=(*measured.subjects, second), windows={**measured.windows, "fit 2": tuple(no_ceilings)}
    )
    return replace(document, samples=samples)


DOCUMENTS = {
    "main job": a_main_job(),
    "stopped main job": a_main_job(complete=False),
    "script": a_script(),
    "call": a_measurement_document(a_result("data"), command=CALL, plan=Plan(rounds=3, data="data"), dataset=UNLISTED),
    "nothing": a_measurement_document(command=SCRIPT, plan=Plan(rounds=0, data="train.py")),
}


def printed(document: MeasurementDocument, width: int = 80) -> str:
    console = Terminal(file=io.StringIO(), width=width)
    KIND.print(console, document, derive(document))
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_table_verdict_and_page_are_made_of_the_file_again(name: str, tmp_path: Path) -> None:
    document = DOCUMENTS[name]
    write(tmp_path, document, KIND, derive(document))
    again, kind = load(tmp_path, KINDS)
    assert again == document
    for width in (80, 140):
        assert printed(again, width) == printed(document, width)
    assert kind.page(again, kind.derive(again)) == (tmp_path / "report.html").read_text()
    write(tmp_path / "again", again, kind, kind.derive(again))
    assert (tmp_path / "again" / RESULTS).read_bytes() == (tmp_path / RESULTS).read_bytes()


def test_each_sample_stands_in_the_file_once(tmp_path: Path) -> None:
    document = a_main_job()
    write_results(tmp_path, document, KIND, derive(document))
    text = (tmp_path / RESULTS).read_text()
    samples = sum(map(len, document.samples.windows.values()))
    assert text.count('"wall_ns"') == samples
    content = json.loads(text)
    for result in content["results"]:
        assert set(result["windows"]) <= set(content["samples"]["windows"])


def test_figures_in_the_file_are_copies_that_nobody_reads_back(tmp_path: Path) -> None:
    document = a_main_job()
    write_results(tmp_path, document, KIND, derive(document))
    content = json.loads((tmp_path / RESULTS).read_text())
    content["results"][0]["epoch_images_per_sec"] = 10**9
    content["verdicts"] = []
    (tmp_path / RESULTS).write_text(json.dumps(content))
    again, _ = load(tmp_path / RESULTS, KINDS)
    assert again == document


def test_subjects_that_are_compared_have_rivals_and_those_of_a_script_have_none() -> None:
    assert [verdict.rivals for verdict in derive(a_main_job())] == [1, 1, 0]
    assert [verdict.rivals for verdict in derive(a_script())] == [0, 0]
    assert "Fastest of all" in printed(a_main_job()) and "Fastest" not in printed(a_script())


def test_what_is_known_of_a_subject_and_of_the_run_reaches_its_verdict() -> None:
    document = a_main_job()
    throttled = replace(document, samples=replace(document.samples, throttled_ratio=0.5))
    rules = {finding.rule for finding in derive(throttled)[1].findings}
    assert {"frozen augmentation", "CPU throttled"} <= rules
    assert CHANGED in derive(document)[2].result.flags


def test_without_its_models_own_rate_a_fit_is_split_by_its_waits() -> None:
    _, second = derive(a_script())
    assert second.result.model_images_per_sec is None
    assert second.result.attribution.shares.prep_stall == pytest.approx(0.5)


def test_the_machine_in_a_subjects_own_windows_is_told_beside_its_result() -> None:
    result = BASELINE
    mark = window_mark("train", result.subject.variant, result.subject.model, result.subject.device)
    document = a_measurement_document(result, telemetry=a_telemetry(mark))
    copies = KIND.copies(document, derive(document))
    # The window runs from 0.1 s on: two cores, busy for (0.1 + 0.5) / 2, then 0.4, then 0.5.
    assert copies["results"][0]["machine"]["cpu_ratio"] == pytest.approx((0.4 * 0.3 + 0.5 * 0.4 + 0.5 * 0.5) / 1.4)


# Files that are refused


def content() -> dict[str, Any]:
    document = a_main_job()
    return json.loads(json.dumps(content_of(document, KIND, derive(document))))


def changed(path: list[Any], value: Any) -> str:
    values = content()
    place = values
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(values)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no results file"),
        ("{", "is no results file"),
        ("[1]", "it has no schema_version"),
        ("[" * 100_000, "is no results file"),
        ('{"schema_version": 4, "x": NaN}', "NaN is no number of JSON"),
        ('{"schema_version": 1}', "has schema_version 1, and this version reads 4"),
        ('{"schema_version": 2}', "has schema_version 2, and this version reads 4"),
        ('{"schema_version": 4}', "is of the command 'None'. Known here: pipeline, profile, profiles.profile."),
        ('{"schema_version": 4, "command": "pipeline"}', "the file has no field 'created'"),
        (changed(["complete"], "yes"), "complete must be bool"),
        (changed(["plan", "rounds"], 2.5), "plan.rounds must be int"),
        (changed(["samples", "subjects"], {}), "samples.subjects must be a list"),
        (changed(["samples", "subjects", 0, "subject", "page_cache"], "hot"), "`page_cache` must be one of warm, cold"),
        (changed(["samples", "windows", "generator", 3, "wall_ns"], 0), "at least one image and one nanosecond"),
        (changed(["samples", "windows", "generator", 3, "window"], "x"), "`window` must be one of"),
        (changed(["telemetry", "memory_bytes"], [1]), "must be of one length"),
        (changed(["left_out"], [{"who": "x"}]), "left_out[0]: "),
        (changed(["dataset"], [1]), "dataset must be an object"),
    ],
)
def test_a_file_that_cannot_be_shown_gets_one_line(
    text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / RESULTS).write_text(text)
    assert main(["show", str(tmp_path)]) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert says in seen.err and str(tmp_path) in seen.err and seen.err.count("\n") == 1


def test_a_subject_whose_windows_are_missing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, value in (
        (["samples", "subjects", 0, "windows"], ["nowhere"]),
        (["samples", "windows", "generator"], []),
    ):
        (tmp_path / RESULTS).write_text(changed(path, value))
        assert main(["show", str(tmp_path)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"nowhere\.json: No such file or directory"):
        load(tmp_path / "nowhere.json", KINDS)
    with pytest.raises(DocumentError, match=r"results\.json: No such file or directory"):
        load(tmp_path, KINDS)


# What is shown


@pytest.fixture
def run(tmp_path: Path) -> Path:
    document = a_main_job()
    write(tmp_path / "run", document, KIND, derive(document))
    return tmp_path / "run"


def test_show_prints_what_the_run_printed(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["show", str(run), "--details"]) == 0
    assert capsys.readouterr().out == printed(a_main_job(), 80)
    assert main(["show", str(run)]) == 0
    screen = capsys.readouterr().out
    assert screen.startswith("\nunstall: ") and "\nNEXT  " in screen and max(map(len, screen.splitlines())) <= 80


def test_show_makes_the_report_again_and_overwrites_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run / "again.html"
    assert main(["show", str(run), "--html", str(out)]) == 0
    assert out.read_bytes() == (run / "report.html").read_bytes()
    out.write_text("mine")
    assert main(["show", str(run), "--html", str(out)]) == 2
    assert "nothing is overwritten" in capsys.readouterr().err and out.read_text() == "mine"


def test_show_draws_the_first_screen_without_fonts_from_elsewhere(run: Path) -> None:
    out = run / "screen.svg"
    assert main(["show", str(run), "--svg", str(out)]) == 0
    drawn = out.read_text()
    assert drawn.startswith("<svg") and "NEXT" in drawn and "font-face" not in drawn
    assert set(re.findall(r"https?://[\w./]+", drawn)) <= {
        "http://www.w3.org/2000/svg",
        "https://www.textualize.io",
    }


def test_show_gives_figures_to_other_programs(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(run), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    content = json.loads((run / RESULTS).read_text())
    assert values["results"] == content["results"] and values["verdicts"] == content["verdicts"]
    assert "samples" not in values
    assert main(["show", str(run), "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["variant"] for row in rows] == ["generator", "tf-data", "tf-data"]
    assert float(rows[0]["epoch_images_per_sec"]) == content["results"][0]["epoch_images_per_sec"]


def test_another_version_says_that_it_judges_anew(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = json.loads((run / RESULTS).read_text())
    values["provenance"]["packages"]["unstall"] = "0.0.1"
    (run / RESULTS).write_text(json.dumps(values))
    document, _ = load(run, KINDS)
    words = judged_by(document)
    assert words is not None and words.startswith("judged by version ") and words.endswith("written by version 0.0.1")
    assert main(["show", str(run)]) == 0
    assert words in capsys.readouterr().err
