"""Remedies that set attributes of the script's PyDataset before `fit`, and change nothing else."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from unstall.profiles.remedies.change import Offer
from unstall.profiles.remedies.remedy import Edit, Remedy

if TYPE_CHECKING:
    from unstall.profiles.remedies.keras.py_dataset import DatasetPlan, PyDatasetData


def with_settings(
    data: PyDatasetData,
    name: str,
    settings: Mapping[str, Any],
    *,
    kind: Literal["threads", "processes"] = "threads",
    first_lines: Sequence[str] = (),
    conflicts: Collection[str] = (),
) -> Offer[DatasetPlan]:
    """Returns the remedy of a name that gives a PyDataset these settings, `workers` among them.

    Args:
      kind: of the workers, for the text of the remedy.
      first_lines: of the code, before those that set the attributes.
      conflicts: names of the remedies that it cannot be combined with.
    """
    lines = [*first_lines, *(f"{data.name or 'data'}.{key} = {value}" for key, value in settings.items())]
    ready = settings.get("max_queue_size", data.dataset.max_queue_size)
    without_tuner = ", which switch tf.data's tuner off" if data.edges_by else ""
    place = data.place
    remedy = Remedy(
        name=name,
        text=f"batches made by {settings['workers']} {kind}, {ready} ready at most{without_tuner}",
        code="\n".join(lines),
        effect="identical",
        ends_edges=data.edges_by is not None,
        place=None if place is None else str(place),
        edits=()
        if place is None or data.name is None
        else tuple(Edit(place=place, kind="before", text=line) for line in lines),
    )

    def build(plan: DatasetPlan) -> None:
        plan.settings |= settings

    return Offer(remedy=remedy, build=build, conflicts=frozenset(conflicts))
