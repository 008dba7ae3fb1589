"""Published figures: what they refuse, and how they are written."""

import math

import pytest

from unstall.models import MODELS
from unstall.models.network import QUANTITIES, Figure, figure


@pytest.mark.parametrize(
    ("quantity", "low", "high", "text"),
    [
        ("train_s", 485, 485, "8 min 5 s"),
        ("train_s", 198.2, 198.2, "3 min 18.2 s"),
        ("train_s", 8.43, 8.43, "8.43 s"),
        ("train_s", 60, 119.999, "1 min 0 s to 2 min 0 s"),
        ("train_s", 3600, 7325, "1 h 0 min 0 s to 2 h 2 min 5 s"),
        ("images_per_sec", 425, 533, "425 to 533 images/sec"),
        ("images_per_sec", 15_000, 17_000, "15,000 to 17,000 images/sec"),
        ("images_per_sec", 0.5, 3, "0.5 to 3 images/sec"),
        ("speed_up", 13.76, 13.76, "13.76x"),
        ("speed_up", 23, 100, "23x to 100x"),
        ("rate_ratio", 1, 1, "as fast"),
        ("rate_ratio", 3, 3, "3x as fast"),
        ("rate_ratio", 0.15, 0.8, "0.15x to 0.8x as fast"),
        ("accuracy", 0.8, 0.94, "80 to 94 %"),
        ("gpu_ratio", 0, 0.1, "0 to 10 % of the GPU"),
        ("cpu_ratio", 1, 1, "100 % of the CPU"),
    ],
)
def test_a_figure_is_written_with_its_unit(quantity, low, high, text):
    assert Figure(quantity=quantity, low=low, high=high, on="GPU").text == text


def test_a_single_value_is_both_ends():
    expected = Figure(quantity="speed_up", low=13, high=13, on="GPU", when="about")
    assert figure("speed_up", 13, "GPU", "about") == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quantity": "speed"}, "`quantity` must be one of train_s, .*cpu_ratio. Received: quantity='speed'."),
        ({"low": 3}, "`low` and `high` must be 0 <= low <= high, and finite. Received: low=3, high=2."),
        ({"low": -1}, "Received: low=-1, high=2."),
        ({"low": math.nan}, "Received: low=nan, high=2."),
        ({"high": math.inf}, "Received: low=1, high=inf."),
        ({"low": 0}, "`speed_up` must be above 0. Received: low=0, high=2."),
        ({"quantity": "accuracy"}, "`accuracy` is a share, 0 to 1. Received: low=1, high=2."),
        ({"on": " "}, "`on` must name the device. Received: on=' '."),
    ],
)
def test_nonsense_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Figure(**{"quantity": "speed_up", "low": 1, "high": 2, "on": "GPU", **changes})


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_every_quantity_is_explained_and_used(quantity):
    assert QUANTITIES[quantity][0]
    assert any(figure.quantity == quantity for network in MODELS.values() for figure in network.published)


def test_published_speed_ups_are_those_of_the_published_seconds():
    for network in MODELS.values():
        seconds = [figure.low for figure in network.published if figure.quantity == "train_s"]
        for published in network.published:
            if len(seconds) == 2 and published.quantity == "speed_up":
                assert seconds[0] / seconds[1] == pytest.approx(published.low, rel=0.03)
