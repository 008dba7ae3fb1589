"""The command that holds intervals against what they say, and what it simulates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.builders import a_sample, a_truth_document
from unstall.benchmarks.truth.__main__ import main
from unstall.benchmarks.truth.coverage import coverage, covered, half_widths
from unstall.benchmarks.truth.gate_simulated import NOISE
from unstall.benchmarks.truth.report import KIND
from unstall.benchmarks.truth.results import derive
from unstall.benchmarks.truth.samples import Figure, Group
from unstall.profiles.devices import parse_device
from unstall.profiles.results.attribution import attribute
from unstall.profiles.statistics import ratio_interval
from unstall.profiles.text import Terminal


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
    assert 0.93 <= coverage(NOISE[noise], rounds, 4000) <= 0.97


def test_an_order_that_repeats_falls_into_step_with_a_rhythm() -> None:
    """Why the order is drawn anew: A B C D, D C B A covers 80 %. What cannot fail shows nothing."""
    in_turn = NOISE["rhythmic"](np.random.default_rng(0), 4000)[:, :20].reshape(4000, 5, 4).copy()
    in_turn[:, 1::2] = in_turn[:, 1::2, ::-1].copy()
    assert covered(in_turn[:, :, 0] - in_turn[:, :, 3]) == pytest.approx(0.8, abs=0.03)


def test_the_range_of_few_rounds_is_no_interval() -> None:
    """The bootstrap of a median of three rounds was their range: 75 % in the place of 95."""
    logs = np.random.default_rng(0).normal(size=(4000, 3))
    assert np.mean((logs.min(axis=1) <= 0) & (logs.max(axis=1) >= 0)) == pytest.approx(0.75, abs=0.03)


def test_the_command_prints_coverage_and_says_whether_it_is_as_promised(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["--only", "intervals", "--simulations", "2000", "--real", "0", "--out", str(tmp_path)]
    assert main(words) in (0, 1)
    shown = capsys.readouterr().out
    assert all(name in shown for name in NOISE)
    assert "promised, 93% to 97%." in shown and "of 50 figures are as near to the truth" in shown


@pytest.mark.parametrize(("held", "compatible"), [(95, True), (89, True), (87, False), (100, True)])
def test_real_intervals_are_held_against_what_is_written(
    held: int, compatible: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    steady, off = (-0.01, 0.0, 0.01, 0.02, -0.02), (0.5, 0.51, 0.52, 0.5, 0.51)
    figures = tuple(
        Figure(case="v on m, run 1", name="s/image", truth=tuple(np.exp(logs)), measured=(1.0,) * 5)
        for logs in [steady] * held + [off] * (100 - held)
    )
    document = a_truth_document(
        Group(name="real", figures=figures), part="intervals", options={"simulations": 100, "real": 100}
    )
    results = derive(document)
    assert results.exit_code == int(not compatible)
    KIND.print(Terminal(), document, results)
    assert f"{held} of 100 intervals hold 1" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("noise", NOISE)
def test_the_interval_of_loading_covers_the_truth_as_often(noise: str) -> None:
    """Five rounds of four windows in an order drawn anew, each of which takes 5 % more or less by chance."""
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
