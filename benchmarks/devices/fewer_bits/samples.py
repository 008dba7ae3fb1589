"""The raw samples of ways to predict: windows in rounds, and what each way says of every test photo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# The libraries that predict.
TENSORFLOW, LITERT = "TensorFlow", "LiteRT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One window of a way.

    Attributes:
      round: the number of the round, from 0.
      images, wall_ns: of calls with full batches.
      latencies_ns: of calls with one image, from the array of its pixels to the array of its outputs.
    """

    round: int
    images: int
    wall_ns: int
    latencies_ns: tuple[int, ...]

    @property
    def images_per_sec(self) -> float:
        return self.images / self.wall_ns * 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredWay:
    """What was measured of a way to predict.

    Attributes:
      way: its name, such as "LiteRT int8".
      runtime: the library that predicts.
      products: number of multiply-adds of an image by the types of the two factors, as "INT8 x INT8"; empty where no
        file states them.
      uncounted: why the products cannot be counted; "" where they can, or no file states them.
      file_bytes: size of the network's file; None without one.
      right: a digit for each test photo, 1 where its class is right.
      off: the largest difference of an output to that of the first way.
    """

    way: str
    runtime: str
    products: Mapping[str, int]
    uncounted: str
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
