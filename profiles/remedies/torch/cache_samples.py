"""Samples kept in memory after their first making, where nothing in them is drawn and they have one shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unstall.profiles.remedies.change import Change, Offer
from unstall.profiles.remedies.reading_twice import Refused
from unstall.profiles.remedies.remedy import Edit, Remedy, Untried
from unstall.profiles.remedies.written_class import written

if TYPE_CHECKING:
    from unstall.profiles.remedies.torch.loader_data import LoaderData
    from unstall.profiles.remedies.torch.loader_plan import LoaderPlan

_WAY_OUT = ", and epochs would get the first one's; draw after the cache, in a function of its own, and keep the rest"


class CacheSamples(Change["LoaderData", "LoaderPlan"]):
    """An expert's first step for photos that are decoded again in each epoch: keep what was made."""

    names = ("cache-samples",)
    serves = ("waiting", "interference")

    def find(self, data: LoaderData) -> Iterator[Offer[LoaderPlan] | Untried]:
        if not data.takes_indices:
            return
        from unstall.profiles.remedies.torch.keeping import as_tensors, kept, samples_read
        from unstall.profiles.remedies.torch.kept_samples import KeptSamples

        dataset = data.loader.dataset
        read = samples_read(dataset, as_tensors, watched=dataset)
        if read is None:
            return
        if isinstance(read, Refused):
            yield Untried(name="cache-samples", reason=read.reason + (_WAY_OUT if read.draws else ""))
            return
        fits = kept(data, read, "cache-samples")
        if isinstance(fits, Untried):
            yield fits
            return

        def build(plan: LoaderPlan) -> None:
            plan.dataset, plan.repeats = KeptSamples(plan.dataset, fits.is_shared), True

        place = data.place
        remedy = Remedy(
            name="cache-samples",
            text=f"samples made once and kept, {fits.size_bytes / 1e6:,.0f} MB; "
            f"{read.count} of them were the same when made again",
            code="DataLoader(KeptSamples(dataset), ...)",
            effect="identical",
            place=None if place is None else str(place),
            edits=()
            if place is None or not data.wraps_dataset
            else (
                Edit(place=place, kind="define", text=written(KeptSamples)),
                Edit(place=place, kind="argument", text=f"dataset=KeptSamples({{dataset}}, shared={fits.is_shared})"),
            ),
            memory_bytes=fits.size_bytes,
            warms_up=True,
        )
        yield Offer(remedy=remedy, build=build, conflicts=frozenset(fits.conflicts))
