"""The table of scripts: what an expert's edit gains, what the tool's edit gains, and what was promised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unstall.benchmarks.evidence.run import View
from unstall.benchmarks.evidence.scripts.results import Gain, Result, ScriptsDocument, derive
from unstall.benchmarks.lab.tables import Table
from unstall.profiles.statistics import range_text

_COLUMNS = ("script", "train s", "load%", "expert", "tool", "part", "promised", "off")
LEGEND = (
    "train s: time of the whole training. expert, tool: times as fast with an expert's edit of the loading, and with "
    "the diff that unstall profile writes. part: ln(tool) / ln(expert). promised: by the trial; off: held against tool."
)


def view_of(document: ScriptsDocument) -> View:
    """Returns a row for each script, and what follows from all of them."""
    results = derive(document)
    table = Table(columns=_COLUMNS, rows=[_cells(result) for result in results.scripts], words=())
    return View(
        tables=[table],
        rows=[_row(result) for result in results.scripts],
        sentences=results.conclusions if results.scripts else (),
        notes=[*(note_of(result) for result in results.scripts), LEGEND],
    )


def _cells(result: Result) -> tuple[str, ...]:
    advice = result.advice
    promise = None if advice is None else advice.promise
    return (
        result.script.name,
        f"{result.train_s:.1f}",
        "-" if advice is None else f"{advice.loading_ratio:.0%}",
        "-" if result.expert is None else f"{result.expert[0]:.2f}",
        "-" if advice is None else f"{result.gained:.2f}",
        "-" if result.part is None else f"{result.part:.2f}",
        "-" if promise is None else f"{promise.ratio:.2f}",
        "-" if result.promise_off is None else f"{result.promise_off:+.0%}",
    )


def note_of(result: Result) -> str:
    """Returns what the row of a script has no room for."""
    parts = []
    if result.expert is not None:
        parts.append(f"expert {_gain_text(result.expert)}, {result.script.expert}")
    advice = result.advice
    if advice is not None:
        parts.append(f"advised {'nothing' if advice.promise is None else advice.promise.remedies}")
        if advice.not_written is not None:
            parts.append(advice.not_written)
    if result.tool is not None:
        parts.append(f"tool {_gain_text(result.tool)}")
    parts.append(f"printed {printed_text(result)}")
    return f"{result.script.name}: {'; '.join(parts)}"


def printed_text(result: Result) -> str:
    """Returns whether the script printed the same each time."""
    if not result.repeats:
        return "something else in each run as it is"
    return "the same" if not result.differences else f"something else: {', '.join(result.differences)}"


def _gain_text(gain: Gain) -> str:
    ratio, interval = gain
    return f"{ratio:.2f}" if interval is None else f"{ratio:.2f} ({range_text(interval)})"


def _row(result: Result) -> Mapping[str, Any]:
    advice = result.advice
    promise = None if advice is None else advice.promise
    return {
        "script": result.script.name,
        "source": result.script.source,
        "train_s": result.train_s,
        "loading_ratio": None if advice is None else advice.loading_ratio,
        "expert_edit": result.script.expert,
        "expert_ratio": None if result.expert is None else result.expert[0],
        "expert_ci95": None if result.expert is None else result.expert[1],
        "advised": None if promise is None else promise.remedies,
        "tool_ratio": None if result.tool is None else result.tool[0],
        "tool_ci95": None if result.tool is None else result.tool[1],
        "part": result.part,
        "is_near": result.is_near,
        "is_slower": result.is_slower,
        "is_broken": result.broken,
        "promised_ratio": None if promise is None else promise.ratio,
        "promise_off": result.promise_off,
        "printed": printed_text(result),
        "differences": result.differences,
    }
