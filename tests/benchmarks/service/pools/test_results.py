"""How near a prediction is to planted windows."""

from __future__ import annotations

import dataclasses

import pytest

from tests.benchmarks.service.pools.built import a_checked_pool, rounds
from tests.benchmarks.service.pools.results import costs_of, predicted, result_of
from tests.builders import CONSTANTS


@pytest.mark.parametrize(
    ("rate", "missed"),
    [(230.0, False), (250.0, False), (272.0, False), (220.0, True), (290.0, True)],
)
def test_a_small_run_is_reproduced_or_missed(rate, missed):
    """A worker with one core makes 250 images/sec."""
    result = result_of(a_checked_pool(), rounds((rate,)), CONSTANTS)
    assert result.predicted.images_per_sec == pytest.approx(250.0)
    assert (result.ratio, result.missed) == (pytest.approx(250 / rate), missed)


@pytest.mark.parametrize(
    ("rates", "ratio", "missed"),
    [((250.0,), 1.0, False), ((228.0,), 250 / 228, False), ((227.0,), 250 / 227, True)],
)
def test_a_prediction_may_be_a_tenth_too_high(rates, ratio, missed):
    result = result_of(a_checked_pool(), rounds(rates), CONSTANTS)
    assert (result.ratio, result.missed) == (pytest.approx(ratio), missed)
    assert result.interval is None  # of a single window


@pytest.mark.parametrize(("rate", "missed"), [(277.0, False), (278.0, True)])
def test_or_a_tenth_too_low(rate, missed):
    result = result_of(a_checked_pool(), rounds((rate,)), CONSTANTS)
    assert (result.ratio, result.missed) == (pytest.approx(250 / rate), missed)


def test_windows_are_averaged_as_ratios_are():
    result = result_of(a_checked_pool(), rounds((200.0, 250.0, 320.0)), CONSTANTS)
    expected = (200 * 250 * 320) ** (1 / 3)
    assert result.images_per_sec == pytest.approx(expected) and result.ratio == pytest.approx(250 / expected)
    assert result.interval is not None and result.interval[0] < result.ratio < result.interval[1]
    assert result.device_ratio == pytest.approx(expected / 20_000)


@pytest.mark.parametrize(
    ("changes", "limit", "expected"),
    [
        ({"worker_cores": (0.2, 0.5)}, "workers", 175.0),
        ({"trainer_cores": 0.13, "worker_cores": (9.0,)}, "trainer", 0.03 / 300e-6),
        ({"link_bytes_per_sec": 2e6}, "network", 100 * 1448 / 1514),
        ({"device_images_per_sec": 200.0}, "device", 10 / 0.0505),
        ({"worker_cores": (), "trainer_cores": 0.5}, "loader", 125.0),
    ],
)
def test_a_pool_is_predicted_from_its_quotas_its_link_and_its_device(changes, limit, expected):
    """An image costs a worker 4,000 us of a core, or a trainer alone."""
    pool = a_checked_pool(**changes)
    result = result_of(pool, rounds((100.0,), workers=bool(pool.worker_cores)), CONSTANTS)
    assert result.predicted.limit == limit
    assert result.predicted.images_per_sec == pytest.approx(expected)


@pytest.mark.parametrize("worker_cores", [(1.0,), ()])
def test_a_machine_that_grows_slower_changes_no_ratio_as_each_round_has_its_own_costs(worker_cores):
    measured = rounds((250.0, 125.0, 50.0), (1.0, 2.0, 5.0), workers=bool(worker_cores))
    result = result_of(a_checked_pool(worker_cores=worker_cores), measured, CONSTANTS)
    assert result.ratio == pytest.approx(1, rel=0.05)  # what sending takes does not grow with the rest
    assert result.interval is not None and result.interval[1] / result.interval[0] < 1.3
    assert result.predicted.images_per_sec == pytest.approx(result.images_per_sec, rel=0.05)


def test_a_small_run_of_a_trainer_alone_has_no_cut():
    """It takes 4,000 us of a core an image."""
    pool = a_checked_pool("alone", worker_cores=())
    [round_] = rounds((250.0,), workers=False)
    assert costs_of(pool, round_, CONSTANTS).cuts == ()
    assert predicted(pool, round_, CONSTANTS).images_per_sec == pytest.approx(250.0)


def test_the_constants_of_the_small_runs_are_their_own():
    """Their trainer receives a batch of ten in 100 ms: 10 ms an image, by 0.9 cores."""
    slow = dataclasses.replace(CONSTANTS, receive_ms_per_batch=98.0)
    result = result_of(a_checked_pool(), rounds((100.0,)), slow)
    assert result.predicted.images_per_sec == pytest.approx(90.0, rel=0.02)


def test_a_row_says_what_was_predicted_and_measured_and_whether_it_misses():
    result = result_of(a_checked_pool(), rounds(), CONSTANTS)
    assert str(result).split() == ["1", "worker", "250", "250", "1.00", "0.91-1.11", "1%", "workers"]
    far = result_of(a_checked_pool("far"), rounds((500.0,)), CONSTANTS)
    assert str(far).split() == ["far", "250", "500", "0.50", "!", "-", "2%", "workers"]
