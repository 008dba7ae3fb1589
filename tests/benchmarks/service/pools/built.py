"""Pools of round numbers, for tests: a worker with one core makes 250 images/sec."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.benchmarks.service.pools.pools import CheckedPool
from tests.benchmarks.service.pools.results import PoolRound, PoolWindow
from tests.builders import COMPOSED, CUTS


def a_checked_pool(name: str = "1 worker", **changes: Any) -> CheckedPool:
    """Returns a pool that is measured: a worker with one core, and a trainer with one."""
    values: dict[str, Any] = {
        "name": name,
        "config": replace(COMPOSED, batch_size=10),
        "worker_cores": (1.0,),
        "trainer_cores": 1.0,
        "link_bytes_per_sec": None,
    }
    return CheckedPool(**(values | changes))


def rounds(
    rates: Sequence[float] = (250.0, 260.0, 240.0), slower: Sequence[float] = (1.0,) * 3, *, workers: bool = True
) -> list[PoolRound]:
    """Returns a pool's rounds: each has a window of a second at its rate, and costs so many times as high."""
    return [
        PoolRound(
            cut=replace(CUTS[2], worker_us=times * CUTS[2].worker_us) if workers else None,
            loader_us=None if workers else times * 4000.0,
            window=PoolWindow(images=round(rate), wall_ns=10**9, worker_us=(4000.0,)),
        )
        for rate, times in zip(rates, slower, strict=False)
    ]
