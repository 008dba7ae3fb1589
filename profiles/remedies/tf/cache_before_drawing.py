"""A cache before random operations instead of behind them, where it keeps what they drew in the first epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from unstall.profiles.remedies.change import Offer
from unstall.profiles.remedies.remedy import Edit, Untried
from unstall.profiles.remedies.tf.cache import Cache
from unstall.profiles.remedies.tf.pipeline_view import PipelineView, has_twin
from unstall.profiles.remedies.tf.plan import Step, TfPlan
from unstall.profiles.remedies.tf.tf_change import TfChange
from unstall.profiles.stages import Node, nodes, random_before_cache, random_in, rebuilt, source_of
from unstall.profiles.stages.places import place_of


class CacheBeforeDrawing(TfChange):
    names = ("cache-before-drawing",)
    serves = ("drawn once", "waiting", "interference")

    def find(self, data: PipelineView) -> Iterator[Offer[TfPlan] | Untried]:
        frozen = random_before_cache(data.dataset)
        if not frozen:
            return
        caches = [at for at, node in enumerate(data.nodes) if node.kind == "cache" and not node.inputs]
        inner: list[Node] = []
        drawing: list[int] = []
        if caches:
            inner = nodes(source_of(data.nodes[caches[0]].dataset), needs="trying remedies needs")
            drawing = [number for number, node in enumerate(inner) if random_in(node.dataset)]
        first = min(drawing, default=0)
        if not first or any(node.kind not in ("map", "shuffle", "prefetch") for node in inner[first:]):
            reason = (
                f"{frozen[0]} is frozen by the cache behind it, and only a chain of maps between them is understood"
            )
            yield Untried(name="cache-before-drawing", reason=reason)
            return
        cache = caches[0]

        def build(plan: TfPlan) -> None:
            def source(step: Step) -> Any:
                # The cut moves in front of the cache: tf.data drops a cache that is not read to its end.
                behind = {first - 1: lambda dataset: step(dataset).cache()}
                return rebuilt(inner, calls="as written", behind=behind, seed=plan.seed)[-1]

            plan.replaced[cache] = source

        before = place_of(inner[first - 1].dataset)
        edits = data.edit(cache, "remove", "")
        if edits and before is not None and not has_twin(inner[first - 1], inner):
            edits = [*edits, Edit(place=before, kind="behind", text=".cache()")]
        else:
            edits = []
        remedy = data.remedy(
            "cache-before-drawing",
            f"the cache in front of `{inner[first].name}`, so that each epoch draws anew",
            f".cache() in front of {inner[first].name}",
            "other draws",
            edits,
            at=cache,
            warms_up=True,
        )
        # A second cache behind this one would keep the draws again.
        yield Offer(remedy=remedy, build=build, conflicts=frozenset(Cache.names))
