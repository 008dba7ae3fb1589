"""What is found out about samples before they are kept: whether they stay the same, and how large they are."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unstall.profiles.remedies.reading_twice import ReadTwice, Refused, read_twice
from unstall.profiles.remedies.remedy import Untried
from unstall.profiles.remedies.torch.kept_samples import KeptSamples

if TYPE_CHECKING:
    from unstall.profiles.remedies.torch.loader_data import LoaderData

# Half of the free shared memory may be taken, as of the other memory.
_SHARED, _FREE_RATIO = Path("/dev/shm"), 0.5


def samples_read(
    dataset: Any, arrays_of: Callable[[Any], list[np.ndarray]], watched: Any, least_ns: int | None = None
) -> ReadTwice | Refused | None:
    """Makes some samples of a map-style data set twice, as `read_twice`."""
    size = len(dataset)
    return read_twice(dataset, size, "sample", arrays_of, one_shape=True, watched=watched, least_ns=least_ns)


def as_tensors(sample: Any) -> list[np.ndarray]:
    """Returns the parts of a sample, which must be tensors, arrays or numbers."""
    if type(sample) not in (tuple, list, dict) and not hasattr(sample, "shape"):
        raise TypeError(f"they are of type {type(sample).__name__}, and neither tensors, arrays nor numbers")
    return [part.numpy() for part in KeptSamples.parts(sample)]


def free_shared_bytes() -> float:
    """Returns how much of the memory that processes share may be taken."""
    return _FREE_RATIO * shutil.disk_usage(_SHARED).free if _SHARED.exists() else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Samples that fit into memory.

    Attributes:
      size_bytes: of all.
      is_shared: whether they fit into the memory that workers share; without, each worker would keep all of them.
    """

    size_bytes: int
    is_shared: bool

    @property
    def conflicts(self) -> tuple[str, ...]:
        """The remedies that do not go with samples kept by each worker on its own."""
        return () if self.is_shared else ("workers", "half-workers", "more-workers")


def kept(data: LoaderData, read: ReadTwice, name: str) -> Kept | Untried:
    """Returns whether all samples may be kept, and fit into memory, also into that which workers share.

    Returns:
      Where they do not, why the remedy of that name is not tried.
    """
    if data.unkept is not None:
        return Untried(name=name, reason=data.unkept)
    size_bytes = read.bytes_each * len(data.loader.dataset)
    shared_bytes = free_shared_bytes()
    limit = data.room.memory_limit(size_bytes)
    if limit is None and data.loader.num_workers and size_bytes > shared_bytes:
        limit = f"{shared_bytes / 1e6:,.0f} MB of shared memory ({_SHARED}) that workers may take"
    if limit is not None:
        return Untried(name=name, reason=f"its samples have {size_bytes / 1e6:,.0f} MB, more than {limit}")
    return Kept(size_bytes=size_bytes, is_shared=size_bytes <= shared_bytes)
