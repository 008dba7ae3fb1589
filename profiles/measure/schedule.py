"""How long windows last and how often they come."""

from __future__ import annotations

import math

from profiles.samples import Sample

# Rounds of `train`, beside which `resident` and `replay` are measured each time, and of `loader`, which varies less and
# enters no share.
ROUNDS, LOADER_ROUNDS = 5, 3
# A window lasts at least this long, in whole epochs (`train`) or in steps (`resident`, `replay`).
TRAIN_WINDOW_S, READY_WINDOW_S = 0.5, 0.3
# Steps that tell how long a step takes, after two that do not count; and the least of `resident` and `replay`.
TRIAL_STEPS, LEAST_STEPS = 5, 5
# An epoch that takes longer is too long to be measured several times, or has no end.
WARMUP_LIMIT_S = 120.0


def epochs_for(warmup: Sample, window_s: float = TRAIN_WINDOW_S) -> int:
    """Returns the epochs that fill a window."""
    return max(1, math.ceil(window_s * 1e9 / warmup.epoch_ns))


def steps_for(trial: Sample) -> int:
    """Returns the steps that fill a window of `resident` or `replay`."""
    step_ns = trial.wall_ns / len(trial.step_ns)
    return max(LEAST_STEPS, math.ceil(READY_WINDOW_S * 1e9 / step_ns))
