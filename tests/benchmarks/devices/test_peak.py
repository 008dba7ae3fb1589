"""What a device can do: exact rates on a fake clock, and one real product and copy."""

from __future__ import annotations

import itertools
import weakref

import numpy as np
import pytest

from unstall.benchmarks.devices import peak
from unstall.benchmarks.devices.peak import PeakMeter, compute_dtype
from unstall.profiles import clock
from unstall.profiles.devices import CPU, Device


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("float32", "float32"), ("mixed_float16", "float16"), ("mixed_bfloat16", "bfloat16")],
)
def test_a_policy_computes_in_its_own_type(precision: str, dtype: str) -> None:
    assert compute_dtype(precision) == dtype


def test_an_emulated_device_has_no_peak() -> None:
    with pytest.raises(ValueError, match=r"`device` must compute, so that it has a peak\. Received: .*'emulated:7'"):
        PeakMeter(Device(kind="emulated", name="emulated:7", images_per_sec=7.0), "float32")


def test_rates_are_those_of_the_fastest_product_and_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every reading of the clock is 10 ms after the one before: all that is timed takes 10 ms.
    readings = itertools.count(0, 10_000_000)
    monkeypatch.setattr(clock, "now_ns", lambda: next(readings))
    measured = PeakMeter(CPU, "float32", copied_bytes=8 * 2**20).measure()
    assert measured.side == 256
    assert measured.flops_per_sec == pytest.approx(2 * 256**3 / 0.01)
    assert measured.bytes_per_sec == pytest.approx(2 * 8 * 2**20 / 0.01)


def test_matrices_grow_until_a_product_can_be_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    # A product of side n takes n microseconds, if it is timed.
    sides: list[int] = []
    now = [0]

    def product(side: int, dtype: str) -> object:
        def work() -> None:
            sides.append(side)
            now[0] += side * 1000 * (4 if side >= 2048 else 1)

        return work

    monkeypatch.setattr(clock, "now_ns", lambda: now[0])
    monkeypatch.setattr(peak, "_product", product)
    monkeypatch.setattr(peak, "_host_copy", lambda size: (lambda: now.append(now.pop() + 2_000_000), size))
    meter = PeakMeter(CPU, "float32")
    assert sides == [256, 256, 512, 512, 1024, 1024, 2048, 2048]
    assert meter._side == 2048
    # Copies of 2 ms each, of which four can be timed.
    assert meter.measure().bytes_per_sec == pytest.approx(2 * 256 * 2**20 / 0.002)


def test_all_of_the_array_is_copied_whatever_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays: list[np.ndarray] = []
    real_copyto = np.copyto

    def copyto(target: np.ndarray, source: np.ndarray) -> None:
        real_copyto(target, source)
        arrays.append(target)

    monkeypatch.setattr(peak, "usable_threads", lambda: 3)
    copy, copied_bytes = peak._host_copy(1000)
    monkeypatch.setattr(np, "copyto", copyto)
    copy()
    assert copied_bytes == 8 * 42 * 3
    assert sum(array.nbytes for array in arrays) == copied_bytes
    assert all((array == 1).all() for array in arrays)


def test_a_device_copies_by_reading_and_writing_each_number_once() -> None:
    copy, copied_bytes = peak._device_copy(4096)
    assert copied_bytes == 4096
    assert np.array_equal(np.asarray(copy()), -np.ones(1024, np.float32))


def test_copies_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Copied:
        """An array on a device."""

    alive: weakref.WeakSet[Copied] = weakref.WeakSet()
    most, now = [0], [0]

    def copy() -> Copied:
        copied = Copied()
        alive.add(copied)
        most[0] = max(most[0], len(alive))
        now[0] += 1_000_000
        return copied

    monkeypatch.setattr(clock, "now_ns", lambda: now[0])
    monkeypatch.setattr(peak, "_product", lambda side, dtype: lambda: now.append(now.pop() + 10_000_000))
    monkeypatch.setattr(peak, "_host_copy", lambda size: (copy, size))
    meter = PeakMeter(CPU, "float32")
    meter.measure()
    assert meter._copies > 2 and most[0] <= 2  # the one before, until the next is there


def test_a_real_processor_has_a_peak_in_each_precision() -> None:
    for precision in ("float32", "mixed_bfloat16"):
        measured = PeakMeter(CPU, precision, copied_bytes=2**20).measure()
        assert measured.precision == precision
        assert measured.flops_per_sec > 1e8 and measured.bytes_per_sec > 1e8
