"""What a loop of a script reads, so that it can be built again with remedies; and windows of a loop over what is built.

The steps of a script's loop are its own code, which cannot be run apart. A stand-in takes their place, which computes
as long as a step took, or on a GPU, which leaves the cores to the loader, sleeps.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from unstall.profiles import clock
from unstall.profiles.machine.others import Others
from unstall.profiles.remedies.data import Failed, InMemory
from unstall.profiles.remedies.remedy import Need
from unstall.profiles.remedies.room import room_here
from unstall.profiles.samples import Sample
from unstall.profiles.unit import images_in

# How long the stand-in's unit of computing is timed.
_TIMED_NS = 50_000_000
# Of batches in memory, so many first steps of an epoch are not steady.
_RAMP_STEPS = 2


def is_loop_data(data: Any) -> bool:
    """Whether the data are a `tf.data.Dataset`, or a `DataLoader` of PyTorch's."""
    torch = sys.modules.get("torch")
    return hasattr(data, "element_spec") or (torch is not None and isinstance(data, torch.utils.data.DataLoader))


def loader_kind(loader: Any) -> str:
    """Returns the kind of a `DataLoader` in plain words: "a DataLoader (2 workers)"."""
    return f"a DataLoader ({loader.num_workers} worker{'' if loader.num_workers == 1 else 's'})"


# Why a cache that an epoch has filled would be read by no other, or would never be full.
MADE_ANEW = "the script makes these data anew each time, and a cache with them: make them once, in front of all epochs"
_LEFT = "the loop leaves the data before their end, and tf.data drops a cache that is not read to its end"


def loop_data(
    data: Any,
    needs: Sequence[Need],
    *,
    images_per_batch: int | None = None,
    epoch_batches: int | None = None,
    pool_calls: int | None = None,
    on_gpu: bool = False,
    anew: bool = False,
    left: bool = False,
    only: Sequence[str] = (),
) -> Any:
    """Returns what a loop reads, so that it can be built again.

    Args:
      data: a `tf.data.Dataset`, or a `DataLoader` of PyTorch's.
      needs: what the data lose, the most first, which calls for remedies.
      images_per_batch: of a full batch; None where that is not known.
      epoch_batches, pool_calls, only: of `TfData`.
      on_gpu: whether the loop trains on a GPU.
      anew: whether the script makes the data anew for each epoch.
      left: whether the script leaves the data before their end, in every epoch.
    Raises:
      Failed: if the data cannot be built again; the message says why.
    """
    room = room_here()
    if hasattr(data, "element_spec"):
        from unstall.profiles.remedies.tf_remedies import TfData

        return TfData(
            data,
            needs=needs,
            room=room,
            repeats=False,
            uncached=MADE_ANEW if anew else _LEFT if left else None,
            epoch_batches=epoch_batches,
            pool_calls=pool_calls,
            only=only,
        )
    from unstall.profiles.remedies.loader_remedies import LoaderData

    return LoaderData(data, needs=needs, calls=room.calls, images_per_batch=images_per_batch, pins=on_gpu, anew=anew)


def steady_of(data: Any, steps: int) -> tuple[int, int]:
    """Returns the first of so many steps of an epoch that is steady, and the first behind it that is not."""
    if isinstance(data, InMemory):
        return min(_RAMP_STEPS, steps - 1), steps
    if hasattr(data, "element_spec"):
        from unstall.profiles.remedies import tf_remedies

        return tf_remedies.steady_of(data, steps)
    from unstall.profiles.remedies import loader_remedies

    return loader_remedies.steady_of(data, steps)


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
        first, last = steady_of(data, len(steps))
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
