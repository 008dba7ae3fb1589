"""The figures of a run as other tools read them, and what a run tells GitHub Actions."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.builders import (
    a_comparisons_document,
    a_gate_check_document,
    a_measurement_document,
    a_result,
    gate_measurements,
)
from unstall.benchmarks.gate.report import CHECK, COMPARISONS
from unstall.profiles import show_parser
from unstall.profiles.report import github
from unstall.profiles.report.figures import FORMS, Figure
from unstall.profiles.report.measurements import KIND
from unstall.profiles.stage_table import Stage, StageTable
from unstall.profiles.text import Terminal

FIGURES = (
    Figure(
        name="loader", measure="ratio", value=0.9, interval=(0.85, 0.95), judgement="failed", text="regression: <0.9>"
    ),
    Figure(name="other", measure="ratio", value=1.0, interval=(0.98, 1.02), judgement="passed", text="same"),
    Figure(name="noisy", measure="ratio", value=None, judgement="undecided", text="inconclusive"),
    Figure(name="plain", measure="images-per-sec", value=1234.5),
)


def test_junit_has_a_case_for_each_verdict() -> None:
    suite = ElementTree.fromstring(FORMS["junit"]("gate compare", FIGURES))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    cases = {case.get("name"): [child.tag for child in case] for case in suite}
    assert cases == {"loader": ["failure"], "other": [], "noisy": ["skipped"]}
    failure = suite.find("testcase/failure")
    assert failure is not None and failure.get("message") == "regression: <0.9>"


def test_a_name_with_what_xml_forbids_is_written_all_the_same() -> None:
    text = FORMS["junit"]("gate", (Figure(name="a\x1b[31m", measure="ratio", value=1.0, judgement="passed"),))
    assert ElementTree.fromstring(text)[0].get("name") == "a?[31m"


def test_github_action_benchmark_and_bencher_get_values_with_intervals() -> None:
    rows = json.loads(FORMS["github-action-benchmark"]("gate", FIGURES))
    assert [row["name"] for row in rows] == ["loader", "other", "plain"]
    assert rows[0] == {
        "name": "loader",
        "unit": "ratio",
        "value": 0.9,
        "range": "0.85 to 0.95 at 95%",
        "extra": "regression: <0.9>",
    }
    metrics = json.loads(FORMS["bencher"]("gate", FIGURES))
    assert metrics["loader"] == {"ratio": {"value": 0.9, "lower_value": 0.85, "upper_value": 0.95}}
    assert metrics["plain"] == {"images-per-sec": {"value": 1234.5}} and "noisy" not in metrics


def test_the_gate_and_the_main_job_have_figures() -> None:
    document = a_comparisons_document(gate_measurements(500.0, pairs=10))
    assert COMPARISONS.figures is not None and CHECK.figures is not None and KIND.figures is not None
    figures = COMPARISONS.figures(COMPARISONS.derive(document))
    assert {figure.judgement for figure in figures} == {"failed"}
    assert all(figure.value is not None and figure.value < 0.6 for figure in figures)
    checked = CHECK.figures(CHECK.derive(a_gate_check_document()))
    assert {figure.judgement for figure in checked} == {"passed"} and len(checked) >= 2
    job = a_measurement_document(a_result())
    rates = KIND.figures(KIND.derive(job))
    assert rates and all(figure.judgement is None and figure.measure == "images-per-sec" for figure in rates)


@pytest.fixture
def actions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job of GitHub Actions; returns its summary page."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    return tmp_path / "summary.md"


def printed(document: Any, kind: Any) -> str:
    console = Terminal(width=80, file=io.StringIO())
    github.tell(console, document, kind, kind.derive(document))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_regression_is_an_error_of_the_job_and_stands_on_its_page(actions: Path) -> None:
    actions.write_text("before\n")
    lines = printed(a_comparisons_document(gate_measurements(500.0, pairs=10)), COMPARISONS).splitlines()
    assert len(lines) == 1 and lines[0].startswith("::error title=unstall::") and "regression" in lines[0]
    page = actions.read_text()
    assert page.startswith("before\n### unstall gate compare\n\n````text\n") and "REGRESSION" in page


def test_the_line_that_costs_most_of_the_loading_is_annotated(actions: Path) -> None:
    slow = Stage(name="load", kind="map", cpu_us_per_image=300.0, wait_us_per_image=0.0, location="train.py:12")
    fast = Stage(name="batch", kind="batch", cpu_us_per_image=10.0, wait_us_per_image=0.0)
    table = StageTable(stages=(slow, fast), cores=2)

    def annotated(bound: str) -> list[str]:
        attribution = SimpleNamespace(bound=bound, loading_ratio=0.6)
        verdict: Any = SimpleNamespace(result=SimpleNamespace(stages=table, attribution=attribution))
        console = Terminal(width=80, file=io.StringIO())
        github.annotate_script(console, [verdict], "my,scripts/train.py")
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue().splitlines()

    assert annotated("input") == [
        "::warning file=my%2Cscripts/train.py,line=12,title=unstall::60%25 of an epoch is loading, and load is most of "
        "the loader's time."
    ]
    assert annotated("compute") == []


def test_nothing_is_told_outside_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    assert printed(a_comparisons_document(gate_measurements(500.0, pairs=10)), COMPARISONS) == ""


def test_a_page_that_cannot_be_written_to_changes_nothing(actions: Path, tmp_path: Path) -> None:
    actions.mkdir()
    assert printed(a_measurement_document(a_result()), KIND) == ""


def test_the_command_line_offers_every_form():
    """It names them itself, so that `--help` does not load what draws them."""
    assert (*FORMS,) == show_parser.FORMS
