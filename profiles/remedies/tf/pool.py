"""More calls at once than there are cores, on threads of their own, for maps and interleaves that mostly wait."""

from __future__ import annotations

from collections.abc import Iterator

from unstall.profiles.remedies.change import Offer
from unstall.profiles.remedies.remedy import Untried
from unstall.profiles.remedies.tf.parallel import Parallel, code_of, one_at_a_time
from unstall.profiles.remedies.tf.pipeline_view import PipelineView, only_with
from unstall.profiles.remedies.tf.plan import TfPlan
from unstall.profiles.remedies.tf.tf_change import TfChange

# A stage that waits takes so many calls at once, or so many for each core. How long it waits does not decide: that is
# measured for a moment, and calls that a stage has no use for cost next to nothing.
_CALLS, _CALLS_PER_CORE = 32, 4


class Pool(TfChange):
    names = ("pool",)
    serves = ("waiting",)

    def find(self, data: PipelineView) -> Iterator[Offer[TfPlan] | Untried]:
        waiting = [at for at in data.own_maps if data.by_name or data.costs.wait(at)]
        calls = data.calls_at(waiting, max(_CALLS, _CALLS_PER_CORE * data.room.calls))
        if not calls:
            return
        found, most = [*calls], max(calls.values())
        option = f"threading.private_threadpool_size = {most}"

        def build(plan: TfPlan) -> None:
            plan.calls |= calls
            plan.options.threading.private_threadpool_size = most

        remedy = data.remedy(
            "pool",
            f"{data.named(found)}, which waits, in {most} calls at once, on as many threads",
            f"{code_of(most)}, options.{option}",
            "other draws" if any(map(data.draws, found)) else "identical",
            only_with(
                data.edit(data.last, "option", option),
                [edit for at in found for edit in data.edit(at, "argument", code_of(calls[at]))],
            ),
            at=found[-1],
        )
        # Parallel calls of these maps alone would change nothing more: the calls of this remedy override them.
        overridden = {*one_at_a_time(data)} <= {*found}
        yield Offer(remedy=remedy, build=build, conflicts=frozenset(Parallel.names if overridden else ()))
