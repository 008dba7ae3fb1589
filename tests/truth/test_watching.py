"""What `profiles.StallMonitor` costs: the same training with and without it, epoch by epoch in turn."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.planted import a_batch, a_model, as_written, planted
from tests.truth.bounds import BOUNDS
from unstall.benchmarks.lab.options import MODEL
from unstall.models import MODELS, open_model
from unstall.pipeline import VARIANTS, build, open_source
from unstall.profiles import clock
from unstall.profiles.script.monitor import StallMonitor
from unstall.profiles.statistics import median, range_text, ratio_interval

STEPS, PAIRS = 40, 12
# 1 % of a training step of cats-dogs-64, which took 119 ms on a machine with 2 cores: 32 images at 269 a second.
MOST_MS_PER_STEP = 1.19


def epochs_per_sec(variant: str, pairs: int) -> Iterator[tuple[float, float]]:
    """Yields the rate of one epoch without the monitor and of one with it, in an order drawn for each pair."""
    model = open_model(MODEL, classes=2)
    config = replace(VARIANTS[variant], image_size=MODELS[MODEL].image_size)
    options = tf.data.Options()
    # Autotune can lengthen an epoch's end by a second, by chance: nobody could see one per cent next to that.
    options.autotune.enabled = False
    with build(config, open_source("generated:512")) as loader:
        data = loader.data.with_options(options)
        for callbacks in ([], [StallMonitor()]):  # traces both, fills the cache
            model.fit(data, epochs=2, verbose=0, callbacks=callbacks)
        for _ in range(pairs):
            epoch_ns = a_pair_ns(model, data)
            yield 1e9 / epoch_ns[False], 1e9 / epoch_ns[True]


def a_pair_ns(model: Any, data: Any) -> dict[bool, int]:
    """Times an epoch with the monitor and one without it, in an order that is drawn."""
    in_turn = random.sample((False, True), 2)
    return {watched: _epoch_ns(model, data, [StallMonitor()] if watched else []) for watched in in_turn}


def _epoch_ns(model: Any, data: Any, callbacks: list[Any]) -> int:
    """Times one epoch by its outer clock, from before the first callback's beginning until after the last one's end."""
    began_ns = ended_ns = 0

    def begin(epoch: int, logs: Any) -> None:
        nonlocal began_ns
        began_ns = clock.now_ns()

    def end(epoch: int, logs: Any) -> None:
        nonlocal ended_ns
        ended_ns = clock.now_ns()

    first = keras.callbacks.LambdaCallback(on_epoch_begin=begin)
    last = keras.callbacks.LambdaCallback(on_epoch_end=end)
    model.fit(data, epochs=1, verbose=0, callbacks=[first, *callbacks, last])
    return ended_ns - began_ns


def changes_little(without: Sequence[float], watched: Sequence[float]) -> bool | None:
    """Returns whether the ratio of rates lies within the bound, by its interval; None where that is not shown."""
    bound = BOUNDS["watching"]["epochs/sec"]
    _, interval = ratio_interval(watched, without)
    if interval is None:
        return None
    low, high = (bound.off(1.0, ratio) for ratio in interval)
    if bound.holds(low) and bound.holds(high):
        return True
    return False if high < -bound.most or low > bound.most else None


@pytest.mark.parametrize(
    ("ratios", "held"),
    [
        ((0.998, 1.0, 1.002), True),
        ((0.94, 0.95, 0.96), False),
        ((1.04, 1.05, 1.06), False),
        ((0.985, 0.99, 0.995), None),
        ((1.005, 1.01, 1.015), None),
        ((0.9, 1.0, 1.1), None),
        ((1.0, 1.0), None),
        ((0.9, 1 / 1.1, 0.92), False),
    ],
    ids=[
        "inside",
        "below",
        "above: a monitor makes no training faster",
        "reaches below",
        "reaches above",
        "too wide",
        "two pairs",
        "a tenth",
    ],
)
def test_the_monitors_cost_is_judged_on_both_sides_of_1(ratios: tuple[float, ...], held: bool | None) -> None:
    assert changes_little((2.0,) * len(ratios), [2 * ratio for ratio in ratios]) is held


@planted
def test_the_monitor_costs_a_step_less_than_a_hundredth_of_one_of_cats_dogs_64() -> None:
    """Pairs of epochs of a model whose steps take less than the cost that is promised."""
    model, data = a_model(), as_written(tf.data.Dataset.from_tensors(a_batch()).repeat(STEPS))
    for callbacks in ([], [StallMonitor()]):  # traces both
        model.fit(data, epochs=1, verbose=0, callbacks=callbacks)
    costs_ms = []
    for _ in range(PAIRS):
        epoch_ns = a_pair_ns(model, data)
        costs_ms.append((epoch_ns[True] - epoch_ns[False]) / STEPS / 1e6)
    assert abs(median(costs_ms)) < MOST_MS_PER_STEP


# A loader whose batches are ready, and one whose batches are waited for.
@pytest.mark.claims
@pytest.mark.parametrize("variant", ["tf-data-cache", "tf-data-prefetch"])
@planted
def test_the_monitors_cost_is_not_found_to_be_more_than_promised(
    variant: str, repeats: Any, tabulate: Any, record_property: Any
) -> None:
    """So many pairs need not show that the cost is within the promise, on a machine that others use."""
    without, watched = zip(*epochs_per_sec(variant, repeats(160)), strict=True)
    ratio, interval = ratio_interval(watched, without)
    columns = ("model", "loader", "pairs of epochs", "images/sec with the monitor, over without", "95% interval")
    tabulate("watching", columns, [(MODEL, variant, str(len(watched)), f"{ratio:.4f}", range_text(interval, 4))])
    record_property("measured", f"{variant}: {ratio - 1:+.1%}")
    assert changes_little(without, watched) is not False
