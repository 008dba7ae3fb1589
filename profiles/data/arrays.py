"""Arrays in memory, as `fit` takes them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unstall.profiles.data.base import Adapter, Use
from unstall.profiles.data.kinds import DataKind

if TYPE_CHECKING:
    from unstall.profiles.remedies.data import Data
    from unstall.profiles.remedies.remedy import Need
    from unstall.profiles.remedies.room import Room


class Arrays(Adapter):
    """An array, or a structure of arrays."""

    def owns(self, data: Any) -> bool:
        return _is_array(data) or isinstance(data, (dict, list, tuple))

    def kind(self, data: Any) -> DataKind:
        return DataKind.ARRAYS

    def label(self, data: Any) -> str:
        return "NumPy arrays" if _is_array(data) else f"{type(data).__name__} of arrays"

    def rebuilt(
        self, data: Any, use: Use, needs: Sequence[Need], *, room: Room | None = None, only: Sequence[str] = ()
    ) -> Data:
        from unstall.profiles.remedies.data import Failed
        from unstall.profiles.remedies.keras import ARRAY_REMEDIES
        from unstall.profiles.remedies.keras.array_data import ArrayData

        if not are_arrays(data):
            return super().rebuilt(data, use, needs, room=room, only=only)
        if use.arguments.get("steps_per_epoch") is not None:
            raise Failed("the arrays are fed with `steps_per_epoch`")
        training, held_out = parts_of(use.arguments)
        return ArrayData(training, changes=ARRAY_REMEDIES, needs=needs, place=use.place, is_split=held_out is not None)


def _is_array(data: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(data, numpy.ndarray)


def are_arrays(data: Any) -> bool:
    """Whether data are an array, or a structure of nothing but arrays."""
    if not isinstance(data, (dict, list, tuple)):
        return _is_array(data)
    import keras

    return all(map(_is_array, keras.tree.flatten(data)))


def parts_of(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Any, ...] | None]:
    """Returns (what `fit` trains on, by the names of its arguments; the arrays that `validation_split` holds out)."""
    import keras

    arrays = {name: arguments[name] for name in ("x", "y", "sample_weight") if arguments.get(name) is not None}
    others = {name: arguments[name] for name in ("batch_size", "shuffle") if arguments.get(name) is not None}
    split = arguments.get("validation_split") if arguments.get("validation_data") is None else None
    if not split:
        return arrays | others, None
    length = int(keras.tree.flatten(arrays["x"])[0].shape[0])
    kept = int(length * (1 - split))
    training, held_out = (
        {name: keras.tree.map_structure(lambda part: part[rows], value) for name, value in arrays.items()}  # noqa: B023
        for rows in (slice(None, kept), slice(kept, None))
    )
    return training | others, tuple(held_out.values())
