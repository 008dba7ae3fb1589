"""Shuffles of what the pipeline has made: at its source instead, little is made before the first batch."""

from __future__ import annotations

import math
from collections.abc import Iterator

from unstall.profiles.remedies.change import Offer
from unstall.profiles.remedies.remedy import Untried
from unstall.profiles.remedies.tf.cache import Cache
from unstall.profiles.remedies.tf.cache_before_drawing import CacheBeforeDrawing
from unstall.profiles.remedies.tf.pipeline_view import PipelineView, only_with, shuffle_code
from unstall.profiles.remedies.tf.plan import TfPlan
from unstall.profiles.remedies.tf.tf_change import TfChange
from unstall.profiles.stages import BATCHING


class ShuffleFirst(TfChange):
    names = ("shuffle-first",)
    serves = ("edges", "waiting")

    def find(self, data: PipelineView) -> Iterator[Offer[TfPlan] | Untried]:
        late, source = _late(data), data.part.at
        if not late or not data.can_be_cut(source) or math.isinf(data.part.elements):
            return
        settings = data.settings_of(late)
        code = shuffle_code(max(map(data.buffer_of, late)), settings)

        def build(plan: TfPlan) -> None:
            size = max(plan.buffers.get(at, data.buffer_of(at)) for at in late)
            plan.without |= {*late}
            plan.add_right_after(source, plan.shuffle(size, settings))

        remedy = data.remedy(
            "shuffle-first",
            f"the shuffle in front of `{data.nodes[data.part.chain[0]].name}`, so that little is made before "
            "the first batch",
            f"{code} right behind the source",
            "other order",
            only_with(data.edit(source, "behind", code), data.edits(late, "remove", "")),
            at=late[0],
        )
        # A cache behind the shuffle would keep the order of the first epoch for all that follow.
        conflicts = frozenset((*Cache.names, *CacheBeforeDrawing.names))
        yield Offer(remedy=remedy, build=build, conflicts=conflicts)


def _late(data: PipelineView) -> list[int]:
    """Returns the shuffles that hold what the pipeline has made."""
    late = []
    for at in data.part.chain:
        before = {data.nodes[number].kind for number in data.part.chain if number < at}
        if data.nodes[at].kind == "shuffle" and data.is_own(at) and "map" in before and not {*BATCHING} & before:
            late.append(at)
    return late
