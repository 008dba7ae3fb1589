"""The parts of an epoch's time, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts(Generic[T]):
    """One value for each part of an epoch: seconds, shares or intervals. They sum to the epoch.

    Attributes:
      compute: the model's own computing.
      device_augment: layers that a loader put in front of the model.
      transfer: batches on their way to the device.
      fetch_stall: waiting for batches because of storage.
      prep_stall: waiting for batches for any other reason.
      interference: how much longer steps take because the loader uses the same cores.
      epoch_overhead: the edge between two epochs: from the last step of one to the steady state of the next.
    """

    compute: T
    device_augment: T
    transfer: T
    fetch_stall: T
    prep_stall: T
    interference: T
    epoch_overhead: T

    def __getitem__(self, part: str) -> T:
        """Returns the value of the part of that name."""
        if part not in PARTS:
            raise KeyError(part)
        value: T = getattr(self, part)
        return value

    def items(self) -> Iterator[tuple[str, T]]:
        """Yields the name of each part, and its value."""
        return ((name, getattr(self, name)) for name in PARTS)

    def values(self) -> tuple[T, ...]:
        return tuple(value for _, value in self.items())

    def map(self, change: Callable[[str, T], U]) -> Parts[U]:
        """Returns new parts, each with the value that `change` returns for it.

        Args:
          change: called with the name of a part and its value.
        """
        return Parts(**{name: change(name, value) for name, value in self.items()})


PARTS = tuple(field.name for field in fields(Parts))


def parts_of(values: Sequence[T]) -> Parts[T]:
    """Returns parts with these values, in the order of `PARTS`."""
    return Parts(**dict(zip(PARTS, values, strict=True)))
