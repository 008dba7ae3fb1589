"""The shape of a rate in words, and where it departs from what is expected: what is flat is no finding."""

from __future__ import annotations

import pytest

from unstall.benchmarks.pipeline.sweep.axes import AXES
from unstall.benchmarks.pipeline.sweep.findings import (
    EXPECTATIONS,
    FIGURES,
    Series,
    agreement_of,
    expectation_of,
    expected_rates,
    find,
    fit,
    shape_of,
)

BATCHES = (8, 32, 128)


def series(axis, figure, values, *numbers, decode="full", disturbed=False):
    """A series with one rate, or one a round, at each value."""
    rounds = tuple(dict(enumerate(number if isinstance(number, tuple) else (number,))) for number in numbers)
    return Series(
        axis=axis, variant="v", figure=figure, decode=decode, values=values, rounds=rounds, disturbed=disturbed
    )


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("figure", FIGURES)
def test_a_flat_rate_is_no_finding_but_of_cores_that_do_nothing(axis, figure):
    values = ("float32", "mixed_float16") if axis == "precision" else (1, 2, 4)
    found = find(series(axis, figure, values, *(500.0,) * len(values)))
    assert (found is not None) == ((axis, figure) == ("cores", "loader"))


@pytest.mark.parametrize(
    ("planted", "value", "measured"),
    [
        (
            series("cores", "loader", (1, 2, 4), 100.0, 180.0, 240.0),
            4,
            "fitted 252 img/s at 4 cores against 105 at 1: 2.4 times for 4 times as many (efficiency 0.60)",
        ),
        (
            series("batch-size", "loader", BATCHES, 200.0, 150.0, 100.0),
            128,
            "fitted 102 img/s at batch size 128 against 204 at 8: 0.50 times as much",
        ),
        (
            series("batch-size", "train", BATCHES, 200.0, 150.0, 100.0),
            128,
            "fitted 102 img/s at batch size 128 against 204 at 8: 0.50 times as much",
        ),
        (
            series("image-size", "loader", (32, 64), 120.0, 60.0),
            64,
            "fitted 60.0 img/s at 64 pixels a side against 120 at 32: 0.50 times as much",
        ),
        (
            series("image-size", "loader", (32, 64), 120.0, 24.0, decode="scaled"),
            64,
            "fitted 24.0 img/s at 64 pixels a side against 120 at 32: 0.2 times for 2 times as many",
        ),
        (
            series("image-size", "train", (32, 64), 120.0, 24.0),
            64,
            "fitted 24.0 img/s at 64 pixels a side against 120 at 32: 0.2 times for 2 times as many",
        ),
        (
            series("workers", "train", (1, 2, 4), 1000.0, 990.0, 700.0),
            4,
            "fitted 740 img/s at 4 workers against 1,058 at 1: 0.70 times as much",
        ),
        (
            series("workers", "loader", (1, 2, 4), 1000.0, 990.0, 700.0),
            4,
            "fitted 740 img/s at 4 workers against 1,058 at 1: 0.70 times as much",
        ),
        (
            series("cores", "train", (1, 2), 1000.0, 500.0),
            2,
            "fitted 500 img/s at 2 cores against 1,000 at 1: 0.50 times as much",
        ),
        (
            series("steps-per-execution", "train", (1, 4), 1000.0, 500.0),
            4,
            "fitted 500 img/s at 4 steps an execution against 1,000 at 1: 0.50 times as much",
        ),
    ],
)
def test_a_planted_slope_is_exactly_that_finding(planted, value, measured):
    finding = find(planted)
    assert (finding.axis, finding.figure, finding.value) == (planted.axis, planted.figure, value)
    assert finding.measured == measured
    assert finding.line.endswith(f"; {measured}")


@pytest.mark.parametrize(
    "harmless",
    [
        series("batch-size", "train", BATCHES, 1000.0, 950.0, 901.0),
        series("batch-size", "loader", BATCHES, 1000.0, 2000.0, 3000.0),
        series("cores", "loader", (1, 2, 4), 100.0, 170.0, 330.0),
        series("image-size", "loader", (32, 64), 100.0, 26.0, decode="scaled"),
        series("image-size", "train", (32, 64), 100.0, 26.0),
        series("precision", "train", ("float32", "mixed_float16"), 100.0, 26.0),
        series("steps-per-execution", "loader", (1, 4), 100.0, 26.0),
    ],
)
def test_what_is_allowed_is_no_finding(harmless):
    assert find(harmless) is None


def test_noise_within_the_spread_is_no_finding():
    noisy = series("batch-size", "loader", (8, 80), (1000.0, 800.0, 1000.0), (850.0, 860.0, 870.0))
    assert find(noisy) is None
    steady = series("batch-size", "loader", (8, 80), (1000.0, 990.0, 1010.0), (750.0, 760.0, 770.0))
    assert find(steady).ratio == pytest.approx(770 / 1010)


def test_rounds_are_held_against_the_same_round():
    # The machine was half as fast in the second round: nothing that the batch size did.
    assert find(series("batch-size", "loader", (8, 80), (1000.0, 500.0), (990.0, 495.0))) is None
    fallen = series("batch-size", "loader", (8, 80), (1000.0, 500.0), (500.0,))
    assert find(fallen).ratio == pytest.approx(0.5)


def test_a_finding_drawn_from_a_slow_moment_of_the_machine_is_doubtful():
    for disturbed in (False, True):
        finding = find(series("batch-size", "train", (10, 100), 1000.0, 500.0, disturbed=disturbed))
        assert finding.doubtful is disturbed


def test_every_expectation_names_an_axis_and_a_rate_that_there_are():
    assert {expectation.axis for expectation in EXPECTATIONS} == set(AXES) - {"precision"}
    assert {expectation.figure for expectation in EXPECTATIONS} == set(FIGURES)


def test_one_value_cannot_be_checked():
    assert expectation_of(series("batch-size", "train", (8,), 5.0)) is None
    assert expectation_of(series("batch-size", "train", (8, 16), 5.0, 5.0)).power == 0


def test_what_is_expected_follows_from_the_rate_at_the_first_value():
    assert expected_rates(series("cores", "loader", (1, 2, 4), 100.0, 1.0, 1.0)) == pytest.approx([100, 200, 400])
    assert expected_rates(series("batch-size", "train", (8, 32), 100.0, 900.0)) == pytest.approx([100, 100])
    assert expected_rates(series("image-size", "train", (32, 64), 100.0, 1.0)) == pytest.approx([100, 25])
    assert expected_rates(series("precision", "train", ("float32", "mixed_float16"), 1.0, 1.0)) is None


def test_a_fit_goes_through_all_values():
    assert fit((1, 2, 4), (100.0, 200.0, 400.0)) == pytest.approx((100, 400))
    assert fit((1, 2, 4), (100.0, 100.0, 400.0)) == pytest.approx((79.37, 317.48), rel=1e-4)


@pytest.mark.parametrize(
    ("planted", "label", "text"),
    [
        (
            series("batch-size", "train", BATCHES, 1000.0, 1500.0, 1900.0),
            "RISES",
            "v: throughput rises from 1,000 to 1,900 img/s from batch size 8 to 128 (1.90x from end to end)",
        ),
        (
            series("batch-size", "train", (8, 32, 128, 512), 1200.0, 1600.0, 1900.0, 1930.0),
            "RISES",
            "v: throughput rises from 1,200 to 1,900 img/s from batch size 8 to 128, "
            "then is flat (1.61x from end to end)",
        ),
        (
            series("workers", "train", (1, 2, 4), 1000.0, 1010.0, 990.0),
            "FLAT",
            "v: throughput is flat at 1,000 img/s from 1 to 4 workers",
        ),
        (
            series("workers", "train", (1, 2), (1000.0, 1000.0, 1000.0), (1010.0, 990.0, 1040.0)),
            "FLAT",
            "v: throughput is flat at 1,007 img/s from 1 to 2 workers",
        ),
        (
            series("workers", "train", (1, 2, 4, 8), 1000.0, 1500.0, 1510.0, 1000.0),
            "VARIES",
            "v: throughput rises from 1,000 to 1,500 img/s from 1 to 2 workers, then is flat to 4, "
            "then falls to 1,000 at 8 (1.00x from end to end)",
        ),
        (
            series("image-size", "train", (32, 64), 99.0, 25.5),
            "FALLS",
            "v: throughput falls from 99.0 to 25.5 img/s from 32 to 64 pixels a side (0.26x from end to end)",
        ),
        (
            series("cores", "train", (1, 2, 4), 1000.0, 1020.0, 2000.0),
            "RISES",
            "v: throughput is flat at 1,010 img/s from 1 to 2 cores, then rises to 2,000 at 4 (2.00x from end to end)",
        ),
        (
            series("steps-per-execution", "train", (1, 4, 16), 1000.0, 1040.0, 1080.0),
            "RISES",  # no step is a change, but the two are
            "v: throughput rises from 1,000 to 1,080 img/s from 1 to 16 steps an execution (1.08x from end to end)",
        ),
        (
            series("batch-size", "train", (8, 32), (1000.0, 1000.0, 1000.0), (1900.0, 1950.0, 1850.0)),
            "RISES",
            "v: throughput rises from 1,000 to 1,900 img/s from batch size 8 to 32 "
            "(1.90x from end to end, 1.78 to 2.03)",
        ),
        (
            series("batch-size", "train", (8, 32), (1000.0, 1000.0, 1000.0), (1900.0, 800.0, 1500.0)),
            "UNCERTAIN",
            "v: throughput is about 1,147 img/s from batch size 8 to 32: its rounds differ too much to see a change",
        ),
        (
            series("precision", "train", ("float32", "mixed_float16", "mixed_bfloat16"), 1000.0, 500.0, 1200.0),
            "FASTEST",
            "v: mixed_bfloat16 is the fastest: throughput is 1,000 img/s with float32; 0.50x with mixed_float16; "
            "1.20x with mixed_bfloat16",
        ),
        (
            series("precision", "train", ("float32", "mixed_float16"), (1000.0,) * 3, (500.0,) * 3),
            "FASTEST",
            "v: float32 is the fastest: throughput is 1,000 img/s with float32; 0.50x with mixed_float16, 0.50 to 0.50",
        ),
        (
            series("precision", "train", ("float32", "mixed_float16"), (1000.0,) * 3, (2000.0, 900.0, 1500.0)),
            "FLAT",
            "v: none is surely faster than float32: throughput is 1,000 img/s with float32; "
            "1.39x with mixed_float16, 0.51 to 3.80",
        ),
        (
            series("workers", "train", (2,), 1000.0),
            "ONE VALUE",
            "v: 1,000 img/s at 2 workers, the only value",
        ),
    ],
)
def test_a_shape_is_told_in_words(planted, label, text):
    shape = shape_of(planted)
    assert (shape.label, shape.text) == (label, text)


@pytest.mark.parametrize(
    ("planted", "sentence"),
    [
        (series("batch-size", "train", (8, 32), 100.0, 190.0), "As expected: it should be flat or rise."),
        (series("batch-size", "train", (8, 32), 100.0, 96.0), "As expected: it should be flat or rise."),
        (
            series("batch-size", "train", (8, 32), 100.0, 85.0),
            "Within 20% of what is expected: it should be flat or rise.",
        ),
        (series("batch-size", "train", (8, 32), 100.0, 70.0), ""),  # it departs
        (
            series("batch-size", "train", (8, 32), (100.0,) * 3, (70.0, 10.0, 200.0)),
            "Not surely as expected: it should be flat or rise.",
        ),
        (
            series("batch-size", "train", (8, 32), (100.0,) * 3, (70.0, 190.0, 200.0)),
            "Not surely as expected: it should be flat or rise.",
        ),
        (
            series("batch-size", "train", (8, 32), (100.0,) * 3, (170.0, 190.0, 200.0)),
            "As expected: it should be flat or rise.",
        ),
        (series("precision", "train", ("float32", "mixed_float16"), 100.0, 10.0), ""),  # nothing is expected
    ],
)
def test_words_say_whether_a_rate_is_as_expected(planted, sentence):
    assert agreement_of(planted) == sentence
    assert (find(planted) is None) or not sentence
