"""What a gate prints and writes: one table, one verdict, one JSON file."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.gate.measure import Check, Comparison
from benchmarks.gate.processes import Process, invariants_of
from profiles.gate import (
    EPOCH,
    IMPROVED,
    INCONCLUSIVE,
    REGRESSION,
    SAME,
    STEADY,
    Baseline,
    Decision,
    differences,
    rate_of,
    unknown,
)
from profiles.report import write_atomically
from profiles.statistics import median, median_interval

RESULTS = "gate.json"
SCHEMA_VERSION = 2
# What a figure is called in a table.
_SHORT = {STEADY: "steady", EPOCH: "with epoch edges"}
_STYLES = {REGRESSION: "bold red", IMPROVED: "bold green", SAME: "bold green"}


def write(out: Path, values: Mapping[str, Any]) -> None:
    """Writes the results."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **values}, indent=2, allow_nan=False)
    write_atomically(out / RESULTS, text + "\n")


def print_comparisons(console: Console, comparisons: Mapping[str, Comparison]) -> None:
    """Prints a table of all comparisons, a line a figure, then each one's verdict in a sentence."""
    table = _table(("", "A img/s", "B img/s", "B/A", "interval", "pairs", "verdict"))
    for name, one in comparisons.items():
        assert one.decision is not None
        title = name
        for figure in one.figures or (EPOCH,):
            label = Text(_named(title, figure, one.figures, between="\n  " if title else "  "))
            table.add_row(label, _rates(one.a, figure), _rates(one.b, figure), *_cells(one.decision, figure))
            title = ""
    console.print(table)
    for name, one in comparisons.items():
        assert one.decision is not None
        console.print(f"\n{' '.join(name.split())}: " + _sentence(one), highlight=False, markup=False, emoji=False)
        for line in _changes(one):
            console.print(f"  changed: {line}", highlight=False, markup=False, emoji=False)


def print_check(console: Console, name: str, check: Check) -> None:
    """Prints the ratio to each anchor, then and now, and the verdict."""
    made = check.decision
    assert made is not None
    if check.processes:
        table = _table(("images/sec over", "recorded", "now", "now/recorded", ""))
        for figure, before in check.baseline.figures.items():
            rates = [rate_of(one.images_per_sec, figure) for one in check.processes]
            for anchor, ratios in before.ratios.items():
                now = [rate / median(one.anchors[anchor]) for rate, one in zip(rates, check.processes, strict=True)]
                mark = "judges: varied least" if anchor == before.judge else ""
                change = f"{median(now) / median(ratios):.3f}"
                label = _named(anchor, figure, check.baseline.figures)
                table.add_row(label, f"{median(ratios):.4g}", f"{median(now):.4g}", change, mark)
            table.add_row(
                _named("(images/sec)", figure, check.baseline.figures),
                f"{before.images_per_sec:,.0f}",
                f"{median(rates):,.0f}",
                f"{median(rates) / before.images_per_sec:.3f}",
                f"floor {before.floor_images_per_sec:,.0f}",
            )
        console.print(table)
    console.print(f"\n{name}: " + _verdict(made, f"{made.pairs} processes"), highlight=False, markup=False, emoji=False)


def print_baseline(console: Console, baseline: Baseline, path: Path) -> None:
    """Prints what was recorded."""
    table = _table(("images/sec over", "ratio", "95 % interval", ""))
    for figure, values in baseline.figures.items():
        for anchor, ratios in values.ratios.items():
            low, high = median_interval(ratios)
            mark = "judges: varied least" if anchor == values.judge else ""
            label = _named(anchor, figure, baseline.figures)
            table.add_row(label, f"{median(ratios):.4g}", f"{low:.4g} to {high:.4g}", mark)
    console.print(table)
    rates = "; ".join(
        _named(f"{values.images_per_sec:,.0f} images/sec", figure, baseline.figures, between=" ")
        + f", floor {values.floor_images_per_sec:,.0f}"
        for figure, values in baseline.figures.items()
    )
    console.print(
        f"\n{rates}. Recorded: {path}",
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
    )


def _table(columns: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        words = number == 0 or column in ("", "verdict")
        # Of a name in several lines, the last stands beside its figures.
        table.add_column(column, justify="left" if words else "right", overflow="fold", vertical="bottom")
    return table


def _named(text: str, figure: str, figures: Collection[str], between: str = ", ") -> str:
    """Returns a text with the figure's name behind it; a figure that is the only one needs none."""
    return f"{text}{between}{_SHORT[figure]}" if len(figures) > 1 else text


def _rates(processes: Sequence[Process], figure: str) -> str:
    return f"{median([rate_of(one.images_per_sec, figure) for one in processes]):,.0f}" if processes else "-"


def _cells(made: Decision, figure: str) -> tuple[str, ...]:
    judged = made.figures.get(figure)
    verdict = made.verdict if judged is None else judged.verdict
    shown = f"[{_STYLES.get(verdict, 'bold yellow')}]{verdict}[/]"
    if judged is None:
        return "-", "-", str(made.pairs), shown
    low, high = judged.interval
    return f"{judged.ratio:.3f}", f"{low:.3f} to {high:.3f}", str(made.pairs), shown


def _sentence(comparison: Comparison) -> str:
    question, made = comparison.question, comparison.decision
    assert made is not None
    asked = f"asked for at least {question.at_least:g} times A: " if question.at_least is not None else ""
    spread = comparison.spread(made.figure) if made.figure else None
    noise = "" if spread is None else f", one measurement varies by {spread:.1%}"
    return asked + _verdict(made, f"{made.pairs} pairs{noise}")


def _verdict(made: Decision, measured: str) -> str:
    judged = made.judged
    if judged is None:
        return f"{made.verdict}: {made.reason}"
    low, high = judged.interval
    reason = f"{made.reason}; " if made.reason else ""
    interval = f"{low:.3f} to {high:.3f} at {1 - 2 * judged.share:.1%}"
    text = f"{made.verdict}: {reason}{made.words} {judged.ratio:.3f} ({interval}; {measured})"
    if made.verdict == INCONCLUSIVE:
        text += ". Too noisy to tell, or too near the threshold: neither a pass nor a fail"
    return text


def _changes(comparison: Comparison) -> tuple[str, ...]:
    if comparison.question.at_least is not None:
        return ()  # a floor is asked of two things that differ anyway
    before, now = invariants_of(comparison.a), invariants_of(comparison.b)
    if before is None or now is None:
        return ()
    return (*differences(before, now), *unknown(before, now))
