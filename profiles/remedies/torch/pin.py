"""Batches in pinned memory, from which a GPU copies faster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unstall.profiles.remedies.change import Change, Offer
from unstall.profiles.remedies.remedy import NEEDS
from unstall.profiles.remedies.torch.loader_arguments import with_arguments

if TYPE_CHECKING:
    from unstall.profiles.remedies.torch.loader_data import LoaderData
    from unstall.profiles.remedies.torch.loader_plan import LoaderPlan


class Pin(Change["LoaderData", "LoaderPlan"]):
    """Pinned memory, where the loop trains on a GPU."""

    names = ("pin",)
    serves = NEEDS

    def find(self, data: LoaderData) -> Iterator[Offer[LoaderPlan]]:
        if data.pins and not data.loader.pin_memory:
            yield with_arguments(data, "pin", {"pin_memory": True}, "batches in memory from which a GPU can copy")
