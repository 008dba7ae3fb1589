"""Made-up runs of a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.benchmarks.evidence.documents import document_of
from unstall.benchmarks.evidence.scripts.plan import Asked, Script
from unstall.benchmarks.evidence.scripts.results import ScriptsDocument
from unstall.benchmarks.evidence.scripts.samples import Advice, Pair, Promise, Samples, ScriptRun, ScriptSamples


def a_scripts_document(
    expert: Sequence[tuple[float, float]] = (),
    tool: Sequence[tuple[float, float]] = (),
    *,
    promised: float | None = None,
    advised: bool = True,
    printed: Mapping[str, str] | None = None,
) -> ScriptsDocument:
    """Returns the document of a folder with one script, "train".

    Args:
      expert, tool: times of the training in each pair of runs: as it is, and with that edit.
      promised: the gain of the remedy "cache", which was advised; None if no remedy was.
      advised: whether the script was profiled.
      printed: what the script printed, by how it ran; nothing unless given.
    """

    def run(how: str, number: int, took_s: float) -> ScriptRun:
        told = (printed or {}).get(how, "")
        return ScriptRun(how=how, pair=number, exit_code=0, wall_s=99.0, train_s=took_s, printed=told)  # type: ignore[arg-type]

    pairs = tuple(
        Pair(edit=edit, unmodified=run("unmodified", number, before_s), edited=run(edit, number, after_s))  # type: ignore[arg-type]
        for edit, times in (("expert", expert), ("tool", tool))
        for number, (before_s, after_s) in enumerate(times)
    )
    promise = None if promised is None else Promise(remedies="cache", ratio=promised, interval=None)
    advice = Advice(loading_ratio=0.5, sentence="It waits.", promise=promise, untried=()) if advised else None
    samples = ScriptSamples(name="train", pairs=pairs, profiled=run("profiled", 0, 1.0), advice=advice)
    script = Script(name="train", environment={}, expert="keeps the photos" if expert else "")
    asked = Asked(scripts=(script,), pairs=2, budget_s=60.0, limit_s=900.0)
    return document_of("scripts", asked, Samples(scripts=(samples,) if pairs else ()), dataset=None)
