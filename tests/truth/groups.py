"""Measures loads of known cost as a user would, and times the same training by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tests.truth import by_hand
from tests.truth.bounds import GRIDS, GRIDS_ON_GPU, LOOPS, PLANTED, TIMES_MS
from tests.truth.comparison import Epoch, Figures, Load, compare, measure_load
from tests.truth.figures import Figure, figure_of, joined
from tests.truth.loops import loop_cell
from tests.truth.on_gpu import gpu_cell, transfer
from tests.truth.planted import (
    IMAGES,
    Burner,
    Metronome,
    Sleeper,
    a_batch,
    a_device,
    a_loader,
    a_model,
    on_one_core,
)
from unstall.profiles.devices import parse_device
from unstall.profiles.measure.windows import Windows
from unstall.profiles.provenance import usable_cores
from unstall.profiles.results import Result
from unstall.profiles.stages.tf_stages import tfdata_table

_STEPS_TO_COUNT = (10, 30, 100, 300, 1000)
# Of an epoch with a loader that works while the model trains.
_CROWDED_STEPS = 20
# An epoch lasts about so long, and so do the plain steps between two measurements.
_EPOCH_S, _STEPS_S = 0.4, 0.25


def _steps(step_ms: float) -> int:
    return max(5, round(_STEPS_S * 1e3 / step_ms))


# Loaders and models that sleep


def grid_cell(group: str, load_ms: float, step_ms: float) -> Load:
    """A loader and a model that sleep.

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
    by_hand_model = a_device(step) if emulated else by_hand.warmed(model, data)
    device = f"emulated:{IMAGES / step_ms * 1e3}" if emulated else "cpu"
    ready = itertools.repeat(a_batch())

    def time_epoch() -> Epoch:
        compute_s = steps * by_hand.step_s(by_hand_model, ready, _steps(step_ms))
        return Epoch(s=by_hand.epoch_s(by_hand_model, data), images=steps * IMAGES, parts_s={"compute": compute_s})

    case = f"load {load_ms:g} ms, step {step_ms:g} ms"
    return Load(case=case, time_epoch=time_epoch, measure=lambda: measure_load(data, model, device))


def counting(steps: int) -> Figures:
    """Measures the rate of a loader that gives a batch every 15 ms."""
    period_s = 0.015
    windows = Windows(a_model(), parse_device(f"emulated:{IMAGES / 0.002}"))
    windows.prepare([a_batch()])
    windows.train(a_loader(Metronome(period_s), 10), epochs=1, ramp_steps=1, round_=0, window="warmup")
    sample = windows.train(a_loader(Metronome(period_s), steps), epochs=1, ramp_steps=1, round_=0)
    return (figure_of(f"{steps} steps", "images/sec", IMAGES / period_s, 1 / sample.s_per_image),)


def edges(first_ms: float, end_ms: float) -> Load:
    """Epochs whose first batch and whose end take long, on an emulated device."""
    steps, brief_steps, step_ms = 50, 5, 10.0
    first, end, load, step = (Sleeper(ms / 1e3) for ms in (first_ms, end_ms, 1.0, step_ms))
    data, brief = (a_loader(load, count, first=first, end=end) for count in (steps, brief_steps))
    device, ready = a_device(step), itertools.repeat(a_batch())

    def time_epoch() -> Epoch:
        # Two epochs of different lengths have the same edges, and a brief one has little else.
        epoch_s, brief_s = by_hand.epoch_s(device, data), by_hand.epoch_s(device, brief)
        edges_s = brief_s - brief_steps * (epoch_s - brief_s) / (steps - brief_steps)
        compute_s = steps * by_hand.step_s(device, ready, steps)
        return Epoch(s=epoch_s, images=steps * IMAGES, parts_s={"compute": compute_s, "epoch_overhead": edges_s})

    case = f"{first_ms:g} ms before the first batch, {end_ms:g} ms after the last"
    emulated = f"emulated:{IMAGES / step_ms * 1e3}"
    return Load(case=case, time_epoch=time_epoch, measure=lambda: measure_load(data, a_model(), emulated))


def augmentation() -> Load:
    """A model with a layer before it that takes half as long as the model, on one core.

    Between cores, threads that hand a step over to each other take a millisecond more in one second than in the next.
    """
    steps, load_ms, step_ms, layer_ms = 15, 10.0, 40.0, 20.0
    data = a_loader(Sleeper(load_ms / 1e3), steps)
    bare = a_model(Sleeper(step_ms / 1e3))
    model = by_hand.warmed(a_model(Sleeper(layer_ms / 1e3), Sleeper(step_ms / 1e3)), data)
    ready = itertools.repeat(a_batch())

    @on_one_core()
    def time_epoch() -> Epoch:
        bare_s, with_layer_s = (by_hand.step_s(each, ready, 2 * steps) for each in (bare, model))
        parts_s = {"compute": steps * bare_s, "device_augment": steps * (with_layer_s - bare_s)}
        return Epoch(s=by_hand.epoch_s(model, data), images=steps * IMAGES, parts_s=parts_s)

    @on_one_core()
    def measured() -> Result:
        return measure_load(data, model, "cpu", bare)

    case = f"load {load_ms:g} ms, layer {layer_ms:g} ms, step {step_ms:g} ms"
    return Load(case=case, time_epoch=time_epoch, measure=measured)


# Loaders that take cores


def interference() -> Load:
    """A model that burns a core, while a loader burns the same core for longer than a step takes.

    On one core the system's scheduler gives half of the time to each, so that a step takes twice as long next to the
    loader. With more cores than one, a step takes as long as the scheduler happens to spread the threads, and another
    time the next second: a model that burned both of two cores gave no truth by hand, and a real network even less.
    """
    step_s = 0.020
    data = a_loader(Burner(1.5 * step_s), _CROWDED_STEPS, ahead=2)
    return crowded("one core for both", a_model(Burner(step_s)), data, rounds=3)


def crowded(case: str, model: Any, data: tf.data.Dataset, *, rounds: int) -> Load:
    """A model whose steps take longer while its loader works, on one core.

    Args:
      data: takes longer for a batch than the model for a step, so that the loader works without a pause.
    """
    steps, ready = len(data), itertools.repeat(a_batch())
    by_hand.warmed(model, data)

    @on_one_core()
    def time_epoch() -> Epoch:
        # As many steps as in the windows: the scheduler of the system makes these two times vary most.
        alone_s = by_hand.step_s(model, ready, rounds * steps)
        with by_hand.Reading(data):
            crowded_s = by_hand.step_s(model, ready, rounds * steps)
        # During the last step the loader has nothing left to load.
        parts_s = {"compute": steps * alone_s, "interference": (steps - 1) * (crowded_s - alone_s)}
        epoch_s, loader_cpu_s = by_hand.epoch_s(model, data), by_hand.cpu_s(data)
        return Epoch(s=epoch_s, images=steps * IMAGES, parts_s=parts_s, loader_cpu_s=loader_cpu_s)

    @on_one_core()
    def measured() -> Result:
        return measure_load(data, model, "cpu", rounds=rounds)

    return Load(case=case, time_epoch=time_epoch, measure=measured)


# Stages


def stages(name: str, calls: int | None) -> Figures:
    """Measures the costs of a stage that sleeps and of one that burns.

    By hand a stage burns what plain reading takes more CPU time with the stage than without it, TensorFlow's call
    of it included, and sleeps as long as its sleeps really took. Readings of two lengths leave out what a reading
    costs once, and all elements are drawn at once, so that no batch costs Python anything. The stage that sleeps
    comes first: the other's wait would be in its own, and on a shared machine other programs make what burns wait.

    Args:
      calls: of each stage at once; None for one after the other.
    """
    few, many = 20, 120
    burn, sleep = Burner(0.010), Sleeper(0.008)

    def burning(x: Any) -> Any:
        return _called(burn, x)

    def waiting(x: Any) -> Any:
        return _called(sleep, x)

    def pipeline(*stages: Callable[[Any], Any], elements: int, calls: int | None = calls) -> tf.data.Dataset:
        dataset = tf.data.Dataset.range(elements)
        for stage in stages:
            dataset = dataset.map(stage, num_parallel_calls=calls)
        return dataset.batch(2).prefetch(2)

    def cpu_us(*stages: Callable[[Any], Any], calls: int | None = None) -> float:
        few_s, many_s = (
            by_hand.cpu_s(pipeline(*stages, elements=count, calls=calls).batch(count)) for count in (few, many)
        )
        return 1e6 * (many_s - few_s) / (many - few)

    table = tfdata_table(pipeline(waiting, burning, elements=many), cores=usable_cores())
    found = {stage.name: stage for stage in table.stages}
    reading_us, waiting_us, both_us = cpu_us(), cpu_us(waiting), cpu_us(waiting, burning)
    all_us = both_us if calls is None else cpu_us(waiting, burning, calls=calls)
    burned_us, slept_us = both_us - waiting_us, 1e6 * sleep.mean_s
    stages_us = both_us - reading_us + slept_us
    share = 100 * table.share(found["burning"])
    return (
        figure_of(f"burning, {name}", "CPU us/image", burned_us, found["burning"].cpu_us_per_image),
        figure_of(f"waiting, {name}", "wait us/image", slept_us, found["waiting"].wait_us_per_image or 0.0),
        figure_of(f"burning, {name}", "stage, %", 100 * burned_us / stages_us, share),
        figure_of(f"all stages, {name}", "CPU us/image", all_us - reading_us, table.cpu_us_per_image),
    )


def _called(call: Callable[[], None], x: Any) -> Any:
    """Returns the same tensor, after a call for each of its elements."""

    def called(x: Any) -> Any:
        call()
        return x

    return tf.ensure_shape(tf.numpy_function(called, [x], tf.int64), x.shape)


# Measures a case; yields the figures of each repeat, without end.
_Case = Callable[[], Iterator[Figures]]


def _of_load(group: str, load: Callable[..., Load], *arguments: Any) -> _Case:
    return lambda: compare(group, load(*arguments))


def _again(measure_case: Callable[..., Figures], *arguments: Any) -> _Case:
    """Returns a case that measures all again each time."""
    return lambda: (measure_case(*arguments) for _ in itertools.count())


# How a cell of each grid is measured: a loader and a model that take two of `TIMES_MS`.
_CELLS: dict[str, Callable[..., Load]] = {
    **dict.fromkeys(GRIDS, grid_cell),
    **dict.fromkeys(LOOPS, loop_cell),
    **dict.fromkeys(GRIDS_ON_GPU, gpu_cell),
}


def _cell(group: str, *times_ms: float) -> _Case:
    return _of_load(group, _CELLS[group], group, *times_ms)


# The cases of each group, and the case that stands for the group where it is repeated.
CASES: dict[str, tuple[_Case, ...]] = {
    **{group: tuple(_cell(group, *times) for times in itertools.product(TIMES_MS, TIMES_MS)) for group in _CELLS},
    "counting": tuple(_again(counting, steps) for steps in _STEPS_TO_COUNT),
    "edges": tuple(_of_load("edges", edges, *case) for case in ((200, 0), (0, 200), (150, 250))),
    "augmentation": (_of_load("augmentation", augmentation),),
    "interference": (_of_load("interference", interference),),
    "transfer": (_of_load("transfer", transfer),),
    "stages": tuple(
        _again(stages, name, calls)
        for name, calls in (("sequential", None), ("4 calls", 4), ("AUTOTUNE", tf.data.AUTOTUNE))
    ),
}
TYPICAL: dict[str, _Case] = {
    # Where a loader ahead and a model keep one pace, each waits for whichever was late: of 10 ms, that is mostly noise.
    **{group: _cell(group, *2 * [30.0 if "ahead" in group else 10.0]) for group in (*GRIDS, *LOOPS)},
    **{group: _cell(group, 30.0, 10.0) for group in GRIDS_ON_GPU},
    "counting": _again(counting, 100),
    "edges": _of_load("edges", edges, 150, 250),
    "stages": _again(stages, "sequential", None),
    **{group: CASES[group][0] for group in ("augmentation", "interference", "transfer")},
}
assert set(CASES) == set(TYPICAL) == set(PLANTED)


def repeated(group: str, repeats: int) -> list[Figure]:
    """Measures the typical case of a group so many times."""
    return joined(itertools.chain(*itertools.islice(TYPICAL[group](), repeats)))


def once(group: str) -> list[Figure]:
    """Measures each case of a group once."""
    return [figure for case in CASES[group] for figure in next(case())]
