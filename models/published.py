"""What the publications measured, as data: figures to set beside our own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType


def _number(value: float) -> str:
    return f"{value:,.4f}".rstrip("0").rstrip(".") if value < 1000 else f"{value:,.0f}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds, 2), 60)
    hours, minutes = divmod(minutes, 60)
    before = f"{hours:.0f} h {minutes:.0f} min " if hours else f"{minutes:.0f} min " if minutes else ""
    return f"{before}{_number(rest)} s"


def _percent(ratio: float) -> str:
    return f"{_number(100 * ratio)} %"


def _times(ratio: float) -> str:
    return f"{_number(ratio)}x"


# Each quantity: what it means, and how one value is written.
QUANTITIES: MappingProxyType[str, tuple[str, Callable[[float], str]]] = MappingProxyType(
    {
        "train_s": ("seconds that the whole training took", _duration),
        "images_per_sec": ("images trained on a second", _number),
        "speed_up": ("the GPU's rate over the CPU's, of the same training", _times),
        "rate_ratio": ("images/sec over those of the other run that `when` names, on the same device", _times),
        "accuracy": ("share of the test data that is classified rightly", _percent),
        "gpu_ratio": ("share of the time that the GPU is busy", _percent),
        "cpu_ratio": ("share of the CPU that is busy", _percent),
    }
)
_UNITS = {
    "images_per_sec": " images/sec",
    "rate_ratio": " as fast",
    "gpu_ratio": " of the GPU",
    "cpu_ratio": " of the CPU",
}
# What cannot exceed 1.
_SHARES = ("accuracy", "gpu_ratio", "cpu_ratio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One published number, or range of numbers.

    Attributes:
      quantity: a key of `QUANTITIES`, which says what each means.
      low: the smallest value published; in the unit that the quantity's name ends in.
      high: the largest one; equal to `low` where one value was published.
      on: the device, as published.
      when: under which conditions; "" where the network says it all.
    """

    quantity: str
    low: float
    high: float
    on: str
    when: str = ""

    def __post_init__(self) -> None:
        if self.quantity not in QUANTITIES:
            raise ValueError(
                f"`quantity` must be one of {', '.join(QUANTITIES)}. Received: quantity={self.quantity!r}."
            )
        bounds = f"low={self.low}, high={self.high}"
        if not (math.isfinite(self.high) and 0 <= self.low <= self.high):
            raise ValueError(f"`low` and `high` must be 0 <= low <= high, and finite. Received: {bounds}.")
        # A GPU that idled is a finding; training in no time, or at no rate, is a slip of the pen.
        if self.quantity not in _SHARES and self.low == 0:
            raise ValueError(f"`{self.quantity}` must be above 0. Received: {bounds}.")
        if self.quantity in _SHARES and self.high > 1:
            raise ValueError(f"`{self.quantity}` is a share, 0 to 1. Received: {bounds}.")
        if not self.on.strip():
            raise ValueError(f"`on` must name the device. Received: on={self.on!r}.")

    @property
    def text(self) -> str:
        """The value with its unit, such as "15,000 to 17,000 images/sec" or "8 min 5 s"."""
        if self.quantity == "rate_ratio" and self.low == self.high == 1:
            return "as fast"
        write = QUANTITIES[self.quantity][1]
        low, high = write(self.low), write(self.high)
        if low != high:
            low = low.removesuffix(" %") if high.endswith(" %") else low
            low = f"{low} to {high}"
        return low + _UNITS.get(self.quantity, "")


def one(quantity: str, value: float, on: str, when: str = "") -> Figure:
    """Returns the figure of a single published value."""
    return Figure(quantity=quantity, low=value, high=value, on=on, when=when)
