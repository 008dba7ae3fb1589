"""Shows the scripts: what was said of each, what watching cost, and what following the advice by hand gained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from unstall.benchmarks.evidence.scripts.plan import Asked
from unstall.benchmarks.evidence.scripts.results import Result, Results, ScriptsDocument, derive
from unstall.benchmarks.evidence.scripts.samples import Samples
from unstall.profiles.report import Kind, html
from unstall.profiles.statistics import Interval, range_text

HEADINGS = (
    "script",
    "epoch s",
    "watched",
    "printed",
    "load%",
    "if free",
    "held",
    "advised",
    "remedy",
    "measured",
    "by hand",
    "off",
)
# On a terminal of fewer columns than this the table has fewer columns, and gains have no intervals.
_FULL_WIDTH = 120
_LEFT_OUT = ("epoch s", "printed", "if free", "held", "advised")


def cells(result: Result) -> tuple[str, ...]:
    """Returns the cells of a script's row, as `HEADINGS` says."""
    advice = result.advice
    return (
        result.script.name,
        f"{result.epoch_s:.2f}",
        "-" if result.watching is None else f"{result.watching:.2f}x",
        printed_text(result),
        "-" if advice is None else f"{advice.loading_ratio:.0%}",
        _prediction_text(result),
        "-" if result.held is None else _gain_text(*result.held),
        "-" if advice is None else advice.chosen or "nothing",
        " + ".join(result.script.follows) or "-",
        "-" if result.measured is None else _gain_text(result.measured.ratio, result.measured.interval),
        "-" if result.by_hand is None else _gain_text(*result.by_hand),
        "-" if result.off is None else f"{result.off:+.0%}",
    )


def _prediction_text(result: Result) -> str:
    """Returns what free loading was said to gain: a range where what the loader takes from the cores is not known."""
    if result.predicted is None:
        return "-"
    if not result.is_least:
        return f"{result.predicted:.2f}"
    most = result.predicted_most
    return f">= {result.predicted:.2f}" if most is None else f"{result.predicted:.2f} to {most:.2f}"


def printed_text(result: Result) -> str:
    """Returns whether the watched run printed what the plain runs print."""
    if result.difference is None:
        return "the same"
    return "differs" if result.repeats else "differs, as plain runs do" if result.repeats is False else "differs once"


def _gain_text(ratio: float, interval: Interval | None) -> str:
    return f"{ratio:.2f}" if interval is None else f"{ratio:.2f} ({range_text(interval)})"


def _copies(document: ScriptsDocument, results: Results) -> dict[str, Any]:
    return {"results": _rows(results), "conclusions": list(results.conclusions)}


def _rows(results: Results) -> list[Mapping[str, Any]]:
    return [
        {
            "script": result.script.name,
            "source": result.script.source,
            "epoch_s": result.epoch_s,
            "watching_ratio": result.watching,
            "printed": printed_text(result),
            "loading_ratio": None if result.advice is None else result.advice.loading_ratio,
            "predicted_ratio": result.predicted,
            "predicted_is_least": result.is_least,
            "predicted_most_ratio": result.predicted_most,
            "held_ratio": None if result.held is None else result.held[0],
            "advised": None if result.advice is None else result.advice.chosen,
            "remedies": " + ".join(result.script.follows),
            "measured_ratio": None if result.measured is None else result.measured.ratio,
            "by_hand_ratio": None if result.by_hand is None else result.by_hand[0],
            "off": result.off,
        }
        for result in results.scripts
    ]


def _page(document: ScriptsDocument, results: Results) -> str:
    return html.template(Path(__file__).with_name("scripts.html.j2")).render(
        document=document, results=results, headings=HEADINGS, rows=[cells(result) for result in results.scripts]
    )


def _print(console: Console, document: ScriptsDocument, results: Results) -> None:
    full = console.width >= _FULL_WIDTH
    table = Table(box=None, padding=(0, 1, 0, 0), show_edge=False)
    shown = [at for at, heading in enumerate(HEADINGS) if full or heading not in _LEFT_OUT]
    for heading in (HEADINGS[at] for at in shown):
        text = heading in ("script", "printed", "advised", "remedy")
        table.add_column(heading, justify="left" if text else "right", overflow="fold", no_wrap=heading == "script")
    for result in results.scripts:
        row = cells(result)
        table.add_row(*(row[at] if full else row[at].partition(" (")[0] for at in shown))
    console.print(table)
    for result in results.scripts:
        if not full and result.difference is not None:
            console.print(f"{result.script.name}, printed: {printed_text(result)}")
        if not full and result.advice is not None and not result.follows_advice:
            advised = result.advice.chosen or "nothing"
            console.print(f"{result.script.name}, advised: {advised}")
    for conclusion in results.conclusions:
        console.print(conclusion)
    for left_out in document.left_out:
        console.print(f"{left_out.who}: {left_out.reason}")


KIND = Kind(plan=Asked, samples=Samples, derive=derive, copies=_copies, report=_page, print=_print, rows=_rows)
