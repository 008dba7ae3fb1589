"""The kinds of data that models are trained on, by the library that reads them: an adapter each."""

from __future__ import annotations

from typing import Any

from unstall.profiles.data.any import AnyData
from unstall.profiles.data.arrays import Arrays
from unstall.profiles.data.base import Adapter, Use
from unstall.profiles.data.grain import GrainData
from unstall.profiles.data.keras import PyDatasets
from unstall.profiles.data.kinds import DataKind
from unstall.profiles.data.tf_data import TfDatasets
from unstall.profiles.data.torch import DataLoaders

__all__ = ["ADAPTERS", "ANY", "Adapter", "DataKind", "Use", "adapter"]

# For data of any kind, in a loop that the script marks.
ANY = AnyData()
# The first that owns the data answers for them; the last owns all.
ADAPTERS: tuple[Adapter, ...] = (TfDatasets(), DataLoaders(), PyDatasets(), GrainData(), Arrays(), ANY)


def adapter(data: Any) -> Adapter:
    """Returns what answers for some data. Nothing else in this package asks which library reads them."""
    return next(one for one in ADAPTERS if one.owns(data))
