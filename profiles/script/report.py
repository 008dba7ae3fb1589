"""What the `fit` calls of a script came to: printed to stderr, and written as results.json and report.html."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from profiles import provenance
from profiles.devices import parse_device
from profiles.measure import backends
from profiles.measure.windows import Windows
from profiles.provenance import usable_cores
from profiles.report import document, text
from profiles.report.text import print_stages
from profiles.results.result import Result
from profiles.results.verdict import Verdict, evidence_of, judge
from profiles.script.ceilings import NotPossible, put_back
from profiles.script.profiler import Profiler
from profiles.script.results import FitRecord, UnknownError, result_of
from profiles.stage_table import AnnotatedFunction, StageTable, without_stages
from profiles.stages.take_apart import stages_and_lines
from profiles.stages.tf_graph import CutError, random_before_cache

# The stage pass reads a script's data again, and that may block for ever: a queue that nobody fills any more.
STAGES_LIMIT_S = 90.0

_Apart = tuple[StageTable, tuple[AnnotatedFunction, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptReport:
    """What there is to say.

    Attributes:
      script: its file name.
      complete: whether the script came to its end.
      verdicts: one for each `fit` whose loading and compute could be told apart.
      unknown: (fit, why) of the others.
    """

    script: str
    complete: bool
    verdicts: tuple[Verdict, ...]
    unknown: tuple[tuple[FitRecord, str], ...]

    def print(self, console: Console) -> None:
        for verdict in self.verdicts:
            text.print_results(console, [verdict], baseline=None)
            if verdict.result.stages is not None:
                print_stages(console, verdict.result.contender.label, verdict.result.stages)
        for fit, why in self.unknown:
            console.print(Text(f"{fit.name} on {fit.model}, {fit.device.name}, fed by {fit.data_kind}: {why}"))

    def to_dict(self) -> dict[str, Any]:
        """Returns the results file's content."""
        results = [verdict.result for verdict in self.verdicts]
        counted = next((one for one in results if one.contender.images), None)
        return document.document(
            [one.to_dict() for one in results],
            self.verdicts,
            created=document.now(),
            complete=self.complete,
            provenance={**provenance.machine(), **backends.backend()},
            settings={"rounds": max((len(one.of("train")) for one in results), default=0)},
            dataset=document.unlisted("what the script loads", counted, self.script),
            left_out=[document.left_out_row(fit.name, fit.model, fit.device.name, why) for fit, why in self.unknown],
        )

    def write(self, folder: Path) -> None:
        texts: dict[tuple[str, str], list[str]] = {}
        for verdict in self.verdicts:
            one = verdict.result.contender
            texts.setdefault((one.model, one.device.name), []).append(verdict.text())
        document.write(folder, self.to_dict(), texts)


def report_on(profiler: Profiler, *, script: str, complete: bool) -> ScriptReport:
    """Derives the report of what was watched; nothing of the script's is run for it."""
    verdicts, unknown = [], []
    for fit in profiler.fits:
        try:
            verdicts.append(_judged(result_of(fit), profiler.seen.get(fit.name)))
        except UnknownError as error:
            unknown.append((fit, str(error)))
    return ScriptReport(script=script, complete=complete, verdicts=tuple(verdicts), unknown=tuple(unknown))


def with_stages(found: ScriptReport, profiler: Profiler, *, lines: bool) -> tuple[ScriptReport, bool]:
    """Adds the stage tables of data that can be read again.

    Args:
      lines: whether to time the lines of the data's Python functions as well.
    Returns:
      The report, and whether reading still blocks: then a thread of ours waits for ever, and no more data is read.
    """
    kinds = {fit.name: fit.data_kind for fit in profiler.fits}
    verdicts: list[Verdict] = []
    blocked_by: str | None = None
    for verdict in found.verdicts:
        result = verdict.result
        name = result.contender.variant
        seen = profiler.seen.get(name)
        apart: _Apart | None
        if seen is None:
            apart = _not_apart(f"{kinds[name]} cannot be read again: only the waiting was seen")
        elif blocked_by is not None:
            apart = _not_apart(f"the data of {blocked_by} was waited for in vain: no more was read")
        else:
            model, data = seen
            apart = _within(STAGES_LIMIT_S, partial(_taken_apart, model, data, result, lines))
        if apart is None:
            blocked_by = name
            apart = _not_apart(f"reading the data again did not end within {STAGES_LIMIT_S:g} s")
        table, annotated = apart
        verdicts.append(_judged(replace(result, stages=table, lines=annotated), seen))
    return replace(found, verdicts=tuple(verdicts)), blocked_by is not None


def _judged(result: Result, seen: tuple[Any, Any] | None) -> Verdict:
    frozen: tuple[str, ...] = ()
    try:
        frozen = random_before_cache(seen[1]) if seen is not None else ()
    except CutError as error:
        # A second verdict on the same result, once its stages are known, says it no second time.
        result = replace(result, flags=tuple(dict.fromkeys((*result.flags, str(error)))))
    evidence = replace(evidence_of(result), cores=usable_cores(), frozen_by_cache=frozen)
    (verdict,) = judge([result], lambda _: evidence)
    return verdict


def _within(limit_s: float, call: Callable[[], _Apart]) -> _Apart | None:
    """Calls in a thread; returns None where it has not ended in time, and leaves it to itself."""
    came: list[_Apart] = []
    thread = threading.Thread(target=lambda: came.append(call()), name="unstall stage pass", daemon=True)
    thread.start()
    thread.join(limit_s)
    return None if thread.is_alive() else came[0]


def _taken_apart(model: Any, data: Any, result: Result, lines: bool) -> _Apart:
    """Takes apart what a `fit` was fed, at the pace of its model, which does not train: it sleeps."""
    pace = parse_device(f"emulated:{min(max(result.compute_images_per_sec, 0.1), 1e7)}")
    try:
        with put_back(model), warnings.catch_warnings(action="ignore"):
            return stages_and_lines(data, Windows(model, pace), lines=lines)
    except NotPossible as error:
        return _not_apart(str(error))
    except (Exception, SystemExit) as error:  # anything can happen in a user's pipeline; the rest of the report stands
        first_line = (str(error).strip().splitlines() or [""])[0][:160]
        reason = f"it could not be taken apart ({type(error).__name__}: {first_line})"
        return _not_apart(reason)


def _not_apart(reason: str) -> _Apart:
    return without_stages(reason, cores=usable_cores()), ()
