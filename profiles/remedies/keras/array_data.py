"""Arrays that were given to `fit`, which can be fed to it again with remedies."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from unstall.profiles.measure.batches import FitData
from unstall.profiles.remedies.change import Change
from unstall.profiles.remedies.data import Data, Failed
from unstall.profiles.remedies.equality import BatchComparison, compare
from unstall.profiles.remedies.offers import Offers
from unstall.profiles.remedies.remedy import PREFETCH, TUNER, Need
from unstall.profiles.stages.places import Place

# Batches that are compared.
_COMPARED_BATCHES = 4
# The arguments of `fit` that hold arrays.
_NAMES = ("x", "y", "sample_weight")


def _as_given(plan: ArrayPlan) -> FitData:
    named = dict(zip(_NAMES, plan.arrays, strict=False))
    return FitData(arguments={**named, "batch_size": plan.batch_size, "shuffle": plan.shuffles})


@dataclass(slots=True, kw_only=True)
class ArrayPlan:
    """What `fit` is fed with. A remedy may replace any of it.

    Attributes:
      arrays: of an epoch: `x`, and `y` and `sample_weight` where there are such.
      batch_size: of all batches but the last.
      shuffles: whether each epoch has an order of its own.
      seed: of these orders; None for others each time.
      make: makes of the plan what `fit` reads; the arguments of `fit` unless replaced.
    """

    arrays: tuple[Any, ...]
    batch_size: int
    shuffles: bool
    seed: int | None = None
    make: Callable[[ArrayPlan], Any] = _as_given

    def as_dataset(self) -> Any:
        """Returns the arrays as a tf.data.Dataset, cut and shuffled as Keras does it."""
        import tensorflow as tf

        dataset = tf.data.Dataset.from_tensor_slices(self.arrays)
        if self.shuffles:
            dataset = dataset.shuffle(_length(self.arrays), seed=self.seed)
        return dataset.batch(self.batch_size)


class ArrayData(Data):
    """Arrays that were given to `fit`.

    Args:
      arguments: of `fit`: `x`, `y`, `sample_weight`, `batch_size`, `shuffle`.
      changes: that may be offered, such as `ARRAY_REMEDIES`.
      needs: what it loses, the most first, which calls for remedies.
      place: the call of `fit`; None where it is not known.
      is_split: whether these are a part of what `fit` was given, by `validation_split`.

    Attributes:
      given: `x`, and `y` and `sample_weight` where there are such.
      arrays: the same, as `fit` feeds them to the model.
      samples: in an epoch.
      batch_size: by Keras' default unless given.
      gives_batch_size: whether `fit` was told it.
      shuffles: whether `fit` shuffles the samples.
      place, is_split: as given.

    Raises:
      Failed: if the backend is not TensorFlow, or an array has another length than the first.
    """

    edges_by = TUNER

    def __init__(
        self,
        arguments: Mapping[str, Any],
        *,
        changes: Sequence[Change[ArrayData, ArrayPlan]],
        needs: Collection[Need],
        place: Place | None = None,
        is_split: bool = False,
    ) -> None:
        super().__init__()
        if keras.backend.backend() != "tensorflow":
            raise Failed("arrays are fed in another way on TensorFlow only")
        given = [arguments.get(name) for name in _NAMES]
        while given and given[-1] is None:
            given.pop()
        self.given = tuple(given)
        self.arrays = keras.tree.map_structure(as_keras_has_them, self.given)
        leaves = [leaf for leaf in keras.tree.flatten(self.arrays) if leaf is not None]
        lengths = {leaf.shape[0] if leaf.ndim else 0 for leaf in leaves}
        if any(part is None for part in self.arrays):
            raise Failed("weights are given without labels")
        if len(lengths) != 1:
            raise Failed("the arrays have several lengths")
        (self.samples,) = lengths
        self.gives_batch_size = bool(arguments.get("batch_size"))
        self.batch_size = int(arguments.get("batch_size") or 32)
        self.shuffles = bool(arguments.get("shuffle", True))
        self.place, self.is_split = place, is_split
        self.epoch_images = float(self.samples)
        self.epoch_batches = float(math.ceil(self.samples / self.batch_size))
        self._offers = Offers(changes, self, needs)
        self.remedies, self.untried = self._offers.remedies, self._offers.untried

    def fits(self, names: Sequence[str]) -> bool:
        return self._offers.fits(names)

    def ahead(self, names: Sequence[str]) -> int:
        """Returns how many batches lie ready at most; Keras' own dataset of arrays has as many."""
        return PREFETCH

    def built(self, names: Sequence[str], batches: float) -> Any:
        plan = self._plan(names, batches)
        return plan.make(plan)

    def _plan(self, names: Sequence[str], batches: float, *, seed: int | None = None) -> ArrayPlan:
        samples = int(min(self.samples, batches * self.batch_size))
        arrays = keras.tree.map_structure(lambda leaf: leaf[:samples], self.arrays)
        plan = ArrayPlan(arrays=arrays, batch_size=self.batch_size, shuffles=self.shuffles, seed=seed)
        self._offers.change(plan, names)
        return plan

    def _by_hand(self, data: Any) -> Iterator[Any]:
        if not isinstance(data, FitData):
            return super()._by_hand(data)
        given = data.arguments
        arrays = tuple(given[name] for name in _NAMES if name in given)
        return iter(ArrayPlan(arrays=arrays, batch_size=given["batch_size"], shuffles=given["shuffle"]).as_dataset())

    def compared(self, names: Sequence[str]) -> BatchComparison:
        """Compares the batches with remedies with those of the arrays in their own order."""
        arrays = self._plan((), _COMPARED_BATCHES).arrays
        plan = self._plan(names, _COMPARED_BATCHES, seed=1)

        def batch_from(first: int) -> Any:
            return keras.tree.map_structure(lambda leaf: leaf[first : first + self.batch_size], arrays)

        ours = [batch_from(first) for first in range(0, _length(arrays), self.batch_size)]
        made = self._by_hand(plan.make(plan))
        return compare(ours, [keras.tree.map_structure(np.asarray, batch) for batch in made])


def as_keras_has_them(array: Any) -> Any:
    """Returns an array as `fit` feeds it to the model: floats of any size as Keras' own type of floats."""
    array = np.asarray(array)
    floats = keras.config.floatx()
    return array.astype(floats, copy=False) if array.dtype.kind == "f" else array


def _length(arrays: Any) -> int:
    return int(keras.tree.flatten(arrays)[0].shape[0])
