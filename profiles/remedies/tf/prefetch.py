"""A prefetch at the end of the pipeline: batches are made while the model trains."""

from __future__ import annotations

from collections.abc import Iterator

from unstall.profiles.remedies.change import Offer
from unstall.profiles.remedies.remedy import PREFETCH, Untried
from unstall.profiles.remedies.tf.pipeline_view import PipelineView
from unstall.profiles.remedies.tf.plan import TfPlan
from unstall.profiles.remedies.tf.tf_change import TfChange


class Prefetch(TfChange):
    names = ("prefetch",)
    serves = ("waiting",)

    def find(self, data: PipelineView) -> Iterator[Offer[TfPlan] | Untried]:
        if any(data.nodes[at].kind == "prefetch" for at in (data.last, *data.nodes[data.last].inputs)):
            return
        code = f".prefetch({PREFETCH})"
        text = "batches made while the model trains"
        remedy = data.remedy("prefetch", text, code, "identical", data.edit(data.last, "behind", code), at=data.last)
        yield Offer(remedy=remedy, build=_build)


def _build(plan: TfPlan) -> None:
    plan.at_end.append(lambda dataset: dataset.prefetch(PREFETCH))
    plan.ahead += PREFETCH
