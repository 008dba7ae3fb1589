"""More calls at once than there are cores, on threads of their own, for maps and interleaves that mostly wait."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from unstall.profiles.remedies.change import Offer
from unstall.profiles.remedies.remedy import Untried
from unstall.profiles.remedies.tf.parallel import Parallel, one_at_a_time
from unstall.profiles.remedies.tf.pipeline_view import PipelineView, only_with
from unstall.profiles.remedies.tf.plan import TfPlan
from unstall.profiles.remedies.tf.tf_change import TfChange

# A stage that waits takes more calls than there are cores, up to this number.
_MOST_CALLS = 32


class Pool(TfChange):
    names = ("pool",)
    serves = ("waiting",)

    def find(self, data: PipelineView) -> Iterator[Offer[TfPlan] | Untried]:
        found = [at for at in data.own_maps if data.pool_calls is not None or data.costs.wait(at)]
        if not found:
            return
        calls = data.pool_calls or _calls(data, found)
        code, option = f"num_parallel_calls={calls}", f"threading.private_threadpool_size = {calls}"

        def build(plan: TfPlan) -> None:
            plan.calls |= dict.fromkeys(found, calls)
            plan.options.threading.private_threadpool_size = calls

        remedy = data.remedy(
            "pool",
            f"{data.named(found)}, which waits, in {calls} calls at once, on as many threads",
            f"{code}, options.{option}",
            "other draws" if any(map(data.draws, found)) else "identical",
            only_with(data.edit(data.last, "option", option), data.edits(found, "argument", code)),
            at=found[-1],
            calls=calls,
        )
        # Parallel calls of these maps alone would change nothing more: the calls of this remedy override them.
        overridden = {*one_at_a_time(data)} <= {*found}
        yield Offer(remedy=remedy, build=build, conflicts=frozenset(Parallel.names if overridden else ()))


def _calls(data: PipelineView, waiting: Sequence[int]) -> int:
    """Returns how many calls at once keep the cores busy."""
    cores = data.room.calls
    least = cores / max(1 - data.costs.waits_ratio(waiting), 0.01)
    # A power of two: what a stage waits is measured for a moment, and another moment must come to the same.
    wanted: int = 2 ** math.ceil(math.log2(max(2 * cores, least)))
    return min(_MOST_CALLS, wanted)
