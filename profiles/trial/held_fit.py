"""What is kept of the longest `fit` of a script, so that remedies for its data can be tried on its model."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from unstall.profiles.measure.backends import device_here
from unstall.profiles.measure.windows import Windows
from unstall.profiles.remedies import Need
from unstall.profiles.remedies.data import Data, Failed
from unstall.profiles.remedies.fit_data import data_of, measure_with
from unstall.profiles.remedies.turns import Measure
from unstall.profiles.stages.places import Place
from unstall.profiles.stages.tf_graph import CutError
from unstall.profiles.trial.ceilings import NotPossible, check_own, own_step, put_back
from unstall.profiles.trial.random_states import random_states_put_back


@dataclass(slots=True, kw_only=True)
class HeldFit:
    """A `fit`: its model, what it was given, and where it was called.

    Attributes:
      name, took_ns, epochs: as `profiles.trial.trying.Held` says.
      model: as the script left it.
      train_function: of the model, as the `fit` left it.
      arguments: of the last call of `fit`, by name.
      element_spec: of the iterator that the model's step was traced for.
      epoch_batches: of a whole epoch; None where that is not known.
      place: of the call; None where it is not known.
      anew: whether the script made the data anew for each call.
      lengths: steps of the whole epochs of all calls at its place; the profiler adds those of later calls.
    """

    name: str
    took_ns: int
    epochs: int | None
    model: Any
    train_function: Any
    arguments: Mapping[str, Any]
    element_spec: Any
    place: Place | None
    epoch_batches: int | None = None
    anew: bool = False
    lengths: Set[int] = frozenset()

    @contextmanager
    def opened(self, needs: Sequence[Need]) -> Iterator[tuple[Data, Measure]]:
        """Yields the data of the `fit`, and what measures training on them; puts the model back at the end.

        Raises:
          Failed: if the data cannot be built again, or the model's step cannot be run apart.
        """
        with random_states_put_back(), warnings.catch_warnings(action="ignore"):
            data = data_of(
                self.arguments,
                needs,
                place=self.place,
                epoch_batches=self.epoch_batches,
                anew=self.anew,
                repeats=len(self.lengths) < 2,
            )
            try:
                if self.model.train_function is not self.train_function:
                    raise NotPossible("the script has compiled its model anew since this fit")
                check_own(self.model)
                step, _, variables = own_step(self.model, self.element_spec, ended=True)
                with put_back(self.model, variables):
                    self.model.train_function = step
                    windows = Windows(self.model, device_here(), class_weight=self.arguments.get("class_weight"))
                    yield data, measure_with(windows)
            except (NotPossible, CutError) as error:
                raise Failed(str(error)) from error
            finally:
                data.close()
