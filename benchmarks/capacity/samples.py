"""What a plan of capacity is made from: measured costs, and small runs that the simulation must reproduce."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.benchmarks.scaleout.check.plan import CheckedPool
from unstall.benchmarks.scaleout.check.samples import CheckSamples
from unstall.benchmarks.scaleout.samples import Constants, CutCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What was measured on this host.

    Attributes:
      cut: the costs of whole batches that workers send; None before it was measured.
      constants: of sending and receiving.
      loader_us: microseconds of a core that an image takes in the whole pipeline.
      file_bytes: mean size of a photo's file.
      pools: the small runs that --runs names.
      runs: what was measured of them; None without --runs.
    """

    cut: CutCosts | None
    constants: Constants | None
    loader_us: float
    file_bytes: float
    pools: tuple[CheckedPool, ...] = ()
    runs: CheckSamples | None = None
