"""Do intervals hold what they say? In simulated noise of five kinds, and in the main job between a variant and itself.

python -m benchmarks.truth --only intervals
"""

from __future__ import annotations

import math
import os
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import scipy.stats
from rich.console import Console
from rich.table import Table

from benchmarks.lab.command import exit_code_of
from benchmarks.lab.options import MODEL, UserError
from benchmarks.lab.rounds import Group, run_round
from benchmarks.lab.session import Job
from benchmarks.truth.gate import NOISE
from pipeline import VARIANTS, open_source
from pipeline.commands import ArgumentParser
from profiles import Device
from profiles.statistics import CONFIDENCE, LEAST_ROUNDS, share_interval
from profiles.text import Terminal

# What is promised: of 100 intervals so many hold the truth, in each kind of noise and for each number of rounds.
LEAST_COVERAGE, MOST_COVERAGE = 0.93, 0.97
# Chance of so few or so many real ones if the coverage is as written, below which it is not.
LEAST_P = 0.01
_ROUNDS = (*range(LEAST_ROUNDS, 11), 12, 15)
# As many are compared in a round as a usual run has variants.
_CONTENDERS = 4
_PHOTOS = "generated:512"
# Copies of one variant, compared two by two, in rounds as the main job has them.
_VARIANT, _COPIES, _REAL_ROUNDS = "tf-data-prefetch", 8, 5


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0 where all coverage is as promised, else 1."""
    parser = ArgumentParser(prog="python -m benchmarks.truth --only intervals", description=__doc__.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=20_000, metavar="N", help="of each number (default: 20000)")
    parser.add_argument(
        "--real",
        type=int,
        default=100,
        metavar="N",
        help="intervals of the main job between a variant and itself (default: 100; 0: none)",
    )
    arguments = parser.parse_args(argv)
    for name, least in (("simulations", 100), ("real", 0)):
        if (given := getattr(arguments, name)) < least:
            parser.error(f"--{name} must be at least {least}. Received: {given}.")
    console = Terminal()
    coverage = {
        name: [_coverage(noise, rounds, arguments.simulations) for rounds in _ROUNDS] for name, noise in NOISE.items()
    }
    _print(console, coverage, arguments.simulations)
    lowest, highest = min(map(min, coverage.values())), max(map(max, coverage.values()))
    held = lowest >= LEAST_COVERAGE and highest <= MOST_COVERAGE
    said = "as promised" if held else "not as promised"
    console.print(
        f"From {lowest:.1%} to {highest:.1%}: {said}, {LEAST_COVERAGE:.0%} to {MOST_COVERAGE:.0%}.\n", highlight=False
    )
    if not arguments.real:
        return int(not held)
    errors = Terminal(stderr=True)

    def run() -> int:
        with errors.status("the main job, a variant and itself ..."):
            logs = _real(arguments.real)
        return int(not (_print_real(console, logs) and held))

    return exit_code_of(run, errors, Path())


def _coverage(noise: Callable[[np.random.Generator, int], np.ndarray], rounds: int, simulations: int) -> float:
    """Returns how many intervals of a ratio hold the truth, of two among several that are measured in turn.

    Args:
      noise: of the logarithms of the rates, in the order of measuring.
    """
    rng = np.random.default_rng(rounds)
    count = _CONTENDERS if rounds * _CONTENDERS <= noise(rng, 1).shape[1] else 3
    in_turn = noise(rng, simulations)[:, : rounds * count].reshape(simulations, rounds, count)
    # Who comes when is drawn anew in each round: the first two of a permutation are two of those compared.
    order = rng.permuted(np.tile(np.arange(count), (simulations, rounds, 1)), axis=2)
    drawn = np.take_along_axis(in_turn, order, axis=2)
    return covered(drawn[:, :, 0] - drawn[:, :, 1])


def covered(logs: np.ndarray) -> float:
    """Returns the part of the intervals that hold 0: of log ratios (intervals, rounds) of things that are the same."""
    return float((np.abs(logs.mean(axis=1)) <= half_widths(logs)).mean())


def half_widths(logs: np.ndarray) -> np.ndarray:
    """Returns those of the intervals of `profiles.statistics.ratio_interval`, for many at once: in logarithms."""
    rounds = logs.shape[1]
    return scipy.stats.t.ppf((1 + CONFIDENCE) / 2, rounds - 1) * logs.std(axis=1, ddof=1) / math.sqrt(rounds)


def _print(console: Console, coverage: dict[str, list[float]], simulations: int) -> None:
    title = f"[bold]% of {simulations:,} simulated intervals that hold the truth[/]"
    table = Table(box=None, padding=(0, 1, 0, 0), title=title, title_justify="left")
    table.add_column("noise")
    for rounds in _ROUNDS:
        table.add_column(str(rounds), justify="right")
    for name, shares in coverage.items():
        table.add_row(name, *(f"{share:.1%}".rstrip("%") for share in shares))
    console.print(table)
    console.print(f"Columns: rounds; {CONFIDENCE:.0%} is written.", highlight=False)


def _real(intervals: int) -> np.ndarray:
    """Returns log ratios (intervals, rounds) of a variant against itself, measured as the main job measures."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    source, pairs = open_source(_PHOTOS), _COPIES // 2
    jobs = [Job(variant=f"copy {number}", config=VARIANTS[_VARIANT], model=MODEL) for number in range(_COPIES)]
    with tempfile.TemporaryDirectory() as folder:
        group = Group(Device(kind="cpu", name="cpu"), source, jobs, Path(folder) / "log", {})
        try:
            group.open()
            for job in jobs:
                group.prepare(job)
            order = random.Random()
            turns = group.turns(loader=False, model_alone=False)
            runs = math.ceil(intervals / pairs)
            for number in range(runs * _REAL_ROUNDS):
                run_round(turns, number, order)
            if group.left_out:
                reasons = "; ".join(f"{left_out.label}: {left_out.reason}" for left_out in group.left_out)
                raise UserError(reasons, exit_code=3)
            trained = [[one for one in group.measured[job].samples if one.window == "train"] for job in jobs]
            seconds = np.array([[one.whole_s_per_image(source.images) for one in samples] for samples in trained])
        finally:
            group.kill()
    logs = np.log(seconds[0::2] / seconds[1::2]).reshape(pairs * runs, _REAL_ROUNDS)
    return logs[:intervals]


def _print_real(console: Console, logs: np.ndarray) -> bool:
    held, count = round(covered(logs) * len(logs)), len(logs)
    p_value = scipy.stats.binomtest(held, count, CONFIDENCE).pvalue
    low, high = share_interval(held, count)
    console.print(
        f"The main job, {_VARIANT} on {MODEL} against itself, {logs.shape[1]} rounds: {held} of {count} intervals hold "
        f"1 ({low:.0%} to {high:.0%}; p = {p_value:.2g} if {CONFIDENCE:.0%} do). Their half width: "
        f"{np.median(half_widths(logs)):.1%} (median).",
        highlight=False,
        soft_wrap=True,
    )
    return bool(p_value > LEAST_P)
