"""The documents of the gate: what they say, and that all of it follows from their files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import (
    GATE_INVARIANTS,
    GATE_QUESTION,
    a_comparisons_document,
    a_gate_check_document,
    gate_measurements,
)
from tests.checks import Page, assert_follows_from_its_file, tables_of
from unstall.benchmarks.gate.report import CHECK, COMPARISONS
from unstall.benchmarks.lab.show import _Kinds
from unstall.profiles.report.document import DocumentError, LeftOut, load, write

NAME = "mine:b\nagainst mine:a"
FAILED = LeftOut(who=NAME, reason="mine:b: it died")
DOCUMENTS = {
    "same": a_comparisons_document(),
    "regression": a_comparisons_document(gate_measurements(700.0, pairs=10)),
    "failed in a pair": a_comparisons_document(gate_measurements(pairs=3)[:5], left_out=(FAILED,)),
    "stopped": a_comparisons_document(gate_measurements(pairs=3), complete=False),
    "checked": a_gate_check_document(),
    "checked and slower": a_gate_check_document(700.0, processes=10),
    "not comparable": a_gate_check_document(processes=0, dataset=None),
    "check stopped": a_gate_check_document(processes=3, complete=False),
}


def kind_of(document):
    return CHECK if document.command == "gate check" else COMPARISONS


def printed(document):
    return tables_of(kind_of(document), document)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_all_that_follows_from_a_document_follows_from_its_file(name, tmp_path):
    assert_follows_from_its_file(kind_of(DOCUMENTS[name]), DOCUMENTS[name], tmp_path)


def test_every_verb_that_leaves_a_document_can_be_shown():
    kinds = _Kinds()
    assert {verb: kinds[f"gate {verb}"] for verb in ("compare", "check")} == {"compare": COMPARISONS, "check": CHECK}


def test_a_rate_that_is_none_makes_no_document(tmp_path):
    write(tmp_path, DOCUMENTS["same"], COMPARISONS, COMPARISONS.derive(DOCUMENTS["same"]))
    path = tmp_path / "results.json"
    path.write_text(path.read_text().replace("910.0", "-910.0", 1))
    with pytest.raises(DocumentError, match="A rate must be a number above 0. Received: -910.0"):
        load(path, _Kinds())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("same", "mine:b against mine:a: same: "),
        ("regression", "mine:b against mine:a: regression: steady images/sec 0.700 ("),
        ("failed in a pair", "mine:b against mine:a: failed: mine:b: it died"),
        ("stopped", "mine:b against mine:a: stopped: nothing was decided"),
        ("checked", "mine: same: "),
        ("checked and slower", "mine: regression: "),
        ("not comparable", "mine: not comparable: dataset images: 100 -> unknown"),
        ("check stopped", "mine: stopped: nothing was decided"),
    ],
)
def test_the_verdict_is_a_sentence_on_the_terminal_and_on_the_page(name, sentence):
    document = DOCUMENTS[name]
    kind = kind_of(document)
    assert sentence in " ".join(printed(document).split())
    assert sentence in Page(kind.page(document, kind.derive(document))).text


@pytest.mark.parametrize("name", ["regression", "checked and slower"])
def test_an_interval_is_given_with_its_confidence(name):
    """A gate that looks several times has narrower errors at each look than 5 %."""
    kind = kind_of(DOCUMENTS[name])
    figures = [one for one in kind.figures(kind.derive(DOCUMENTS[name])) if one.interval is not None]
    assert figures
    for one in figures:
        assert one.confidence > 0.95 and f"at {one.confidence:.1%}" in one.text
        assert one.interval[0] <= one.value <= one.interval[1]


def test_the_table_of_a_check_has_the_ratio_of_its_sentence():
    """Of an even number of processes the median of ratios is not that of their logarithms."""
    document = DOCUMENTS["checked and slower"]
    rates = (0.5, 0.55, 0.6, 0.65, 0.7, 0.9, 0.95, 1.0, 1.05, 1.1)
    processes = tuple(
        replace(one, rates={figure: tuple(rate * factor for rate in values) for figure, values in one.rates.items()})
        for factor, one in zip(rates, document.samples.processes, strict=True)
    )
    result = CHECK.derive(replace(document, samples=replace(document.samples, processes=processes)))
    judged = result.decision.figures["steady"].ratio
    [figure] = [one for one in CHECK.figures(result) if one.interval is not None and "steady" in one.name]
    assert figure.value == pytest.approx(judged, rel=1e-9)


def test_the_table_of_a_comparison():
    lines = printed(DOCUMENTS["regression"]).splitlines()
    assert lines[1].startswith("REGRESSION     mine:b against mine:a: regression: ")
    table = lines[lines.index("", 1) + 1 :]
    assert table == [
        "                    A img/s  B img/s    B/A        interval  pairs  verdict",
        "mine:b",
        "against mine:a",
        "  steady              1,006      704  0.700  0.700 to 0.700     10  regression",
        "  with epoch edges      906      634  0.700  0.700 to 0.700     10  regression",
    ]


def test_a_failure_keeps_the_rate_of_the_side_that_was_measured():
    rows = printed(a_comparisons_document(gate_measurements(pairs=1)[1:], left_out=(FAILED,))).splitlines()
    assert ["steady", "1,005", "-", "-"] in [row.split()[:4] for row in rows]


def test_a_stopped_run_decides_nothing_whatever_its_samples_show():
    document = replace(DOCUMENTS["regression"], complete=False)
    (result,) = COMPARISONS.derive(document)
    assert result.decision is None and result.comparison.decide().verdict == "regression"
    checked = CHECK.derive(replace(DOCUMENTS["checked and slower"], complete=False))
    assert checked.decision is None and checked.check.decide().verdict == "regression"


@pytest.mark.parametrize(
    "document",
    [
        a_comparisons_document(gate_measurements(pairs=1)[:1], complete=False),
        a_gate_check_document(processes=0, complete=False),
    ],
)
def test_before_a_pair_is_whole_there_is_nothing_to_keep(document):
    kind = kind_of(document)
    assert list(kind.rows(kind.derive(document))) == []


def test_each_figure_of_a_comparison_is_a_row():
    rows = COMPARISONS.rows(COMPARISONS.derive(DOCUMENTS["regression"]))
    assert [(row["comparison"], row["figure"]) for row in rows] == [
        ("mine:b against mine:a", "steady"),
        ("mine:b against mine:a", "epoch"),
    ]
    assert [(row["ratio"], row["pairs"], row["verdict"]) for row in rows] == [
        (pytest.approx(0.7), 10, "regression")
    ] * 2


def test_what_has_no_noise_and_changed_is_named_below_the_verdict():
    other = replace(GATE_INVARIANTS, stages=("range",))
    document = a_comparisons_document(gate_measurements(invariants=other))
    line = "CHANGED        stages: without map load, 2 calls"
    assert line in printed(document)
    assert "stages: without map load, 2 calls" in COMPARISONS.page(document, COMPARISONS.derive(document))
    asked = replace(GATE_QUESTION, at_least=0.5)
    assert "CHANGED" not in printed(replace(document, plan=replace(document.plan, questions={NAME: asked})))
