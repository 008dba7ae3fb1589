"""Samples kept in memory after their first making, where nothing in them is drawn and they have one shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unstall.profiles.remedies.change import Change, Offer
from unstall.profiles.remedies.reading_twice import ReadTwice, Refused
from unstall.profiles.remedies.remedy import Edit, Remedy, Untried
from unstall.profiles.remedies.written_class import written

if TYPE_CHECKING:
    from unstall.profiles.remedies.torch.keeping import Kept
    from unstall.profiles.remedies.torch.loader_data import LoaderData
    from unstall.profiles.remedies.torch.loader_plan import LoaderPlan

# A sample that lies in a batch is read back, and collated, in a fraction of a microsecond.
_LEAST_IN_BATCHES_NS = 5_000
_WAY_OUT = ", and epochs would get the first one's; draw after the cache, in a function of its own, and keep the rest"


class CacheSamples(Change["LoaderData", "LoaderPlan"]):
    """An expert's first step for photos that are decoded again in each epoch: keep what was made."""

    names = ("cache-samples",)
    serves = ("waiting", "interference")

    def find(self, data: LoaderData) -> Iterator[Offer[LoaderPlan] | Untried]:
        if not data.takes_indices:
            return
        from torch.utils.data import default_collate, default_convert

        from unstall.profiles.remedies.torch.keeping import as_tensors, kept, samples_read
        from unstall.profiles.remedies.torch.kept_samples import KeptRows, KeptSamples

        dataset = data.loader.dataset
        # What collates batches in another way than PyTorch's gets the samples one by one, as before.
        in_batches = data.loader.collate_fn is default_collate
        form = KeptRows if in_batches else KeptSamples
        least_ns = _LEAST_IN_BATCHES_NS if in_batches and not data.gives_batches else None
        read = samples_read(dataset, as_tensors, watched=dataset, least_ns=least_ns)
        if read is None:
            return
        if isinstance(read, Refused):
            yield Untried(name="cache-samples", reason=read.reason + (_WAY_OUT if read.draws else ""))
            return
        fits = kept(data, read, "cache-samples")
        if isinstance(fits, Untried):
            yield fits
            return
        # An edit of the call keeps the samples of all data sets that the call is given.
        all_bytes = None if data.place is None or not data.wraps_dataset else _bytes_of_all(data, fits)

        def build(plan: LoaderPlan) -> None:
            plan.dataset, plan.repeats = form(plan.dataset, fits.is_shared), True
            if in_batches:
                plan.settings["collate_fn"] = default_convert

        place = data.place
        arguments = [f"dataset={form.__name__}({{dataset}}, shared={fits.is_shared})"]
        arguments += ["collate_fn=torch.utils.data.default_convert"] if in_batches else []
        remedy = Remedy(
            name="cache-samples",
            text=f"samples made once and kept{', and read a batch at a time' if in_batches else ''}, "
            f"{fits.size_bytes / 1e6:,.0f} MB; {read.count} of them were the same when made again",
            code=f"DataLoader({form.__name__}(dataset), ...)",
            effect="identical",
            place=None if place is None else str(place),
            edits=()
            if place is None or all_bytes is None
            else (
                Edit(place=place, kind="define", text=written(form)),
                *(Edit(place=place, kind="argument", text=text) for text in arguments),
            ),
            memory_bytes=all_bytes or fits.size_bytes,
            warms_up=True,
            # What lies in memory is best read by the process that trains: only the first epoch lacks the workers.
            better_with=("no-workers",),
        )
        yield Offer(remedy=remedy, build=build, conflicts=frozenset((*fits.conflicts, "whole-batches")))


def _bytes_of_all(data: LoaderData, fits: Kept) -> int | None:
    """Returns the bytes of all samples of the data sets that a call is given; None where not all may be kept."""
    from unstall.profiles.remedies.torch.keeping import as_tensors, free_shared_bytes, samples_read

    if data.other_data_sets is None:
        return None
    size_bytes = fits.size_bytes
    for other in data.other_data_sets:
        read = samples_read(other, as_tensors, watched=other, least_ns=0)
        if not isinstance(read, ReadTwice):
            return None
        size_bytes += read.bytes_each * len(other)
    is_too_large = data.room.memory_limit(size_bytes) or (fits.is_shared and size_bytes > free_shared_bytes())
    return None if is_too_large else size_bytes
