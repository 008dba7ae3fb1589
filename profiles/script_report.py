"""What the `fit` calls of a script came to: printed to stderr, and written as results.json and report.html."""

from __future__ import annotations

import datetime
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from profiles import html_report, provenance, text_report
from profiles.ceilings import put_back
from profiles.devices import parse_device
from profiles.fits import FitRecord, UnknownError, result_of
from profiles.lines import AnnotatedFunction, annotate
from profiles.profiler import Profiler
from profiles.provenance import usable_cores
from profiles.results import SCHEMA_VERSION, Result, to_json, write_atomically
from profiles.stage_pass import stage_table
from profiles.stage_report import print_stages
from profiles.stages import StageTable, without_stages
from profiles.tfdata_graph import random_before_cache
from profiles.verdict import Verdict, evidence_of, judge
from profiles.windows import Windows


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
            text_report.print_results(console, [verdict], baseline=None)
            if verdict.result.stages is not None:
                print_stages(console, verdict.result.contender.label, verdict.result.stages)
        for fit, why in self.unknown:
            console.print(Text(f"{fit.name} on {fit.model}, {fit.device.name}, fed by {fit.data_kind}: {why}"))

    def to_dict(self) -> dict[str, Any]:
        """Returns the results file's content."""
        results = [verdict.result for verdict in self.verdicts]
        images = next((one.contender.images for one in results if one.contender.images), None)
        return {
            "schema_version": SCHEMA_VERSION,
            "created": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "complete": self.complete,
            "provenance": {**provenance.machine(), **provenance.backend()},
            "settings": {"rounds": max((len(one.of("train")) for one in results), default=0)},
            "dataset": {
                "kind": "what the script loads",
                "name": self.script,
                "images": "unknown" if images is None else images,
                "skipped": 0,
                "skipped_files": [],
                "fingerprint": "unknown",
            },
            "results": [one.to_dict() for one in results],
            "left_out": [
                {
                    "variant": fit.name,
                    "model": fit.model,
                    "device": fit.device.name,
                    "page_cache": "warm",
                    "reason": why,
                }
                for fit, why in self.unknown
            ],
            "verdicts": [verdict.to_dict() for verdict in self.verdicts],
        }

    def write(self, folder: Path) -> None:
        texts: dict[tuple[str, str], list[str]] = {}
        for verdict in self.verdicts:
            one = verdict.result.contender
            texts.setdefault((one.model, one.device.name), []).append(verdict.text())
        document = self.to_dict()
        write_atomically(folder / "results.json", to_json(document))
        write_atomically(folder / "report.html", html_report.render(document, texts))


def report_on(profiler: Profiler, *, script: str, complete: bool, stages: bool, lines: bool) -> ScriptReport:
    """Derives the report; runs the stage pass over data that can be read again.

    Args:
      profiler: after the script, which is not run any further.
      stages: whether to run it.
      lines: whether to time the lines of the data's Python functions as well.
    """
    profiler.pause()
    verdicts, unknown = [], []
    for fit in profiler.fits:
        try:
            result = result_of(fit)
        except UnknownError as error:
            unknown.append((fit, str(error)))
            continue
        seen = profiler.seen.get(fit.name)
        if stages:
            table, annotated = _taken_apart(fit, seen, result, lines)
            result = replace(result, stages=table, lines=annotated)
        frozen = random_before_cache(seen[1]) if seen is not None and hasattr(seen[1], "element_spec") else ()
        evidence = replace(evidence_of(result), cores=usable_cores(), frozen_by_cache=frozen)
        (verdict,) = judge([result], lambda _, evidence=evidence: evidence)  # type: ignore[misc]
        verdicts.append(verdict)
    return ScriptReport(script=script, complete=complete, verdicts=tuple(verdicts), unknown=tuple(unknown))


def _taken_apart(
    fit: FitRecord, seen: tuple[Any, Any] | None, result: Result, lines: bool
) -> tuple[StageTable, tuple[AnnotatedFunction, ...]]:
    """Takes apart what a `fit` was fed, at the pace of its model, which does not train: it sleeps."""
    cores = usable_cores()
    if seen is None:
        return without_stages(f"{fit.data_kind} cannot be read again: only the waiting was seen", cores=cores), ()
    model, data = seen
    pace = parse_device(f"emulated:{min(max(result.compute_images_per_sec, 0.1), 1e7)}")
    try:
        with put_back(model), warnings.catch_warnings(action="ignore"):
            table = stage_table(data, Windows(model, pace))
            return table, annotate(data) if lines and table.reason is None else ()
    except Exception as error:  # anything can happen in a user's pipeline; the rest of the report stands
        first_line = (str(error).strip().splitlines() or [""])[0][:160]
        return without_stages(f"it could not be taken apart ({type(error).__name__}: {first_line})", cores=cores), ()
