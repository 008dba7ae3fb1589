"""Measures loads of known cost as a user would, beside the same training timed by hand."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Generator, Iterator
from typing import Any

import tensorflow as tf

from benchmarks.truth import by_hand
from benchmarks.truth.comparison import Epoch, Figures, compare, figure_of, measure_load
from benchmarks.truth.plan import Plan
from benchmarks.truth.planted import (
    IMAGES,
    Burner,
    Metronome,
    Sleeper,
    a_batch,
    a_device,
    a_loader,
    a_model,
)
from benchmarks.truth.promises import GRIDS, TIMES_MS
from benchmarks.truth.samples import Figure, Group
from models import open_model
from profiles import clock
from profiles.devices import parse_device
from profiles.measure.windows import Windows
from profiles.provenance import usable_cores
from profiles.stages.tf_stages import tfdata_table

_STEPS_TO_COUNT = (10, 30, 100, 300, 1000)
# Of an epoch with a loader that works beside the model.
_STEPS_BESIDE = 20
# An epoch lasts about so long, and so do the plain steps between two measurements.
_EPOCH_S, _STEPS_S = 0.5, 0.3

# Measures a case once.
Measure = Callable[[], Figures]


def measure(plan: Plan) -> Generator[Group, None, None]:
    """Measures the cases of each group, or a typical case of it several times; yields the group after each of them."""
    repeats = plan.number("repeats")
    for name in plan.asked.groups:
        figures: dict[tuple[str, str], Figure] = {}
        for measure_case in [_TYPICAL[name]] * repeats if repeats > 1 else _GROUPS[name]:
            for figure in measure_case():
                key = figure.case, figure.name
                figures[key] = figures[key].followed_by(figure) if key in figures else figure
            yield Group(name=name, figures=tuple(figures.values()))


def _warmed(model: Any, data: tf.data.Dataset) -> Any:
    """Returns the model after an epoch of one batch, in which its step was traced for this loader."""
    by_hand.epoch_s(model, data.take(1))
    return model


def _steps(step_ms: float) -> int:
    return max(5, round(_STEPS_S * 1e3 / step_ms))


# Loaders and models that sleep


def grid_cell(group: str, load_ms: float, step_ms: float) -> Figures:
    """Measures a loader and a model that sleep.

    Args:
      group: "grid-cpu" or "grid-emulated", for a device whose step takes exactly `step_ms`; with "-ahead", the loader
        prepares a batch in a thread of its own.
    """
    emulated, ahead = "emulated" in group, int("ahead" in group)
    longest_ms = max(load_ms, step_ms) if ahead else load_ms + step_ms
    steps = max(12, round(_EPOCH_S * 1e3 / longest_ms))
    data = a_loader(Sleeper(load_ms / 1e3), steps, ahead=ahead)
    step = Sleeper(step_ms / 1e3)
    model = a_model() if emulated else a_model(step)
    by_hand_model = a_device(step) if emulated else _warmed(model, data)
    device = f"emulated:{IMAGES / step_ms * 1e3}" if emulated else "cpu"
    ready = itertools.repeat(a_batch())

    def time_epoch() -> Epoch:
        step_s = by_hand.step_s(by_hand_model, ready, _steps(step_ms))
        epoch_s = by_hand.epoch_s(by_hand_model, data)
        return Epoch(s=epoch_s, images=steps * IMAGES, parts_s={"compute": steps * step_s})

    case = f"load {load_ms:g} ms, step {step_ms:g} ms"
    return compare(group, case, time_epoch, lambda: measure_load(data, model, device))


def counting(steps: int) -> Figures:
    """Measures the rate of a loader that gives a batch every 15 ms."""
    period_s = 0.015
    windows = Windows(a_model(), parse_device(f"emulated:{IMAGES / 0.002}"))
    windows.prepare([a_batch()])
    windows.train(a_loader(Metronome(period_s), 10), epochs=1, ramp_steps=1, round_=0, window="warmup")
    sample = windows.train(a_loader(Metronome(period_s), steps), epochs=1, ramp_steps=1, round_=0)
    return (figure_of(f"{steps} steps", "images/sec", truth=IMAGES / period_s, measured=1 / sample.s_per_image),)


def edges(first_ms: float, end_ms: float) -> Figures:
    """Measures epochs whose first batch and whose end take long, on an emulated device."""
    steps, step_ms = 50, 10.0
    first, end, load, step = (Sleeper(ms / 1e3) for ms in (first_ms, end_ms, 1.0, step_ms))
    data, longer = (a_loader(load, count, first=first, end=end) for count in (steps, 3 * steps))
    device, ready = a_device(step), itertools.repeat(a_batch())

    def time_epoch() -> Epoch:
        # Two epochs of different lengths have the same edges.
        short_s, long_s = by_hand.epoch_s(device, data), by_hand.epoch_s(device, longer)
        edges_s = short_s - (long_s - short_s) / 2
        compute_s = steps * by_hand.step_s(device, ready, _steps(step_ms))
        return Epoch(s=short_s, images=steps * IMAGES, parts_s={"compute": compute_s, "epoch_overhead": edges_s})

    case = f"{first_ms:g} ms before the first batch, {end_ms:g} ms after the last"
    emulated = f"emulated:{IMAGES / step_ms * 1e3}"
    return compare("edges", case, time_epoch, lambda: measure_load(data, a_model(), emulated))


def augmentation() -> Figures:
    """Measures a model with a layer in front that takes half as long as the model."""
    steps, load_ms, step_ms, layer_ms = 20, 5.0, 20.0, 10.0
    data = a_loader(Sleeper(load_ms / 1e3), steps)
    bare = a_model(Sleeper(step_ms / 1e3))
    model = _warmed(a_model(Sleeper(layer_ms / 1e3), Sleeper(step_ms / 1e3)), data)
    ready = itertools.repeat(a_batch())

    def time_epoch() -> Epoch:
        bare_s, with_layer_s = (by_hand.step_s(each, ready, _steps(step_ms)) for each in (bare, model))
        parts_s = {"compute": steps * bare_s, "device_augment": steps * (with_layer_s - bare_s)}
        return Epoch(s=by_hand.epoch_s(model, data), images=steps * IMAGES, parts_s=parts_s)

    case = f"load {load_ms:g} ms, layer {layer_ms:g} ms, step {step_ms:g} ms"
    return compare("augmentation", case, time_epoch, lambda: measure_load(data, model, "cpu", bare))


# Loaders that take cores, and batches on their way to a device


def interference() -> Figures:
    """Measures a CPU model beside a loader that burns a core for longer than a step takes."""
    batch = a_batch(8, 64)
    model, ready = open_model("cats-dogs-64", classes=2), itertools.repeat(batch)
    alone_s = by_hand.step_s(model, ready, 10)
    with by_hand.Beside(a_loader(Burner(alone_s), 100)):
        beside_s = by_hand.step_s(model, ready, 10)
    burner = Burner(1.1 * beside_s)
    data = a_loader(burner, _STEPS_BESIDE, ahead=2, batch=batch)
    return crowded("one core burned throughout", model, batch, data, lambda: burner.cpu_s, turns=3)


def crowded(
    case: str,
    model: Any,
    batch: tuple[tf.Tensor, ...],
    data: tf.data.Dataset,
    cpu_s: Callable[[], float],
    turns: int = 1,
) -> Figures:
    """Measures a model whose steps take longer beside its loader.

    Args:
      data: yields the batch, and takes longer for it than a step, so that the loader works without a pause.
      cpu_s: returns the CPU time that a batch takes the loader.
    """
    steps, images, ready = len(data), int(batch[0].shape[0]), itertools.repeat(batch)
    _warmed(model, data)

    def time_epoch() -> Epoch:
        alone_s = by_hand.step_s(model, ready, steps)
        with by_hand.Beside(data):
            beside_s = by_hand.step_s(model, ready, steps)
        # During the last step the loader has nothing left to load.
        parts_s = {"compute": steps * alone_s, "interference": (steps - 1) * (beside_s - alone_s)}
        epoch_s = by_hand.epoch_s(model, data)
        return Epoch(s=epoch_s, images=steps * images, parts_s=parts_s, loader_cpu_s=steps * cpu_s())

    return compare("interference", case, time_epoch, lambda: measure_load(data, model, "cpu"), turns)


def transfer() -> Figures:
    """Measures batches of 12 MB on their way to a GPU, on which a tiny model trains."""
    side = 64
    batch = a_batch(256, side)
    with tf.device("/CPU:0"):
        on_host = tuple(tf.identity(part) for part in batch)
        data = a_loader(lambda: None, 100, batch=on_host)
    return carried("batches of 12 MB", a_model(side=side), "gpu", data, batch, itertools.repeat(on_host))


def carried(
    case: str, model: Any, device: str, data: tf.data.Dataset, batch: tuple[tf.Tensor, ...], host: Iterator[Any]
) -> Figures:
    """Measures a model whose steps take longer on batches that lie in the host's memory.

    Args:
      data: yields batches from the host's memory.
      batch: the same on the device.
      host: yields the same from the host's memory, endlessly.
    """
    steps, images, resident = len(data), int(batch[0].shape[0]), itertools.repeat(batch)
    _warmed(model, data)

    def time_epoch() -> Epoch:
        resident_s, host_s = (by_hand.step_s(model, batches, steps) for batches in (resident, host))
        parts_s = {"compute": steps * resident_s, "transfer": steps * (host_s - resident_s)}
        return Epoch(s=by_hand.epoch_s(model, data), images=steps * images, parts_s=parts_s)

    return compare("transfer", case, time_epoch, lambda: measure_load(data, model, device))


# Stages

_BUSY_MS, _DOZE_MS = 10.0, 8.0


def stages(name: str, calls: int | None) -> Figures:
    """Measures the costs of stages that burn or wait.

    Args:
      calls: of each stage at once; None for one after the other.
    """
    table = tfdata_table(_pipeline(400, calls), cores=usable_cores())
    by_name = {stage.name: stage for stage in table.stages}
    elements = 100
    began_ns = clock.own_cpu_ns()
    for _ in _pipeline(elements, calls):
        pass
    loader_us = (clock.own_cpu_ns() - began_ns) / elements / 1e3
    busy_us, doze_us = 1e3 * _BUSY_MS, 1e3 * _DOZE_MS
    burning_us, waiting_us = by_name["burning"].cpu_us_per_image, by_name["waiting"].wait_us_per_image or 0.0
    share = 100 * table.share(by_name["burning"])
    return (
        figure_of(f"burning, {name}", "CPU us/image", truth=busy_us, measured=burning_us),
        figure_of(f"waiting, {name}", "wait us/image", truth=doze_us, measured=waiting_us),
        figure_of(f"burning, {name}", "stage, %", truth=100 * busy_us / (busy_us + doze_us), measured=share),
        figure_of(f"all stages, {name}", "CPU us/image", truth=loader_us, measured=table.cpu_us_per_image),
    )


def _pipeline(elements: int, calls: int | None) -> tf.data.Dataset:
    dataset = tf.data.Dataset.range(elements).map(burning, num_parallel_calls=calls)
    return dataset.map(waiting, num_parallel_calls=calls).batch(2).prefetch(2)


def burning(x: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(_busy, [x], tf.int64), x.shape)


def waiting(x: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(_doze, [x], tf.int64), x.shape)


def _busy(x: Any) -> Any:
    until_ns = clock.thread_cpu_ns() + int(_BUSY_MS * 1e6)
    while clock.thread_cpu_ns() < until_ns:
        pass
    return x


def _doze(x: Any) -> Any:
    clock.sleep_until_ns(clock.now_ns() + int(_DOZE_MS * 1e6))
    return x


_GRIDS: dict[str, tuple[Measure, ...]] = {
    group: tuple(
        functools.partial(grid_cell, group, load_ms, step_ms)
        for load_ms, step_ms in itertools.product(TIMES_MS, TIMES_MS)
    )
    for group in GRIDS
}
# The cases of each group, and the case that stands for the group where it is repeated.
_GROUPS: dict[str, tuple[Measure, ...]] = {
    **_GRIDS,
    "counting": tuple(functools.partial(counting, steps) for steps in _STEPS_TO_COUNT),
    "edges": tuple(functools.partial(edges, *case) for case in ((200, 0), (0, 200), (150, 250))),
    "augmentation": (augmentation,),
    "interference": (interference,),
    "transfer": (transfer,),
    "stages": tuple(
        functools.partial(stages, name, calls)
        for name, calls in (("sequential", None), ("4 calls", 4), ("AUTOTUNE", tf.data.AUTOTUNE))
    ),
}
_TYPICAL: dict[str, Measure] = {
    **{group: functools.partial(grid_cell, group, 10.0, 10.0) for group in GRIDS},
    "counting": functools.partial(counting, 100),
    "edges": functools.partial(edges, 150, 250),
    "augmentation": augmentation,
    "interference": interference,
    "transfer": transfer,
    "stages": functools.partial(stages, "sequential", None),
}
