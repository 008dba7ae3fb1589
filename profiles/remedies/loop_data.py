"""What a loop of a script reads, so that it can be built again with remedies."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from unstall.profiles.remedies.data import InMemory
from unstall.profiles.remedies.remedy import Need
from unstall.profiles.remedies.room import room_here

# Of batches in memory, so many first steps of an epoch are not steady.
_RAMP_STEPS = 2


def is_loop_data(data: Any) -> bool:
    """Whether the data are a `tf.data.Dataset`, or a `DataLoader` of PyTorch's."""
    torch = sys.modules.get("torch")
    return hasattr(data, "element_spec") or (torch is not None and isinstance(data, torch.utils.data.DataLoader))


def loader_kind(loader: Any) -> str:
    """Returns the kind of a `DataLoader` in plain words: "a DataLoader (2 workers)"."""
    return f"a DataLoader ({loader.num_workers} worker{'' if loader.num_workers == 1 else 's'})"


# Why a cache that an epoch has filled would be read by no other, or would never be full.
MADE_ANEW = "the script makes these data anew each time, and a cache with them: make them once, in front of all epochs"
_LEFT = "the loop leaves the data before their end, and tf.data drops a cache that is not read to its end"


def loop_data(
    data: Any,
    needs: Sequence[Need],
    *,
    images_per_batch: int | None = None,
    epoch_batches: int | None = None,
    pool_calls: int | None = None,
    on_gpu: bool = False,
    anew: bool = False,
    left: bool = False,
    only: Sequence[str] = (),
) -> Any:
    """Returns what a loop reads, so that it can be built again.

    Args:
      data: a `tf.data.Dataset`, or a `DataLoader` of PyTorch's.
      needs: what the data lose, the most first, which calls for remedies.
      images_per_batch: of a full batch; None where that is not known.
      epoch_batches, pool_calls, only: of `TfData`.
      on_gpu: whether the loop trains on a GPU.
      anew: whether the script makes the data anew for each epoch.
      left: whether the script leaves the data before their end, in every epoch.
    Raises:
      Failed: if the data cannot be built again; the message says why.
    """
    room = room_here()
    if hasattr(data, "element_spec"):
        from unstall.profiles.remedies.tf_remedies import TfData

        return TfData(
            data,
            needs=needs,
            room=room,
            repeats=False,
            uncached=MADE_ANEW if anew else _LEFT if left else None,
            epoch_batches=epoch_batches,
            pool_calls=pool_calls,
            only=only,
        )
    from unstall.profiles.remedies.loader_remedies import LoaderData

    return LoaderData(data, needs=needs, calls=room.calls, images_per_batch=images_per_batch, pins=on_gpu, anew=anew)


def steady_of(data: Any, steps: int) -> tuple[int, int]:
    """Returns the first of so many steps of an epoch that is steady, and the first behind it that is not."""
    if isinstance(data, InMemory):
        return min(_RAMP_STEPS, steps - 1), steps
    if hasattr(data, "element_spec"):
        from unstall.profiles.remedies import tf_remedies

        return tf_remedies.steady_of(data, steps)
    from unstall.profiles.remedies import loader_remedies

    return loader_remedies.steady_of(data, steps)
