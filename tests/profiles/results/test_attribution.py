"""Attribution on hand-made samples: every number below can be checked with a pencil."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.builders import MS, a_result, a_sample, an_attribution, rounds_of
from unstall.profiles.devices import Device, parse_device
from unstall.profiles.results.attribution import BALANCED_FROM, INPUT_FROM, Attribution, attribute
from unstall.profiles.results.checks import check_own_steps
from unstall.profiles.results.parts import PARTS
from unstall.profiles.samples import Sample
from unstall.profiles.statistics import t_interval

CPU, GPU, EMULATED = parse_device("cpu"), parse_device("gpu"), parse_device("emulated:1000")

# Ten images a step: milliseconds a step are tenths of milliseconds an image.
# resident 4, replay 5 (1 of it waiting), train 10 (3 of it waiting), edges 20 an epoch of 10 steps.
SAMPLES: dict[str, list[Sample]] = {
    "resident": [a_sample("resident", ms=4)],
    "replay": [a_sample("replay", ms=5, wait_ms=1)],
    "train": [a_sample("train", ms=10, wait_ms=3, edge_ms=20)],
}


def in_ms(attribution: Attribution) -> dict[str, float | None]:
    """Returns milliseconds per image, rounded where floats are not exact."""
    return {part: None if s is None else round(s * 1e3, 9) for part, s in attribution.seconds_per_image.items()}


def test_a_cpu_waits_inside_next_and_is_slowed_outside_it() -> None:
    assert in_ms(attribute(SAMPLES, device=CPU)) == {
        "compute": 0.4,
        "device_augment": 0.0,
        "transfer": 0.1,  # replay 0.5 less resident 0.4
        "fetch_stall": None,  # warm
        "prep_stall": 0.2,  # waiting: train 0.3 less replay 0.1
        "interference": 0.3,  # not waiting: train 0.7 less replay 0.4
        "epoch_overhead": 0.2,
    }


def test_a_step_is_not_slowed_by_more_than_the_cpu_time_of_the_loader() -> None:
    """Steps of 130 ms that took 239 beside a cached dataset: nothing of it is the loader's."""
    alone = [a_sample("resident", ms=130, cpu_ns=1300 * MS)]
    beside = a_sample("train", ms=239, cpu_ns=1300 * MS)
    attribution = attribute({"resident": alone, "train": [beside]}, device=CPU)
    assert in_ms(attribution)["interference"] == 0
    assert in_ms(attribution)["compute"] == 23.9
    # A loader of 20 ms of CPU beside the ten steps can have taken 2 ms a step.
    busy = a_sample("train", ms=239, cpu_ns=1320 * MS)
    assert in_ms(attribute({"resident": alone, "train": [busy]}, device=CPU))["interference"] == 0.2
    # The same where the loader alone was measured and says so.
    loader = a_sample("loader", ms=2, cpu_ns=50 * MS)
    samples = {"resident": alone, "train": [beside], "loader": [loader]}
    assert in_ms(attribute(samples, device=CPU))["interference"] == 0.5
    assert attribution.loading_ratio == pytest.approx(0)
    (flag,) = check_own_steps({"resident": alone, "train": [beside]}, attribution)
    assert str(flag).startswith("slower by itself: a training step took 1.84 times as long as the model alone")
    assert check_own_steps(SAMPLES, attribute(SAMPLES, device=CPU)) == ()


def test_a_gpu_starves_for_what_train_takes_longer_than_replay() -> None:
    assert in_ms(attribute(SAMPLES, device=GPU)) == {
        "compute": 0.4,
        "device_augment": 0.0,
        "transfer": 0.1,
        "fetch_stall": None,
        "prep_stall": 0.5,  # train 1.0 less replay 0.5
        "interference": None,  # in the stall
        "epoch_overhead": 0.2,
    }


def test_an_emulated_device_has_no_transfer() -> None:
    samples = {window: SAMPLES[window] for window in ("resident", "train")}
    assert in_ms(attribute(samples, device=EMULATED)) == {
        "compute": 0.4,
        "device_augment": 0.0,
        "transfer": 0.0,
        "fetch_stall": None,
        "prep_stall": 0.3,
        "interference": 0.3,  # train's step 0.7 less resident 0.4
        "epoch_overhead": 0.2,
    }


def test_layers_in_front_of_the_model_are_loading_and_not_compute() -> None:
    samples = SAMPLES | {"bare": [a_sample("bare", ms=2.5)]}
    attribution = attribute(samples, device=CPU)
    assert in_ms(attribution) == {
        "compute": 0.25,
        "device_augment": 0.15,
        "transfer": 0.1,
        "fetch_stall": None,
        "prep_stall": 0.2,
        "interference": 0.3,
        "epoch_overhead": 0.2,
    }
    assert attribution.loading_ratio == pytest.approx(1 - 0.25 / 1.2)
    assert attribution.headspace == pytest.approx(1.2 / 0.25)


@pytest.mark.parametrize("device", [CPU, GPU, EMULATED], ids=lambda device: device.kind)
@pytest.mark.parametrize("windows", [("resident", "train"), ("resident", "train", "replay")], ids=len)
def test_parts_sum_to_the_whole_and_shares_to_one(device: Device, windows: Sequence[str]) -> None:
    samples = {window: SAMPLES[window] for window in windows}
    attribution = attribute(samples, device=device)
    parts = [seconds for seconds in attribution.seconds_per_image.values() if seconds is not None]
    assert math.fsum(parts) == pytest.approx(samples["train"][0].epoch_s_per_image)
    assert attribution.epoch_s_per_image == pytest.approx(1.2e-3)
    assert math.fsum(share for share in attribution.shares.values() if share is not None) == pytest.approx(1, abs=1e-12)
    assert [part for part, _ in attribution.shares.items()] == list(PARTS)


# What a cold round of the same is: 16 ms a step, 8 of it waiting, and 30 ms of edges.
COLD = a_sample("cold", ms=16, wait_ms=8, edge_ms=30)


@pytest.mark.parametrize(
    ("device", "prep_stall", "interference"),
    # Waiting: cold 0.8 less replay 0.1, 0.6 of it for storage; not waiting: cold 0.8 less replay 0.4.
    # A GPU starves for cold 1.6 less replay 0.5, 0.6 of it for storage.
    [(CPU, 0.1, 0.4), (GPU, 0.5, None)],
    ids=["cpu", "gpu"],
)
def test_a_cold_row_waits_for_storage_as_long_as_it_is_slower_than_the_warm_one(
    device: Device, prep_stall: float, interference: float | None
) -> None:
    attribution = attribute(SAMPLES | {"cold": [COLD]}, device=device)
    assert in_ms(attribution) == {
        "compute": 0.4,
        "device_augment": 0.0,
        "transfer": 0.1,
        "fetch_stall": 0.6,  # cold 1.6 less train 1.0
        "prep_stall": prep_stall,
        "interference": interference,
        "epoch_overhead": 0.3,
    }
    assert attribution.epoch_s_per_image == pytest.approx(COLD.epoch_s_per_image)
    assert math.fsum(share for share in attribution.shares.values() if share is not None) == pytest.approx(1)
    assert attribution.host_wait_ratio == 0.5
    assert replace(a_result(), attribution=attribution).culprit == "fetch_stall"


def test_an_empty_cold_window_makes_no_cold_row() -> None:
    assert attribute(SAMPLES | {"cold": []}, device=CPU) == attribute(SAMPLES, device=CPU)


def test_storage_that_costs_nothing_may_come_out_negative() -> None:
    attribution = attribute(SAMPLES | {"cold": [a_sample("cold", ms=9, wait_ms=3)]}, device=CPU)
    assert in_ms(attribution)["fetch_stall"] == -0.1
    assert in_ms(attribution)["prep_stall"] == 0.3


def test_cold_and_warm_rounds_are_compared_side_by_side() -> None:
    """Each round is twice as slow as the one before, in everything; the last has no cold window."""
    samples = {
        "resident": rounds_of("resident", 4, 8, 16, 99),
        "train": rounds_of("train", 10, 20, 40, 500),
        "cold": rounds_of("cold", 16, 32, 64),
    }
    attribution = attribute(samples, device=EMULATED)
    assert attribution.shares.fetch_stall == pytest.approx(6 / 16)
    assert attribution.shares_ci95.fetch_stall == pytest.approx((6 / 16, 6 / 16))


def test_ratios_are_of_the_epoch() -> None:
    attribution = attribute(SAMPLES, device=CPU)
    assert attribution.loading_ratio == pytest.approx(0.8 / 1.2)
    assert attribution.headspace == pytest.approx(3)
    assert attribution.host_wait_ratio == pytest.approx(0.3)
    assert attribution.shares.epoch_overhead == pytest.approx(0.2 / 1.2)


def test_levels_are_geometric_means_over_rounds() -> None:
    """A train of 5 and 20 ms a step is one of 10; what steps waited is 40 % of it."""
    samples = {
        "resident": rounds_of("resident", 2, 8),
        "train": [
            a_sample("train", ms=5, wait_ms=1, edge_ms=10),
            a_sample("train", ms=20, wait_ms=12, edge_ms=40, round=1),
        ],
    }
    attribution = attribute(samples, device=EMULATED)
    assert in_ms(attribution) == {
        "compute": 0.4,
        "device_augment": 0.0,
        "transfer": 0.0,
        "fetch_stall": None,
        "prep_stall": 0.4,
        "interference": 0.2,
        "epoch_overhead": 0.2,
    }


@pytest.mark.parametrize("rounds", [1, 2])
def test_few_rounds_have_no_interval(rounds: int) -> None:
    samples = {window: [replace(ones[0], round=n) for n in range(rounds)] for window, ones in SAMPLES.items()}
    attribution = attribute(samples, device=CPU)
    assert set(attribution.shares_ci95.values()) == {None}
    assert attribution.loading_ratio_ci95 is None
    assert attribution.loading_range == pytest.approx(
        (attribution.loading_ratio - 0.05, attribution.loading_ratio + 0.05)
    )


def test_intervals_hold_the_shares_and_widen_with_the_spread() -> None:
    resident = rounds_of("resident", 4, 4, 4, 4, 4)
    calm = attribute({"resident": resident, "train": rounds_of("train", 10, 10, 10, 10, 10)}, device=EMULATED)
    trained = [8, 9, 10, 11, 12]
    wild = attribute({"resident": resident, "train": rounds_of("train", *trained)}, device=EMULATED)
    assert calm.loading_ratio_ci95 == pytest.approx((0.6, 0.6))
    # Compute is 4 ms of an epoch's: Student's interval of the logarithms, in first order.
    logs = [math.log(4 / ms) for ms in trained]
    middle = math.exp(np.mean(logs))
    low, high = t_interval(logs)
    assert wild.shares.compute == pytest.approx(middle)
    assert wild.shares_ci95.compute == pytest.approx(
        (middle * (1 + low - np.mean(logs)), middle * (1 + high - np.mean(logs))), rel=1e-6
    )
    assert wild.loading_ratio_ci95 == pytest.approx([1 - one for one in wild.shares_ci95.compute[::-1]])


def test_what_all_windows_of_a_round_have_in_common_widens_no_interval() -> None:
    samples = {"resident": rounds_of("resident", 4, 8, 16), "train": rounds_of("train", 10, 20, 40, wait_ms=2)}
    attribution = attribute(samples, device=EMULATED)
    assert attribution.loading_ratio_ci95 == pytest.approx((0.6, 0.6))
    # Of other rounds nothing is common: the same numbers say little.
    apart = {"resident": samples["resident"], "train": [replace(one, round=one.round + 3) for one in samples["train"]]}
    low, high = attribute(apart, device=EMULATED).loading_ratio_ci95
    assert high - low > 0.5


def test_undefined_parts_have_neither_share_nor_interval() -> None:
    attribution = attribute(SAMPLES, device=GPU)
    for part in ("fetch_stall", "interference"):
        assert attribution.shares[part] is None
        assert attribution.shares_ci95[part] is None


def test_a_negative_part_is_kept() -> None:
    samples = {"resident": [a_sample("resident", ms=12)], "train": [a_sample("train", ms=10, wait_ms=1)]}
    attribution = attribute(samples, device=EMULATED)
    assert in_ms(attribution)["interference"] == pytest.approx(-0.3)
    assert attribution.shares.interference == pytest.approx(-0.3)
    assert attribution.loading_ratio == pytest.approx(-0.2)
    assert attribution.bound == "compute"


def test_edges_are_spread_over_the_images_of_an_epoch_in_use() -> None:
    # 20 ms an epoch of 100 images when measured; in use it has 400: 0.2 ms an image become 0.05.
    assert in_ms(attribute(SAMPLES, device=CPU, images=400))["epoch_overhead"] == 0.05
    assert in_ms(attribute(SAMPLES, device=CPU, images=100))["epoch_overhead"] == 0.2


def test_edges_of_several_epochs_are_those_of_one() -> None:
    four = a_sample("train", ms=10, epochs=4, epoch_images=400, epoch_ns=4 * 120 * MS)
    samples = {"resident": SAMPLES["resident"], "train": [four]}
    assert in_ms(attribute(samples, device=EMULATED))["epoch_overhead"] == 0.2
    assert in_ms(attribute(samples, device=EMULATED, images=200))["epoch_overhead"] == 0.1


@pytest.mark.parametrize("window", ["train", "resident"])
def test_a_missing_window_is_refused(window: str) -> None:
    others = {name: samples for name, samples in SAMPLES.items() if name != window}
    with pytest.raises(ValueError, match=f"must hold the window '{window}'. Received: {', '.join(others)}."):
        attribute(others, device=CPU)


def test_a_window_without_a_round_is_refused() -> None:
    with pytest.raises(ValueError, match="must hold the window 'resident'"):
        attribute(SAMPLES | {"resident": []}, device=CPU)


def test_no_samples_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must hold the window 'train'\. Received: nothing\."):
        attribute({}, device=CPU)


@pytest.mark.parametrize(
    ("loading", "bound"),
    [
        (-0.05, "compute"),
        (0.0, "compute"),
        (0.0999, "compute"),
        (0.10, "balanced"),
        (0.1999, "balanced"),
        (0.20, "input"),
        (0.9, "input"),
    ],
)
def test_the_bound_changes_at_its_thresholds(loading: float, bound: str) -> None:
    assert an_attribution(loading).bound == bound


def test_the_thresholds_are_those_of_the_design() -> None:
    assert (BALANCED_FROM, INPUT_FROM) == (0.10, 0.20)


@pytest.mark.parametrize("part", [part for part in PARTS if part != "compute"])
def test_the_culprit_is_the_largest_part_of_loading(part: str) -> None:
    others = dict.fromkeys(PARTS, 0.05) | {"compute": 0.3, part: 0.4}
    assert replace(a_result(), attribution=an_attribution(0.7, parts=others)).culprit == part


def test_an_undefined_part_is_never_the_culprit() -> None:
    for device, part in ((GPU, "prep_stall"), (CPU, "interference")):
        assert replace(a_result(), attribution=attribute(SAMPLES, device=device)).culprit == part


def test_only_rounds_in_which_everything_was_measured_are_compared() -> None:
    """The third round, five times as slow, has no `resident` to be compared with."""
    samples = {
        "resident": rounds_of("resident", 4, 4),
        "train": rounds_of("train", 10, 10, 50, wait_ms=6),
    }
    without = attribute(samples | {"train": samples["train"][:2]}, device=EMULATED).shares
    assert dict(attribute(samples, device=EMULATED).shares.items()) == pytest.approx(dict(without.items()))


def test_rounds_are_resampled_whole() -> None:
    """Each round is twice as slow as the one before, in everything: the shares are the same in all, without spread."""
    samples = {
        "resident": rounds_of("resident", 4, 8, 16),
        "train": [
            a_sample("train", ms=10 * factor, wait_ms=6 * factor, round=number)
            for number, factor in enumerate((1, 2, 4))
        ],
    }
    low, high = attribute(samples, device=EMULATED).loading_ratio_ci95
    assert (low, high) == pytest.approx((0.6, 0.6))


def test_waits_tell_the_loading_where_the_model_alone_does_not() -> None:
    """A model alone of 2 to 9 ms a step, measured behind a steady fit whose steps wait 4 of 10 ms."""
    train = [replace(one, round=one.round + 10) for one in rounds_of("train", *[10] * 5, wait_ms=4)]
    attribution = attribute({"resident": rounds_of("resident", 2, 6, 9), "train": train}, device=CPU)
    low, high = attribution.loading_ratio_ci95
    assert low < 0.2 < high
    # At least the waits, and at most what the loader's CPU time allows beside them.
    assert attribution.loading_range[0] == pytest.approx(0.4) and attribution.bound == "input"


def test_a_loader_without_work_takes_nothing_from_the_model_whatever_the_model_alone_says() -> None:
    train = [replace(one, round=one.round + 10, cpu_ns=20 * MS) for one in rounds_of("train", *[10] * 5, wait_ms=0.2)]
    attribution = attribute({"resident": rounds_of("resident", 4, 10, 16), "train": train}, device=CPU)
    assert attribution.loading_range[1] == pytest.approx(0.02) and attribution.bound == "compute"
