"""What a child returns of a case on a device: raw samples, as plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from unstall.benchmarks.devices.experiments import Case
from unstall.benchmarks.devices.flops import Work
from unstall.benchmarks.devices.peak import Peak
from unstall.profiles import Device
from unstall.profiles.machine import GPU_AVERAGED_S
from unstall.profiles.measure import LEAST_STEPS, READY_WINDOW_S, TRAIN_WINDOW_S
from unstall.profiles.samples import Sample

# A window of the model alone, and an epoch of training in a window, take no longer than this, but have at least this
# many steps, however slow the steps are.
_LONGEST_READY_S, _LONGEST_TRAIN_S = 5.0, 15.0
_LEAST_READY_STEPS, _LEAST_TRAIN_STEPS = 2, 3
# Otherwise an epoch in a window has at least this many steps, for a steady state, and examples for this many seconds,
# but no more examples than even a slow loader loads in some seconds.
_TRAIN_STEPS, _TRAIN_S, _MOST_EXAMPLES = 12, 1.0, 2048
# A GPU reports how busy it is as an average over the past second, so that the first second of a window does not count.
_GPU_WINDOW_S = 3 * GPU_AVERAGED_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The lengths of windows: steps of `resident` and `replay`, batches of an epoch of `train` and `loader`."""

    ready_steps: int
    train_batches: int


def extent_of(step_s: float, batch_size: int) -> Extent:
    """Returns how long windows are: few steps where a step takes seconds, many where steps are fast."""
    ready = max(LEAST_STEPS, math.ceil(READY_WINDOW_S / step_s))
    images = min(_MOST_EXAMPLES, _TRAIN_S / step_s * batch_size)
    train = max(_TRAIN_STEPS, int(images // batch_size))
    return Extent(
        ready_steps=max(_LEAST_READY_STEPS, min(ready, int(_LONGEST_READY_S / step_s))),
        train_batches=max(_LEAST_TRAIN_STEPS, min(train, int(_LONGEST_TRAIN_S / step_s))),
    )


def train_window_s(device: Device) -> float:
    """Returns how long a window of training lasts at least."""
    return _GPU_WINDOW_S if device.kind == "gpu" else TRAIN_WINDOW_S


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFacts:
    """What is known of a case on a device before its first window.

    Attributes:
      examples: the number of examples of a whole epoch.
      batch_size: examples a step.
      step_s: how long a step of the model alone takes; None where several steps are a single execution.
      data: the name of the data; `fingerprint` is of their content.
      generated: whether the data are generated, so that an accuracy says nothing about the published data.
      validated: whether accuracy is that of test data; otherwise of training data.
      step_bytes: how many bytes a step moves at least.
      warmup: a first, short epoch; None where single steps cannot be timed.
    """

    examples: int
    batch_size: int
    buffered_batches: int
    parameters: int
    optimizer: str
    loss: str
    jit_compile: bool
    step_s: float | None
    data: str
    fingerprint: str
    generated: bool
    validated: bool
    notes: tuple[str, ...]
    work: Work
    step_bytes: int
    warmup: Sample | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """An epoch of the public `fit`.

    Attributes:
      examples: the number of trained examples.
      seconds: from the beginning of the epoch to the end of its last step and its iterator, without tracing or testing.
      traced_s: what tracing and compiling took in addition.
      accuracy: after the epoch; None without one.
    """

    examples: int
    seconds: float
    traced_s: float
    accuracy: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCase:
    """All that was measured of a case on a device. The lists grow with each round.

    Attributes:
      backend: the Keras backend that computed.
      samples: the samples of the windows.
      peaks: the peaks of the device, measured in turn with the windows.
      predicted_per_sec: how many examples were predicted a second, in each round; empty on a device that predicts
        nothing.
      epochs: the epochs that `fit` trained.
    """

    case: Case
    device: Device
    backend: str
    facts: CaseFacts
    samples: list[Sample] = field(default_factory=list)
    peaks: list[Peak] = field(default_factory=list)
    predicted_per_sec: list[float] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
