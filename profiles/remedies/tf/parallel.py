"""Parallel calls of maps and interleaves that take one element at a time."""

from __future__ import annotations

from collections.abc import Iterator

from unstall.profiles.remedies.change import Offer
from unstall.profiles.remedies.remedy import Untried
from unstall.profiles.remedies.tf.pipeline_view import PipelineView
from unstall.profiles.remedies.tf.plan import TfPlan
from unstall.profiles.remedies.tf.tf_change import TfChange


class Parallel(TfChange):
    names = ("parallel",)
    serves = ("waiting",)

    def find(self, data: PipelineView) -> Iterator[Offer[TfPlan] | Untried]:
        found, calls = one_at_a_time(data), data.room.calls
        if not found or calls < 2:
            return
        code = f"num_parallel_calls={calls}"

        def build(plan: TfPlan) -> None:
            plan.calls |= dict.fromkeys(found, calls)

        remedy = data.remedy(
            "parallel",
            f"{data.named(found)} in {calls} calls at once",
            code,
            "other draws" if any(map(data.draws, found)) else "identical",
            data.edits(found, "argument", code),
            at=found[-1],
        )
        yield Offer(remedy=remedy, build=build)


def one_at_a_time(data: PipelineView) -> list[int]:
    """Returns the positions of the maps and interleaves without parallel calls that are worth changing."""
    written = ((None, None, False), (1, None, False))
    return [at for at in data.own_maps if data.written(at) in written and data.costs.matter(at)]
