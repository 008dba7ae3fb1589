"""The longest `fit` of a script, so that remedies for its data can be tried on its model."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from unstall.profiles.data import Use, adapter
from unstall.profiles.measure.backends import device_here
from unstall.profiles.measure.batches import FitData, is_fit_data, weighed
from unstall.profiles.measure.windows import Windows
from unstall.profiles.random_states import random_states_put_back
from unstall.profiles.remedies import Need
from unstall.profiles.remedies.data import Data, Failed, InMemory
from unstall.profiles.remedies.turns import Measure
from unstall.profiles.samples import Sample
from unstall.profiles.script.seen import SeenFit
from unstall.profiles.stages.tf_graph import CutError
from unstall.profiles.trial.ceilings import NotPossible, check_own, own_step, put_back


@contextmanager
def opened_fit(seen: SeenFit, needs: Sequence[Need]) -> Iterator[tuple[Data, Measure]]:
    """Yields the data of a `fit`, and what measures training on them; puts the model back at the end.

    Raises:
      Failed: if the data cannot be built again, or the model's step cannot be run apart.
    """
    use = Use(
        arguments=seen.arguments,
        place=seen.call,
        epoch_batches=seen.epoch_batches,
        anew=seen.anew,
        changed=seen.changed,
        one_length=len(seen.lengths) < 2,
    )
    given, model = seen.arguments.get("x"), seen.model
    with random_states_put_back(), warnings.catch_warnings(action="ignore"):
        data = adapter(given).rebuilt(given, use, needs)
        try:
            if model.train_function is not seen.train_function:
                raise NotPossible("the script has compiled its model anew since this fit")
            check_own(model)
            step, _, variables = own_step(model, seen.batch_spec, ended=True)
            with put_back(model, variables):
                model.train_function = step
                windows = Windows(model, device_here(), class_weight=seen.arguments.get("class_weight"))
                yield data, measure_with(windows)
        except (NotPossible, CutError) as error:
            raise Failed(str(error)) from error
        finally:
            data.close()


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
            ramp_steps = adapter(inner).steady(inner, steps[id(data)][1]).first
        if not is_fit_data(data):  # `fit` gets a generator of an epoch, which can be read once
            epochs = 1
        sample = windows.train(
            data, epochs=epochs, ramp_steps=ramp_steps, round_=round_, window=window, limit_s=limit_s
        )
        steps[id(data)] = data, windows.steps_of(data)
        return sample

    return measure
