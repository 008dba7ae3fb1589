"""What the `fit` calls and loops of a script came to: printed to stderr, and written into two files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from profiles import provenance
from profiles.provenance import usable_cores
from profiles.report import document, text
from profiles.report.text import print_stages
from profiles.results.result import Result
from profiles.results.verdict import Verdict, evidence_of, judge
from profiles.script.results import FitRecord, UnknownError, result_of
from profiles.stages.tf_graph import CutError, random_before_cache

if TYPE_CHECKING:
    from profiles.script.loops import Loops
    from profiles.script.profiler import Profiler


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptReport:
    """What there is to say.

    Attributes:
      script: its file name.
      complete: whether the script came to its end.
      backend: what trained, as `provenance` holds it.
      verdicts: one for each `fit` whose loading and compute could be told apart.
      unknown: (fit, why) of the others.
    """

    script: str
    complete: bool
    backend: Mapping[str, Any]
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
            provenance={**provenance.machine(), **self.backend},
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


def report_on(watchers: Iterable[Profiler | Loops], *, script: str, complete: bool) -> ScriptReport:
    """Derives the report of what was watched; nothing of the script's is run for it."""
    verdicts, unknown = [], []
    backend: dict[str, Any] = {}
    for watcher in watchers:
        if watcher.fits:
            backend |= watcher.backend()
        for fit in watcher.fits:
            try:
                verdicts.append(judged(result_of(fit), watcher.seen.get(fit.name)))
            except UnknownError as error:
                unknown.append((fit, str(error)))
    return ScriptReport(
        script=script, complete=complete, backend=backend, verdicts=tuple(verdicts), unknown=tuple(unknown)
    )


def judged(result: Result, data: Any) -> Verdict:
    """Judges a result.

    Args:
      data: that `fit` was fed; None where it cannot be read again.
    """
    frozen: tuple[str, ...] = ()
    try:
        frozen = random_before_cache(data) if data is not None else ()
    except CutError as error:
        # A second verdict on the same result, once its stages are known, says it no second time.
        result = replace(result, flags=tuple(dict.fromkeys((*result.flags, str(error)))))
    evidence = replace(evidence_of(result), cores=usable_cores(), frozen_by_cache=frozen)
    (verdict,) = judge([result], lambda _: evidence)
    return verdict
