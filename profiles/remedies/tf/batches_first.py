"""Maps of whole batches: a map right before a `batch` whose function takes batches as well goes behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from unstall.profiles.remedies.change import Offer
from unstall.profiles.remedies.remedy import Edit, Untried
from unstall.profiles.remedies.tf.pipeline_view import PipelineView
from unstall.profiles.remedies.tf.plan import Step, TfPlan
from unstall.profiles.remedies.tf.tf_change import TfChange
from unstall.profiles.stages import batch_size_of, random_in, user_code
from unstall.profiles.stages.places import place_of


class BatchesFirst(TfChange):
    names = ("batches-first",)
    serves = ("waiting", "interference")

    def find(self, data: PipelineView) -> Iterator[Offer[TfPlan] | Untried]:
        pairs = _pairs(data)
        if not pairs:
            return

        def build(plan: TfPlan) -> None:
            for at, batch in pairs.items():
                plan.without.add(at)
                plan.add_right_after(batch, _mapping(data, at, plan))

        (at, reader), *_ = pairs.items()
        remedy = data.remedy(
            "batches-first",
            f"{data.named(pairs)} on whole batches",
            f".batch({batch_size_of(data.nodes[reader].dataset)}).map({data.nodes[at].name})",
            "other draws" if random_in(data.nodes[at].dataset) else "close",
            _swaps(data, pairs),
            at=at,
        )
        yield Offer(remedy=remedy, build=build)


def _pairs(data: PipelineView) -> dict[int, int]:
    """Returns the maps whose function takes batches as well, each with the `batch` that it stands in front of."""
    pairs = {}
    for at, node in enumerate(data.nodes):
        readers = [number for number, reader in enumerate(data.nodes) if at in reader.inputs]
        alone = len(readers) == 1 and data.nodes[readers[0]].kind == "batch"
        if node.kind != "map" or node.python or not alone or not (data.is_own(at) and data.is_own(readers[0])):
            continue
        batch = data.nodes[readers[0]].dataset
        with suppress(Exception):  # the function takes single elements only
            batches = data.nodes[node.inputs[0]].dataset.batch(batch_size_of(batch))
            if _specs(_mapping(data, at)(batches)) == _specs(batch):
                pairs[at] = readers[0]
    return pairs


def _mapping(data: PipelineView, at: int, plan: TfPlan | None = None) -> Step:
    """Returns a step that maps batches by the function of a node, with its parallel calls unless a plan has others."""

    def mapped(batches: Any) -> Any:
        import tensorflow as tf

        # Asked for when the pipeline is built: a remedy after this one may have set the calls.
        planned = None if plan is None else plan.calls.get(at)
        own, _, autotuned = data.written(at)
        calls = planned or own or (tf.data.AUTOTUNE if autotuned else None)
        return batches.map(user_code(data.nodes[at].dataset), num_parallel_calls=calls)

    return mapped


def _swaps(data: PipelineView, pairs: Mapping[int, int]) -> list[Edit]:
    """Returns the edits that put each map behind its `batch`; none where a place is not known."""
    places = [[place_of(data.nodes[one].dataset) for one in pair] for pair in pairs.items()]
    edits = [
        Edit(place=of_map, kind="swap", other=of_batch)
        for of_map, of_batch in places
        if of_map is not None and of_batch is not None
    ]
    return edits if len(edits) == len(places) else []


def _specs(dataset: Any) -> list[Any]:
    import tensorflow as tf

    return [(spec.dtype, spec.shape.rank) for spec in tf.nest.flatten(dataset.element_spec, expand_composites=True)]
