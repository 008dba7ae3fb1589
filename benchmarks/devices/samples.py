"""What a child tells of one case on one device: plain data, raw."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.devices.experiments import Case
from benchmarks.devices.flops import Work
from benchmarks.devices.peak import Peak
from profiles import Device
from profiles.machine import GPU_AVERAGED_S
from profiles.measure import LEAST_STEPS, READY_WINDOW_S, TRAIN_WINDOW_S
from profiles.samples import Sample

# A window of the model alone is no longer than this, however slow its steps are, but for one that counts; nor is an
# epoch of training in a window, but for two that count.
_LONGEST_READY_S, _LONGEST_TRAIN_S = 5.0, 15.0
_LEAST_READY_STEPS, _LEAST_TRAIN_STEPS = 2, 3
# Otherwise an epoch in a window has batches enough for a steady state, and examples for a second of steps, up to what
# loads in some seconds whoever loads it.
_TRAIN_STEPS, _TRAIN_S, _MOST_EXAMPLES = 12, 1.0, 2048
# A GPU's window of training tells how busy it is once its averages are of this window: from the second second on.
_GPU_WINDOW_S = 3 * GPU_AVERAGED_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How long windows are: steps of `resident` and `replay`, and batches of an epoch of `train` and `loader`."""

    ready_steps: int
    train_batches: int


def extent_of(step_s: float, batch_size: int) -> Extent:
    """Returns windows that end soon where a step takes seconds, and hold many steps where it takes little."""
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
    """A case on a device, before its first window.

    Attributes:
      examples: of a whole epoch.
      batch_size: examples a step.
      step_s: of one step of the model alone; None where nobody sees between several steps in one execution.
      data: their name; `fingerprint` of their content.
      generated: whether the data were made up, so that an accuracy says nothing of the published data.
      validated: whether accuracy is that of test data, or that of training.
      step_bytes: that a step moves at least.
      warmup: a first, short epoch; None where steps cannot be seen one by one.
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
    """One epoch of the public `fit`.

    Attributes:
      examples: trained on.
      seconds: from "epoch begins" to its last step's end and the iterator gone, without tracing and without testing.
      traced_s: beyond that, for tracing and compiling.
      accuracy: after it; None where there is none.
    """

    examples: int
    seconds: float
    traced_s: float
    accuracy: float | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCase:
    """All that was measured of a case on a device, in rounds; the lists grow while it is measured.

    Attributes:
      backend: Keras' own, that computed.
      samples: of the windows.
      peaks: of the device, in turn with them.
      predicted_per_sec: examples predicted a second, each round; empty where there is nothing that predicts.
      epochs: real ones.
    """

    case: Case
    device: Device
    backend: str
    facts: CaseFacts
    samples: list[Sample] = field(default_factory=list)
    peaks: list[Peak] = field(default_factory=list)
    predicted_per_sec: list[float] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
