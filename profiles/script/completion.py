"""The times of a step on a device that computes behind the host, from those on the host."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from unstall.profiles.script.epochs import Tally, hooks_since


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStep:
    """The times of a step on the host, by `clock.now_ns`.

    Attributes:
      asked_ns, fetched_ns: when the host asked for the batch, and when it had the batch.
      hooks_ns: (beginning, end) of each batch hook of callbacks since the step before.
      images: in the batch; None if unknown.
      steps: that this call made.
      traced: whether the call traced or compiled the model.
      apart_ns: how long loops inside the step took.
    """

    asked_ns: int
    fetched_ns: int
    hooks_ns: tuple[tuple[int, int], ...]
    images: int | None
    steps: int
    traced: bool
    apart_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStep:
    """The times of a step as the device sees them: only what the host does while the device is idle counts.

    Attributes:
      asked_ns, fetched_ns: as in `HostStep`, but not before the device had finished the step before.
      done_ns: when the device had finished the step.
      hooks_ns: time of the batch hooks of callbacks while the device was idle, in nanoseconds.
    """

    asked_ns: int
    fetched_ns: int
    done_ns: int
    hooks_ns: int


def on_device(step: HostStep, free_ns: int | None, done_ns: int) -> DeviceStep:
    """Returns the times of a step on the device.

    Args:
      free_ns: when the device had finished the step before; None for the first step, for which the device was idle.
      done_ns: when the device had finished this step.
    """
    free_ns = min(0 if free_ns is None else free_ns, done_ns)
    return DeviceStep(
        asked_ns=max(step.asked_ns, free_ns),
        fetched_ns=max(step.fetched_ns, free_ns),
        done_ns=done_ns,
        hooks_ns=hooks_since(free_ns, step.hooks_ns),
    )


def settle(tally: Tally, pending: deque[HostStep], done_ns: Sequence[int]) -> None:
    """Adds to a tally the next of the pending steps, which the device has finished at the given times."""
    for moment_ns in done_ns:
        host_step = pending.popleft()
        step = on_device(host_step, tally.last_ns if tally.calls else None, moment_ns)
        tally.add(
            step.asked_ns,
            step.fetched_ns,
            step.done_ns,
            host_step.images,
            host_step.steps,
            traced=host_step.traced,
            hooks_ns=step.hooks_ns,
            apart_ns=min(host_step.apart_ns, step.done_ns - step.fetched_ns),
        )
