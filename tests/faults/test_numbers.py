"""Clocks that jump, and losses that are no numbers: neither costs a result."""

import datetime
import json
import time

import keras
import numpy as np

from unstall.profiles.devices import parse_device
from unstall.profiles.measure.windows import Windows
from unstall.profiles.report.codec import encode
from unstall.profiles.report.writing_files import to_json

BATCH = np.ones((4, 2, 2, 3), np.float32), np.ones((4,), np.float32)


def windows_of(loss):
    model = keras.Sequential([keras.Input((2, 2, 3)), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss=loss)
    windows = Windows(model, parse_device("cpu"))
    windows.prepare([BATCH])
    return windows


def batches():
    import tensorflow as tf

    return tf.data.Dataset.from_tensors(BATCH).repeat(12)


def test_a_loss_that_is_no_number_is_measured_as_any_other():
    windows = windows_of(lambda truth, said: keras.ops.mean(said) * np.nan)
    sample = windows.train(batches(), epochs=2, ramp_steps=1, round_=0)
    assert np.isnan(windows.model.get_weights()[0]).all()
    assert sample.epoch_images == 96
    assert "NaN" not in to_json(encode(sample))
    assert sample.s_per_image > 0


def test_a_clock_of_the_day_that_jumps_moves_nothing(monkeypatch):
    """Backwards by a day at each look, and on by two."""
    jumps = iter(np.tile([-86_400.0, 172_800.0], 100_000))
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + next(jumps))
    monkeypatch.setattr(time, "time_ns", lambda: int(1e9 * time.time()))
    assert abs(time.time() - now()) > 80_000
    windows = windows_of("mse")
    began_ns = time.perf_counter_ns()
    sample = windows.train(batches(), epochs=2, ramp_steps=1, round_=0)
    took_ns = time.perf_counter_ns() - began_ns
    assert 0 < sample.wall_ns <= sample.outer_ns <= took_ns
    assert sample.wait_ns >= 0 and min(sample.step_ns) > 0


def test_runs_of_a_clock_that_was_set_back_do_not_share_a_folder(tmp_path, monkeypatch):
    """Two runs of the same second get names of their own."""
    from unstall.benchmarks.lab import command

    class Stopped(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2026, 1, 1, 12, 0, 0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command.clock.datetime, "datetime", Stopped)
    first = command.new_folder()
    command.check_out(first, "results.json")
    (first / "results.json").write_text(json.dumps({}))
    second = command.new_folder()
    assert second != first and second.name.startswith("20260101-120000-")
    command.check_out(second, "results.json")
