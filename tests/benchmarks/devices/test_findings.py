"""What the figures mean: exact ratios and sentences from planted rows."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import EMULATED, GPU, MNIST, TRACE, a_gpu, an_epoch
from tests.builders import a_device_row as a_row
from unstall.benchmarks.devices.experiments import EXPERIMENTS, Claim, photos
from unstall.benchmarks.devices.findings import (
    advantages,
    backend_notes,
    compare,
    cost_text,
    findings_of,
    recommend,
    seconds_text,
    times,
)
from unstall.benchmarks.devices.results import CaseResult
from unstall.models.network import Figure
from unstall.profiles.devices import CPU
from unstall.profiles.machine import unread_gpu


def test_loading_eats_what_training_lacks_of_the_advantage_in_computing() -> None:
    (one,) = advantages([a_row(), a_gpu()])
    assert one.compute_ratio == pytest.approx(10) and one.train_ratio == pytest.approx(5)
    assert one.lost_ratio == pytest.approx(0.5)
    assert one.text == (
        "the GPU (jax) computes 10.0x as fast as the CPU and trains 5.00x as fast: loading takes 50% of the advantage "
        "(loading: cpu 50%, gpu 75%)."
    )
    assert one.compute_ci95 == (pytest.approx(10), pytest.approx(10))


@pytest.mark.parametrize(
    ("train_ms", "said"),
    [
        (1.0, "loading takes nothing of the advantage that could be seen"),
        (0.5, "loading costs the CPU more than the accelerator"),
    ],
)
def test_an_advantage_that_loading_leaves_whole_is_said_so(train_ms: float, said: str) -> None:
    (one,) = advantages([a_row(), a_gpu(train_ms=train_ms, wait_ms=0)])
    assert said in one.text


def test_the_edges_of_epochs_count_as_loading() -> None:
    slow_edges = a_gpu()
    assert slow_edges.timing is not None
    (one,) = advantages([a_row(), a_row(GPU, resident_ms=0.5, train_ms=2.0, wait_ms=1.5)])
    assert one.train_ratio == pytest.approx(slow_edges.timing.epoch_images_per_sec / 1000)


def test_nothing_stands_beside_the_cpu_where_there_is_no_accelerator() -> None:
    assert advantages([a_row()]) == ()
    assert recommend([a_row()]) == ["Only the CPU was measured: there is nothing to choose from."]


def test_an_advantage_whose_steps_cannot_be_split_has_no_share_of_loading() -> None:
    rows = [dataclasses.replace(row, timing=None) for row in (a_row(), a_gpu())]
    (one,) = advantages(rows)
    assert one.lost_ratio is None and one.train_ci95 is None
    assert one.text == "the GPU (jax) trains 5.00x as fast as the CPU; its steps cannot be split."


def a_figure(quantity: str, value: float, on: str = "somewhere") -> Figure:
    return Figure(quantity=quantity, low=value, high=value, on=on)


@pytest.mark.parametrize(
    ("quantity", "kinds", "measured"),
    [
        ("images_per_sec", ("cpu",), [("cpu", (1000, 1000))]),
        ("images_per_sec", ("accelerator",), [("gpu (jax)", (5000, 5000))]),
        ("train_s", ("cpu", "accelerator"), [("cpu", (30, 30)), ("gpu (jax)", (6, 6))]),
        ("speed_up", ("cpu", "accelerator"), [("gpu (jax)", (5, 5))]),
        ("cpu_ratio", ("cpu",), [("cpu", (0.8, 0.8))]),
        ("gpu_ratio", ("accelerator",), [("gpu (jax)", (0.3, 0.3))]),
    ],
)
def test_a_published_figure_stands_beside_the_same_of_ours(
    quantity: str, kinds: tuple[str, ...], measured: list[Any]
) -> None:
    claim = Claim(figure=a_figure(quantity, 1), kinds=kinds, cases=(MNIST,))
    found = compare(claim, [a_row(), a_gpu(epochs=(an_epoch(0.4),))])
    assert [(one.on, one.measured) for one in found] == [
        (on, (pytest.approx(low), pytest.approx(high))) for on, (low, high) in measured
    ]


def test_a_range_is_from_the_least_to_the_most_of_its_cases_and_a_ratio_over_another() -> None:
    plain, more = photos("cats-dogs-64", "generator"), photos("cats-dogs-64", "generator-4-workers")
    rows = [a_row(case=plain), a_row(case=more, train_ms=8)]
    spread = Claim(figure=a_figure("images_per_sec", 50), kinds=("cpu",), cases=(plain, more))
    over = Claim(figure=a_figure("rate_ratio", 3), kinds=("cpu",), cases=(more,), against=plain)
    assert [one.text for one in compare(spread, rows)] == ["1,000 to 1,250 images/sec"]
    assert [one.text for one in compare(over, rows)] == ["1.25x as fast"]


def test_what_was_not_measured_stands_there_with_a_dash() -> None:
    claim = Claim(figure=a_figure("gpu_ratio", 1), kinds=("accelerator",), cases=(MNIST,))
    for rows in ([a_row()], [a_row(), a_row(EMULATED)]):
        (one,) = compare(claim, rows)
        assert (one.text, one.on, one.note) == ("-", None, "not measured here")


def test_an_emulated_or_extrapolated_figure_says_so() -> None:
    claim = Claim(figure=a_figure("train_s", 1), kinds=("cpu", "accelerator"), cases=(MNIST,))
    cpu, emulated = compare(claim, [a_row(), a_row(EMULATED)])
    assert cpu.note == "extrapolated from 1 of 15 epochs"
    assert emulated.note == "extrapolated from windows of training; emulated: it computes nothing"


def test_the_fastest_the_cheapest_and_what_to_do_first_are_named() -> None:
    prices = {"cpu": 0.1, "gpu": 0.9}
    assert recommend([a_row(prices=prices), a_gpu(prices=prices, epochs=(an_epoch(0.4),))]) == [
        "Fastest: the GPU (jax), 400 ms an epoch against 2.0 s on the CPU.",
        "Cheapest per epoch at the prices given: the CPU (cpu 5.6e-05, gpu 0.0001).",
        "Before paying for more of the GPU (jax): 75% of its time is loading. A faster input pipeline comes first "
        "(unstall tune).",
    ]


def test_a_gpu_that_is_fed_needs_no_faster_pipeline() -> None:
    lines = recommend([a_row(), a_gpu(train_ms=0.5, wait_ms=0, epochs=(an_epoch(0.1),))])
    assert lines == ["Fastest: the GPU (jax), 100 ms an epoch against 2.0 s on the CPU."]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0005, "0.5 ms"),
        (0.25, "250 ms"),
        (2.04, "2.0 s"),
        (59.99, "60.0 s"),
        (485, "8 min 5 s"),
        (7320, "2 h 2 min"),
        (950_400 + 3600, "11 d 1 h"),
    ],
)
def test_durations_are_written_for_people(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_ratios_and_costs_have_the_digits_that_they_are_worth() -> None:
    assert [times(ratio) for ratio in (1.234, 12.34, 123.4)] == ["1.23x", "12.3x", "123x"]
    assert [cost_text(cost) for cost in (1.234, 0.01234)] == ["1.23", "0.012"]


@pytest.mark.parametrize(
    ("rows", "missing", "lines"),
    [
        (
            [a_row()],
            ["no driver"],
            ["No GPU was measured (no driver): the CPU stands beside nothing", "TensorFlow on a GPU: untested"],
        ),
        (
            [a_row(), a_gpu()],
            [],
            ["GPU figures were measured here, with Keras on jax, H100.", "TensorFlow on a GPU: untested"],
        ),
        (
            [a_row(), a_row(EMULATED)],
            [],
            ["No GPU was measured: ", "TensorFlow on a GPU: untested", "An emulated accelerator sleeps"],
        ),
    ],
)
def test_what_a_gpu_figure_was_measured_on_is_said(
    rows: list[CaseResult], missing: list[str], lines: list[str]
) -> None:
    found = backend_notes(rows, missing, {"keras_backend": "jax", "gpus": ["H100"]})
    assert len(found) == len(lines)
    assert all(one.startswith(line) for one, line in zip(found, lines, strict=True))


def test_figures_of_tensorflow_on_a_gpu_say_that_it_is_untested() -> None:
    assert backend_notes([a_row(), a_row(GPU)], [], {"keras_backend": "tensorflow", "gpus": ["H100"]}) == [
        "GPU figures were measured here, with Keras on tensorflow, H100 (TensorFlow on a GPU: untested)."
    ]


def test_a_gpu_that_nobody_read_is_spoken_of_in_a_line() -> None:
    (line,) = unread_gpu([CPU, GPU], replace(TRACE, gpu_ratio=()))
    assert line.startswith("How busy the GPU was is unknown: nvidia-ml-py")
    assert unread_gpu([CPU, GPU], TRACE) == unread_gpu([CPU, EMULATED], replace(TRACE, gpu_ratio=())) == []


def test_an_experiment_takes_its_own_rows_and_says_what_they_mean() -> None:
    other = photos("cats-dogs-64", "generator")
    found = findings_of("mnist", EXPERIMENTS["mnist"], [a_row(case=other), a_row(target=0.9), a_gpu()])
    assert found.cases == [MNIST] and len(found.results) == 2
    said = found.sentences(MNIST)
    assert said[0].startswith("The GPU (jax) computes 10.0x as fast")
    assert said[-1] == "Accuracy on the CPU: 0.9 not reached in 1 epoch (no accuracy)."
    assert {one["published"]["quantity"] for one in found.to_dict()["published"]} == {
        *("train_s", "cpu_ratio", "gpu_ratio", "speed_up")
    }
