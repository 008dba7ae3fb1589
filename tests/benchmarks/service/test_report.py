"""What is printed of a comparison, in 80 columns, and what the page holds."""

from __future__ import annotations

import dataclasses

import pytest

from tests.builders import a_measured_service, a_service_document, a_worker_window
from tests.checks import printed
from unstall.benchmarks.service.report import KIND as LOCAL
from unstall.benchmarks.service.results import CAUSES
from unstall.profiles.report import LeftOut


def sentence_in(text: str) -> str:
    """Returns a printed text without its line breaks."""
    return " ".join(text.split())


def a_run(**changes):
    workers = [a_worker_window(f"host:{number}", images) for number, images in enumerate((1000, 1000, 500))]
    return a_service_document(
        a_measured_service("none", 1000.0),
        a_measured_service("local:1", 1500.0, workers=workers[:1]),
        a_measured_service("local:3", 2500.0, workers=workers, served=48, repaired=2, twice=1),
        **changes,
    )


TABLE = """
Batches of 32 from 100 images, read as fast as they come
batches from img/s    x      95 % wait us/img ms/MB once limit
threads        997 1.00         -  50%    200     -    - -
1 worker     1,495 1.50 1.50-1.50  50%    133  13.3  yes workers idle
3 workers    2,492 2.50 2.50-2.50  50%     80   8.0  yes workers idle

1 worker
worker img/s us/img ms/MB cores split wait
host:0 1,000    800  80.0   40%        10%
host:0: read 20, decode 700, all 900 us of a core an image

3 workers
worker        img/s us/img ms/MB cores split wait
host:0        1,000    800  80.0   40%        10%
host:1        1,000    800  80.0   40%        10%
host:2 (slow)   500  1,600 160.0   40%        10%
host:0: read 20, decode 700, all 900 us of a core an image
host:1: read 20, decode 700, all 900 us of a core an image
host:2: read 20, decode 700, all 900 us of a core an image
"""


def test_the_tables_of_a_comparison_are_these():
    assert printed(LOCAL, a_run()).startswith(TABLE.strip())


def test_what_limits_what_is_slow_and_what_was_repaired_are_printed():
    text = sentence_in(printed(LOCAL, a_run()))
    for sentence in (
        "3 workers: 2.50 times the threads' images/sec: a service pays here.",
        f"1 worker: {CAUSES['workers idle']}.",
        "3 workers: slower than the others: host:2.",
        "3 workers: 6 of 150 batches were made here because no worker sent them; 3 came twice, and were dropped.",
        "Batches were read as fast as they came, so that the consumer always waits.",
    ):
        assert sentence in text
    assert "1 worker: slower" not in text and "1 worker: 0 of" not in text


@pytest.mark.parametrize(
    ("rates", "verdict"),
    [
        ((2000.0, 2200.0, 1800.0), "2.00 times the threads' images/sec: a service pays here"),
        ((500.0, 550.0, 450.0), "0.50 times the threads' images/sec: a service does not pay here"),
        ((500.0, 1000.0, 1900.0), "0.99 times the threads' images/sec: a service makes no clear difference here"),
        ((9000.0, 9900.0), "9.00 times the threads' images/sec: a service makes no clear difference here"),
    ],
)
def test_a_service_pays_if_the_whole_interval_says_so(rates, verdict):
    service = a_measured_service("local:2", 1000.0)
    windows = tuple(
        dataclasses.replace(window, images=round(rate)) for window, rate in zip(service.windows, rates, strict=False)
    )
    document = a_service_document(
        a_measured_service("none", 1000.0), dataclasses.replace(service, windows=windows[: len(rates)])
    )
    assert f"2 workers: {verdict}." in sentence_in(printed(LOCAL, document))


def test_without_threads_nothing_is_compared():
    text = printed(LOCAL, a_service_document(a_measured_service("local:2", 1000.0)))
    assert "times the threads" not in text
    assert "2 workers      997 -    -  50%" in text


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_fits_into_the_table_and_is_explained(cause):
    planted = {
        "fed": {"wait_ns": 0},
        "epoch end": {"end_wait_ns": 400_000_000},
        "network": {"received_bytes": 10**9},
        "receive": {"client_cpu_ns": 2 * 10**9},
        "starved": {"machine_cpu_ns": 2 * 10**9, "workers": (a_worker_window("host:1", 1000),)},
        "split wait": {"workers": (a_worker_window("host:1", 1000, split_wait_ns=10**9),)},
        "workers idle": {},
    }
    document = a_service_document(a_measured_service("local:2", 1000.0, **planted[cause]))
    document = dataclasses.replace(document, plan=dataclasses.replace(document.plan, link_bytes_per_sec=1e9))
    text = printed(LOCAL, document)
    assert any(line.startswith("2 workers ") and line.endswith(f" {cause}") for line in text.splitlines())
    assert f"2 workers: {CAUSES[cause]}." in sentence_in(text)


def test_a_batch_that_neither_a_worker_nor_the_client_made_is_a_no():
    document = a_service_document(a_measured_service("local:2", 1000.0, batches=50, served=49))
    assert "   no workers idle" in printed(LOCAL, document)


def test_a_consumer_is_named():
    document = a_run()
    document = dataclasses.replace(document, plan=dataclasses.replace(document.plan, device="emulated:400"))
    text = printed(LOCAL, document)
    assert text.startswith("Batches of 32 from 100 images, consumed by emulated:400\n")
    assert "as fast as they came" not in text


def test_what_was_left_out_is_printed_with_the_reason():
    document = a_run(left_out=(LeftOut(who="trainer:5050", reason="no dispatcher answers"),))
    assert printed(LOCAL, document).endswith("left out trainer:5050: no dispatcher answers")


def test_the_page_has_the_rows_of_the_terminal():
    page = LOCAL.page(a_run(), LOCAL.derive(a_run()))
    assert "<td>3 workers</td><td>2,492</td><td>2.50</td><td>2.50-2.50</td>" in page
    assert "<td>host:2 (slow)</td><td>500</td>" in page
    assert '<td class="text">read 20, decode 700, all 900</td>' in page
    assert "3 workers: slower than the others: host:2." in page
