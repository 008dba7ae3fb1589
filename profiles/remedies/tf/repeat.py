"""One iterator for all epochs, so that none begins or ends."""

from __future__ import annotations

from collections.abc import Iterator

from unstall.profiles.remedies.change import Offer
from unstall.profiles.remedies.remedy import Edit, Untried
from unstall.profiles.remedies.tf.pipeline_view import PipelineView
from unstall.profiles.remedies.tf.plan import TfPlan
from unstall.profiles.remedies.tf.tf_change import TfChange


class Repeat(TfChange):
    names = ("repeat",)
    serves = ("edges",)

    def find(self, data: PipelineView) -> Iterator[Offer[TfPlan] | Untried]:
        whole = data.part.batches
        if not data.repeats or not data.part.length_known or whole is None or whole != int(whole):
            return
        steps = f"steps_per_epoch={int(whole)}"
        code, text = f".repeat(), and fit(..., {steps})", "one iterator for all epochs"
        edits = (
            ()
            if data.fit_place is None
            else (
                Edit(place=data.fit_place, kind="feed", text="{data}.repeat()"),
                Edit(place=data.fit_place, kind="argument", text=steps),
            )
        )

        def build(plan: TfPlan) -> None:
            plan.at_end.append(lambda dataset: dataset.repeat())
            plan.fit_arguments["steps_per_epoch"] = int(whole if data.part.is_whole(plan.batches) else plan.batches)

        remedy = data.remedy("repeat", text, code, "identical", edits, at=data.last, ends_edges=True)
        yield Offer(remedy=remedy, build=build)
