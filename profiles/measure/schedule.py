"""How long windows last, and how many there are of each kind."""

from __future__ import annotations

import math

from unstall.profiles.samples import Sample

# Rounds with a window each of `train`, `resident` and `replay`; and how many of them have a window of `loader`, whose
# rate varies less and enters no share.
ROUNDS, LOADER_ROUNDS = 5, 3
# The shortest window: of `train`, in whole epochs, and of `resident` and `replay`, in steps.
TRAIN_WINDOW_S, READY_WINDOW_S = 0.5, 0.3
# Steps of the trial that measures how long a step takes, its first two not counted; and the fewest steps of a window of
# `resident` or `replay`.
TRIAL_STEPS, LEAST_STEPS = 5, 5
# The longest first epoch. A longer epoch cannot be measured several times in a reasonable time, or never ends.
WARMUP_LIMIT_S = 120.0


def epochs_for(warmup: Sample, window_s: float = TRAIN_WINDOW_S) -> int:
    """Returns how many epochs fill a window of `window_s` seconds, at least 1."""
    return max(1, math.ceil(window_s * 1e9 / warmup.epoch_ns))


def steps_for(trial: Sample) -> int:
    """Returns how many steps fill a window of `resident` or `replay`, at least `LEAST_STEPS`."""
    step_ns = trial.wall_ns / len(trial.step_ns)
    return max(LEAST_STEPS, math.ceil(READY_WINDOW_S * 1e9 / step_ns))
