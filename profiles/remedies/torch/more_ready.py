"""More batches that lie ready for each worker of the loader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unstall.profiles.remedies.change import Change, Offer
from unstall.profiles.remedies.torch.loader_arguments import with_arguments

if TYPE_CHECKING:
    from unstall.profiles.remedies.torch.loader_data import LoaderData
    from unstall.profiles.remedies.torch.loader_plan import LoaderPlan

# Twice PyTorch's default.
_PREFETCH_FACTOR = 4


class MoreReady(Change["LoaderData", "LoaderPlan"]):
    """A larger `prefetch_factor`, where there are workers."""

    names = ("more-ready",)
    serves = ("waiting",)

    def find(self, data: LoaderData) -> Iterator[Offer[LoaderPlan]]:
        if data.loader.num_workers and (data.loader.prefetch_factor or 0) < _PREFETCH_FACTOR:
            text = f"{_PREFETCH_FACTOR} batches ready for each worker"
            yield with_arguments(data, "more-ready", {"prefetch_factor": _PREFETCH_FACTOR}, text)
