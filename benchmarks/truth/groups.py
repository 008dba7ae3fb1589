"""Measures loads of known cost as a user would: loaders, models, edges and stages whose truth is planted."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.truth.plan import Plan
from benchmarks.truth.planted import (
    IMAGES,
    Burner,
    EdgyDataset,
    Metronome,
    Sleeper,
    a_batch,
    a_loader,
    a_model,
)
from benchmarks.truth.promises import TIMES_MS
from benchmarks.truth.samples import Figure, Group
from models import open_model
from profiles import clock
from profiles.devices import parse_device
from profiles.measure.measure import measure as measure_pipeline
from profiles.measure.windows import Windows
from profiles.provenance import usable_cores
from profiles.results import attribute
from profiles.stages.tf_stages import tfdata_table
from profiles.statistics import median

_STEPS_TO_COUNT = (10, 30, 100, 300, 1000)
_ROUNDS = 3
# An epoch of the grid lasts about so long.
_EPOCH_S = 0.7

# The figures of one round of a group.
Figures = tuple[Figure, ...]


def measure(plan: Plan) -> Generator[Group, None, None]:
    """Measures each group, and yields it after each of its rounds."""
    for name in plan.asked.groups:
        figures: Figures = ()
        for of_round in _GROUPS[name]():
            figures += of_round
            yield Group(name=name, figures=figures)


def grid(device: str, ahead: int) -> Iterator[Figures]:
    """Yields shares and images/sec of loaders and models that sleep, for each pair of times."""
    for load_ms in TIMES_MS:
        for step_ms in TIMES_MS:
            yield grid_cell(device, ahead, load_ms, step_ms)


def grid_cell(device: str, ahead: int, load_ms: float, step_ms: float) -> Figures:
    """Measures one pair of times.

    Args:
      device: "cpu", or "emulated" for a device whose step takes exactly `step_ms`.
      ahead: batches that the loader prepares in a thread of its own.
    """
    longest_ms = max(load_ms, step_ms) if ahead else load_ms + step_ms
    data = a_loader(Sleeper(load_ms / 1e3), max(12, round(_EPOCH_S * 1e3 / longest_ms)), ahead=ahead)
    model = a_model(Sleeper(step_ms / 1e3)) if device == "cpu" else a_model()
    name = "cpu" if device == "cpu" else f"emulated:{IMAGES / step_ms * 1e3}"
    result = measure_pipeline(data, model, device=name, rounds=_ROUNDS, name="planted")
    # A real step takes longer than its sleep, by what the tiny model computes; an emulated step takes what was set.
    compute_s = 1 / result.compute_images_per_sec * IMAGES if device == "cpu" else step_ms / 1e3
    by_hand = [_by_hand(data, step_ms / 1e3, compute_s) for _ in range(_ROUNDS)]
    step_s, computed_s = (median(column) for column in zip(*by_hand, strict=True))
    seconds = result.attribution.seconds_per_image
    steady_s = sum(s for part, s in seconds.items() if s is not None and part != "epoch_overhead")
    loading = 100 * (1 - (seconds.compute or 0.0) / steady_s)
    case = f"{device}, {'ahead' if ahead else 'in turn'}, load {load_ms:g} ms, step {step_ms:g} ms"
    return (
        _figure(case, "loading, %", truth=100 * (1 - computed_s / step_s), measured=loading),
        _figure(case, "images/sec", truth=IMAGES / step_s, measured=result.images_per_sec),
    )


def _figure(case: str, name: str, *, truth: float, measured: float) -> Figure:
    return Figure(case=case, name=name, truth=(float(truth),), measured=(float(measured),))


def _by_hand(data: Any, sleep_s: float, step_s: float) -> tuple[float, float]:
    """Runs a loop that uses neither Keras nor our code: draws a batch, sleeps, and is busy for the rest of the step.

    This loop is the truth: a sum of the planted times would leave out what waking up and handing a batch over take. It
    is busy without Python's lock, as a real step is, because the loader's function needs that lock.

    Returns:
      The seconds from step to step, and those of a step in which the loop slept or was busy.
    """
    ends_ns, computed_ns = [], []
    for _ in data:
        began_ns = clock.now_ns()
        clock.sleep_until_ns(began_ns + int(sleep_s * 1e9))
        Burner.burn(step_s - (clock.now_ns() - began_ns) / 1e9, block_bytes=2**15)
        ends_ns.append(clock.now_ns())
        computed_ns.append(ends_ns[-1] - began_ns)
    # From the second batch on: the loop waits longer for the first.
    return (ends_ns[-1] - ends_ns[1]) / (len(ends_ns) - 2) / 1e9, sum(computed_ns[2:]) / (len(ends_ns) - 2) / 1e9


def counting() -> Iterator[Figures]:
    """Yields the rate of a loader that gives a batch every 15 ms, for each number of steps."""
    period_s = 0.015
    windows = Windows(a_model(), parse_device(f"emulated:{IMAGES / 0.002}"))
    windows.prepare([a_batch()])
    windows.train(a_loader(Metronome(period_s), 10, ahead=0), epochs=1, ramp_steps=1, round_=0, window="warmup")
    for steps in _STEPS_TO_COUNT:
        data = a_loader(Metronome(period_s), steps, ahead=0)
        sample = windows.train(data, epochs=1, ramp_steps=1, round_=0)
        yield (_figure(f"{steps} steps", "images/sec", truth=IMAGES / period_s, measured=1 / sample.s_per_image),)


def edges() -> Iterator[Figures]:
    """Yields the edges of epochs whose first batch and whose end take long."""
    keras_ms = _edges_ms(0, 0)  # what Keras takes for an epoch's edges by itself
    for first_ms, end_ms in ((200, 0), (0, 200), (150, 250)):
        case = f"{first_ms} ms before the first batch, {end_ms} ms after the last"
        measured_ms = _edges_ms(first_ms, end_ms) - keras_ms
        yield (_figure(case, "ms an epoch", truth=first_ms + end_ms, measured=measured_ms),)


def _edges_ms(first_ms: float, end_ms: float) -> float:
    data = EdgyDataset(60, Sleeper(first_ms / 1e3), Sleeper(end_ms / 1e3))
    result = measure_pipeline(data, a_model(), device=f"emulated:{IMAGES / 0.01}", rounds=_ROUNDS)
    return 1e3 * (result.attribution.seconds_per_image.epoch_overhead or 0.0) * 60 * IMAGES


def interference() -> Iterator[Figures]:
    """Yields what a loader that burns a core takes from a CPU model, against the same burner beside the model alone."""
    device = parse_device("cpu")
    windows = Windows(open_model("cats-dogs-64", classes=2), device)
    images, labels = batch = (np.zeros((32, 64, 64, 3), np.float32), np.zeros((32,), np.float32))
    windows.prepare([batch])
    with Burner():
        step_s = windows.resident(batch, steps=20, round_=0).s_per_image * 32
    burning = a_loader(lambda: Burner.burn(1.05 * step_s), 40, ahead=4).map(lambda *_: (images, labels))
    samples: dict[str, list[Any]] = {"resident": [], "replay": [], "train": []}
    beside_s = []
    for number in range(5):
        samples["resident"].append(windows.resident(batch, steps=30, round_=number))
        samples["replay"].append(windows.replay([batch], steps=30, round_=number))
        with Burner():
            beside_s.append(windows.resident(batch, steps=30, round_=number).s_per_image)
        samples["train"].append(windows.train(burning, epochs=1, ramp_steps=2, round_=number))
    alone_s = median([sample.s_per_image for sample in samples["resident"]])
    seconds = attribute(samples, device=device).seconds_per_image
    total_s = sum(s for s in seconds.values() if s is not None)
    yield (
        _figure(
            "one core burned throughout",
            "interference, % of an epoch",
            truth=100 * (median(beside_s) - alone_s) / total_s,
            measured=100 * (seconds.interference or 0.0) / total_s,
        ),
    )


_BUSY_MS, _DOZE_MS = 10.0, 8.0


def stages() -> Iterator[Figures]:
    """Yields the costs of stages that burn or wait, one call after the other, four at a time, and by AUTOTUNE."""
    for name, calls in (("sequential", None), ("4 calls", 4), ("AUTOTUNE", tf.data.AUTOTUNE)):
        dataset = tf.data.Dataset.range(400).map(burning, num_parallel_calls=calls)
        dataset = dataset.map(waiting, num_parallel_calls=calls).batch(2).prefetch(2)
        table = tfdata_table(dataset, cores=usable_cores())
        by_name = {stage.name: stage for stage in table.stages}
        burning_us, waiting_us = by_name["burning"].cpu_us_per_image, by_name["waiting"].wait_us_per_image or 0.0
        loader_us = table.loader_cpu_us_per_image or 0.0
        yield (
            _figure(f"burning, {name}", "CPU us/image", truth=_BUSY_MS * 1e3, measured=burning_us),
            _figure(f"waiting, {name}", "wait us/image", truth=_DOZE_MS * 1e3, measured=waiting_us),
            _figure(
                f"all stages against the loader, {name}",
                "CPU us/image",
                truth=loader_us,
                measured=table.cpu_us_per_image,
            ),
        )


def burning(x: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(_busy, [x], tf.int64), x.shape)


def waiting(x: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(_doze, [x], tf.int64), x.shape)


def _busy(x: np.ndarray) -> np.ndarray:
    until_ns = clock.thread_cpu_ns() + int(_BUSY_MS * 1e6)
    while clock.thread_cpu_ns() < until_ns:
        pass
    return x


def _doze(x: np.ndarray) -> np.ndarray:
    clock.sleep_until_ns(clock.now_ns() + int(_DOZE_MS * 1e6))
    return x


_GROUPS: dict[str, Callable[[], Iterator[Figures]]] = {
    "grid-cpu": functools.partial(grid, "cpu", 0),
    "grid-cpu-ahead": functools.partial(grid, "cpu", 1),
    "grid-emulated": functools.partial(grid, "emulated", 0),
    "grid-emulated-ahead": functools.partial(grid, "emulated", 1),
    "counting": counting,
    "edges": edges,
    "interference": interference,
    "stages": stages,
}
