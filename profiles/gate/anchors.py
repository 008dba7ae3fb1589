"""Anchors: fixed work that does not depend on the code under test, measured beside its rate.

Where an anchor has become as much slower as the code under test, the machine is slower, not the code.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable

import numpy as np

from unstall.needs import missing
from unstall.profiles import clock
from unstall.profiles.provenance import usable_threads

# Long compared with the 0.1 ms that starting a thread takes, and short enough to be measured beside every window.
WINDOW_S = 0.3
# Add one whenever the work of an anchor changes: ratios recorded against the old work cannot be compared any more.
VERSION = 1
NAMES = ("decode", "copy", "resident")
# The size and, within a few per cent, the bytes of a common photo. Source: 10,000 photos of cats and dogs, mean
# 404x361 pixels and 22.8 KB.
_WIDTH, _HEIGHT, _GRAIN, _QUALITY = 404, 361, 6, 85
# Larger than the last-level cache of most machines, so that copying measures the memory and not a cache.
_COPY_BYTES = 64 * 2**20


def runnable() -> dict[str, Callable[[], float]]:
    """Returns what measures each anchor that this environment can run, by name; `copy` is always among them."""
    found: dict[str, Callable[[], float]] = {"copy": copy}
    if missing("decode", "cv2") is None:
        found["decode"] = decode
    with contextlib.suppress(ImportError):  # of Keras, or of its backend
        found["resident"] = Resident()
    return {name: found[name] for name in NAMES if name in found}


@functools.cache
def anchor_photo() -> np.ndarray:
    """Returns the bytes of a JPEG photo that is the same each time: blurred colours under fine grain."""
    import cv2

    draw = np.random.default_rng(0)
    coarse = draw.integers(0, 256, (12, 14, 3), dtype=np.uint8)
    photo = cv2.resize(coarse, (_WIDTH, _HEIGHT), interpolation=cv2.INTER_CUBIC).astype(np.float32)
    grain = draw.integers(-_GRAIN, _GRAIN + 1, (_HEIGHT // 2 + 1, _WIDTH // 2 + 1, 3)).astype(np.float32)
    photo += cv2.resize(grain, (_WIDTH, _HEIGHT), interpolation=cv2.INTER_LINEAR)
    pixels = np.clip(photo, 0, 255).astype(np.uint8)
    is_encoded, encoded = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    assert is_encoded
    return encoded


def decode() -> float:
    """Decodes one photo over and over on all usable cores. Returns images per second."""
    import cv2

    encoded = anchor_photo()
    return _per_sec(lambda: cv2.imdecode(encoded, cv2.IMREAD_COLOR), threads=usable_threads())


def copy() -> float:
    """Copies 64 MiB from memory to memory over and over, in one thread. Returns copies per second."""
    source, target = _copy_arrays()
    return _per_sec(lambda: np.copyto(target, source), threads=1)


@functools.cache
def _copy_arrays() -> tuple[np.ndarray, np.ndarray]:
    return np.ones(_COPY_BYTES, np.uint8), np.zeros(_COPY_BYTES, np.uint8)


def _per_sec(work: Callable[[], object], *, threads: int) -> float:
    """Repeats the work in `threads` threads for about `WINDOW_S` seconds. Returns repetitions per second."""
    work()
    counts = [0] * threads
    until_ns = clock.now_ns() + int(WINDOW_S * 1e9)

    def repeat(index: int) -> None:
        while clock.now_ns() < until_ns:
            work()
            counts[index] += 1

    more_threads = [threading.Thread(target=repeat, args=(index,)) for index in range(1, threads)]
    began_ns = clock.now_ns()
    for thread in more_threads:
        thread.start()
    repeat(0)
    for thread in more_threads:
        thread.join()
    return sum(counts) / (clock.now_ns() - began_ns) * 1e9


class Resident:
    """A small network that trains on one batch, which stays in memory. The constructor imports Keras."""

    _IMAGES = 32

    def __init__(self) -> None:
        import keras

        from unstall.profiles.devices import CPU
        from unstall.profiles.measure.schedule import TRIAL_STEPS, steps_for
        from unstall.profiles.measure.windows import Windows

        model = keras.Sequential(
            [
                keras.Input((64, 64, 3)),
                keras.layers.Conv2D(16, 3, activation="relu"),
                keras.layers.MaxPooling2D(4),
                keras.layers.Conv2D(16, 3, activation="relu"),
                keras.layers.GlobalAveragePooling2D(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(optimizer="sgd", loss="mse", jit_compile=False)
        self._batch = np.zeros((self._IMAGES, 64, 64, 3), np.float32), np.zeros((self._IMAGES,), np.float32)
        self._windows = Windows(model, CPU)
        self._windows.prepare([self._batch])
        self._steps = steps_for(self._windows.resident(self._batch, steps=TRIAL_STEPS, round_=0))

    def __call__(self) -> float:
        """Trains for the time of about one window. Returns images per second."""
        return 1 / self._windows.resident(self._batch, steps=self._steps, round_=0).s_per_image
