"""Measures loops of a script's own, whose batches and steps take known times, with one clock around the same loop."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.truth.bounds import LOOPS
from tests.truth.comparison import Epoch, Load
from tests.truth.planted import IMAGES, Sleeper, a_loader
from unstall.profiles import clock
from unstall.profiles.magic import run_watched
from unstall.profiles.report.measurements import derive
from unstall.profiles.results import Result

# Epochs that are timed by hand, and that are watched; the first watched one is not counted.
_BY_HAND, WATCHED = 3, 4
_EPOCH_S = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loop:
    """A loop whose loader and step sleep.

    Attributes:
      data: to be looped over again and again.
      step: trains on a batch.
      finish: waits for what a device still computes asynchronously.
    """

    data: Any
    step: Callable[[Any], object]
    finish: Callable[[], object] = lambda: None

    def run(self) -> None:
        """Makes an epoch."""
        for batch in self.data:
            self.step(batch)
        self.finish()


def loop_cell(group: str, load_ms: float, step_ms: float) -> Load:
    """A loop whose loader and step sleep."""
    library = LOOPS[group]
    # JAX computes while the loader works, so that the longer of the two sets the pace.
    pace_ms = max(load_ms, step_ms) if library == "jax" else load_ms + step_ms
    steps = max(12, round(_EPOCH_S * 1e3 / pace_ms))
    step = Sleeper(step_ms / 1e3)
    loop = _MADE_BY[library](Sleeper(load_ms / 1e3), step, steps)
    loop.run()  # traces the step

    def time_epoch() -> Epoch:
        gc.collect()
        moments_ns = [clock.now_ns()]
        for _ in range(_BY_HAND):
            loop.run()
            moments_ns.append(clock.now_ns())
        epoch_s = float(np.median(np.diff(moments_ns))) / 1e9
        # On JAX a step takes more than its sleep: the way to the device and back, which is longer after a wait.
        compute_ns = 0
        for batch in loop.data:
            began_ns = clock.now_ns()
            loop.step(batch)
            loop.finish()
            compute_ns += clock.now_ns() - began_ns
        return Epoch(s=epoch_s, images=steps * IMAGES, parts_s={"compute": compute_ns / 1e9})

    def epochs() -> None:
        for _ in range(WATCHED):
            loop.run()

    case = f"load {load_ms:g} ms, step {step_ms:g} ms"
    return Load(case=case, time_epoch=time_epoch, measure=lambda: watched(epochs))


def watched(epochs: Callable[[], object]) -> Result:
    """Runs some epochs, and returns what a script that runs them would be told of them."""
    [verdict] = derive(run_watched(epochs).document)
    return verdict.result


def _tf_data(load: Sleeper, step: Sleeper, steps: int) -> _Loop:
    return _Loop(data=a_loader(load, steps), step=lambda batch: step())


def _torch(load: Sleeper, step: Sleeper, steps: int) -> _Loop:
    import torch
    from torch.utils.data import DataLoader

    class Batches:
        def __len__(self) -> int:
            return steps

        def __getitem__(self, index: int) -> Any:
            load()
            return torch.zeros(IMAGES, 4), torch.zeros(IMAGES)

    data = DataLoader(Batches(), batch_size=None)
    return _Loop(data=data, step=lambda batch: step())


def _jax(load: Sleeper, step: Sleeper, steps: int) -> _Loop:
    """Returns a loop whose device sleeps asynchronously: each step needs what the step before has computed."""
    import jax

    def slept(value: Any) -> Any:
        step()
        return np.asarray(value)

    @jax.jit
    def on_device(value: Any, image: Any) -> Any:
        return jax.pure_callback(slept, jax.ShapeDtypeStruct((), np.float32), value + image)

    state = [jax.numpy.zeros(())]

    def train(batch: Any) -> None:
        state[0] = on_device(state[0], batch[1].numpy()[0])

    return _Loop(
        data=a_loader(load, steps),
        step=train,
        finish=lambda: state[0].block_until_ready(),
    )


# What makes the loop of a library: from how a batch is loaded, how a step is made, and the steps of an epoch.
_MADE_BY: dict[str, Callable[[Sleeper, Sleeper, int], _Loop]] = {
    "tensorflow": _tf_data,
    "torch": _torch,
    "jax": _jax,
}
