"""A `tf.data.Dataset`, which `fit` or a loop reads; the steps compute in TensorFlow or in JAX."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from unstall.profiles.data.base import MADE_ANEW, Adapter, StageReading, Use
from unstall.profiles.data.kinds import DataKind

if TYPE_CHECKING:
    from unstall.profiles.measure.ahead import Ahead
    from unstall.profiles.remedies.data import Data
    from unstall.profiles.remedies.remedy import Need
    from unstall.profiles.remedies.room import Room
    from unstall.profiles.script.loops import Loops
    from unstall.profiles.stage_table import StageTable

# Batches that the model trains on while the running pipeline is observed, and the batches between two observations.
_WATCHED_BATCHES, _LOOK_EVERY = 64, 4
_WATCHED_S = 15.0
_LEFT = "the loop leaves the data before their end, and tf.data drops a cache that is not read to its end"
_PARTLY_READ = "an epoch takes a part of the data (steps_per_epoch), and the next epoch goes on behind it"


class TfDatasets(Adapter):
    """A `tf.data.Dataset`."""

    module = "tensorflow"
    fits = True
    tries = True
    reads_again = True
    argument_positions: ClassVar = {
        ("map", "num_parallel_calls"): 1,
        ("batch", "num_parallel_calls"): 2,
        ("interleave", "num_parallel_calls"): 3,
    }

    def owns(self, data: Any) -> bool:
        return hasattr(data, "element_spec")

    def kind(self, data: Any) -> DataKind:
        return DataKind.TF_DATA

    def label(self, data: Any) -> str:
        return "a tf.data.Dataset"

    def identity(self, data: Any) -> Hashable:
        from unstall.profiles.stages.places import place_of

        # Scripts shuffle or repeat a dataset anew for each epoch, and one function may loop over several datasets.
        return str(data.element_spec), place_of(data)

    def check_read_again(self, data: Any) -> None:
        super().check_read_again(data)
        if hasattr(data, "cardinality") and int(data.cardinality()) == -1:
            raise ValueError(
                "The data must be finite. Received a tf.data.Dataset that repeats for ever: drop .repeat()."
            )

    def by_hand(self, data: Any) -> Iterator[Any]:
        return iter(data)

    def ahead(self, data: Any) -> Ahead:
        from unstall.profiles.stages.tf_ahead import ahead_of

        return ahead_of(data)

    def stage_table(self, data: Any, reading: StageReading) -> StageTable:
        from unstall.profiles.stage_table import StageTable
        from unstall.profiles.stages.tf_graph import CutError, nodes, rebuilt
        from unstall.profiles.stages.tf_model import NodeState, look
        from unstall.profiles.stages.tf_stages import tfdata_table

        try:
            pipeline = nodes(data)
            rebuilt(pipeline)  # raises before the model trains, if the pipeline cannot be built again
            running: list[dict[int, NodeState]] = []

            def observe(iterator: Any) -> None:
                seen = look(iterator, pipeline)
                if seen is not None:
                    running.append(seen)

            batches = int(data.cardinality())
            steps = min(batches, _WATCHED_BATCHES) if batches > 0 else _WATCHED_BATCHES
            reading.windows().watch(data, observe, steps=steps, every=_LOOK_EVERY, limit_s=_WATCHED_S)
            return tfdata_table(data, cores=reading.cores, running=running, names=reading.names, note=reading.note)
        except CutError as error:
            return StageTable(cores=reading.cores, reason=str(error))

    def wrapped(self, data: Any, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[Any]:
        from unstall.profiles.stages.tf_graph import nodes, python_functions_wrapped, rebuilt

        pipeline = nodes(data)
        with python_functions_wrapped(pipeline, wrap):
            yield from rebuilt(pipeline)[-1]

    def rebuilt(
        self, data: Any, use: Use, needs: Sequence[Need], *, room: Room | None = None, only: Sequence[str] = ()
    ) -> Data:
        from unstall.profiles.remedies.room import room_here
        from unstall.profiles.remedies.tf.tf_data_rebuilt import TfData

        steps, batches = use.arguments.get("steps_per_epoch"), int(data.cardinality())
        uncached = MADE_ANEW if use.anew else _LEFT if use.left else None
        if steps is not None and not 0 <= batches <= steps:
            uncached = _PARTLY_READ
        return TfData(
            data,
            needs=needs,
            room=room or room_here(),
            repeats=use.one_length and use.has_epochs and steps is None,
            uncached=uncached,
            epoch_batches=use.epoch_batches,
            place=use.place,
            only=only,
        )

    def computing_on(self, threads: int) -> Callable[[int], object]:
        from unstall.profiles.remedies.tf.tf_data_rebuilt import computing_on

        return computing_on(threads)

    def attach(self, loops: Loops) -> Callable[[], None]:
        """Replaces `Dataset.__iter__`, so that `loops` is told of each pass of Python's. Returns what restores it."""
        import tensorflow as tf

        from unstall.profiles.script import tracing
        from unstall.profiles.script.drawing import told

        original = tf.data.Dataset.__iter__

        @functools.wraps(original)
        def __iter__(dataset: Any) -> Any:
            place = loops.place_of(sys._getframe(1)) if tf.executing_eagerly() else None
            if place is None:
                return original(dataset)
            dataset = loops.applied(place, dataset)
            watched = loops.begin(self, dataset, place)
            return told(original(dataset), watched)

        tf.data.Dataset.__iter__ = __iter__
        untime_traces = tracing.attach()

        def restore() -> None:
            tf.data.Dataset.__iter__ = original
            untime_traces()

        return restore

    def channels_axis(self) -> int:
        return -1
