"""Elements of parallel calls in the order in which they are ready."""

from __future__ import annotations

from collections.abc import Iterator

from unstall.profiles.remedies.change import Offer
from unstall.profiles.remedies.remedy import Untried
from unstall.profiles.remedies.tf.pipeline_view import PipelineView
from unstall.profiles.remedies.tf.plan import TfPlan
from unstall.profiles.remedies.tf.tf_change import TfChange


class AnyOrder(TfChange):
    names = ("any-order",)
    serves = ("waiting",)
    gains_least = True

    def find(self, data: PipelineView) -> Iterator[Offer[TfPlan] | Untried]:
        calls = [data.written(at) for at, node in enumerate(data.nodes) if node.kind != "prefetch"]
        if not any(own or autotuned for own, _, autotuned in calls) or data.dataset.options().deterministic is False:
            return
        option = "deterministic = False"
        remedy = data.remedy(
            "any-order",
            "elements in the order in which they are ready",
            f"options.{option}",
            "other order",
            data.edit(data.last, "option", option),
            at=data.last,
        )
        yield Offer(remedy=remedy, build=_build)


def _build(plan: TfPlan) -> None:
    plan.options.deterministic = False
