"""Workers that stay between epochs, where those of the loader start again with each epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unstall.profiles.remedies.change import Change, Offer
from unstall.profiles.remedies.remedy import Untried
from unstall.profiles.remedies.torch.loader_arguments import with_arguments

if TYPE_CHECKING:
    from unstall.profiles.remedies.torch.loader_data import LoaderData
    from unstall.profiles.remedies.torch.loader_plan import LoaderPlan


class Persistent(Change["LoaderData", "LoaderPlan"]):
    """The workers that the loader has, kept; not where the script recreates the loader for each epoch."""

    names = ("persistent",)
    serves = ("waiting", "edges")

    def find(self, data: LoaderData) -> Iterator[Offer[LoaderPlan] | Untried]:
        if not data.loader.num_workers:
            return
        if data.anew:
            if "edges" in data.needs:
                reason = "the script makes the loader anew for each epoch: make it once, in front of all epochs"
                yield Untried(name="persistent", reason=reason)
        elif not data.loader.persistent_workers:
            yield with_arguments(data, "persistent", {"persistent_workers": True}, "workers that stay between epochs")
