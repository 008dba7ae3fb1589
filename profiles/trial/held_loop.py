"""What is kept of the longest loop over a `DataLoader` or a `tf.data.Dataset`, so that remedies can be tried."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from unstall.profiles import clock
from unstall.profiles.remedies import Need
from unstall.profiles.remedies.data import Data, Failed
from unstall.profiles.remedies.loop_data import loop_data
from unstall.profiles.remedies.turns import Measure
from unstall.profiles.script.results import FitRecord
from unstall.profiles.statistics import median
from unstall.profiles.trial.random_states import random_states_put_back
from unstall.profiles.trial.surrogate import BehindTheHost, computing, measure_loop, sleeping

if TYPE_CHECKING:
    from unstall.profiles.script.loop_step import Work

# Batches in which the modules of a step are timed, and how long these may take. The time is not part of the budget.
_TIMED_BATCHES, _TIMED_S = 12, 15.0
# Modules that take more than this many times as long as the script's step do other work than it did.
_LONGER = 1.25
# What a reader must know of rates that were measured with something in the place of the loop's steps.
_STAND_IN = "The script's own steps cannot be run apart: {} of the same length stands in for them."
_OWN_STEP = (
    "The script's own steps cannot be run apart: their modules on made-up values, a backward pass and their optimizer "
    "stand in for them, and as much computing as the rest took."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLoop:
    """A loop: its data, and the times of its steps.

    Attributes:
      name, took_ns, epochs: as `profiles.trial.trying.Held` says.
      loader: the data of its last pass: a `DataLoader` or a `tf.data.Dataset`.
      record: of the loop.
      threads: how many threads a step keeps busy.
      work: the modules and optimizers of a step in PyTorch; None where these are not known.
      behind: whether a device computes the steps behind the host.
      anew: whether the script made its data anew for each epoch.
      left: whether the script left the data before their end, in every pass.
    """

    name: str
    took_ns: int
    epochs: int | None
    loader: Any
    record: FitRecord
    threads: int
    work: Work | None = None
    behind: bool = False
    anew: bool = False
    left: bool = False

    @contextmanager
    def opened(self, needs: Sequence[Need]) -> Iterator[tuple[Data, Measure]]:
        """Yields the data of the loop, and what times a loop over them, with a stand-in in the place of its steps."""
        steady = [epoch for epoch in self.record.epochs if epoch.steady_steps and epoch.steady_wait_ns is not None]
        if not steady:
            raise Failed("the loop made too few steps to tell how long one takes")
        step_s = (
            median([(epoch.steady_ns - (epoch.steady_wait_ns or 0)) / epoch.steady_steps for epoch in steady]) / 1e9
        )
        whole = [epoch.steps for epoch in self.record.epochs if epoch.whole]
        on_gpu = self.record.device.kind == "gpu"
        in_tensorflow = hasattr(self.loader, "element_spec")
        torch_put_back = nullcontext() if in_tensorflow else _torch_put_back()
        with random_states_put_back(), torch_put_back, warnings.catch_warnings(action="ignore"):
            data = loop_data(
                self.loader,
                needs,
                images_per_batch=self.record.batch_size,
                epoch_batches=max(whole, default=None),
                on_gpu=on_gpu,
                anew=self.anew,
                left=self.left,
            )
            with closing(data), self.work.put_back() if self.work else nullcontext():
                step = None if self.work is None else _own_step(self.work, step_s, data)
                data.stands_in = _OWN_STEP
                if step is None:
                    data.stands_in = _STAND_IN.format("a sleep" if on_gpu else "as much computing")
                    step = sleeping(step_s) if on_gpu else computing(step_s, self._computes(in_tensorflow))
                if not self.behind:
                    yield data, partial(measure_loop, step)
                    return
                with closing(BehindTheHost(step)) as behind:
                    yield data, partial(measure_loop, behind)

    def _computes(self, in_tensorflow: bool) -> Callable[[int], object]:
        """Returns what computes so many units with the library that reads the data, on the threads of a step."""
        if in_tensorflow:
            from unstall.profiles.remedies.tf_remedies import computing_on
        else:
            from unstall.profiles.remedies.loader_remedies import computing_on
        return computing_on(self.threads)


@contextmanager
def _torch_put_back() -> Iterator[None]:
    """Restores PyTorch's random state and number of threads when the block ends."""
    import torch

    state, threads = torch.get_rng_state(), torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_rng_state(state)
        torch.set_num_threads(threads)


def _own_step(work: Work, step_s: float, data: Data) -> Callable[[], object] | None:
    """Returns a step of the loop's own modules and optimizers that takes as long as the script's step did.

    What the script did beside them is computed on one core. The modules are timed in a loop over the loader as
    written: a step takes longer after a wait, in which the threads of PyTorch fall asleep.

    Returns:
      The step; None if the modules fail on made-up values, or take clearly longer than the script's step.
    """
    try:
        sample = measure_loop(work.run, data.built((), _TIMED_BATCHES), 1, "warmup", 0, _TIMED_S)
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
