"""Trains with and without `profiles.StallMonitor`, epoch by epoch in turn."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any

import keras
import tensorflow as tf

from unstall.benchmarks.truth.plan import Plan
from unstall.benchmarks.truth.samples import Figure, Group
from unstall.models import MODELS, open_model
from unstall.pipeline import VARIANTS, build, open_source
from unstall.profiles import clock
from unstall.profiles.script.monitor import StallMonitor

_PHOTOS = "generated:512"
# A loader whose batches are ready, and one whose batches are waited for.
_VARIANTS = ("tf-data-cache", "tf-data-prefetch")


def measure(plan: Plan) -> Generator[Group, None, None]:
    """Measures both loaders, and yields what was measured after each pair of epochs."""
    figures: dict[str, Figure] = {}
    for variant in _VARIANTS:
        pairs: list[tuple[float, float]] = []
        for pair in epochs_per_sec(str(plan.asked.options["model"]), variant, plan.number("pairs")):
            pairs.append(pair)
            without, watched = zip(*pairs, strict=True)
            figures[variant] = Figure(case=variant, name="epochs/sec", truth=without, measured=watched)
            yield Group(name="watching", figures=tuple(figures.values()))


def epochs_per_sec(model_name: str, variant: str, pairs: int) -> Iterator[tuple[float, float]]:
    """Yields the rate of one epoch without the monitor and of one with it, in an order drawn for each pair."""
    model = open_model(model_name, classes=2)
    config = replace(VARIANTS[variant], image_size=MODELS[model_name].image_size)
    options = tf.data.Options()
    # Autotune can lengthen an epoch's end by a second, by chance: nobody could see one per cent beside that.
    options.autotune.enabled = False
    with build(config, open_source(_PHOTOS)) as loader:
        data = loader.data.with_options(options)
        for callbacks in ([], [StallMonitor()]):  # traces both, fills the cache
            model.fit(data, epochs=2, verbose=0, callbacks=callbacks)
        order = random.Random()
        for _ in range(pairs):
            rates = {
                watched: 1e9 / _epoch_ns(model, data, [StallMonitor()] if watched else [])
                for watched in order.sample((False, True), 2)
            }
            yield rates[False], rates[True]


def _epoch_ns(model: Any, data: Any, callbacks: list[Any]) -> int:
    """Times one epoch by its outer clock, from before the first callback's beginning to behind the last one's end."""
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
