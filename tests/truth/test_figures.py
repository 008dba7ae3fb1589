"""How figures are judged: by bounds narrower than five points and a tenth, and over repeats, which hide no bias."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.truth.bounds import BOUNDS, LEAST_REPEATS, Bound
from tests.truth.figures import Check, Figure, check

# Figures that do not vary: Student's t says so.
pytestmark = pytest.mark.filterwarnings("ignore:Precision loss")


@pytest.mark.parametrize(
    ("group", "name"), [(group, name) for group, bounds in BOUNDS.items() for name in bounds if group != "photos"]
)
def test_no_bound_is_as_wide_as_a_shift_of_five_points_or_a_tenth(group: str, name: str) -> None:
    bound = BOUNDS[group][name]
    for truth, measured in [(50.0, 55.0), (50.0, 45.0)] if bound.in_points else [(1.0, 1.1), (1.0, 0.9)]:
        figure = Figure(case="", name=name, truth=(truth,) * LEAST_REPEATS, measured=(measured,) * LEAST_REPEATS)
        assert not check(group, figure).holds
        assert check(group, replace(figure, measured=figure.truth)).holds


@pytest.mark.parametrize(("off", "holds"), [(0.0, True), (3.0, True), (-3.0, True), (3.1, False), (-3.1, False)])
def test_a_figure_holds_up_to_its_bound(off: float, holds: bool) -> None:
    assert Bound(most=3.0, in_points=True).holds(off) is holds


def a_share(*errors: float) -> Check:
    """Returns the check of a share that was measured so many points off, repeat by repeat."""
    measured = tuple(50.0 + error for error in errors)
    return check("grid-cpu", Figure(case="", name="loading, %", truth=(50.0,) * len(errors), measured=measured))


@pytest.mark.parametrize(
    ("errors", "holds"),
    [
        ([-2.5, 2.5] * 10, True),
        ([-2.5, 2.5] * 9 + [-2.5, 8.0], True),
        ([-2.5, 2.5] * 9 + [-8.0, 8.0], False),
        ([1.4, 1.6] * 10, False),
        ([-1.4, -1.6] * 10, False),
        ([0.8, 0.9] * 10, True),
        ([5.0 - 2.5, 5.0 + 2.5] * 10, False),
    ],
    ids=[
        "noise on both sides",
        "one of twenty is further off",
        "two of twenty are further off",
        "all are within the bound, on one side of the truth",
        "the same on the other side",
        "a bias below a third of the bound",
        "a bias of five points",
    ],
)
def test_repeats_hide_noise_and_no_bias(errors: list[float], holds: bool) -> None:
    share = a_share(*errors)
    assert share.holds is holds
    assert share.bias is not None and share.bias.mean == pytest.approx(sum(errors) / len(errors))


def test_few_repeats_are_judged_by_their_median() -> None:
    share = a_share(*[1.5] * 18, 9.0)
    assert share.bias is None and share.holds and share.off == 1.5


def test_a_row_says_how_many_repeats_are_near_enough() -> None:
    assert a_share(1.0).row == ("", "loading, %", "50.0", "51.0", "+1.0", "3 points")
    row = ("", "loading, %", "20", "19", "+0.4", "-0.0 to +0.8", "0.07", "3 points")
    assert a_share(*[0.0, 0.4] * 9, 0.0, 4.0).row == row
