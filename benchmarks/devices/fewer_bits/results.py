"""Derives from samples each way's rate, latency and right photos, and what fewer bits gain."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from unstall.benchmarks.devices.fewer_bits.plan import Asked
from unstall.benchmarks.devices.fewer_bits.samples import MeasuredWay, Measurements
from unstall.profiles.report import Document
from unstall.profiles.statistics import Interval, geometric_mean, shared_ratio

FewerBitsDocument = Document[Asked, Measurements]

_INT8 = "INT8 x INT8"


@dataclass(frozen=True, slots=True, kw_only=True)
class WayResult:
    """The result of a way to predict.

    Attributes:
      int8_ratio: share of the multiply-adds whose two factors are int8; None where no file states it.
      images_per_sec: geometric mean over the rounds.
      ratio, interval: images/sec over those of float32 by the same library, and the 95 % interval; None where the two
        have no round in common.
      p50_us, p99_us: percentiles of the latency of one image.
      right_ratio: share of the test photos whose class is right.
      lost, gained: test photos that the first way gets right and this one wrong, and the other way round.
      off: the largest difference of an output to that of the first way.
      file_bytes: size of the network's file; None without one.
    """

    way: str
    int8_ratio: float | None
    images_per_sec: float
    ratio: float | None
    interval: Interval | None
    p50_us: float
    p99_us: float
    right_ratio: float
    lost: int
    gained: int
    off: float
    file_bytes: int | None

    def to_dict(self) -> dict[str, Any]:
        low, high = self.interval or (None, None)
        fields = asdict(self)
        del fields["interval"]
        return fields | {"ratio_low": low, "ratio_high": high}


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What is derived from a document; `tested` is the number of test photos."""

    ways: tuple[WayResult, ...]
    tested: int


def derive(document: FewerBitsDocument) -> Results:
    """Derives the result of each way of which a window was measured."""
    ways = document.samples.ways
    float32 = {way.runtime: way for way in ways if way.way == f"{way.runtime} float32"}
    results = [_result_of(way, float32.get(way.runtime), ways[0]) for way in ways if way.windows]
    return Results(ways=tuple(results), tested=len(ways[0].right) if ways else 0)


def _result_of(way: MeasuredWay, float32: MeasuredWay | None, first: MeasuredWay) -> WayResult:
    rates = {window.round: window.images_per_sec for window in way.windows}
    others = {window.round: window.images_per_sec for window in float32.windows} if float32 is not None else {}
    ratio, interval = shared_ratio(rates, others)
    latencies_us = [each / 1e3 for window in way.windows for each in window.latencies_ns]
    p50_us, p99_us = np.percentile(latencies_us, (50, 99)).tolist()
    total = sum(way.products.values())
    pairs = list(zip(first.right, way.right, strict=True))
    return WayResult(
        way=way.way,
        int8_ratio=way.products.get(_INT8, 0) / total if total else None,
        images_per_sec=geometric_mean(list(rates.values())),
        ratio=ratio,
        interval=interval,
        p50_us=p50_us,
        p99_us=p99_us,
        right_ratio=way.right.count("1") / len(way.right),
        lost=pairs.count(("1", "0")),
        gained=pairs.count(("0", "1")),
        off=way.off,
        file_bytes=way.file_bytes,
    )
