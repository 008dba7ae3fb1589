"""How far our own figures are off: loaders, models, edges and stages of known cost, found again.

python -m benchmarks.truth
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import unstall
from models import open_model
from pipeline.commands import ArgumentParser
from profiles import clock
from profiles.devices import parse_device
from profiles.provenance import usable_cores
from profiles.results import attribute
from profiles.statistics import median
from profiles.text import Terminal

# What the design of this project promises.
SHARE_POINTS, LAW_RATIO, COUNT_RATIO, COLUMN_RATIO = 3.0, 0.03, 0.01, 0.10
TIMES_MS = (2.0, 5.0, 10.0, 25.0, 60.0)
STEPS_TO_COUNT = (10, 30, 100, 300, 1000)
ROUNDS = 3
# Parts with options of their own, each with a `main(argv)`.
_PARTS = {
    "watching": "benchmarks.truth.watching",
    "photos": "benchmarks.truth.photos",
    "gate": "benchmarks.truth.gate",
    "intervals": "benchmarks.truth.intervals",
    "verdicts": "benchmarks.truth.verdicts",
}
# An epoch of the grid lasts about so long.
_EPOCH_S = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One figure beside the truth.

    Attributes:
      group: what is checked.
      case: which case of it.
      truth, found: the same unit.
      off: how far, in the unit of `bound`.
      bound: what is promised.
    """

    group: str
    case: str
    truth: float
    found: float
    off: float
    bound: float

    @property
    def holds(self) -> bool:
        return abs(self.off) <= self.bound


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0 where every figure is as near as promised, else 1."""
    words = list(sys.argv[1:] if argv is None else argv)
    first = words[0].split("=", 1) + words[1:] if words and words[0].startswith("--only=") else words
    if first[:1] == ["--only"] and first[1:2] and first[1] in _PARTS:
        return int(unstall.of_ours(f"{_PARTS[first[1]]}:main")(first[2:]))
    parser = ArgumentParser(prog="python -m benchmarks.truth", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only",
        choices=(*_GROUPS, *_PARTS),
        action="append",
        metavar="PART",
        help=f"check this alone; may be given several times: {', '.join(_GROUPS)}. Given first, and with options of "
        f"their own (--only PART --help): {', '.join(_PARTS)}",
    )
    arguments = parser.parse_args(words)
    if parts := [name for name in arguments.only or () if name in _PARTS]:
        parser.error(f"--only {parts[0]} has options of its own, and is given first and alone.")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    logging.getLogger("tensorflow").setLevel(logging.ERROR)  # many small models are traced, and it says so
    console, errors = Terminal(), Terminal(stderr=True)
    checks: list[Check] = []
    for name in arguments.only or _GROUPS:
        with errors.status(f"{name} ..."):
            found = _GROUPS[name]()
        checks += found
        _print(console, name, found)
    held = sum(check.holds for check in checks)
    console.print(f"\n{held} of {len(checks)} figures are as near to the truth as promised.", highlight=False)
    return 0 if held == len(checks) else 1


def _grid(device: str, ahead: int) -> list[Check]:
    """Loaders and models that sleep: shares and images/sec against a loop without Keras and us."""
    return [
        check for load_ms in TIMES_MS for step_ms in TIMES_MS for check in _grid_cell(device, ahead, load_ms, step_ms)
    ]


def _grid_cell(device: str, ahead: int, load_ms: float, step_ms: float) -> list[Check]:
    from benchmarks.truth.planted import IMAGES, Sleeper, a_loader, a_model
    from profiles.measure.measure import measure

    load = Sleeper(load_ms / 1e3)
    longest_ms = max(load_ms, step_ms) if ahead else load_ms + step_ms
    data = a_loader(load, max(12, round(_EPOCH_S * 1e3 / longest_ms)), ahead=ahead)
    model = a_model(Sleeper(step_ms / 1e3)) if device == "cpu" else a_model()
    name = "cpu" if device == "cpu" else f"emulated:{IMAGES / step_ms * 1e3}"
    result = measure(data, model, device=name, rounds=ROUNDS, name="planted")
    # The step of the tiny model around its sleep takes what it takes; an emulated device's is known.
    compute_s = 1 / result.compute_images_per_sec * IMAGES if device == "cpu" else step_ms / 1e3
    by_hand = [_by_hand(data, step_ms / 1e3, compute_s) for _ in range(ROUNDS)]
    step_s, computed_s = (median(column) for column in zip(*by_hand, strict=True))
    case = f"{device}, {'ahead' if ahead else 'in turn'}, load {load_ms:g} ms, step {step_ms:g} ms"
    seconds = result.attribution.seconds_per_image
    steady = {part: value for part, value in seconds.items() if value is not None and part != "epoch_overhead"}
    found = 100 * (1 - (seconds.compute or 0.0) / sum(steady.values()))
    truth = 100 * (1 - computed_s / step_s)
    rate, law = result.images_per_sec, IMAGES / step_s
    return [
        Check(group="loading, %", case=case, truth=truth, found=found, off=found - truth, bound=SHARE_POINTS),
        Check(group="images/sec", case=case, truth=law, found=rate, off=rate / law - 1, bound=LAW_RATIO),
    ]


def _by_hand(data: Any, sleep_s: float, step_s: float) -> tuple[float, float]:
    """Runs a loop that has neither Keras nor us in it: a batch, a sleep, and the rest of the step busy.

    That is the law. Arithmetic alone does not know what it takes to wake up, and to hand a batch over. Busy without
    Python's lock, as a step is: the loader's function needs it.

    Returns:
      The seconds from step to step, and those in which it slept or was busy.
    """
    from benchmarks.truth.planted import Burner

    ends_ns, computed_ns = [], []
    for _ in data:
        began_ns = clock.now_ns()
        clock.sleep_until_ns(began_ns + int(sleep_s * 1e9))
        Burner.burn(step_s - (clock.now_ns() - began_ns) / 1e9, block_bytes=2**15)
        ends_ns.append(clock.now_ns())
        computed_ns.append(ends_ns[-1] - began_ns)
    # From the second on: the first was waited for longer.
    return (ends_ns[-1] - ends_ns[1]) / (len(ends_ns) - 2) / 1e9, sum(computed_ns[2:]) / (len(ends_ns) - 2) / 1e9


def counting() -> list[Check]:
    """A loader that gives a batch every 15 ms, whatever happens in between, for 10 to 1,000 steps."""
    from benchmarks.truth.planted import IMAGES, Metronome, a_batch, a_loader, a_model
    from profiles.measure.windows import Windows

    period_s = 0.015
    windows = Windows(a_model(), parse_device(f"emulated:{IMAGES / 0.002}"))
    windows.prepare([a_batch()])
    windows.train(a_loader(Metronome(period_s), 10, ahead=0), epochs=1, ramp_steps=1, round_=0, window="warmup")
    checks = []
    for steps in STEPS_TO_COUNT:
        metronome = Metronome(period_s)
        sample = windows.train(a_loader(metronome, steps, ahead=0), epochs=1, ramp_steps=1, round_=0)
        rate, truth = 1 / sample.s_per_image, IMAGES / period_s
        checks.append(
            Check(
                group="images/sec",
                case=f"{steps} steps",
                truth=truth,
                found=rate,
                off=rate / truth - 1,
                bound=COUNT_RATIO,
            )
        )
    return checks


def edges() -> list[Check]:
    """An epoch whose first batch and whose end take long."""
    from benchmarks.truth.planted import IMAGES, EdgyDataset, Sleeper, a_model
    from profiles.measure.measure import measure

    checks = []
    plain: float | None = None
    for first_ms, end_ms in ((0, 0), (200, 0), (0, 200), (150, 250)):
        data = EdgyDataset(60, Sleeper(first_ms / 1e3), Sleeper(end_ms / 1e3))
        result = measure(data, a_model(), device=f"emulated:{IMAGES / 0.01}", rounds=ROUNDS)
        found_ms = 1e3 * (result.attribution.seconds_per_image.epoch_overhead or 0.0) * 60 * IMAGES
        if plain is None:  # what Keras takes for an epoch's edges by itself
            plain = found_ms
            continue
        truth_ms = float(first_ms + end_ms)
        off = (found_ms - plain) / truth_ms - 1
        case = f"{first_ms} ms before the first batch, {end_ms} ms after the last"
        checks.append(
            Check(group="ms an epoch", case=case, truth=truth_ms, found=found_ms - plain, off=off, bound=COLUMN_RATIO)
        )
    return checks


def interference() -> list[Check]:
    """A loader that burns a core beside a CPU model, against the model alone with the same burner beside it."""
    from benchmarks.truth.planted import Burner, a_loader
    from profiles.measure.windows import Windows

    model = open_model("cats-dogs-64", classes=2)
    batch = (np.zeros((32, 64, 64, 3), np.float32), np.zeros((32,), np.float32))
    device = parse_device("cpu")
    windows = Windows(model, device)
    windows.prepare([batch])
    with Burner():
        beside = windows.resident(batch, steps=20, round_=0)
    step_s = beside.s_per_image * 32
    images, labels = batch
    burning = a_loader(lambda: Burner.burn(1.05 * step_s), 40, ahead=4).map(lambda *_: (images, labels))
    samples: dict[str, list[Any]] = {"resident": [], "replay": [], "train": [], "beside": []}
    for number in range(5):
        samples["resident"].append(windows.resident(batch, steps=30, round_=number))
        samples["replay"].append(windows.replay([batch], steps=30, round_=number))
        with Burner():
            samples["beside"].append(windows.resident(batch, steps=30, round_=number))
        samples["train"].append(windows.train(burning, epochs=1, ramp_steps=2, round_=number))
    beside_s = float(np.median([one.s_per_image for one in samples.pop("beside")]))
    alone_s = float(np.median([one.s_per_image for one in samples["resident"]]))
    seconds = attribute(samples, device=device).seconds_per_image
    total_s = sum(value for value in seconds.values() if value is not None)
    truth = 100 * (beside_s - alone_s) / total_s
    found = 100 * (seconds.interference or 0.0) / total_s
    return [
        Check(
            group="interference, % of an epoch",
            case="one core burned throughout",
            truth=truth,
            found=found,
            off=found - truth,
            bound=SHARE_POINTS,
        )
    ]


def stages() -> list[Check]:
    """Stages of a tf.data pipeline that burn or wait, in every order of parallelism."""
    import tensorflow as tf

    from profiles.stages.tf_stages import tfdata_table

    busy_ms, doze_ms = 10.0, 8.0

    def busy(x: np.ndarray) -> np.ndarray:
        until_ns = clock.thread_cpu_ns() + int(busy_ms * 1e6)
        while clock.thread_cpu_ns() < until_ns:
            pass
        return x

    def doze(x: np.ndarray) -> np.ndarray:
        clock.sleep_until_ns(clock.now_ns() + int(doze_ms * 1e6))
        return x

    def burning(x: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(busy, [x], tf.int64), x.shape)

    def waiting(x: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(doze, [x], tf.int64), x.shape)

    checks = []
    for name, calls in (("sequential", None), ("4 calls", 4), ("AUTOTUNE", tf.data.AUTOTUNE)):
        dataset = tf.data.Dataset.range(400).map(burning, num_parallel_calls=calls)
        dataset = dataset.map(waiting, num_parallel_calls=calls).batch(2).prefetch(2)
        table = tfdata_table(dataset, cores=usable_cores())
        by_name = {stage.name: stage for stage in table.stages}
        loader_us = table.loader_cpu_us_per_image or 0.0
        for group, case, truth, found in (
            ("CPU us/image", f"burning, {name}", busy_ms * 1e3, by_name["burning"].cpu_us_per_image),
            ("wait us/image", f"waiting, {name}", doze_ms * 1e3, by_name["waiting"].wait_us_per_image or 0.0),
            ("CPU us/image", f"all stages against the loader, {name}", loader_us, table.cpu_us_per_image),
        ):
            checks.append(
                Check(group=group, case=case, truth=truth, found=found, off=found / truth - 1, bound=COLUMN_RATIO)
            )
    return checks


_GROUPS: dict[str, Callable[[], list[Check]]] = {
    "grid-cpu": lambda: _grid("cpu", 0),
    "grid-cpu-ahead": lambda: _grid("cpu", 1),
    "grid-emulated": lambda: _grid("emulated", 0),
    "grid-emulated-ahead": lambda: _grid("emulated", 1),
    "counting": counting,
    "edges": edges,
    "interference": interference,
    "stages": stages,
}


def _print(console: Console, name: str, checks: Sequence[Check]) -> None:
    is_grid = name.startswith("grid")
    title = ((_grid if is_grid else _GROUPS[name]).__doc__ or "").splitlines()[0]
    console.print(f"\n[bold]{name}[/]: {title}", highlight=False)
    if is_grid:
        _print_grid(console, checks)
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("case", "figure"):
        table.add_column(column)
    for column in ("truth", "found", "off", "promised"):
        table.add_column(column, justify="right")
    for check in checks:
        table.add_row(
            check.case, check.group, f"{check.truth:,.1f}", f"{check.found:,.1f}", _off(check), _promised(check)
        )
    console.print(table)


def _off(check: Check) -> str:
    points = check.bound >= 1
    text = f"{check.off:+.1f} points" if points else f"{check.off:+.1%}"
    return text if check.holds else f"[bold red]{text}[/]"


def _promised(check: Check) -> str:
    return f"{check.bound:g} points" if check.bound >= 1 else f"{check.bound:.0%}"


def _print_grid(console: Console, checks: Sequence[Check]) -> None:
    """Prints how far the shares are off in points, and the rate in per cent."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("load \\ step")
    for step_ms in TIMES_MS:
        table.add_column(f"{step_ms:g} ms", justify="right")
    for row, load_ms in enumerate(TIMES_MS):
        pairs = checks[2 * row * len(TIMES_MS) : 2 * (row + 1) * len(TIMES_MS)]
        cells = [
            f"{_colour(share, f'{share.off:+.1f}')} {_colour(rate, f'{rate.off:+.1%}')}"
            for share, rate in zip(pairs[::2], pairs[1::2], strict=True)
        ]
        table.add_row(f"{load_ms:g} ms", *cells)
    console.print(table)
    shares, rates = checks[::2], checks[1::2]
    console.print(
        f"In each cell: loading share, points off (promised {SHARE_POINTS:g}); images/sec, off "
        f"(promised {LAW_RATIO:.0%}). Largest: {max(abs(one.off) for one in shares):.1f} points, "
        f"{max(abs(one.off) for one in rates):.1%}.",
        highlight=False,
    )


def _colour(check: Check, text: str) -> str:
    return text if check.holds else f"[bold red]{text}[/]"


if __name__ == "__main__":
    sys.exit(main())
