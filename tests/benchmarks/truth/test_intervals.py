"""The command that holds intervals against what they say, and what it simulates."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.truth import intervals
from benchmarks.truth.gate import NOISE
from profiles.devices import parse_device
from profiles.results import attribute
from profiles.statistics import ratio_interval
from profiles.text import Terminal
from tests.builders import a_sample


@pytest.mark.parametrize("rounds", [3, 5, 10])
def test_what_is_simulated_is_the_interval_that_is_printed(rounds: int) -> None:
    logs = np.random.default_rng(rounds).normal(size=(1, rounds))
    _, interval = ratio_interval(np.exp(logs[0]).tolist(), [1.0] * rounds)
    assert interval is not None
    half = intervals.half_widths(logs)[0]
    assert np.log(interval) == pytest.approx([logs.mean() - half, logs.mean() + half])


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("rounds", [3, 5, 8, 15])
def test_intervals_cover_the_truth_as_often_as_they_say(noise: str, rounds: int) -> None:
    assert 0.93 <= intervals._coverage(NOISE[noise], rounds, 4000) <= 0.97


def test_an_order_that_repeats_falls_into_step_with_a_rhythm() -> None:
    """Why the order is drawn anew: A B C D, D C B A covers 80 %. What cannot fail shows nothing."""
    in_turn = NOISE["rhythmic"](np.random.default_rng(0), 4000)[:, :20].reshape(4000, 5, 4).copy()
    in_turn[:, 1::2] = in_turn[:, 1::2, ::-1].copy()
    assert intervals.covered(in_turn[:, :, 0] - in_turn[:, :, 3]) == pytest.approx(0.8, abs=0.03)


def test_the_range_of_few_rounds_is_no_interval() -> None:
    """The bootstrap of a median of three rounds was their range: 75 % in the place of 95."""
    logs = np.random.default_rng(0).normal(size=(4000, 3))
    assert np.mean((logs.min(axis=1) <= 0) & (logs.max(axis=1) >= 0)) == pytest.approx(0.75, abs=0.03)


def test_the_command_prints_coverage_and_says_whether_it_is_as_promised(capsys: pytest.CaptureFixture[str]) -> None:
    assert intervals.main(["--simulations", "2000", "--real", "0"]) in (0, 1)
    shown = capsys.readouterr().out
    assert all(name in shown for name in NOISE)
    assert "promised, 93% to 97%" in shown


@pytest.mark.parametrize(("held", "compatible"), [(95, True), (89, True), (87, False), (100, True)])
def test_real_intervals_are_held_against_what_is_written(
    held: int, compatible: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    steady, off = [-0.01, 0.0, 0.01, 0.02, -0.02], [0.5, 0.51, 0.52, 0.5, 0.51]
    assert intervals._print_real(Terminal(), np.array([steady] * held + [off] * (100 - held))) is compatible
    assert f"{held} of 100 intervals hold 1" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--simulations", "10"], ["--real", "-1"]])
def test_numbers_that_make_no_sense_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        intervals.main(words)
    assert stopped.value.code == 2 and "must be at least" in capsys.readouterr().err


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
