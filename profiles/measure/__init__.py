"""Timed windows of training and loading on Keras' backends. Here: how long windows last and how many there are."""

from unstall.profiles.measure.batches import FitData, batch_images, by_hand, first_batches
from unstall.profiles.measure.schedule import (
    LEAST_STEPS,
    LOADER_ROUNDS,
    READY_WINDOW_S,
    TRAIN_WINDOW_S,
    TRIAL_STEPS,
    WARMUP_LIMIT_S,
    epochs_for,
    steps_for,
)
from unstall.profiles.measure.steps import RAMP_STEPS

__all__ = [
    "LEAST_STEPS",
    "LOADER_ROUNDS",
    "RAMP_STEPS",
    "READY_WINDOW_S",
    "TRAIN_WINDOW_S",
    "TRIAL_STEPS",
    "WARMUP_LIMIT_S",
    "FitData",
    "batch_images",
    "by_hand",
    "epochs_for",
    "first_batches",
    "steps_for",
]
