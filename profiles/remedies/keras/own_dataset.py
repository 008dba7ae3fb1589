"""Arrays as a tf.data.Dataset without tf.data's tuner, which Keras leaves on for the dataset that it makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from unstall.profiles.remedies.change import Change, Offer
from unstall.profiles.remedies.remedy import PREFETCH, Edit, Remedy

if TYPE_CHECKING:
    from unstall.profiles.remedies.keras.array_data import ArrayData, ArrayPlan

# What is written before the call of `fit`.
_LINES = ("without_tuner = tf.data.Options()", "without_tuner.autotune.enabled = False")


class OwnDataset(Change["ArrayData", "ArrayPlan"]):
    """A dataset that cuts and shuffles the arrays as Keras does."""

    names = ("own-dataset",)
    serves = ("waiting", "interference", "edges")

    def find(self, data: ArrayData) -> Iterator[Offer[ArrayPlan]]:
        import keras

        remedy = Remedy(
            name="own-dataset",
            text="the arrays as a tf.data.Dataset without tf.data's tuner, which Keras leaves on",
            code=f"tf.data.Dataset.from_tensor_slices((x, y)){_calls(data, data.batch_size)}, with "
            "options.autotune.enabled = False",
            effect="other order" if data.shuffles else "identical",
            ends_edges=True,
            place=None if data.place is None else str(data.place),
            edits=_edits(data),
            memory_bytes=sum(leaf.nbytes for leaf in keras.tree.flatten(data.arrays)),
        )
        yield Offer(remedy=remedy, build=_build)


def _build(plan: ArrayPlan) -> None:
    plan.make = _dataset


def _dataset(plan: ArrayPlan) -> Any:
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return plan.as_dataset().prefetch(PREFETCH).with_options(options)


def _edits(data: ArrayData) -> tuple[Edit, ...]:
    if data.place is None or data.is_split or not all(map(_is_sliced_as_it_is, data.given)):
        return ()
    made = _calls(data, "{batch_size}" if data.gives_batch_size else data.batch_size)
    dataset = f"tf.data.Dataset.from_tensor_slices({{data}}){made}.with_options(without_tuner)"
    lines = [Edit(place=data.place, kind="before", text=line) for line in _LINES]
    return (*lines, Edit(place=data.place, kind="feed", text=dataset))


def _calls(data: ArrayData, batch_size: int | str) -> str:
    """Returns the calls after the dataset of the arrays, with a batch size or the code that says it."""
    shuffle = f".shuffle({data.samples})" if data.shuffles else ""
    return f"{shuffle}.batch({batch_size}).prefetch({PREFETCH})"


def _is_sliced_as_it_is(part: Any) -> bool:
    """Whether `from_tensor_slices` makes of a part of the arguments of `fit` what `fit` makes of it."""
    from unstall.profiles.remedies.keras.array_data import as_keras_has_them

    parts = part.values() if isinstance(part, dict) else [part]
    return all(isinstance(leaf, np.ndarray) and as_keras_has_them(leaf).dtype == leaf.dtype for leaf in parts)
