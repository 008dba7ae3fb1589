"""A tf.data pipeline, built again with remedies from its traced functions.

All pipelines that are built, also the one as written, are cut in the same place and read the same elements. Functions
of the user's are not traced again, except where a function is applied to batches.
"""

from __future__ import annotations

import atexit
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from unstall.profiles.measure.batches import FitData, batch_images
from unstall.profiles.remedies.data import WHOLE, Data, Failed
from unstall.profiles.remedies.offers import Offers
from unstall.profiles.remedies.remedy import TUNER, Need
from unstall.profiles.remedies.room import Room
from unstall.profiles.remedies.tf import REMEDIES, TfChange
from unstall.profiles.remedies.tf.made_again import MadeAgain, as_arrays
from unstall.profiles.remedies.tf.pipeline_view import PipelineView
from unstall.profiles.remedies.tf.plan import TfPlan, rebuild
from unstall.profiles.remedies.tf.stage_costs import StageCosts
from unstall.profiles.remedies.tf.tf_part import EpochPart
from unstall.profiles.stages import CutError, nodes, rebuilt, shuffle_buffer_of
from unstall.profiles.stages.places import Place
from unstall.profiles.stages.tf_ahead import ahead_of

# Batches that are compared.
_COMPARED_BATCHES = 8
# Sides of the matrices whose product is a unit of computing, on all threads of TensorFlow or on one.
_SIDE, _SMALL_SIDE = 256, 64


class TfData(Data):
    """A tf.data pipeline of batches.

    Args:
      dataset: what was given to `fit`.
      needs: what it loses, the most first, which calls for remedies.
      room: what the remedies may take.
      repeats: whether `fit` may be told the steps of an epoch.
      uncached: why no epoch would read a cache that an earlier epoch has filled; None where epochs would.
      epoch_batches: of an epoch in the script, where tf.data does not know their number.
      place: of the call of `fit`; None where it is not known.
      only: the remedies that are looked for; all unless given. For these nothing is timed that they do not need.
      changes: what is looked for, the most promising first.

    Raises:
      Failed: if the pipeline cannot be taken apart or built again, or gives no batch.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        needs: Sequence[Need],
        room: Room,
        repeats: bool = True,
        uncached: str | None = None,
        epoch_batches: int | None = None,
        place: Place | None = None,
        only: Sequence[str] = (),
        changes: Sequence[TfChange] = REMEDIES,
    ) -> None:
        super().__init__()
        self._dataset = dataset
        # The pipeline as written is built before its remedies are looked for.
        self._offers: Offers[TfPlan] = Offers((), None, ())
        self.edges_by = TUNER if dataset.options().autotune.enabled is not False else None
        self._folder: Path | None = None
        try:
            self._nodes = nodes(dataset, needs="trying remedies needs")
            rebuilt(self._nodes, calls=room.calls)
            part = self._part = EpochPart(self._nodes, epoch_batches)
            self._ahead = ahead_of(dataset).buffered_batches
            first = next(iter(self.built((), 1)), None)
        except CutError as error:
            raise Failed(f"this pipeline cannot be taken apart: {error}") from error
        if first is None:
            raise Failed("this pipeline gives no batch")
        self.stages = tuple(node.name for node in self._nodes)
        self.scaled = part.scales
        self.epoch_batches = part.batches
        self.epoch_images = None if part.batches is None else part.images(batch_images(first))
        view = PipelineView(
            dataset=dataset,
            nodes=self._nodes,
            part=part,
            costs=StageCosts(self._nodes, part),
            again=MadeAgain(self._nodes, part),
            room=room,
            repeats=repeats,
            uncached=uncached,
            by_name=bool(only),
            fit_place=place,
        )
        self._find(view, changes, needs, only)

    def is_whole(self, batches: int) -> bool:
        return self._part.is_whole(batches)

    @property
    def notes(self) -> tuple[str, ...]:
        unknown = "The length of an epoch was not found: what it does once at its edges is in no rate."
        length = () if self._part.length_known else (unknown,)
        return (*((self.stands_in,) if self.stands_in else ()), *length, *self._readings.notes)

    @property
    def held_by(self) -> str | None:
        """The shuffle because of which only whole epochs can be measured; None if there is none."""
        return self._part.held_by

    def fits(self, names: Sequence[str]) -> bool:
        return self._offers.fits(names) and self._plan(names, WHOLE).is_sound

    def ahead(self, names: Sequence[str]) -> int:
        return self._plan(names, WHOLE).ahead

    def built(self, names: Sequence[str], batches: float) -> Any:
        try:
            return self._built(names, batches)
        except (TypeError, ValueError) as error:
            raise Failed(f"it cannot be built: {error}") from error

    def close(self) -> None:
        """Removes caches on disk, and what is in them."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _find(
        self, view: PipelineView, changes: Sequence[TfChange], needs: Sequence[Need], only: Sequence[str]
    ) -> None:
        """Finds the remedies that the needs call for: those of the largest need first."""
        ranks: dict[Need, float] = {need: rank for rank, need in enumerate(needs)}
        if "edges" in ranks and view.part.scales:
            # The epoch waits for its first batch until what the stages make fills a shuffle buffer.
            ranks["waiting"] = min(ranks.get("waiting", math.inf), ranks["edges"] - 0.5)
        called = [
            change for change in changes if ranks.keys() & {*change.serves} and (not only or {*only} & {*change.names})
        ]
        if ranks.keys() & {"waiting", "interference"} and (not only or any(one.needs_costs for one in called)):
            view.costs.time()

        def promise(change: TfChange) -> tuple[bool, float]:
            return change.gains_least, min(ranks[need] for need in change.serves if need in ranks)

        self._offers = Offers(called, view, ranks, promise)
        self.remedies, self.untried = self._offers.remedies, self._offers.untried

    def _first_batches(self, names: Sequence[str]) -> list[Any]:
        whole = self._part.held_by is not None
        data = self._built(names, WHOLE if whole else _COMPARED_BATCHES, seeded=True)
        steps = _COMPARED_BATCHES
        if isinstance(data, FitData):
            data, steps = data.arguments["x"], min(steps, data.arguments["steps_per_epoch"])
        return [as_arrays(batch) for batch in data.take(steps)]

    def _built(self, names: Sequence[str], batches: float, *, seeded: bool = False) -> Any:
        return rebuild(self._dataset, self._nodes, self._plan(names, batches, seeded=seeded))

    def _plan(self, names: Sequence[str], batches: float, *, seeded: bool = False) -> TfPlan:
        """Plans the pipeline with remedies.

        Args:
          batches: of an epoch; more than there are for a whole epoch.
          seeded: whether shuffles get a seed, so that two pipelines have one order; else each keeps the user's own.
        """
        buffers = dict(self._part.buffers(batches))
        if seeded:
            shuffles = (at for at, node in enumerate(self._nodes) if node.kind == "shuffle")
            buffers = {at: shuffle_buffer_of(self._nodes[at].dataset) for at in shuffles} | buffers
        plan = TfPlan(
            batches=batches,
            cut=self._part.behind(batches),
            seed=1 if seeded else None,
            buffers=buffers,
            options=tf.data.Options(),
            ahead=self._ahead,
            new_path=self._new_path,
        )
        self._offers.change(plan, names)
        return plan

    def _new_path(self) -> str:
        """Returns where a new cache on disk goes; `close` removes it, or else the end of this process."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="unstall-cache-"))
            atexit.register(_remove, self._folder, os.getpid())
        return tempfile.mkdtemp(dir=self._folder) + "/cache"


def computing_on(threads: int) -> Callable[[int], object]:
    """Returns a function that computes so many units with TensorFlow: on all its threads, or on one."""
    # TensorFlow computes the product of small matrices on one thread.
    matrix = tf.eye(_SMALL_SIDE if threads == 1 else _SIDE)

    @tf.function(autograph=False)
    def compute(units: Any) -> Any:
        return tf.while_loop(lambda done, _: done < units, lambda done, made: (done + 1, made @ matrix), (0, matrix))

    return lambda units: compute(tf.constant(units))


def _remove(folder: Path, pid: int) -> None:
    """Removes a folder of this process, which a process that it has forked may still run at its own end."""
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)
