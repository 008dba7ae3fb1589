"""Findings and gains: what they refuse, and how they read."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from tests.builders import a_result
from unstall.profiles.results.evidence import Evidence, Finding, PossibleGain

PREDICTED = PossibleGain(ratio=1.25, kind="predicted", assumption="if edges were gone")
MEASURED = PossibleGain(ratio=1.6, kind="measured", ci95=(1.5, 1.7))


def test_advice_without_a_gain_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`advice` needs a `gain`. Received: edges: advice='hope', gain=None"):
        Finding(rule="edges", text="Edges are long", advice="hope")


@pytest.mark.parametrize(("kind", "assumption"), [("predicted", None), ("measured", "if it rained")])
def test_a_prediction_and_nothing_else_has_an_assumption(kind: str, assumption: str | None) -> None:
    with pytest.raises(ValueError, match=rf"needs an `assumption`, .* Received: kind='{kind}'"):
        PossibleGain(ratio=1.2, kind=kind, assumption=assumption)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (Finding(rule="r", text="Edges are long"), "Edges are long."),
        (Finding(rule="r", text="Edges are long", hypothesis=True), "Edges are long (a hypothesis)."),
        (
            Finding(rule="r", text="Edges are long", gain=PREDICTED),
            "Edges are long. If edges were gone, 1.25 times as fast (predicted).",
        ),
        (
            Finding(rule="r", text="Edges are long", advice="make them short", gain=PREDICTED),
            "Edges are long. Make them short: if edges were gone, 1.25 times as fast (predicted).",
        ),
        (
            Finding(rule="r", text="Edges are long", advice="make them short", gain=MEASURED),
            "Edges are long. Make them short: 1.60 times as fast (measured, 1.50 to 1.70).",
        ),
        (
            Finding(rule="r", text="Edges are long", gain=PossibleGain(ratio=1.6, kind="measured")),
            "Edges are long. 1.60 times as fast (measured).",
        ),
    ],
)
def test_a_finding_reads_as_sentences(finding: Finding, text: str) -> None:
    assert finding.sentences() == text


def test_a_finding_is_strict_json() -> None:
    finding = Finding(rule="edges", text="Edges are long", cost_ratio=0.2, advice="make them short", gain=MEASURED)
    assert json.loads(json.dumps(asdict(finding), allow_nan=False)) == {
        "rule": "edges",
        "text": "Edges are long",
        "cost_ratio": 0.2,
        "advice": "make them short",
        "gain": {"ratio": 1.6, "kind": "measured", "assumption": None, "ci95": [1.5, 1.7]},
        "hypothesis": False,
    }


def test_parts_that_a_device_does_not_define_lose_nothing() -> None:
    on_gpu = Evidence(result=a_result(device="gpu"))
    assert on_gpu.lost.interference == on_gpu.surely_lost.interference == 0.0
    assert on_gpu.lost.prep_stall == pytest.approx(0.5)
    assert on_gpu.loader_ratio == pytest.approx(0.5)
