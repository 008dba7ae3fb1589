"""Measures the stages of what `fit`, or a loop over tf.data, reads, on a model that takes no step on them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from profiles.devices import parse_device
from profiles.measure.windows import Windows
from profiles.stage_table import AnnotatedFunction, StageTable
from profiles.stages.progress import Note
from profiles.stages.take_apart import stages_and_lines


def take_apart(
    data: Any, compute_images_per_sec: float, *, files: int, lines: bool, note: Note
) -> tuple[StageTable, tuple[AnnotatedFunction, ...]]:
    """Measures the stages of data on an emulated device that computes as fast as the script's model did."""
    windows = Windows(_stand_in_model(), parse_device(f"emulated:{min(max(compute_images_per_sec, 0.1), 1e7)}"))
    windows.prepare([(np.zeros((1, 1), np.float32), np.zeros((1,), np.float32))])
    return stages_and_lines(data, windows, lines=lines, files=files, note=note)


def _stand_in_model() -> Any:
    """Returns a model to call `fit` on, which takes no step on the data. Initial zeros change no random state."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile("sgd", "mse", jit_compile=False)
    return model
