"""What `fit` was given, so that it can be built again with remedies; and windows of training on what is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import keras
import numpy as np

from unstall.profiles.measure.ahead import ramp_of
from unstall.profiles.measure.batches import FitData, is_fit_data, weighed
from unstall.profiles.measure.windows import Windows
from unstall.profiles.remedies.data import Failed, InMemory
from unstall.profiles.remedies.edits import source_of, variable_given
from unstall.profiles.remedies.keras_remedies import ArrayData, PyDatasetData
from unstall.profiles.remedies.loop_data import MADE_ANEW, is_loop_data, loop_data
from unstall.profiles.remedies.remedy import Need
from unstall.profiles.remedies.room import Room, room_here
from unstall.profiles.remedies.turns import Measure
from unstall.profiles.samples import Sample
from unstall.profiles.stages.ahead import ahead_of
from unstall.profiles.stages.places import Place


def data_of(
    arguments: Mapping[str, Any],
    needs: Sequence[Need],
    *,
    place: Place | None = None,
    pool_calls: int | None = None,
    epoch_batches: int | None = None,
    room: Room | None = None,
    anew: bool = False,
    repeats: bool = True,
    only: Sequence[str] = (),
    name: str | None = None,
) -> Any:
    """Returns what a `fit` was given, so that it can be built again.

    Args:
      arguments: of the `fit`, by name.
      needs: what the data lose, the most first, which calls for remedies.
      place: of the call of `fit`; None where it is not known.
      pool_calls, epoch_batches: of `TfData`.
      room: what the remedies may take; as much as this machine has unless given.
      anew: whether the script makes the data anew for each `fit`.
      only: of `TfData`.
      repeats: whether all calls of `fit` at that place have epochs of one length, which may be written there.
      name: the variable that holds the data; found at the place unless given.
    Raises:
      Failed: if the data cannot be built again; the message says why.
    """
    data, room = arguments.get("x"), room or room_here()
    if data is not None and hasattr(data, "element_spec"):
        from unstall.profiles.remedies.tf_remedies import TfData

        steps, batches = arguments.get("steps_per_epoch"), int(data.cardinality())
        uncached = MADE_ANEW if anew else None
        if steps is not None and not 0 <= batches <= steps:
            uncached = "an epoch takes a part of the data (steps_per_epoch), and the next epoch goes on behind it"
        return TfData(
            data,
            needs=needs,
            room=room,
            repeats=repeats and steps is None and arguments.get("epochs", 2) - arguments.get("initial_epoch", 0) > 1,
            uncached=uncached,
            pool_calls=pool_calls,
            epoch_batches=epoch_batches,
            place=place,
            only=only,
        )
    if isinstance(data, keras.utils.PyDataset):
        return PyDatasetData(data, needs=needs, calls=room.calls, place=place, name=name or _variable(place))
    if are_arrays(data):
        if arguments.get("steps_per_epoch") is not None:
            raise Failed("the arrays are fed with `steps_per_epoch`")
        training, held_out = parts_of(arguments)
        return ArrayData(training, needs=needs, place=place, edits=held_out is None)
    if is_loop_data(data):
        return loop_data(data, needs)
    raise Failed(f"data of type {type(data).__name__} can be read only once, or in no other way")


def measure_with(windows: Windows) -> Measure:
    """Returns what measures training of the windows' model on data that `fit` reads, or on batches in memory."""
    steps: dict[int, tuple[Any, int]] = {}  # holding the data keeps Python from giving its id to another object

    def measure(data: Any, epochs: int, window: str, round_: int, limit_s: float) -> Sample:
        if isinstance(data, InMemory):
            batches = [weighed(batch, windows.class_weight) for batch in data.batches]
            return windows.replay(batches, steps=data.steps * epochs, round_=round_)
        ramp_steps = 1
        if id(data) in steps:
            inner = data.arguments["x"] if isinstance(data, FitData) else data
            ramp_steps, _ = ramp_of(ahead_of(inner), steps[id(data)][1])
        if not is_fit_data(data):  # `fit` gets a generator of an epoch, which can be read once
            epochs = 1
        sample = windows.train(
            data, epochs=epochs, ramp_steps=ramp_steps, round_=round_, window=window, limit_s=limit_s
        )
        steps[id(data)] = data, windows.steps_of(data)
        return sample

    return measure


def are_arrays(data: Any) -> bool:
    """Whether data are an array, or arrays in a structure."""
    in_structure = isinstance(data, (dict, list, tuple))
    return isinstance(data, np.ndarray) or (
        in_structure and all(isinstance(leaf, np.ndarray) for leaf in keras.tree.flatten(data))
    )


def parts_of(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Any, ...] | None]:
    """Returns (what `fit` trains on, by the names of its arguments; the arrays that `validation_split` holds out)."""
    arrays = {name: arguments[name] for name in ("x", "y", "sample_weight") if arguments.get(name) is not None}
    others = {name: arguments[name] for name in ("batch_size", "shuffle") if arguments.get(name) is not None}
    split = arguments.get("validation_split") if arguments.get("validation_data") is None else None
    if not split:
        return arrays | others, None
    length = int(np.asarray(keras.tree.flatten(arrays["x"])[0]).shape[0])
    kept = int(length * (1 - split))
    training, held_out = (
        {name: keras.tree.map_structure(lambda part: part[rows], value) for name, value in arrays.items()}  # noqa: B023
        for rows in (slice(None, kept), slice(kept, None))
    )
    return training | others, tuple(held_out.values())


def _variable(place: Place | None) -> str | None:
    """Returns the variable that holds the data, if the first argument of a call of `fit` is one."""
    if place is None:
        return None
    with suppress(OSError, UnicodeDecodeError):
        return variable_given(source_of(Path(place.file)), place, "x")
    return None
