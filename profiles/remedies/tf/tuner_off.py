"""tf.data's tuner off: fixed parallel calls and prefetches instead of what AUTOTUNE chooses."""

from __future__ import annotations

from collections.abc import Iterator

from unstall.profiles.remedies.change import Offer
from unstall.profiles.remedies.remedy import PREFETCH, Untried
from unstall.profiles.remedies.tf.pipeline_view import PipelineView, only_with
from unstall.profiles.remedies.tf.plan import TfPlan
from unstall.profiles.remedies.tf.tf_change import TfChange


class TunerOff(TfChange):
    names = ("tuner-off",)
    serves = ("edges",)

    def find(self, data: PipelineView) -> Iterator[Offer[TfPlan] | Untried]:
        if data.dataset.options().autotune.enabled is False:
            return
        calls, option = data.room.calls, "autotune.enabled = False"
        autotuned = [at for at in range(len(data.nodes)) if data.is_autotuned(at)]
        prefetches = [at for at in autotuned if data.nodes[at].kind == "prefetch"]
        others = [at for at in autotuned if at not in prefetches]

        def build(plan: TfPlan) -> None:
            plan.buffers |= dict.fromkeys(prefetches, PREFETCH)
            for at in others:
                plan.calls.setdefault(at, calls)  # remedies before this one may have set others
            plan.options.autotune.enabled = False

        remedy = data.remedy(
            "tuner-off",
            f"tf.data's tuner off, and {calls} parallel calls in the place of AUTOTUNE",
            f"options.{option}",
            "identical",
            only_with(
                data.edit(data.last, "option", option), data.edits(others, "argument", f"num_parallel_calls={calls}")
            ),
            at=data.last,
            ends_edges=True,
        )
        yield Offer(remedy=remedy, build=build)
