"""Rows: every figure exact on planted samples; what was not measured whole says from what it was drawn out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.builders import EMULATED, GPU, MNIST, TRACE, a_sample, an_epoch, some_facts
from tests.builders import a_device_row as a_row
from unstall.benchmarks.devices.experiments import photos
from unstall.benchmarks.devices.flops import Work
from unstall.benchmarks.devices.results import (
    USED,
    Duration,
    case_result_of,
    epoch_duration,
    reached,
    training_duration,
)
from unstall.benchmarks.devices.samples import Epoch, Extent, MeasuredCase, extent_of, train_window_s
from unstall.models.network import Training
from unstall.profiles.devices import CPU, Device
from unstall.profiles.machine.telemetry import MachineUse
from unstall.profiles.measure.schedule import epochs_for
from unstall.profiles.report.writing_files import to_json


def test_rates_and_shares_come_from_the_windows() -> None:
    row = a_row()
    assert row.images_per_sec == pytest.approx(1000)
    assert row.compute_images_per_sec == pytest.approx(2000)
    assert row.loading_ratio == pytest.approx(0.5)
    assert row.predicted_per_sec == 5000


def test_achieved_operations_are_held_against_the_highest_peak_of_the_run() -> None:
    row = a_row()
    assert row.flops_per_image == 3_000_000
    assert row.achieved_flops_per_sec == pytest.approx(3e9)
    assert row.compute_flops_per_sec == pytest.approx(6e9)
    assert row.peak_flops_per_sec == 7.9e9
    assert (row.peak_ratio, row.compute_peak_ratio) == (pytest.approx(3 / 7.9), pytest.approx(6 / 7.9))


def test_bytes_are_those_of_the_models_own_steps() -> None:
    # 200 steps a second of 4 MB, of 2 GB a second.
    assert a_row().bandwidth_ratio == pytest.approx(0.4)


def test_unknown_operations_leave_the_rest_as_it_is() -> None:
    work = Work(
        forward_flops=None,
        training_flops=None,
        reason="TensorFlow's profiler does not count the While of LSTM",
        activation_bytes=1,
        input_bytes=1,
    )
    row = a_row(work=work)
    assert (row.flops_per_image, row.achieved_flops_per_sec, row.peak_ratio, row.compute_peak_ratio) == (None,) * 4
    assert row.flops_unknown == work.reason and row.bandwidth_ratio is not None


def test_an_emulated_device_computes_nothing_and_its_epoch_is_drawn_out_of_windows() -> None:
    row = a_row(EMULATED)
    assert (row.achieved_flops_per_sec, row.peak_ratio, row.bandwidth_ratio, row.reached) == (None,) * 4
    assert row.epoch == Duration(seconds=pytest.approx(1.0), extrapolated="from windows of training")


def test_the_machine_is_told_by_window() -> None:
    row = a_row()
    assert row.use["resident"] == MachineUse(cpu_ratio=0.2, gpu_ratio=0.1, gpu_celsius=50.0, gpu_watts=100.0)
    assert row.use["train"].cpu_ratio == 0.8
    assert row.use["epochs"] == MachineUse(cpu_ratio=None, gpu_ratio=None)


def test_how_busy_a_gpu_is_counts_from_the_second_second_of_a_window() -> None:
    row = a_row(GPU)
    assert row.use["train"] == MachineUse(cpu_ratio=0.8, gpu_ratio=0.3, gpu_celsius=60.0, gpu_watts=200.0)
    # A window that is no longer than that leaves it unknown.
    assert row.use["resident"] == MachineUse(cpu_ratio=0.2, gpu_ratio=None, gpu_celsius=50.0, gpu_watts=None)


def test_a_gpu_trains_for_three_seconds_a_window() -> None:
    assert [train_window_s(one) for one in (CPU, EMULATED, GPU)] == [0.5, 0.5, 3.0]
    assert epochs_for(a_sample("warmup", epoch_ns=10**9), train_window_s(GPU)) == 3


@pytest.mark.parametrize(
    ("device", "prices", "cost"),
    [
        (CPU, {}, None),
        (CPU, {"gpu": 9.0}, None),
        (CPU, {"cpu": 3.6}, 0.002),
        (EMULATED, {"emulated": 3.6}, 0.001),
        (EMULATED, {"emulated": 3.6, "emulated:5000": 7.2}, 0.002),
    ],
)
def test_an_epoch_costs_its_share_of_the_hour(device: Device, prices: dict[str, float], cost: float | None) -> None:
    assert a_row(device, prices=prices).cost_per_epoch == (None if cost is None else pytest.approx(cost))


def test_without_windows_the_rate_is_that_of_epochs() -> None:
    row = case_result_of(
        MeasuredCase(
            case=MNIST,
            device=CPU,
            backend="jax",
            facts=some_facts(step_s=None, warmup=None),
            epochs=[an_epoch(9.0), an_epoch(2.0)],
        ),
        [],
        trace=TRACE,
        names={window: window for window in USED},
        prices={},
        target=None,
        typical_canary_ns=1.0,
    )
    assert row is not None and row.timing is None
    assert (row.images_per_sec, row.compute_images_per_sec, row.loading_ratio) == (500, None, None)
    assert row.achieved_flops_per_sec == 1.5e9 and row.compute_flops_per_sec is None


@pytest.mark.parametrize("warmup", [None, a_sample("warmup")])
def test_too_little_for_a_row_is_no_row(warmup: Any) -> None:
    nothing = MeasuredCase(case=MNIST, device=CPU, backend="jax", facts=some_facts(warmup=warmup))
    assert case_result_of(nothing, [], trace=TRACE, names={}, prices={}, target=None, typical_canary_ns=1.0) is None


def test_a_row_is_strict_json() -> None:
    values = json.loads(to_json(a_row(target=0.9, epochs=(an_epoch(accuracy=0.5),)).to_dict()))
    assert values["training_time"] == {"seconds": 30.0, "extrapolated": "from 1 of 15 epochs"}
    assert values["reached"]["seconds"] is None and values["accuracy_of"] == "test data"
    assert values["data"] == {"name": "mnist", "examples": 1000, "generated": False, "fingerprint": "abc"}
    assert values["keras_backend"] == "tensorflow" and values["training_flops_per_image"] == 3_000_000


@pytest.mark.parametrize(
    ("epochs", "duration"),
    [
        # The first one fills buffers: where there are others, they say how long one takes.
        ([an_epoch(5.0), an_epoch(2.0), an_epoch(3.0), an_epoch(2.5)], Duration(seconds=2.5)),
        ([an_epoch(5.0)], Duration(seconds=5.0)),
        ([an_epoch(5.0, examples=250)], Duration(seconds=20.0, extrapolated="from 250 of 1,000 examples")),
    ],
)
def test_an_epoch_is_drawn_out_to_all_examples(epochs: list[Epoch], duration: Duration) -> None:
    assert epoch_duration(epochs, 1000, None) == duration


@pytest.mark.parametrize(
    ("epochs", "published", "duration"),
    [
        ([an_epoch(3.0, traced_s=1.0), an_epoch(2.0)], 2, Duration(seconds=6.0)),
        ([an_epoch(3.0, traced_s=1.0), an_epoch(2.0)], 1, Duration(seconds=4.0)),
        ([an_epoch(3.0, traced_s=1.0), an_epoch(2.0)], 10, Duration(seconds=21.0, extrapolated="from 2 of 10 epochs")),
        (
            [an_epoch(3.0, traced_s=1.0, examples=500), an_epoch(1.0, examples=500)],
            10,
            Duration(seconds=21.0, extrapolated="from 2 of 10 epochs, from 500 of 1,000 examples"),
        ),
    ],
)
def test_training_is_drawn_out_to_the_published_epochs(epochs: list[Epoch], published: int, duration: Duration) -> None:
    training = Training(optimizer="adam", batch_size=32, epochs=published, loss="mse")
    assert training_duration(epochs, epoch_duration(epochs, 1000, None), 1000, training) == duration


def test_an_epoch_that_was_traced_does_not_say_how_long_the_others_take() -> None:
    lone = (an_epoch(0.2, traced_s=1.0),)
    row = a_row(case=photos("cats-dogs-64", "generator"), epochs=lone)  # a thousand examples a second in its windows
    assert row.epoch == Duration(seconds=pytest.approx(1.0), extrapolated="from windows of training")
    assert row.training == Duration(seconds=pytest.approx(6401.0), extrapolated="from windows of training")
    without_windows = Duration(seconds=0.2, extrapolated="from the epoch in which the network was traced")
    assert epoch_duration(lone, 1000, None) == without_windows


def test_a_published_training_of_one_epoch_is_measured_whole() -> None:
    training = Training(optimizer="adam", batch_size=32, epochs=1, loss="mse")
    lone = [an_epoch(0.2, traced_s=1.0)]
    assert training_duration(lone, epoch_duration(lone, 1000, None), 1000, training) == Duration(seconds=1.2)


def test_training_of_a_published_number_of_steps_is_drawn_out_to_their_images() -> None:
    training = Training(optimizer="adam", batch_size=32, epochs=25, steps_per_epoch=8000, loss="mse")
    epochs = [an_epoch(3.0, traced_s=1.0), an_epoch(2.0)]
    drawn_out = training_duration(epochs, epoch_duration(epochs, 1000, None), 1000, training)
    # 6,400 passes over a thousand images, of 2 s each.
    assert drawn_out == Duration(seconds=1.0 + 6400 * 2.0, extrapolated="from 2,000 of 6,400,000 images")


@pytest.mark.parametrize(
    ("accuracies", "target", "text"),
    [
        ((0.5, 0.7, 0.8), 0.6, "0.6 reached in epoch 2, 5.0 s"),
        ((0.5, 0.7), 0.5, "0.5 reached in epoch 1, 3.0 s"),
        ((0.5, 0.61), 0.9, "0.9 not reached in 2 epochs (0.61)"),
        ((0.5,), 0.9, "0.9 not reached in 1 epoch (0.50)"),
        ((None,), 0.9, "0.9 not reached in 1 epoch (no accuracy)"),
    ],
)
def test_time_to_an_accuracy_counts_tracing(accuracies: tuple[float | None, ...], target: float, text: str) -> None:
    epochs = [an_epoch(traced_s=float(not number), accuracy=one) for number, one in enumerate(accuracies)]
    assert reached(epochs, target, 1000).text == text


def test_an_accuracy_that_was_reached_on_part_of_the_data_says_so() -> None:
    epochs = [an_epoch(accuracy=0.7, examples=48)]
    assert reached(epochs, 0.6, 1000).text == "0.6 reached in epoch 1, 2.0 s, each epoch cut to 48 of 1,000 examples"
    missed = "0.9 not reached in 1 epoch (0.70), each epoch cut to 48 of 1,000 examples"
    assert reached(epochs, 0.9, 1000).text == missed


@pytest.mark.parametrize(
    ("step_s", "batch_size", "extent"),
    [
        # 0.3 s of steps; a second of them, but no more than 2,048 examples.
        (0.001, 32, Extent(ready_steps=300, train_batches=64)),
        (0.02, 32, Extent(ready_steps=15, train_batches=50)),
        (0.2, 32, Extent(ready_steps=5, train_batches=12)),
        # As slow as the published CPU with the very deep network.
        (10.0, 32, Extent(ready_steps=2, train_batches=3)),
    ],
)
def test_windows_end_soon_where_steps_are_slow(step_s: float, batch_size: int, extent: Extent) -> None:
    assert extent_of(step_s, batch_size) == extent
