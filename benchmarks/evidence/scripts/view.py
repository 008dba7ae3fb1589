"""The table of scripts: what was said of each, what watching cost, and what following the advice by hand gained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unstall.benchmarks.evidence.run import View
from unstall.benchmarks.evidence.scripts.results import Result, ScriptsDocument, derive
from unstall.benchmarks.lab.tables import Table
from unstall.profiles.statistics import Interval, range_text

_COLUMNS = ("script", "watched", "load%", "remedy", "measured", "by hand", "off")
LEGEND = (
    "watched: times as long as a plain epoch. measured, by hand: times as fast with the remedy, by the trial and as "
    "edited by hand; off: the first, held against the second."
)


def view_of(document: ScriptsDocument) -> View:
    """Returns a row for each script, and what follows from all of them."""
    results = derive(document)
    table = Table(columns=_COLUMNS, rows=[_cells(result) for result in results.scripts], words=("remedy",))
    return View(
        tables=[table],
        rows=[_row(result) for result in results.scripts],
        sentences=results.conclusions,
        notes=[*(note_of(result) for result in results.scripts), LEGEND],
    )


def _cells(result: Result) -> tuple[str, ...]:
    return (
        result.script.name,
        "-" if result.watching is None else f"{result.watching:.2f}",
        "-" if result.advice is None else f"{result.advice.loading_ratio:.0%}",
        " + ".join(result.script.follows) or "-",
        "-" if result.measured is None else f"{result.measured.ratio:.2f}",
        "-" if result.by_hand is None else f"{result.by_hand[0]:.2f}",
        "-" if result.off is None else f"{result.off:+.0%}",
    )


def note_of(result: Result) -> str:
    """Returns what the row of a script has no room for."""
    parts = [f"{result.epoch_s:.2f} s an epoch", f"printed {printed_text(result)}"]
    if result.advice is not None:
        parts.append(f"advised {result.advice.chosen or 'nothing'}")
    if result.predicted is not None:
        parts.append(f"predicted if loading cost nothing: {_prediction_text(result, result.predicted)}")
    if result.held is not None:
        parts.append(f"with data that cost nothing: {_gain_text(*result.held)}")
    if result.measured is not None:
        parts.append(f"measured {_gain_text(result.measured.ratio, result.measured.interval)}")
    if result.by_hand is not None:
        parts.append(f"by hand {_gain_text(*result.by_hand)}")
    return f"{result.script.name}: {'; '.join(parts)}"


def _prediction_text(result: Result, predicted: float) -> str:
    """Returns what free loading was said to gain: a range where what the loader takes from the cores is not known."""
    if not result.is_least:
        return f"{predicted:.2f}"
    most = result.predicted_most
    return f">= {predicted:.2f}" if most is None else f"{predicted:.2f} to {most:.2f}"


def printed_text(result: Result) -> str:
    """Returns whether the watched run printed what the plain runs print."""
    if result.difference is None:
        return "the same"
    return "differs" if result.repeats else "differs, as plain runs do" if result.repeats is False else "differs once"


def _gain_text(ratio: float, interval: Interval | None) -> str:
    return f"{ratio:.2f}" if interval is None else f"{ratio:.2f} ({range_text(interval)})"


def _row(result: Result) -> Mapping[str, Any]:
    return {
        "script": result.script.name,
        "source": result.script.source,
        "epoch_s": result.epoch_s,
        "watching_ratio": result.watching,
        "printed": printed_text(result),
        "difference": result.difference,
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
