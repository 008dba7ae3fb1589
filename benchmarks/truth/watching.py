"""What watching costs: the same training with and without `profiles.StallMonitor`, in pairs.

python -m benchmarks.truth --only watching
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.progress import track

from models import MODELS, open_model
from pipeline import VARIANTS, build, open_source
from pipeline.commands import ArgumentParser
from profiles import clock
from profiles.statistics import Interval, range_text, ratio_interval
from profiles.text import Terminal

# What the design of this project promises: so far from 1 is the ratio at most, on either side.
PROMISED_RATIO = 0.01
PAIRS = 160
_PHOTOS = "generated:512"
# A loader whose batches are ready, and one whose batches are waited for.
_VARIANTS = ("tf-data-cache", "tf-data-prefetch")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0 where the ratio is shown to be within 1 % of 1, 1 where beyond, 4 where neither."""
    parser = ArgumentParser(prog="python -m benchmarks.truth --only watching", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="cats-dogs-64", metavar="NAME", help="a known name (default: cats-dogs-64)")
    parser.add_argument("--pairs", type=int, default=PAIRS, metavar="N", help=f"pairs of epochs (default: {PAIRS})")
    arguments = parser.parse_args(argv)
    if arguments.pairs < 3:
        parser.error(f"--pairs must be at least 3. Received: {arguments.pairs}.")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    console, errors = Terminal(), Terminal(stderr=True)
    intervals: list[Interval] = []
    for variant in _VARIANTS:
        ratio, interval = _ratio(arguments.model, variant, arguments.pairs, errors)
        console.print(
            f"{arguments.model} on {variant}: with the monitor {ratio:.4f} times the images/sec of without "
            f"({range_text(interval, 4)}, {arguments.pairs} pairs of epochs)",
            highlight=False,
            soft_wrap=True,
        )
        intervals.append(interval)
    exit_code, sentence = _judged(intervals)
    console.print(sentence, highlight=False, soft_wrap=True)
    return exit_code


def _judged(intervals: Sequence[Interval]) -> tuple[int, str]:
    """Returns the exit code and the sentence for the intervals of images/sec with the monitor over without.

    The monitor cannot make training faster: a ratio above 1 by more than is promised is a fault of the comparison.
    """
    least, most = 1 - PROMISED_RATIO, 1 + PROMISED_RATIO
    if any(high < least for _, high in intervals):
        return 1, "The monitor costs more than 1 %."
    if any(low > most for low, _ in intervals):
        return 1, "Training was more than 1 % faster with the monitor: the comparison is wrong. Repeat it."
    if all(least <= low and high <= most for low, high in intervals):
        return 0, "The monitor changes images/sec by less than 1 %."
    return 4, "Not shown that the monitor changes images/sec by less than 1 %: more --pairs, or a quieter machine."


def _ratio(model_name: str, variant: str, pairs: int, errors: Console) -> tuple[float, Interval]:
    """Returns images/sec with the monitor over without, paired, and its 95 % interval."""
    import tensorflow as tf

    from profiles.script.monitor import StallMonitor

    model = open_model(model_name, classes=2)
    config = replace(VARIANTS[variant], image_size=MODELS[model_name].image_size)
    options = tf.data.Options()
    # With it an epoch's end can take a second, by chance: one per cent could not be seen beside that.
    options.autotune.enabled = False
    with build(config, open_source(_PHOTOS)) as loader:
        data = loader.data.with_options(options)
        for callbacks in ([], [StallMonitor()]):  # traces both, fills the cache
            model.fit(data, epochs=2, verbose=0, callbacks=callbacks)
        with_ns: list[float] = []
        without_ns: list[float] = []
        order = random.Random()
        for _ in track(range(pairs), description=variant, console=errors, transient=True):
            for watched in order.sample((False, True), 2):
                elapsed_ns = _epoch_ns(model, data, [StallMonitor()] if watched else [])
                (with_ns if watched else without_ns).append(elapsed_ns)
    ratio, interval = ratio_interval(without_ns, with_ns)
    assert interval is not None, "three pairs at least"
    return ratio, interval


def _epoch_ns(model: Any, data: Any, callbacks: list[Any]) -> float:
    """Times one epoch by its outer clock, from before the first callback's beginning to behind the last one's end."""
    import keras

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
    return float(ended_ns - began_ns)
