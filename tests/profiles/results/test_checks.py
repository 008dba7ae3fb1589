"""Each check fires on a planted case, and is silent just below it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import MS, a_sample, an_attribution, rounds_of
from unstall.profiles.devices import parse_device
from unstall.profiles.results.attribution import attribute
from unstall.profiles.results.checks import (
    check_all,
    check_buffers,
    check_canary,
    check_claims,
    check_drift,
    check_law,
    check_length,
    check_parts,
    check_rounds,
)
from unstall.profiles.results.flags import Flag, FlagKind
from unstall.profiles.samples import Sample

SOUND: dict[str, list[Sample]] = {
    "resident": rounds_of("resident", 4, 4, 4),
    "loader": rounds_of("loader", 9, 9, 9),
    "train": rounds_of("train", 10, 10, 10, wait_ms=6),
}


def said(flags: tuple[Flag, ...]) -> tuple[str, ...]:
    return tuple(map(str, flags))


def unclaimed(*claimed_ms: float) -> dict[str, list[Sample]]:
    """Returns rounds of an outer clock of 100 ms, this much of it claimed."""
    return {
        "train": [a_sample(outer_ns=100 * MS, claimed_ns=round(ms * MS), round=i) for i, ms in enumerate(claimed_ms)]
    }


@pytest.mark.parametrize("claimed_ms", [94.9, 50, 105.1])
def test_time_that_nobody_claims_is_flagged(claimed_ms: float) -> None:
    (flag,) = check_claims(unclaimed(claimed_ms))
    assert flag.kind is FlagKind.UNCLAIMED


def test_the_unclaimed_part_is_named() -> None:
    assert said(check_claims(unclaimed(75))) == ("unclaimed: 25% of the time of fit is neither step nor edge",)


@pytest.mark.parametrize("claimed_ms", [95.1, 100, 104.9])
def test_up_to_five_percent_may_be_unclaimed(claimed_ms: float) -> None:
    assert check_claims(unclaimed(claimed_ms)) == ()


def test_one_odd_round_of_three_is_not_flagged_as_unclaimed() -> None:
    assert check_claims(unclaimed(100, 50, 100)) == ()
    assert check_claims(unclaimed(100, 50, 50)) != ()


def test_only_samples_whose_pieces_were_timed_can_be_unclaimed() -> None:
    untimed = a_sample(outer_ns=100 * MS, claimed_ns=None)
    assert check_claims({"train": [untimed] * 3}) == ()
    assert check_claims({"train": [untimed, untimed, *unclaimed(75)["train"]]}) == check_claims(unclaimed(75))


@pytest.mark.parametrize(("last_ms", "times"), [(11.1, "1.11"), (8.9, "0.89"), (30, "3.00")])
def test_a_model_that_changes_speed_is_flagged(last_ms: float, times: str) -> None:
    (flag,) = check_drift({"resident": rounds_of("resident", 10, 10, last_ms)})
    assert str(flag) == f"drift: the model alone took {times} times as long in the last round as in the first"


@pytest.mark.parametrize("last_ms", [10.9, 9.1, 10])
def test_a_model_may_change_by_ten_percent(last_ms: float) -> None:
    assert check_drift({"resident": rounds_of("resident", 10, 20, last_ms)}) == ()


def test_drift_goes_by_the_number_of_the_round() -> None:
    first, middle, last = rounds_of("resident", 10, 20, 10)
    assert check_drift({"resident": [middle, last, first]}) == ()
    assert check_drift({"resident": [first, last, middle]}) == ()


def test_one_round_does_not_drift() -> None:
    assert check_drift({"resident": rounds_of("resident", 10)}) == ()


@pytest.mark.parametrize(("window", "name"), [("resident", "the model"), ("loader", "the loader")])
def test_training_faster_than_its_ceiling_is_not_trustworthy(window: str, name: str) -> None:
    ceilings = {"resident": rounds_of("resident", 1, 1, 1), "loader": rounds_of("loader", 1, 1, 1)}
    ceilings[window] = rounds_of(window, 20, 20, 20)
    flags = check_law(ceilings | {"train": rounds_of("train", 10, 10, 10)})
    assert said(flags) == (f"not trustworthy: training was 2.00 times as fast as {name} alone",)


def test_training_faster_than_both_ceilings_is_flagged_twice() -> None:
    samples = {window: rounds_of(window, 20, 20, 20) for window in ("resident", "loader")}
    assert len(check_law(samples | {"train": rounds_of("train", 10, 10, 10)})) == 2


@pytest.mark.parametrize("window", ["resident", "loader"])
def test_the_law_leaves_room_for_the_spread(window: str) -> None:
    ceilings = {"resident": rounds_of("resident", 1, 1, 1), "loader": rounds_of("loader", 1, 1, 1)}
    # 2.9 % faster in every round; and 30 % faster by medians, while rounds overlap.
    ceilings[window] = rounds_of(window, 10, 10, 10)
    assert check_law(ceilings | {"train": rounds_of("train", 9.71, 9.71, 9.71)}) == ()
    assert check_law(ceilings | {"train": rounds_of("train", 9.69, 9.69, 9.69)}) != ()
    assert check_law(ceilings | {"train": rounds_of("train", 7, 7, 10)}) == ()


def test_the_law_holds_without_a_loader_window() -> None:
    assert check_law({"resident": rounds_of("resident", 4), "train": rounds_of("train", 10)}) == ()


def test_a_round_in_which_the_canary_was_slow_is_named() -> None:
    samples = {"train": [a_sample(round=i, canary_ns=round(ms * MS)) for i, ms in enumerate([5, 7.6, 5, 7.6])]}
    assert said(check_canary(samples, 5 * MS)) == ("disturbed: the machine was slow in round 2, 4",)


def test_a_canary_may_be_half_as_slow_again() -> None:
    assert check_canary({"train": [a_sample(canary_ns=round(7.5 * MS))]}, 5 * MS) == ()


@pytest.mark.parametrize(("steps", "epochs"), [(4, 1), (8, 2), (9, 2)])
def test_epochs_too_short_for_a_rate_are_flagged(steps: int, epochs: int) -> None:
    samples = {"train": [a_sample(), a_sample(step_ns=(MS,) * steps, epochs=epochs)]}
    (flag,) = check_length(samples)
    assert str(flag).startswith("short: 4 steady steps in an epoch are too few")


@pytest.mark.parametrize(("steps", "epochs"), [(5, 1), (10, 2), (500, 1)])
def test_five_steady_steps_an_epoch_are_enough(steps: int, epochs: int) -> None:
    assert check_length({"train": [a_sample(step_ns=(MS,) * steps, epochs=epochs)]}) == ()


def test_a_part_that_is_negative_beyond_its_spread_is_flagged() -> None:
    attribution = an_attribution(0.5, parts={"interference": -0.05, "prep_stall": 0.55})
    certain = replace(attribution, shares_ci95=replace(attribution.shares_ci95, interference=(-0.06, -0.001)))
    assert said(check_parts(certain)) == ("negative: interference came to -5.0%, beyond the spread",)
    unsure = replace(attribution, shares_ci95=replace(attribution.shares_ci95, interference=(-0.06, 0.001)))
    assert check_parts(unsure) == ()


def test_a_part_may_be_three_percent_below_zero() -> None:
    attribution = an_attribution(0.5, parts={"interference": -0.029, "prep_stall": 0.529})
    certain = replace(attribution, shares_ci95=replace(attribution.shares_ci95, interference=(-0.03, -0.02)))
    assert check_parts(certain) == ()


def test_an_undefined_part_is_not_negative() -> None:
    attribution = an_attribution(0.5)
    undefined = replace(
        attribution,
        shares=replace(attribution.shares, transfer=None),
        shares_ci95=replace(attribution.shares_ci95, transfer=None),
    )
    assert check_parts(undefined) == ()


def test_a_sound_result_has_no_flags() -> None:
    attribution = attribute(SOUND, device=parse_device("emulated:2500"))
    assert check_all(SOUND, attribution, typical_canary_ns=5 * MS, buffered_batches=10) == ()


def test_every_check_is_among_all_checks() -> None:
    samples = {
        "resident": rounds_of("resident", 20, 20.5, 25),
        "train": [
            replace(one, outer_ns=200 * MS, claimed_ns=100 * MS, canary_ns=50 * MS, step_ns=(25 * MS,) * 4)
            for one in rounds_of("train", 10, 10)
        ],
    }
    emulated = parse_device("emulated:500")
    attribution = attribute(samples, device=emulated)
    flags = check_all(samples, attribution, typical_canary_ns=5 * MS, buffered_batches=10)
    kinds = [flag.kind for flag in flags]
    assert kinds == ["unclaimed", "short", "few rounds", "buffered", "drift", "not trustworthy", "disturbed"]
    # A part is negative beyond its spread where there are rounds enough for an interval.
    samples["train"].append(replace(samples["train"][0], round=2))
    attribution = attribute(samples, device=emulated)
    flags = check_all(samples, attribution, typical_canary_ns=5 * MS, buffered_batches=10)
    kinds = [flag.kind for flag in flags]
    assert kinds[-2:] == ["negative", "slower by itself"]
    assert "few rounds" not in kinds


@pytest.mark.parametrize(
    ("wait_ms", "buffered_batches", "flagged"),
    [(0, 0, False), (0, 1, False), (0, 9, True), (9, 9, False)],
    ids=["none", "a fifth at most", "a third", "empty while the model waits"],
)
def test_buffers_that_hold_much_of_an_epoch_are_flagged(wait_ms: float, buffered_batches: int, flagged: bool) -> None:
    samples = {"train": rounds_of("train", 10, 10, 10, wait_ms=wait_ms)}
    flags = check_buffers(samples, buffered_batches)
    assert bool(flags) is flagged
    assert all(str(flag).startswith(f"buffered: up to {buffered_batches} of an epoch's ") for flag in flags)


@pytest.mark.parametrize(("rounds", "flagged"), [(1, True), (2, True), (3, False)])
def test_few_rounds_are_flagged(rounds: int, flagged: bool) -> None:
    flags = check_rounds({"train": rounds_of("train", *[10] * rounds)})
    assert said(flags) == ((f"few rounds: {rounds}, too few for an interval",) if flagged else ())
