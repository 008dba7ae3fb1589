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
from unstall.profiles.remedies.data import Failed, InMemory
from unstall.profiles.samples import Sample
from unstall.profiles.unit import images_in

# How long the surrogate's unit of computing is timed.
_TIMED_NS = 50_000_000
# Of batches in memory, so many first steps of an epoch are not steady.
_RAMP_STEPS = 2


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
    steady_ns = steady_wait_ns = steady_images = all_images = 0
    step_ns: list[int] = []
    first_batch_ns: list[int] = []
    began_ns = clock.now_ns()
    for _ in range(epochs):
        epoch_began_ns = clock.now_ns()
        steps: list[tuple[int, int, int, int]] = []
        batches = iter(data)
        while True:
            asked_ns = clock.now_ns()
            if asked_ns - epoch_began_ns > limit_s * 1e9:
                raise Failed(f"an epoch takes longer than {limit_s:.0f} s")
            batch = next(batches, None)
            if batch is None:
                break
            came_ns = clock.now_ns()
            step()
            steps.append((asked_ns, came_ns, clock.now_ns(), images_in(batch) or 1))
        del batches
        if not steps:
            raise Failed("the data give no batch")
        first, last = _steady_of(data, len(steps))
        steady = steps[first:last]
        steady_ns += steady[-1][2] - steady[0][0]
        steady_wait_ns += sum(came - asked for asked, came, _, _ in steady)
        steady_images += sum(images for *_, images in steady)
        all_images += sum(images for *_, images in steps)
        step_ns += [done - asked for asked, _, done, _ in steady]
        first_batch_ns.append(steps[0][1] - epoch_began_ns)
    ended_ns = clock.now_ns()
    return Sample(
        window=window,
        round=round_,
        images=steady_images,
        wall_ns=max(1, steady_ns),
        wait_ns=steady_wait_ns,
        step_ns=tuple(step_ns),
        epochs=epochs,
        epoch_images=all_images,
        epoch_ns=ended_ns - began_ns,
        first_batch_ns=tuple(first_batch_ns),
        outer_ns=ended_ns - began_ns,
        claimed_ns=None,
        cpu_ns=clock.cpu_ns() - cpu_ns,
        canary_ns=canary_ns,
        others_ratio=others.ratio(),
    )


def _steady_of(data: Any, steps: int) -> tuple[int, int]:
    """Returns the first of so many steps of an epoch that is steady, and the first after it that is not."""
    return (min(_RAMP_STEPS, steps - 1), steps) if isinstance(data, InMemory) else adapter(data).steady(data, steps)
