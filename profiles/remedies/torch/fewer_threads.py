"""Fewer threads of PyTorch's own for the steps, where the loader's workers need the cores that these take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unstall.profiles.remedies.change import Change, Offer
from unstall.profiles.remedies.remedy import Edit, Remedy, Untried

if TYPE_CHECKING:
    from unstall.profiles.remedies.torch.loader_data import LoaderData
    from unstall.profiles.remedies.torch.loader_plan import LoaderPlan

_NAME = "fewer-threads"
# Outputs of the modules may differ by so much of the largest one: sums are added in another order.
_TOLERANCE = 1e-3


class FewerThreads(Change["LoaderData", "LoaderPlan"]):
    """The threads that share a step wait for each other by spinning, also for one whose core a worker has."""

    names = (_NAME,)
    serves = ("waiting", "interference")

    def find(self, data: LoaderData) -> Iterator[Offer[LoaderPlan] | Untried]:
        import torch

        workers, threads = int(data.loader.num_workers), torch.get_num_threads()
        fewer = max(1, data.calls - workers)
        if not workers or data.pins or fewer >= threads or not (data.work or _NAME in data.only):
            return
        seen = ""
        if data.work is not None:
            difference = data.work.difference_on(fewer)
            if difference is None or not difference <= _TOLERANCE:
                told = "could not be compared" if difference is None else f"differ by {difference:.1g} of the largest"
                yield Untried(name=_NAME, reason=f"the outputs of the modules on {fewer} of {threads} threads {told}")
                return
            same = f"differ by up to {difference:.1g} of the largest" if difference else "stay the same"
            seen = f"; the outputs of the modules {same}"

        def build(plan: LoaderPlan) -> None:
            plan.threads = fewer

        place, code = data.place, f"torch.set_num_threads({fewer})"
        remedy = Remedy(
            name=_NAME,
            text=f"steps on {fewer} of PyTorch's {threads} threads, which leaves cores to the workers{seen}",
            code=code,
            effect="identical",
            place=None if place is None else str(place),
            edits=() if place is None else (Edit(place=place, kind="before", text=code),),
        )
        yield Offer(remedy=remedy, build=build)
