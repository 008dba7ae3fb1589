"""Measures the peak rates of a device: those of a large matrix product and of a large copy."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from unstall.profiles import Device, clock
from unstall.profiles.provenance import usable_threads

# Sides of the square matrices: doubled until a product takes long enough to be timed. At the largest side, three
# matrices take 3 GB in float32 and keep the largest GPU of today (1 PFLOP/s in bfloat16) busy for 9 ms; smaller devices
# stop earlier.
_LEAST_SIDE, _MOST_SIDE = 256, 16_384
# A timed call takes at least this long, because calling a GPU takes some 50 us; all calls of a measurement together
# take this long.
_LEAST_S, _TIMED_S = 0.005, 0.1
# Larger than the cache of any processor. Source and target take twice as much memory.
_COPIED_BYTES = 256 * 2**20
# The types in which Keras' mixed policies compute.
_COMPUTE_DTYPES = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The highest rates of a device in a measurement.

    Attributes:
      flops_per_sec: of the fastest product of `side` by `side` matrices, of 2 side^3 operations each.
      bytes_per_sec: of the fastest copy, bytes read and bytes written together.
    """

    precision: str
    side: int
    flops_per_sec: float
    bytes_per_sec: float


def compute_dtype(precision: str) -> str:
    """Returns the type in which a Keras dtype policy computes."""
    return _COMPUTE_DTYPES.get(precision, precision)


class PeakMeter:
    """Measures a device's peak repeatedly, in turn with the windows that are compared with the peak.

    Args:
      device: a CPU or GPU, on which Keras computes.
      precision: a dtype policy of Keras.
      copied_bytes: the size of the copied array.
    Raises:
      ValueError: for an emulated device, which computes nothing.
    """

    def __init__(self, device: Device, precision: str, *, copied_bytes: int = _COPIED_BYTES) -> None:
        if device.kind == "emulated":
            raise ValueError(f"`device` must compute, so that it has a peak. Received: device={device.name!r}.")
        from unstall.profiles.measure.backends import BACKENDS, check_backend  # imports Keras

        self._precision = precision
        self._synchronise = BACKENDS[check_backend()](device).synchronise
        self._side, self._product = self._large_product()
        copy, self._copied_bytes = _host_copy(copied_bytes) if device.kind == "cpu" else _device_copy(copied_bytes)
        self._copies, self._copy = self._enough(copy)

    def measure(self) -> Peak:
        """Multiplies and copies for some tenths of a second."""
        return Peak(
            precision=self._precision,
            side=self._side,
            flops_per_sec=2 * self._side**3 / self._fastest_s(self._product),
            bytes_per_sec=2 * self._copied_bytes * self._copies / self._fastest_s(self._copy),
        )

    def _large_product(self) -> tuple[int, Callable[[], Any]]:
        side = _LEAST_SIDE
        while True:
            product = _product(side, compute_dtype(self._precision))
            self._timed_s(product)  # the first call compiles
            if self._timed_s(product) >= _LEAST_S or 2 * side > _MOST_SIDE:
                return side, product
            side *= 2

    def _enough(self, copy: Callable[[], Any]) -> tuple[int, Callable[[], Any]]:
        """Returns how many copies in a row take long enough to be timed, and a function that makes them."""
        count = 1
        while True:

            def copies(count: int = count) -> Any:
                for _ in range(count):
                    copied = copy()  # frees the copy before
                return copied

            self._timed_s(copies)  # the first call compiles, or touches new pages
            if self._timed_s(copies) >= _LEAST_S:
                return count, copies
            count *= 2

    def _fastest_s(self, work: Callable[[], Any]) -> float:
        """Returns the time of the fastest call: other programs can only slow a call down."""
        until_ns = clock.now_ns() + int(_TIMED_S * 1e9)
        fastest_s = self._timed_s(work)
        while clock.now_ns() < until_ns:
            fastest_s = min(fastest_s, self._timed_s(work))
        return fastest_s

    def _timed_s(self, work: Callable[[], Any]) -> float:
        begin_ns = clock.now_ns()
        self._synchronise(work())
        return (clock.now_ns() - begin_ns) / 1e9


def _product(side: int, dtype: str) -> Callable[[], Any]:
    import keras

    left, right = (keras.ops.cast(keras.random.uniform((side, side), seed=seed), dtype) for seed in (0, 1))
    return lambda: keras.ops.matmul(left, right)


def _device_copy(copied_bytes: int) -> tuple[Callable[[], Any], int]:
    """Copies by negating, which reads and writes each number once: a compiler may remove a plain copy."""
    import keras

    numbers = keras.ops.ones((copied_bytes // 4,), dtype="float32")
    return (lambda: keras.ops.negative(numbers)), 4 * (copied_bytes // 4)


def _host_copy(copied_bytes: int) -> tuple[Callable[[], Any], int]:
    """Copies on all cores between two arrays whose pages exist: new pages would cost more than the copy."""
    threads = usable_threads()
    part = math.ceil(copied_bytes / 8 / threads)
    source, target = np.ones(part * threads), np.zeros(part * threads)
    pool = ThreadPoolExecutor(threads, thread_name_prefix="unstall copy")

    def copy_part(number: int) -> None:
        np.copyto(target[number * part :][:part], source[number * part :][:part])  # releases the GIL

    def copy() -> list[None]:
        return list(pool.map(copy_part, range(threads)))

    return copy, source.nbytes
