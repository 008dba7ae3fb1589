"""What is kept of the longest loop over a `DataLoader`, so that remedies for its loader can be tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from profiles import clock
from profiles.remedies import Need
from profiles.remedies.room import room_here
from profiles.remedies.turns import Data, Failed, Measure
from profiles.script.random_states import random_states_put_back
from profiles.script.results import FitRecord
from profiles.statistics import median
from profiles.unit import images_in

if TYPE_CHECKING:
    from profiles.remedies.loader_remedies import LoaderData
    from profiles.script.loop_step import Work

# Batches in which the modules of a step are timed, and how long these may take. The time is not part of the budget.
_TIMED_BATCHES, _TIMED_S = 12, 15.0
# Modules that take more than this many times as long as the script's step do other work than it did.
_LONGER = 1.25
# What a reader must know of rates that were measured with the loop's own modules.
_OWN_STEP = (
    "The loop's own steps cannot be run apart: its modules on made-up values, a backward pass and its optimizer stand "
    "in for them, and as much computing as the rest took."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLoop:
    """A loop: its loader, and the times of its steps.

    Attributes:
      name, took_ns, epochs: as `profiles.script.trying.Held` says.
      loader: of its last pass.
      record: of the loop.
      threads: how many threads a step keeps busy.
      work: the modules and optimizers of a step; None where these are not known.
    """

    name: str
    took_ns: int
    epochs: int
    loader: Any
    record: FitRecord
    threads: int
    work: Work | None = None

    @contextmanager
    def opened(self, needs: Sequence[Need]) -> Iterator[tuple[Data, Measure]]:
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
        data = LoaderData(
            self.loader,
            needs=needs,
            calls=room_here().calls,
            images_per_batch=self.record.batch_size,
            pins=on_gpu,
        )
        try:
            with random_states_put_back(), self.work.put_back() if self.work else nullcontext():
                step = None if self.work is None else _own_step(self.work, step_s, data)
                if step is None:
                    torch.set_num_threads(min(self.threads, threads))
                    step = stand_in(step_s, sleeps=on_gpu)
                else:
                    data.stands_in = _OWN_STEP
                yield data, partial(measure_loop, step, images_in)
        finally:
            torch.set_rng_state(torch_state)
            torch.set_num_threads(threads)


def _own_step(work: Work, step_s: float, data: LoaderData) -> Callable[[], None] | None:
    """Returns a step of the loop's own modules and optimizers that takes as long as the script's step did.

    What the script did beside them is computed on one core. The modules are timed in a loop over the loader as
    written: a step takes longer after a wait, in which the threads of PyTorch fall asleep.

    Returns:
      The step; None if the modules fail on made-up values, or take clearly longer than the script's step.
    """
    from profiles.remedies.loader_remedies import measure_loop

    try:
        sample = measure_loop(work.run, images_in, data.built((), _TIMED_BATCHES), 1, "warmup", 0, _TIMED_S)
    except Exception:  # the modules are the script's own code, and can raise anything
        return None
    own_s = (sample.wall_ns - (sample.wait_ns or 0)) / 1e9 / len(sample.step_ns)
    if own_s > _LONGER * step_s:
        return None
    left_ns = int(max(step_s - own_s, 0.0) * 1e9)

    def step() -> None:
        work.run()
        until_ns = clock.thread_cpu_ns() + left_ns
        while clock.thread_cpu_ns() < until_ns:
            pass

    return step
