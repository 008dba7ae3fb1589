"""Reads data by a plain loop, as a training loop of a script does, and times its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from unstall.profiles import clock
from unstall.profiles.measure.steps import Step, TimedEpoch


def timed_loop(
    begin: Callable[[], Iterator[Any]],
    *,
    images_in: Callable[[Any], int],
    limit_s: float,
    too_long: Callable[[int], Exception],
    step: Callable[[], object] | None = None,
) -> TimedEpoch:
    """Reads data once, to their end, and until the loop has dropped their iterator.

    Args:
      begin: begins to read the data.
      images_in: returns the images in a batch.
      limit_s: how long the epoch may take.
      too_long: returns the error for an epoch that takes longer and has had so many batches.
      step: takes the place of a script's step for each batch; None where nothing is done with a batch.
    """
    epoch = TimedEpoch(begin_ns=clock.now_ns())
    batches = begin()
    asked_ns = clock.now_ns()
    for batch in batches:
        fetched_ns = done_ns = clock.now_ns()
        if step is not None:
            step()
            done_ns = clock.now_ns()
        epoch.steps.append(Step(asked_ns=asked_ns, fetched_ns=fetched_ns, done_ns=done_ns, images=images_in(batch)))
        asked_ns = clock.now_ns()
        if asked_ns - epoch.begin_ns > limit_s * 1e9:
            raise too_long(len(epoch.steps))
    del batches
    epoch.end_ns = clock.now_ns()
    return epoch
