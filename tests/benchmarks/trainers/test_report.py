"""What is printed of several trainers, in 80 columns, and what the page holds."""

from __future__ import annotations

import dataclasses

from tests.builders import MS, a_measured_trainers, a_process_epoch, a_trainers_document
from tests.checks import printed, said_of
from unstall.benchmarks.trainers.report import KIND
from unstall.profiles.report import LeftOut


def a_run(**changes):
    sharded = a_measured_trainers("jax-processes-sharded", 2, wall_ns=320 * MS, wait_ns=(0,) * 4)
    return a_trainers_document(
        a_measured_trainers("one-jax"), a_measured_trainers("jax-processes", 2, decoded=80), sharded, **changes
    )


TABLE = """
cats-dogs-64, 10 images a step of each trainer, 100 an epoch
subject               trainers img/s x one      95 % decoded loading straggler
one-jax                      1   100     -         -    1.0x     20% -
jax-processes                2   200  2.00 2.00-2.00    2.0x 20%/20% -
jax-processes-sharded        2   250  2.50 2.50-2.50    1.0x   0%/0% -

process                 decoded loading for others
jax-processes 0            2.0x     20%         0%
jax-processes 1            2.0x     20%         0%
jax-processes-sharded 0    1.0x      0%         0%
jax-processes-sharded 1    1.0x      0%         0%

jax-processes: 2.0 images were decoded for each that was trained on, 50% in
vain: each process decodes all images and drops those of the others.
Each process with its own part of the files (source.shard): 1.25 (1.25-1.25)
times the images/sec, 1.0 images decoded for each instead of 2.0.
""".strip()


def test_a_comparison_as_it_is_printed():
    assert printed(KIND, a_run()).startswith(TABLE)


def with_a_waiting_process(processes: int, **changes):
    """Process 0 never waits for a batch."""
    measured = a_measured_trainers("jax-processes", processes)
    return a_trainers_document(
        tuple(
            dataclasses.replace(epoch, wait_ns=(0,) * 4, **changes) if epoch.process == 0 else epoch
            for epoch in measured
        )
    )


def test_of_many_processes_the_first_table_has_the_range_of_what_they_wait():
    lines = printed(KIND, with_a_waiting_process(8)).splitlines()
    assert " 0%-20% " in lines[2]
    of_processes = lines[lines.index("process         decoded loading for others") + 1 :]
    assert [line.split()[3] for line in of_processes[:8]] == ["0%", *["20%"] * 7]


def test_the_straggler_is_named_with_what_it_takes_longer():
    document = with_a_waiting_process(2, step_ns=(100 * MS,) * 4)
    assert "process 1" in printed(KIND, document).splitlines()[2]
    said = said_of(KIND, document)
    assert "all others wait for process 1: its loader takes 20 ms longer each step, 20% of a step." in said
    assert "jax-processes 0 1.0x 0% 20% jax-processes 1 1.0x 20% 0%" in said


def test_one_process_has_no_row_of_its_own():
    document = a_trainers_document(a_measured_trainers("one-tensorflow"), a_measured_trainers("mirrored"))
    assert "process decoded" not in said_of(KIND, document)
    assert "mirrored 2 100 1.00 1.00-1.00 1.0x 20% -" in said_of(KIND, document)


def test_what_is_left_out_is_said():
    document = a_run(left_out=(LeftOut(who="mirrored", reason="the process was killed"),))
    assert "left out mirrored: the process was killed" in said_of(KIND, document)


def test_the_page_holds_what_is_printed():
    document = a_run()
    page = KIND.page(document, KIND.derive(document))
    assert "<h1>Several trainers</h1>" in page
    assert "50% in vain" in page
    assert page.count("<table") == 2


def test_nothing_is_said_to_be_in_vain_where_each_image_is_decoded_once():
    assert "in vain" not in printed(KIND, a_trainers_document(a_measured_trainers("jax-processes-sharded", 2)))
    assert a_process_epoch().decoded == a_process_epoch().trained


def test_without_a_round_in_common_the_remedy_has_no_ratio():
    before, after = a_measured_trainers("jax-processes", 2), a_measured_trainers("jax-processes-sharded", 2)
    after = tuple(dataclasses.replace(epoch, round=epoch.round + 3) for epoch in after)
    assert "source.shard" in said_of(KIND, a_run())
    assert "source.shard" not in said_of(KIND, a_trainers_document(before, after))
