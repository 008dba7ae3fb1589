"""Whole batches from the data set, by one index operation each, instead of samples that are collated one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unstall.profiles.remedies.change import Change, Offer
from unstall.profiles.remedies.remedy import NEEDS, Edit, Remedy
from unstall.profiles.stages.places import Place

if TYPE_CHECKING:
    from unstall.profiles.remedies.torch.loader_data import LoaderData
    from unstall.profiles.remedies.torch.loader_plan import LoaderPlan


class WholeBatches(Change["LoaderData", "LoaderPlan"]):
    """For data sets that index arrays or tensors, such as a `TensorDataset`: they take a list of indices as well."""

    names = ("whole-batches",)
    serves = NEEDS

    def find(self, data: LoaderData) -> Iterator[Offer[LoaderPlan]]:
        if not data.takes_indices or not data.gives_batches:
            return

        def build(plan: LoaderPlan) -> None:
            from torch.utils.data import default_convert

            plan.sampler, plan.batch_sampler = plan.batch_sampler, None
            plan.settings["collate_fn"] = default_convert

        place = data.place
        remedy = Remedy(
            name="whole-batches",
            text="a batch read by its indices at once, and not collated from single samples",
            code="DataLoader(dataset, batch_size=None, sampler=BatchSampler(sampler, batch_size, drop_last))",
            effect="identical",
            place=None if place is None else str(place),
            edits=() if place is None else tuple(_edits(data, place)),
        )
        yield Offer(remedy=remedy, build=build)


def _edits(data: LoaderData, place: Place) -> Iterator[Edit]:
    """Yields the edits of the script's call, whose own arguments say what the samples are drawn by."""
    from torch.utils.data import RandomSampler, SequentialSampler

    loader = data.loader
    passed = data.passed
    batch_size = "{batch_size}" if "batch_size" in passed else "1"
    if "batch_sampler" in passed:
        yield Edit(place=place, kind="argument", text="sampler={batch_sampler}")
    else:
        if "sampler" in passed:
            sampler = "{sampler}"
        elif isinstance(loader.sampler, RandomSampler):
            if not passed.get("generator", True):
                return  # no variable: written twice, it would be two generators
            seeded = ", generator={generator}" if "generator" in passed else ""
            sampler = f"torch.utils.data.RandomSampler({{dataset}}{seeded})"
        elif isinstance(loader.sampler, SequentialSampler):
            sampler = "torch.utils.data.SequentialSampler({dataset})"
        else:  # of a library's own, which its call does not name
            return
        drop_last = "{drop_last}" if "drop_last" in passed else "False"
        text = f"sampler=torch.utils.data.BatchSampler({sampler}, {batch_size}, drop_last={drop_last})"
        yield Edit(place=place, kind="argument", text=text)
    yield Edit(place=place, kind="argument", text="batch_size=None")
    for name, value in _BATCHED.items():
        if name in passed and name not in ("batch_size", "sampler"):
            yield Edit(place=place, kind="argument", text=f"{name}={value}")


# Arguments by which a DataLoader makes batches of samples, and what they are without that.
_BATCHED = {"batch_size": "None", "shuffle": "False", "sampler": "None", "batch_sampler": "None", "drop_last": "False"}
