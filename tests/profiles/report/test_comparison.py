"""Two runs beside each other: a planted gain is found, and what is no comparison is no ratio."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders import MS, a_measurement_document, a_result, rounds_of, with_subject
from unstall.profiles.code_line import CodeLine
from unstall.profiles.report import write
from unstall.profiles.report.comparison import compare, print_comparison
from unstall.profiles.report.measurements import KIND, SCRIPT, MeasurementDocument, Plan, derive
from unstall.profiles.report.show import main
from unstall.profiles.results.facts import Facts
from unstall.profiles.statistics import unpaired_ratio_interval
from unstall.profiles.text import Terminal


def a_run(step_ms: float = 10, *, name: str = "tf-data", canary_ms: float = 5, **changes: Any) -> MeasurementDocument:
    """Returns the document of one subject whose steps are 4 ms longer than what they wait."""
    subject = {key: changes.pop(key) for key in ("config", "facts", "work", "batch_size", "place") if key in changes}
    steps = [step_ms * ratio for ratio in (0.99, 1.0, 1.01)]
    train = [
        sample
        for number, ms in enumerate(steps)
        for sample in rounds_of("train", ms, wait_ms=ms - 4, round=number, canary_ns=int(canary_ms * MS))
    ]
    result = a_result(name, train=train, loader_ms=None)
    samples = tuple(replace(sample, canary_ns=int(canary_ms * MS)) for sample in result.samples)
    return a_measurement_document(with_subject(replace(result, samples=samples), **subject), **changes)


def with_provenance(document: MeasurementDocument, **changes: Any) -> MeasurementDocument:
    return replace(document, provenance={**document.provenance, **changes})


def with_dataset(document: MeasurementDocument, **changes: Any) -> MeasurementDocument:
    return replace(document, dataset={**(document.dataset or {}), **changes})


def printed(before: MeasurementDocument, after: MeasurementDocument) -> str:
    console = Terminal(file=io.StringIO(), width=80)
    print_comparison(console, compare(before, after))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_planted_gain_is_found_with_its_interval() -> None:
    (change,) = compare(a_run(20), a_run(10)).compared
    assert change.ratio == pytest.approx(2)
    assert change.interval is not None and change.interval[0] < 2 < change.interval[1] < 2.1
    assert change.before.attribution.loading_ratio == pytest.approx(0.8, abs=0.001)
    text = printed(a_run(20), a_run(10))
    assert "tf-data (cats-dogs-64," in text and " 2.00 " in text and "80%" in text and "60%" in text


def test_of_two_runs_the_interval_holds_the_ratio_in_95_of_100() -> None:
    noise = np.random.default_rng(0)
    runs = 2000
    held = 0
    for _ in range(runs):
        ours, theirs = (np.exp(noise.normal(0, spread, rounds)) for spread, rounds in ((0.02, 3), (0.05, 5)))
        _, interval = unpaired_ratio_interval(list(ours), list(theirs))
        assert interval is not None
        held += interval[0] < 1 < interval[1]
    assert 0.93 < held / runs < 0.97


def test_of_few_rounds_there_is_no_interval() -> None:
    ratio, interval = unpaired_ratio_interval([2.0, 2.0], [1.0, 1.0, 1.0])
    assert ratio == pytest.approx(2) and interval is None


@pytest.mark.parametrize(
    ("after", "says"),
    [
        (with_provenance(a_run(), cpu="another"), "another machine: cpu: a processor, another"),
        (with_provenance(a_run(), usable_cores=8.0), "another machine: usable_cores: 2.0, 8.0"),
        (with_dataset(a_run(), fingerprint="x"), "fingerprint of the data: abc123, x"),
        (with_dataset(a_run(), images=7), "images: 100, 7"),
        (a_run(batch_size=64), "batch size: 10, 64"),
        (a_run(work=("nearest",)), "work per image: full decode, bilinear, augmented, nearest"),
        (a_run(facts=Facts(parameters=5)), "parameters: None, 5"),
    ],
)
def test_what_is_another_machine_or_other_work_is_not_compared(after: MeasurementDocument, says: str) -> None:
    comparison = compare(a_run(), after)
    assert comparison.compared == ()
    text = " ".join(printed(a_run(), after).split())
    assert "not comparable: " in text and says in text and "1.00" not in text


def test_settings_and_versions_that_changed_are_named_and_compared() -> None:
    before = a_run(config={"prefetch": 2, "cache": "none"})
    packages = {**before.provenance["packages"], "keras": "4"}
    after = with_provenance(a_run(config={"prefetch": 4, "cache": "none"}), packages=packages)
    comparison = compare(before, after)
    assert comparison.compared[0].changed == ("prefetch: 2, 4",)
    assert comparison.changed == ("keras: 3.15.1, 4",)
    text = " ".join(printed(before, after).split())
    assert "prefetch: 2, 4" in text and "version of keras: 3.15.1, 4" in text


def test_a_machine_that_was_slower_in_the_second_run_casts_a_doubt() -> None:
    assert compare(a_run(), a_run(canary_ms=5.4)).doubts == ()
    (doubt,) = compare(a_run(), a_run(canary_ms=10)).doubts
    assert "2.00 times as long" in doubt
    assert compare(a_run(complete=False), a_run()).doubts == ("the first run was stopped before its end",)


@pytest.mark.parametrize("file", ["train.py", "train (1).py"])
def test_a_fit_whose_line_moved_is_the_same_fit(file: str) -> None:
    script: dict[str, Any] = {"command": SCRIPT, "plan": Plan(rounds=3, data=file)}
    before, after = (
        a_run(ms, name=f"fit 1 ({file}:{line})", place=CodeLine(file=file, line=line), **script)
        for ms, line in ((10, 4), (5, 7))
    )
    comparison = compare(before, after)
    assert [change.name.split(" (")[0] for change in comparison.compared] == ["fit 1"]


def test_subjects_of_one_run_alone_are_named() -> None:
    comparison = compare(a_run(name="a"), a_run(name="b"))
    assert comparison.compared == () and "a (" in comparison.only_before[0] and "b (" in comparison.only_after[0]


@pytest.mark.parametrize(("after", "code"), [(a_run(5), 0), (with_provenance(a_run(), cpu="another"), 3)])
def test_the_command_compares_two_folders(
    after: MeasurementDocument, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, document in (("a", a_run()), ("b", after)):
        write(tmp_path / name, document, KIND, derive(document))
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == code
    assert ("95 %" in capsys.readouterr().out) == (code == 0)
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "c")]) == 2
