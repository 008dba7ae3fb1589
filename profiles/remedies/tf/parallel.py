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
        calls = data.calls_at(one_at_a_time(data), data.room.calls)
        if not calls:
            return
        found = [*calls]

        def build(plan: TfPlan) -> None:
            plan.calls |= calls

        remedy = data.remedy(
            "parallel",
            f"{data.named(found)} in {max(calls.values())} calls at once",
            code_of(max(calls.values())),
            "other draws" if any(map(data.draws, found)) else "identical",
            [edit for at in found for edit in data.edit(at, "argument", code_of(calls[at]))],
            at=found[-1],
        )
        yield Offer(remedy=remedy, build=build)


def one_at_a_time(data: PipelineView) -> list[int]:
    """Returns the positions of the maps and interleaves without parallel calls that are worth changing."""
    written = ((None, None, False), (1, None, False))
    return [at for at in data.own_maps if data.written(at) in written and data.costs.matter(at)]


def code_of(calls: int) -> str:
    """Returns the argument that gives a map so many calls at once."""
    return f"num_parallel_calls={calls}"
