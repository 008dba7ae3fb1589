"""Made-up runs of a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.benchmarks.evidence.documents import document_of
from unstall.benchmarks.evidence.scripts.plan import Asked, Script
from unstall.benchmarks.evidence.scripts.results import ScriptsDocument
from unstall.benchmarks.evidence.scripts.samples import Advice, Pair, Promise, Samples, ScriptRun, ScriptSamples


def a_scripts_document(
    expert: Sequence[tuple[float | None, float | None]] = (),
    tool: Sequence[tuple[float | None, float | None]] = (),
    *,
    promised: float | None = None,
    advised: bool = True,
    printed: Mapping[str, str] | None = None,
    broken: str | None = None,
) -> ScriptsDocument:
    """Returns the document of a folder with one script, "train".

    Args:
      expert, tool: times of the training in each pair of runs: as it is, and with that edit; None where the script
        does not tell them, and a run takes 99 s.
      promised: the gain of the remedy "cache", which was advised; None if no remedy was.
      advised: whether the script was profiled.
      printed: what the script printed, by how it ran; nothing unless given.
      broken: how the script failed with the tool's edit.
    """

    def run(how: str, took_s: float | None) -> ScriptRun:
        return ScriptRun(wall_s=99.0, train_s=took_s, printed=(printed or {}).get(how, ""))

    pairs = tuple(
        Pair(edit=edit, unmodified=run("unmodified", before_s), edited=run(edit, after_s))  # type: ignore[arg-type]
        for edit, times in (("expert", expert), ("tool", tool))
        for before_s, after_s in times
    )
    promise = None if promised is None else Promise(remedies="cache", ratio=promised, interval=None)
    advice = Advice(loading_ratio=0.5, sentence="It waits.", promise=promise, untried=()) if advised else None
    samples = ScriptSamples(name="train", pairs=pairs, profiled=run("profiled", 1.0), advice=advice, broken=broken)
    script = Script(name="train", environment={}, expert="keeps the photos" if expert else "")
    asked = Asked(scripts=(script,), pairs=2, budget_s=60.0, limit_s=900.0)
    return document_of("scripts", asked, Samples(scripts=(samples,) if pairs else ()), dataset=None)
