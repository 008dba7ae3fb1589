"""What a gate prints and writes: one table, one verdict, one JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.gate.measure import Check, Comparison
from benchmarks.gate.processes import Process, invariants_of
from profiles.gate import IMPROVED, INCONCLUSIVE, REGRESSION, SAME, Baseline, Decision, differences, unknown
from profiles.report import write_atomically
from profiles.statistics import median, median_interval

RESULTS = "gate.json"
SCHEMA_VERSION = 1
_STYLES = {REGRESSION: "bold red", IMPROVED: "bold green", SAME: "bold green"}


def write(out: Path, values: Mapping[str, Any]) -> None:
    """Writes the results."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **values}, indent=2, allow_nan=False)
    write_atomically(out / RESULTS, text + "\n")


def print_comparisons(console: Console, comparisons: Mapping[str, Comparison]) -> None:
    """Prints a table of all comparisons, then each one's verdict in a sentence."""
    table = _table(("", "A img/s", "B img/s", "B/A", "interval", "pairs", "verdict"))
    for name, one in comparisons.items():
        assert one.decision is not None
        table.add_row(Text(name), _rates(one.a), _rates(one.b), *_ratio_cells(one.decision))
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
        for anchor, ratios in check.baseline.ratios.items():
            now = [one.images_per_sec / median(one.anchors[anchor]) for one in check.processes]
            mark = "judges: varied least" if anchor == check.baseline.judge else ""
            table.add_row(
                anchor, f"{median(ratios):.4g}", f"{median(now):.4g}", f"{median(now) / median(ratios):.3f}", mark
            )
        rates = [one.images_per_sec for one in check.processes]
        recorded = check.baseline.images_per_sec
        floor = f"floor {check.baseline.floor_images_per_sec:,.0f}"
        table.add_row(
            "(images/sec)", f"{recorded:,.0f}", f"{median(rates):,.0f}", f"{median(rates) / recorded:.3f}", floor
        )
        console.print(table)
    console.print(f"\n{name}: " + _verdict(made, f"{made.pairs} processes"), highlight=False, markup=False, emoji=False)


def print_baseline(console: Console, baseline: Baseline, path: Path) -> None:
    """Prints what was recorded."""
    table = _table(("images/sec over", "ratio", "95 % interval", ""))
    for anchor, ratios in baseline.ratios.items():
        low, high = median_interval(ratios)
        mark = "judges: varied least" if anchor == baseline.judge else ""
        table.add_row(anchor, f"{median(ratios):.4g}", f"{low:.4g} to {high:.4g}", mark)
    console.print(table)
    console.print(
        f"\n{baseline.images_per_sec:,.0f} images/sec, floor {baseline.floor_images_per_sec:,.0f}. Recorded: {path}",
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
    )


def _table(columns: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        words = number == 0 or column in ("", "verdict")
        table.add_column(column, justify="left" if words else "right", overflow="fold")
    return table


def _rates(processes: Sequence[Process]) -> str:
    return f"{median([one.images_per_sec for one in processes]):,.0f}" if processes else "-"


def _ratio_cells(made: Decision) -> tuple[str, ...]:
    style = _STYLES.get(made.verdict, "bold yellow")
    verdict = f"[{style}]{made.verdict}[/]"
    if made.ratio is None or made.interval is None:
        return "-", "-", str(made.pairs), verdict
    low, high = made.interval
    return f"{made.ratio:.3f}", f"{low:.3f} to {high:.3f}", str(made.pairs), verdict


def _sentence(comparison: Comparison) -> str:
    question, made = comparison.question, comparison.decision
    assert made is not None
    asked = f"asked for at least {question.at_least:g} times A: " if question.at_least is not None else ""
    spread = comparison.spread
    noise = "" if spread is None else f", one measurement varies by {spread:.1%}"
    return asked + _verdict(made, f"{made.pairs} pairs{noise}")


def _verdict(made: Decision, measured: str) -> str:
    if made.ratio is None or made.interval is None or made.share is None:
        return f"{made.verdict}: {made.reason}"
    low, high = made.interval
    reason = f": {made.reason}" if made.reason else ""
    interval = f"{low:.3f} to {high:.3f} at {1 - 2 * made.share:.1%}"
    text = f"{made.verdict}{reason}. Ratio {made.ratio:.3f} ({interval}; {measured})"
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
