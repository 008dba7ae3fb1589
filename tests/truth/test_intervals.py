"""Do intervals hold what they say? In simulated noise of five kinds, and in the main job, a variant against itself."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.builders import a_sample
from tests.truth.figures import Check, check, figure_of
from tests.truth.simulated import NOISE
from unstall.benchmarks.lab.options import MODEL
from unstall.benchmarks.lab.rounds import Group, run_round
from unstall.benchmarks.lab.session import Job
from unstall.pipeline import VARIANTS, open_source
from unstall.profiles.devices import CPU, parse_device
from unstall.profiles.results.attribution import attribute
from unstall.profiles.statistics import CONFIDENCE, LEAST_ROUNDS, ratio_interval, share_interval

ROUNDS = (*range(LEAST_ROUNDS, 11), 12, 15)
# As many subjects are compared in a round as a usual run has variants.
_SUBJECTS = 4
# Copies of one variant, compared two by two, in rounds as the main job has them.
_VARIANT, _COPIES, _REAL_ROUNDS = "tf-data-prefetch", 8, 5
# The least chance of as many or as few of the real intervals, if as many hold the truth as is written.
_LEAST_P = 0.01


def coverage(noise: Callable[[np.random.Generator, int], np.ndarray], rounds: int, simulations: int) -> float:
    """Returns the part of intervals that hold the truth, of the ratio of two subjects among several.

    Args:
      noise: of the logarithms of the rates, in the order of measuring.
    """
    rng = np.random.default_rng(rounds)
    subjects = _SUBJECTS if rounds * _SUBJECTS <= noise(rng, 1).shape[1] else 3
    in_turn = noise(rng, simulations)[:, : rounds * subjects].reshape(simulations, rounds, subjects)
    # The order is drawn again in each round: the first two of a permutation are two of the subjects.
    order = rng.permuted(np.tile(np.arange(subjects), (simulations, rounds, 1)), axis=2)
    drawn = np.take_along_axis(in_turn, order, axis=2)
    return covered(drawn[:, :, 0] - drawn[:, :, 1])


def covered(logs: np.ndarray) -> float:
    """Returns the part of the intervals that hold 0: of log ratios (intervals, rounds) of things that are the same."""
    return float((np.abs(logs.mean(axis=1)) <= half_widths(logs)).mean())


def half_widths(logs: np.ndarray) -> np.ndarray:
    """Returns those of the intervals of `profiles.statistics.ratio_interval`, for many at once: in logarithms."""
    rounds = logs.shape[1]
    return stats.t.ppf((1 + CONFIDENCE) / 2, rounds - 1) * logs.std(axis=1, ddof=1) / math.sqrt(rounds)


def check_of(noise: str, rounds: int, simulations: int) -> Check:
    """Holds a simulated coverage against what is promised."""
    held = coverage(NOISE[noise], rounds, simulations)
    return check("intervals", figure_of(f"{noise}, {rounds}", "coverage, %", 100 * CONFIDENCE, 100 * held))


@pytest.mark.parametrize("rounds", [3, 5, 10])
def test_what_is_simulated_is_the_interval_that_is_printed(rounds: int) -> None:
    logs = np.random.default_rng(rounds).normal(size=(1, rounds))
    _, interval = ratio_interval(np.exp(logs[0]).tolist(), [1.0] * rounds)
    assert interval is not None
    half = half_widths(logs)[0]
    assert np.log(interval) == pytest.approx([logs.mean() - half, logs.mean() + half])


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("rounds", [3, 5, 8, 15])
def test_intervals_cover_the_truth_as_often_as_they_say(noise: str, rounds: int) -> None:
    assert check_of(noise, rounds, 4000).holds


@pytest.mark.claims
def test_simulated_intervals_hold_the_truth_for_each_number_of_rounds(tabulate: Any) -> None:
    simulations = 20_000
    checks = {noise: [check_of(noise, rounds, simulations) for rounds in ROUNDS] for noise in NOISE}
    rows = [(noise, *(f"{each.figure.measured[0]:.1f}" for each in of_noise)) for noise, of_noise in checks.items()]
    note = f"Columns: rounds. Cells: % of {simulations:,} simulated intervals that hold the truth; 95 % is written."
    tabulate("intervals", ("noise", *map(str, ROUNDS)), rows, note)
    assert [each for of_noise in checks.values() for each in of_noise if not each.holds] == []


def test_an_order_that_repeats_falls_into_step_with_a_rhythm() -> None:
    """Why the order is drawn again: A B C D, D C B A covers 80 %. What cannot fail shows nothing."""
    in_turn = NOISE["rhythmic"](np.random.default_rng(0), 4000)[:, :20].reshape(4000, 5, 4).copy()
    in_turn[:, 1::2] = in_turn[:, 1::2, ::-1].copy()
    assert covered(in_turn[:, :, 0] - in_turn[:, :, 3]) == pytest.approx(0.8, abs=0.03)


def test_the_range_of_few_rounds_is_no_interval() -> None:
    """The bootstrap of a median of three rounds was their range: 75 % instead of 95."""
    logs = np.random.default_rng(0).normal(size=(4000, 3))
    assert np.mean((logs.min(axis=1) <= 0) & (logs.max(axis=1) >= 0)) == pytest.approx(0.75, abs=0.03)


def p_value(logs: np.ndarray) -> float:
    """Returns the chance of so many or so few intervals that hold 0, if as many hold it as is written."""
    return float(stats.binomtest(round(covered(logs) * len(logs)), len(logs), CONFIDENCE).pvalue)


@pytest.mark.parametrize(("held", "compatible"), [(95, True), (89, True), (87, False), (100, True)])
def test_real_intervals_are_held_against_what_is_written(held: int, compatible: bool) -> None:
    steady, off = (-0.01, 0.0, 0.01, 0.02, -0.02), (0.5, 0.51, 0.52, 0.5, 0.51)
    assert (p_value(np.array([steady] * held + [off] * (100 - held))) > _LEAST_P) is compatible


@pytest.mark.slow  # an hour: 25 main jobs of eight loaders
@pytest.mark.timeout(10_000)
def test_real_intervals_of_a_variant_against_itself_hold_1(tmp_path: Path, repeats: Any, tabulate: Any) -> None:
    logs = np.array([log for _, log in zip(range(repeats(100)), main_jobs(tmp_path), strict=False)])
    held, count = round(covered(logs) * len(logs)), len(logs)
    low, high = share_interval(held, count)
    columns = ("the main job", "rounds", "intervals", "hold 1", "are between", "p if 95 % do", "half width (median)")
    case, chance, width = f"{_VARIANT} on {MODEL} against itself", p_value(logs), np.median(half_widths(logs))
    row = (case, str(_REAL_ROUNDS), str(count), str(held), f"{low:.0%} to {high:.0%}", f"{chance:.2g}", f"{width:.1%}")
    tabulate("real intervals", columns, [row])
    assert chance > _LEAST_P


def main_jobs(folder: Path) -> Iterator[np.ndarray]:
    """Yields log ratios of the seconds of copies of a variant, two by two, of one main job after another."""
    source = open_source("generated:512")
    jobs = [Job(variant=f"copy {number}", config=VARIANTS[_VARIANT], model=MODEL) for number in range(_COPIES)]
    children = Group(CPU, source, jobs, folder / "log", {})
    try:
        children.open()
        for job in jobs:
            children.prepare(job)
        order, turns, number = random.Random(), children.turns(loader=False, model_alone=False), 0
        while True:
            for _ in range(_REAL_ROUNDS):
                run_round(turns, number, order)
                number += 1
            assert children.left_out == []
            logs = [
                np.log([each.whole_s_per_image(source.images) for each in children.measured[job].samples
                        if each.window == "train"][-_REAL_ROUNDS:])
                for job in jobs
            ]  # fmt: skip
            for one, other in zip(logs[0::2], logs[1::2], strict=True):
                yield one - other
    finally:
        children.kill()


@pytest.mark.parametrize("noise", NOISE)
def test_the_interval_of_loading_covers_the_truth_as_often(noise: str) -> None:
    """Five rounds of four windows in an order drawn again, each of which takes 5 % more or less by chance."""
    rng = np.random.default_rng(0)
    logs = 0.05 * NOISE[noise](rng, 400)[:, :20].reshape(400, 5, 4)
    order = rng.permuted(np.tile(np.arange(4), (400, 5, 1)), axis=2)
    taken = np.exp(np.take_along_axis(logs, order, axis=2))
    held = 0
    for run in taken:
        samples = {
            "resident": [a_sample("resident", ms=4 * times[0], round=number) for number, times in enumerate(run)],
            "train": [a_sample("train", ms=10 * times[1], wait_ms=5, round=number) for number, times in enumerate(run)],
        }
        low, high = attribute(samples, device=parse_device("emulated:2500")).loading_ratio_ci95
        held += low <= 0.6 <= high
    assert 0.92 <= held / 400 <= 0.985
