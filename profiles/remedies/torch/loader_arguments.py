"""Remedies that give the script's call of `DataLoader` other arguments, and change nothing else."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from unstall.profiles.remedies.change import Offer
from unstall.profiles.remedies.remedy import Edit, Effect, Remedy

if TYPE_CHECKING:
    from unstall.profiles.remedies.torch.loader_data import LoaderData
    from unstall.profiles.remedies.torch.loader_plan import LoaderPlan


def with_arguments(
    data: LoaderData,
    name: str,
    arguments: Mapping[str, Any],
    text: str,
    *,
    effect: Effect = "identical",
    conflicts: Collection[str] = (),
) -> Offer[LoaderPlan]:
    """Returns the remedy of a name that gives a DataLoader these arguments.

    Args:
      text: of the remedy, what it changes.
      effect: what it does to the batches.
      conflicts: names of the remedies that it cannot be combined with.
    """
    written = [f"{key}={value}" for key, value in arguments.items()]
    place = data.place
    remedy = Remedy(
        name=name,
        text=text,
        code=f"DataLoader(..., {', '.join(written)})",
        effect=effect,
        # No workers start again where they stay, or where there are none.
        ends_edges=bool(arguments.get("persistent_workers")) or arguments.get("num_workers") == 0,
        place=None if place is None else str(place),
        edits=() if place is None else tuple(Edit(place=place, kind="argument", text=one) for one in written),
    )

    def build(plan: LoaderPlan) -> None:
        plan.settings |= arguments

    return Offer(remedy=remedy, build=build, conflicts=frozenset(conflicts))
