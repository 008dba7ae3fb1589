"""What is kept of the longest loop over a `DataLoader`, so that remedies for its loader can be tried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from profiles.remedies import Need
from profiles.remedies.room import room_here
from profiles.remedies.turns import Data, Failed, Measure
from profiles.script.random_states import random_states_put_back
from profiles.script.results import FitRecord
from profiles.statistics import median
from profiles.unit import images_in


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLoop:
    """A loop: its loader, and the times of its steps.

    Attributes:
      name, took_ns, epochs: as `profiles.script.trying.Held` says.
      loader: of its last pass.
      record: of the loop.
      threads: how many threads a step keeps busy.
    """

    name: str
    took_ns: int
    epochs: int
    loader: Any
    record: FitRecord
    threads: int

    @contextmanager
    def opened(self, needs: frozenset[Need]) -> Iterator[tuple[Data, Measure]]:
        """Yields the loader of the loop, and what times a loop over it, with a stand-in in the place of its steps."""
        import torch

        from profiles.remedies.loader_remedies import LoaderData, measure_loop, stand_in

        steady = [epoch for epoch in self.record.epochs if epoch.steady_steps and epoch.steady_wait_ns is not None]
        if not steady:
            raise Failed("the loop made too few steps to tell how long one takes")
        steps_ns = [(epoch.steady_ns - (epoch.steady_wait_ns or 0)) / epoch.steady_steps for epoch in steady]
        step_s = median(steps_ns) / 1e9
        on_gpu = self.record.device.kind == "gpu"
        torch_state, threads = torch.get_rng_state(), torch.get_num_threads()
        try:
            torch.set_num_threads(min(self.threads, threads))
            data = LoaderData(
                self.loader,
                needs=needs,
                calls=room_here().calls,
                images_per_batch=self.record.batch_size,
                pins=on_gpu,
            )
            with random_states_put_back():
                yield data, partial(measure_loop, stand_in(step_s, sleeps=on_gpu), images_in)
        finally:
            torch.set_rng_state(torch_state)
            torch.set_num_threads(threads)
