"""Made-up runs of a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.benchmarks.evidence.documents import document_of
from unstall.benchmarks.evidence.scripts.plan import Asked, Script
from unstall.benchmarks.evidence.scripts.results import ScriptsDocument
from unstall.benchmarks.evidence.scripts.samples import Advice, Samples, ScriptRun, ScriptSamples, Tried


def a_scripts_document(
    epochs_s: Mapping[str, Sequence[Sequence[float]]],
    *,
    follows: Sequence[str] = (),
    tried: Mapping[str, float] | None = None,
    chosen: str | None = None,
    printed: Mapping[str, str] | None = None,
    loading: float = 0.5,
    most_taken: float | None = -1.0,
) -> ScriptsDocument:
    """Returns the document of a folder with one script, "train".

    Args:
      epochs_s: by how the script ran, the times of its epochs in each run.
      follows: the remedies that were put in place by hand.
      tried: the measured gains by remedy; None if the script was not watched, or nothing was said.
      printed: what the script printed, by how it ran; nothing unless given.
      loading: the part of an epoch that was said to be loading.
      most_taken: the most that the loader can take from the steps' cores meanwhile; None: unknown. -1: `loading` is
        all.
    """
    runs = tuple(
        ScriptRun(
            how=how, round=round_, exit_code=0, wall_s=9.0, epochs_s=tuple(times), printed=(printed or {}).get(how, "")
        )
        for how, all_times in epochs_s.items()
        for round_, times in enumerate(all_times)
    )
    advice = None
    if tried is not None:
        contenders = tuple(
            Tried(name=name, remedies=tuple(name.split(" + ")), ratio=ratio, interval=None)
            for name, ratio in tried.items()
        )
        advice = Advice(
            loading_ratio=loading,
            is_least=most_taken != -1.0,
            most_taken_ratio=None if most_taken == -1.0 else most_taken,
            sentence="It waits.",
            tried=contenders,
            chosen=chosen,
            untried=(),
        )
    script = Script(name="train", environment={}, follows=tuple(follows))
    scripts = (ScriptSamples(name="train", runs=runs, advice=advice),) if runs else ()
    asked = Asked(scripts=(script,), rounds=2, budget_s=60.0, limit_s=900.0)
    return document_of("scripts", asked, Samples(scripts=scripts), dataset=None)
