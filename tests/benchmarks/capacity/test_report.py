"""What is printed of a plan, in 80 columns, and what the page holds."""

from __future__ import annotations

import pytest

from tests.builders import a_capacity_document, a_measured_pool
from tests.checks import Page, printed, said_of
from unstall.benchmarks.capacity.report import KIND
from unstall.benchmarks.scaleout.model import PAYLOAD_RATIO, Hosts


def hosts(**changes: float | None) -> Hosts:
    values: dict[str, float | None] = {"worker_cores": 4.0, "trainer_cores": 4.0}
    return Hosts(**(values | changes))  # type: ignore[arg-type]


PRINTED = """
Small runs, simulated and measured
small run simulated measured  ratio
1 worker        251      250   1.00
far             251      500 0.50 !
The simulation reproduces 1 of 2 small runs within 10%.

4 x emulated:1000, 64x64 px, batches of 10
workers a host in all their cores img/s devices link 1st epoch hours price
own cores           0           0 1,983     50%    -   8.4 min   1.4     3
1                   2           8 1,983     50%    -   8.4 min   1.4     4
2 (chosen)          4          16 3,810     95%    -   4.4 min   0.7     2
3                   6          24 3,810     95%    -   4.4 min   0.7     3

4 accelerators on 2 hosts consume 4,000 images/sec, 2,000 a host; an epoch of
1,000,000 images takes 4.2 minutes at best.
Files: 100 GB an epoch, read at 3.2 Gbit/s at best.
2 workers of 4 cores for each trainer's host, 4 in all: the accelerators are
used 95%; by the trainers' own cores, 4 each, 50%.
Batches come at 305 Mbit/s a trainer's host.
Assumed: cores like those here,"""


def test_what_is_printed():
    document = a_capacity_document(a_measured_pool(), a_measured_pool("far", rates=(500.0,)))
    assert printed(KIND, document).startswith(PRINTED.strip())


def test_one_of_a_thing_is_no_more_than_one():
    said = said_of(
        KIND, a_capacity_document(accelerators=1, per_host=1, hosts=hosts(trainer_cores=2.0, worker_cores=5.0))
    )
    assert "1 accelerator on 1 host consumes 1,000 images/sec, 1,000 a host;" in said
    assert "1 worker of 5 cores for each trainer's host, 1 in all: the accelerators are used 95%" in said


def test_a_simulation_that_was_held_against_nothing_says_so():
    said = said_of(KIND, a_capacity_document())
    assert said.startswith("Not held against small runs: unstall scaleout --check measures them, and --runs FILE")
    assert "Small runs" not in said


def test_no_workers_are_asked_for_where_none_are_needed():
    said = said_of(KIND, a_capacity_document(hosts=hosts(trainer_cores=9.0), memory_bytes=1e9))
    assert "Batches come" not in said and "The memory of" not in said
    assert "The cores of the trainers' hosts, 9 each, use the accelerators 100%: no workers are needed." in said
    assert "(chosen)" not in said


def test_why_no_number_of_workers_is_enough_is_said():
    said = said_of(KIND, a_capacity_document(hosts=hosts(link_bytes_per_sec=20e6 / PAYLOAD_RATIO)))
    assert "No number of workers uses the accelerators 90%: the trainers' links are full." in said
    said = said_of(KIND, a_capacity_document(hosts=hosts(worker_cores=0.01)))
    assert "90%: more than 128 workers a host would be needed, which are not simulated." in said
    said = said_of(KIND, a_capacity_document(storage_bytes_per_sec=200e6))
    assert (
        "No number of workers uses the accelerators 90%: the storage, the trainers' cores, or the thread that receives"
        in said
    )
    said = said_of(KIND, a_capacity_document(goal_ratio=0.96))
    assert "accelerators 96%: while a batch that is ready is handed over they wait, and are used 95% at best." in said


@pytest.mark.parametrize(
    ("memory_bytes", "said"),
    [
        (25e9, "The memory of the workers' hosts holds all files."),
        (1e9, "The memory of the workers' hosts does not hold all files, so that every epoch reads the storage."),
    ],
)
def test_whether_memory_holds_the_files_is_said(memory_bytes, said):
    assert said in said_of(KIND, a_capacity_document(memory_bytes=memory_bytes))
    assert "The memory of" not in said_of(KIND, a_capacity_document())


def test_the_use_of_a_link_is_shown():
    """Twice what 3,810 images/sec of 20 KB on two hosts take."""
    said = said_of(KIND, a_capacity_document(hosts=hosts(link_bytes_per_sec=2 * 20_000 * 1905 / PAYLOAD_RATIO)))
    assert "2 (chosen) 4 16 3,810 95% 50% " in said


def test_the_page_says_what_the_terminal_says():
    document = a_capacity_document(a_measured_pool())
    said = " ".join(Page(KIND.page(document, KIND.derive(document))).text.split())
    assert "The simulation reproduces 1 of 1 small runs within 10%." in said
    assert "2 (chosen)" in said and "Batches come at 305 Mbit/s a trainer's host." in said


def test_each_fleet_is_a_row():
    assert [row["workers"] for row in KIND.rows(KIND.derive(a_capacity_document()))] == [0, 1, 2, 3]


def test_a_document_without_costs_is_refused():
    document = a_capacity_document(measured=False)
    assert KIND.rows(KIND.derive(document)) == []
    for show in (printed, lambda kind, document: kind.page(document, kind.derive(document))):
        with pytest.raises(ValueError, match="no costs were measured"):
            show(KIND, document)
