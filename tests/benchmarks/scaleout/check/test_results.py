"""How near a prediction is to planted windows."""

from __future__ import annotations

import dataclasses

import pytest

from tests.builders import a_checked_pool, a_measured_pool, a_scaleout_check_document
from tests.checks import printed
from unstall.benchmarks.scaleout.check.report import KIND
from unstall.benchmarks.scaleout.check.results import CheckResults, derive


@pytest.mark.parametrize(
    ("rates", "ratio", "missed"),
    [((250.0,), 1.0, False), ((228.0,), 250 / 228, False), ((227.0,), 250 / 227, True)],
)
def test_a_prediction_may_be_a_tenth_too_high(rates, ratio, missed):
    [result] = derive(a_scaleout_check_document(a_measured_pool(rates=rates))).pools
    assert (result.ratio, result.missed) == (pytest.approx(ratio), missed)
    assert result.interval is None  # of a single window


@pytest.mark.parametrize(("rate", "missed"), [(277.0, False), (278.0, True)])
def test_or_a_tenth_too_low(rate, missed):
    results = derive(a_scaleout_check_document(a_measured_pool(rates=(rate,))))
    assert results.pools[0].ratio == pytest.approx(250 / rate)
    assert results.missed == (("1 worker",) if missed else ())


def test_windows_are_averaged_as_ratios_are():
    [result] = derive(a_scaleout_check_document(a_measured_pool(rates=(200.0, 250.0, 320.0)))).pools
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
    measured = a_measured_pool(rates=(100.0,), workers=changes.get("worker_cores") != ())
    document = a_scaleout_check_document(measured, pools=[a_checked_pool(**changes)])
    [result] = derive(document).pools
    assert result.predicted.limit == limit
    assert result.predicted.images_per_sec == pytest.approx(expected)


@pytest.mark.parametrize("worker_cores", [(1.0,), ()])
def test_a_machine_that_grows_slower_changes_no_ratio_as_each_round_has_its_own_costs(worker_cores):
    measured = a_measured_pool(rates=(250.0, 125.0, 50.0), slower=(1.0, 2.0, 5.0), workers=bool(worker_cores))
    [result] = derive(a_scaleout_check_document(measured, pools=[a_checked_pool(worker_cores=worker_cores)])).pools
    assert result.ratio == pytest.approx(1, rel=0.05)  # what sending takes does not grow with the rest
    assert result.interval is not None and result.interval[1] / result.interval[0] < 1.3
    assert result.predicted.images_per_sec == pytest.approx(result.images_per_sec, rel=0.05)


def test_a_pool_without_windows_has_no_result():
    document = a_scaleout_check_document(a_measured_pool(), a_measured_pool("another", rates=()))
    assert [pool.name for pool in derive(document).pools] == ["1 worker"]
    unmeasured = dataclasses.replace(document.samples, constants=None)
    assert derive(dataclasses.replace(document, samples=unmeasured)) == CheckResults(pools=(), missed=())


PRINTED = """
Pools, predicted and measured, 100 images
pool     predicted measured  ratio      95 % device limit
1 worker       250      250   1.00 0.91-1.11     1% workers
far            250      500 0.50 !         -     2% workers

1 of 2 predictions are within 10% of what was measured. Not: far.
Hosts: cores of this one; links: relays.
"""


def test_what_is_printed():
    document = a_scaleout_check_document(a_measured_pool(), a_measured_pool("far", rates=(500.0,)))
    assert printed(KIND, document).startswith(PRINTED.strip())


def test_namespaces_are_said_to_be_namespaces():
    document = a_scaleout_check_document(a_measured_pool())
    document = dataclasses.replace(document, plan=dataclasses.replace(document.plan, loopback=False))
    assert "Hosts: network namespaces with a quota of CPU time each" in KIND.page(document, derive(document))
