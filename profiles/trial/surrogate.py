"""Steps that stand in for those of a script's loop, and windows of a loop over data with such a step.

The steps of a script's loop are its own code, which cannot be run apart. A surrogate computes as long as a step took;
where a GPU computed, it sleeps, which leaves the cores to the loader.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from unstall.profiles import clock
from unstall.profiles.data import adapter
from unstall.profiles.machine.others import Others
from unstall.profiles.measure.ahead import Ahead
from unstall.profiles.measure.epochs import sample_of
from unstall.profiles.measure.loop import timed_loop
from unstall.profiles.measure.steps import Steady, steady_part
from unstall.profiles.remedies.data import Failed, InMemory
from unstall.profiles.samples import Sample
from unstall.profiles.unit import images_in

# How long the surrogate's unit of computing is timed.
_TIMED_NS = 50_000_000


def computing(step_s: float, compute: Callable[[int], object]) -> Callable[[], object]:
    """Returns a function that computes for `step_s` when nothing else runs.

    Args:
      compute: computes so many units.
    """
    compute(20)
    units, taken_ns = 20, 0
    while taken_ns < _TIMED_NS:
        units *= 2
        began_ns = clock.now_ns()
        compute(units)
        taken_ns = clock.now_ns() - began_ns
    for_step = max(1, round(step_s * 1e9 * units / taken_ns))
    return lambda: compute(for_step)


def sleeping(step_s: float) -> Callable[[], object]:
    """Returns a function that sleeps for `step_s`."""
    return lambda: clock.sleep_until_ns(clock.now_ns() + int(step_s * 1e9))


class BehindTheHost:
    """Runs each step in a thread, as a device does that computes behind the host: a step waits for the one before.

    Args:
      step: takes the place of the script's step.
    """

    def __init__(self, step: Callable[[], object]) -> None:
        self._step = step
        self._thread = ThreadPoolExecutor(1, "unstall: computes behind the host")
        self._last: Future[object] | None = None

    def __call__(self) -> None:
        if self._last is not None:
            self._last.result()
        self._last = self._thread.submit(self._step)

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown()


def measure_loop(
    step: Callable[[], object], data: Any, epochs: int, window: str, round_: int, limit_s: float
) -> Sample:
    """Times a loop over data, with a step of the caller's for each batch.

    Args:
      step: takes the place of the script's step.
      data, epochs, window, round_, limit_s: of `profiles.remedies.turns.Measure`.
    Raises:
      Failed: if an epoch takes longer than `limit_s`, or has no batch.
    """
    canary_ns, others, cpu_ns = clock.canary_ns(), Others(), clock.cpu_ns()
    began_ns = clock.now_ns()
    timed = [
        timed_loop(
            lambda: iter(data),
            images_in=lambda batch: images_in(batch) or 1,
            limit_s=limit_s,
            too_long=lambda _: Failed(f"an epoch takes longer than {limit_s:.0f} s"),
            step=step,
        )
        for _ in range(epochs)
    ]
    took_ns = clock.now_ns() - began_ns
    cpu_ns, others_ratio = clock.cpu_ns() - cpu_ns, others.ratio()
    if not all(epoch.steps for epoch in timed):
        raise Failed("the data give no batch")
    return sample_of(
        [epoch.record(_steady_of(data, len(epoch.steps)), number) for number, epoch in enumerate(timed)],
        window=window,
        round_=round_,
        epoch_ns=took_ns,
        outer_ns=took_ns,
        cpu_ns=cpu_ns,
        canary_ns=canary_ns,
        others_ratio=others_ratio,
    )


def _steady_of(data: Any, steps: int) -> Steady:
    """Returns which of so many steps of an epoch are steady."""
    return steady_part(Ahead()) if isinstance(data, InMemory) else adapter(data).steady(data, steps)
