"""The figures of a run, in the forms that other tools of continuous integration read.

Sources of the forms: JUnit's XML as GitLab, Jenkins and GitHub's actions read it; the custom JSON of
benchmark-action/github-action-benchmark (customBiggerIsBetter); Bencher's metric format (bencher.dev).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree

from unstall.profiles.report.writing_files import to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of which more is better.

    Attributes:
      name: of what was measured.
      measure: what the figure is, such as "images-per-sec" or "ratio".
      value: None where none was measured.
      interval: None where there is none.
      confidence: of the interval.
      judgement: what a gate says; None for a figure without a verdict.
      text: the verdict, in a sentence.
    """

    name: str
    measure: str
    value: float | None
    interval: tuple[float, float] | None = None
    confidence: float = 0.95
    judgement: Literal["passed", "failed", "undecided"] | None = None
    text: str = ""


def junit(command: str, figures: Sequence[Figure]) -> str:
    """Returns a test suite with a case for each verdict: undecided cases are skipped ones."""
    judged = [figure for figure in figures if figure.judgement is not None]
    counts = {word: sum(figure.judgement == word for figure in judged) for word in ("failed", "undecided")}
    suite = ElementTree.Element(
        "testsuite",
        name=f"unstall {command}",
        tests=str(len(judged)),
        failures=str(counts["failed"]),
        skipped=str(counts["undecided"]),
        errors="0",
    )
    for figure in judged:
        case = ElementTree.SubElement(suite, "testcase", classname=f"unstall.{command}", name=_clean(figure.name))
        if figure.judgement != "passed":
            tag = "failure" if figure.judgement == "failed" else "skipped"
            ElementTree.SubElement(case, tag, message=_clean(figure.text))
    ElementTree.indent(suite)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


def github_action_benchmark(command: str, figures: Sequence[Figure]) -> str:
    """Returns the figures for the tool `customBiggerIsBetter`."""
    return to_json(
        [
            {
                "name": _clean(figure.name),
                "unit": figure.measure,
                "value": figure.value,
                **({} if figure.interval is None else {"range": _range(figure.interval, figure.confidence)}),
                **({"extra": figure.text} if figure.text else {}),
            }
            for figure in figures
            if figure.value is not None
        ]
    )


def _range(interval: tuple[float, float], confidence: float) -> str:
    low, high = interval
    return f"{low:.4g} to {high:.4g} at {100 * confidence:.3g}%"


def bencher(command: str, figures: Sequence[Figure]) -> str:
    """Returns the figures for `bencher run --adapter json`."""
    metrics: dict[str, dict[str, dict[str, float]]] = {}
    for figure in figures:
        if figure.value is not None:
            low, high = figure.interval or (None, None)
            values = {"value": figure.value, "lower_value": low, "upper_value": high}
            metrics.setdefault(_clean(figure.name), {})[figure.measure] = {
                key: value for key, value in values.items() if value is not None
            }
    return to_json(metrics)


# What `unstall show --as` knows.
FORMS: dict[str, Callable[[str, Sequence[Figure]], str]] = {
    "junit": junit,
    "github-action-benchmark": github_action_benchmark,
    "bencher": bencher,
}


def _clean(text: str) -> str:
    """Returns a text of others without the characters that XML forbids."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text)
