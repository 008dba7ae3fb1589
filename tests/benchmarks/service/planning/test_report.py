"""What is printed of a decision, in 80 columns, and what the page holds."""

from __future__ import annotations

import dataclasses

import pytest

from tests.builders import CUTS, a_costs, a_service_plan_document
from tests.checks import Page, printed, said_of
from unstall.benchmarks.service.planning.model import LIMITS, Hosts
from unstall.benchmarks.service.planning.report import KIND, counted, rate_text

PRINTED = """
cats-dogs-64 on emulated:1000, batches of 10; trainer with 1 core, workers with
1
workers send   worker us trainer us   KB img/s a worker needed by TensorFlow
files                100      3,700 60.0          2,000   none             1
decoded images     2,800      1,000 20.0            333   none             3
whole batches      3,800        100 20.0            250      4             4
Sending costs a worker 5.00 ms of a core a megabyte and 1.00 ms a batch;
receiving costs the trainer 5.00 and 1.00 ms.

workers send                   workers img/s device    network a million limit
no workers                           0   250    25%          -      1.11 loader
files                                1   220    22% 105 Mbit/s      1.58 trainer
decoded images                       1   333    33%  53 Mbit/s      1.04 workers
decoded images                       2   667    67% 107 Mbit/s     0.625 workers
decoded images                       3   750    75% 120 Mbit/s     0.648 trainer
whole batches                        1   250    25%  40 Mbit/s      1.39 workers
whole batches                        3   750    75% 120 Mbit/s     0.648 workers
whole batches (chosen,               4   952    95% 152 Mbit/s     0.583 device
cheapest)

Pays: 4 workers that send whole batches make 3.81 times the images/sec, at 0.53
times the price of an image; the device is used 95%, alone 25%.
Assumed: cores like those here,"""


def test_what_is_printed():
    assert printed(KIND, a_service_plan_document(a_costs())).startswith(PRINTED.strip())


def test_one_worker_is_no_more_than_one():
    hosts = Hosts(worker_cores=8.0, trainer_cores=2.0, worker_price=0.25, trainer_price=1.0)
    said = said_of(KIND, a_service_plan_document(a_costs(), hosts=hosts))
    assert "trainer with 2 cores, workers with 8 " in said
    assert "Pays: 1 worker that sends decoded images makes 1.90 times the images/sec, at 0.66 times the" in said
    assert [counted(number, "core") for number in (0.5, 1, 2)] == ["0.5 cores", "1 core", "2 cores"]


def test_a_dearer_pool_is_said_to_be_dearer():
    hosts = Hosts(worker_cores=1.0, trainer_cores=1.0, worker_price=4.0, trainer_price=1.0)
    said = said_of(KIND, a_service_plan_document(a_costs(), hosts=hosts))
    assert "Faster, but dearer: 4 workers that send whole batches make 3.81 times the images/sec, at 4.46 tim" in said
    assert "no workers (cheapest)" in said and "whole batches (chosen)" in said


def test_without_prices_none_is_said():
    said = said_of(KIND, a_service_plan_document(a_costs(), hosts=Hosts(worker_cores=1.0, trainer_cores=1.0)))
    assert "Faster: 4 workers that send whole batches make 3.81 times the images/sec; the device is" in said
    assert "cheapest" not in said and "price of an image" not in said


def test_what_keeps_every_pool_from_the_goal_is_said():
    said = said_of(KIND, a_service_plan_document(a_costs(cuts=CUTS[:2])))
    assert "3 workers that send decoded images make 3.00 times" in said
    assert "No pool uses the device 90%: the trainer's cores are full." in said
    said = said_of(KIND, a_service_plan_document(a_costs(constants={"hand_over_ms_per_batch": 5.0})))
    assert "No pool uses the device 90%: the hand-over of batches takes the rest." in said


def test_why_a_pool_does_not_pay_is_said():
    alone = Hosts(worker_cores=1.0, trainer_cores=4.0)
    said = said_of(KIND, a_service_plan_document(a_costs(), hosts=alone))
    assert "Does not pay: the trainer alone uses its device 100%, and more than 90% is not asked for." in said
    said = said_of(KIND, a_service_plan_document(a_costs(cuts=CUTS[:1])))
    assert "Does not pay: no pool raises the rate by 5 % or more. With workers, the trainer's cores are full." in said
    link = Hosts(worker_cores=1.0, trainer_cores=1.0, link_bytes_per_sec=1e6)
    said = said_of(KIND, a_service_plan_document(a_costs(), hosts=link))
    assert f"With workers, {LIMITS['network']}." in said and "workers with 1, links of 8 Mbit/s" in said


@pytest.mark.parametrize(
    ("bytes_per_sec", "text"),
    [(0, "0 Mbit/s"), (12.5e6, "100 Mbit/s"), (124e6, "992 Mbit/s"), (125e6, "1.0 Gbit/s"), (12.5e9, "100.0 Gbit/s")],
)
def test_a_rate_is_in_bits(bytes_per_sec, text):
    assert rate_text(bytes_per_sec) == text


def test_the_page_says_what_the_terminal_says():
    document = a_service_plan_document(a_costs())
    said = " ".join(Page(KIND.page(document, KIND.derive(document))).text.split())
    for text in (
        "Pays: 4 workers that send whole batches",
        "whole batches (chosen, cheapest)",
        "Sending costs a worker",
    ):
        assert text in said


def test_each_pool_is_a_row():
    document = a_service_plan_document(a_costs())
    rows = KIND.rows(KIND.derive(document))
    assert [(row["served"], row["workers"]) for row in rows] == [
        ("", 0),
        *[("files", 1), ("images", 1), ("images", 2), ("images", 3)],
        *[("batches", number) for number in (1, 2, 3, 4)],
    ]


def test_a_document_without_costs_is_refused():
    document = a_service_plan_document()
    assert KIND.rows(KIND.derive(document)) == []
    with pytest.raises(ValueError, match="no costs were measured"):
        printed(KIND, document)
    with pytest.raises(ValueError, match="no costs were measured"):
        KIND.page(document, KIND.derive(document))
    shorter = dataclasses.replace(a_costs(), cuts=())
    with pytest.raises(ValueError, match="arg is an empty sequence|iterable argument is empty"):
        KIND.derive(a_service_plan_document(shorter))
