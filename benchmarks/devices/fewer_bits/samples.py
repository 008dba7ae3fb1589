"""The raw samples of ways to predict: windows in rounds, and what each way says of every test photo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One window of a way.

    Attributes:
      round: the number of the round, from 0.
      images_per_sec: of calls with a full batch.
      latencies_us: of calls with one image, from the array of its pixels to the array of its outputs.
    """

    round: int
    images_per_sec: float
    latencies_us: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredWay:
    """What was measured of a way to predict.

    Attributes:
      way: its name.
      products: number of multiply-adds of an image by the types of the two factors, as "INT8 x INT8"; empty where no
        file states them.
      file_bytes: size of the network's file; None without one.
      right: a digit for each test photo, 1 where its class is right.
      off: the largest difference of an output to that of the first way.
    """

    way: str
    products: Mapping[str, int]
    file_bytes: int | None
    right: str
    off: float
    windows: tuple[Window, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What was measured of all ways.

    Attributes:
      tested_with: where the test photos come from.
    """

    tested_with: str
    ways: tuple[MeasuredWay, ...]
