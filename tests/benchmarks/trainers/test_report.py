"""What is printed of several trainers, in 80 columns, and what the page holds."""

from __future__ import annotations

import dataclasses

from tests.builders import MS, a_measured_trainers, a_process_epoch, a_trainers_document
from tests.checks import printed, said_of
from unstall.benchmarks.trainers.plan import Planted
from unstall.benchmarks.trainers.report import KIND
from unstall.benchmarks.trainers.samples import AutoShard
from unstall.profiles.report import LeftOut

AUTO = AutoShard(policy="AUTO", by_files=False, hosts=2, decoded=40, served=20)


def a_mirrored(facts: AutoShard | None):
    measured = a_measured_trainers("mirrored", replica_ns=((40 * MS,) * 4, (50 * MS,) * 4), alone_ns=None)
    return dataclasses.replace(measured, auto_shard=facts)


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

jax-processes
process img/s decoded loading for others step between own ms
0         100    2.0x     20%         0%  80%      0%     70
1         100    2.0x     20%         0%  80%      0%     70

jax-processes-sharded
process img/s decoded loading for others step between own ms
0         125    1.0x      0%         0% 100%      0%     50
1         125    1.0x      0%         0% 100%      0%     50

jax-processes: 2.0 images were decoded for each that was trained on, 50% in
vain: each process decodes all images and drops those of the others.
Each process with its own part of the files (source.shard): 1.25 (1.25-1.25)
times the images/sec, 1.0 images decoded for each instead of 2.0.
""".strip()


def test_a_comparison_as_it_is_printed():
    assert printed(KIND, a_run()).startswith(TABLE)


def test_of_many_processes_the_first_table_has_the_range_of_what_they_wait():
    measured = a_measured_trainers("jax-processes", 8)
    epochs = tuple(
        dataclasses.replace(epoch, wait_ns=(0,) * 4) if epoch.process == 0 else epoch for epoch in measured.epochs
    )
    lines = printed(KIND, a_trainers_document(dataclasses.replace(measured, epochs=epochs))).splitlines()
    assert " 0%-20% " in lines[2]
    assert [line.split()[3] for line in lines if line[:1].isdigit()] == ["0%", *["20%"] * 7]


def test_the_straggler_is_named_with_what_it_takes_longer():
    measured = a_measured_trainers("jax-processes", 2)
    epochs = tuple(
        dataclasses.replace(epoch, wait_ns=(0,) * 4, step_ns=(100 * MS,) * 4) if epoch.process == 0 else epoch
        for epoch in measured.epochs
    )
    document = a_trainers_document(dataclasses.replace(measured, epochs=epochs))
    assert "process 1" in printed(KIND, document).splitlines()[2]
    said = said_of(KIND, document)
    assert "all others wait for process 1: its loader takes 20 ms longer each step, 20% of a step." in said


def test_the_policy_is_shown_with_the_fall_back_and_its_price():
    said = said_of(KIND, a_trainers_document(a_mirrored(AUTO)))
    assert "on one host TensorFlow shards nothing; it splits each batch of 20 into 2 of 10." in said
    assert "auto-shard policy AUTO: on several hosts TensorFlow would divide the list of files (FILE), finds no" in said
    assert "falls back to DATA: each host does all the work of the epoch; asked for the part of one of 2, it" in said
    assert "decoded 40 images for 20 to train on." in said


def test_every_policy_has_its_sentence():
    by_files = dataclasses.replace(AUTO, by_files=True, decoded=20)
    assert "policy AUTO: on several hosts TensorFlow divides the list" in said_of(
        KIND, a_trainers_document(a_mirrored(by_files))
    )
    for policy, says in {
        "FILE": "policy FILE: on several hosts TensorFlow fails: it finds no reader of files",
        "DATA": "policy DATA: on several hosts each host does all the work",
        "OFF": "policy OFF: on several hosts each would train on all images.",
    }.items():
        facts = dataclasses.replace(AUTO, policy=policy)
        assert says in said_of(KIND, a_trainers_document(a_mirrored(facts)))


def test_what_replicas_did_is_a_table():
    lines = printed(KIND, a_trainers_document(a_mirrored(None))).splitlines()
    at = lines.index("replica loading compute for others exchange between")
    assert lines[at + 1 : at + 3] == [
        "0           20%     40%        10%      30%      0%",
        "1           20%     50%         0%      30%      0%",
    ]


def test_what_was_planted_what_is_left_out_and_the_users_hosts_are_said():
    document = a_run(left_out=(LeftOut(who="mirrored", reason="the process was killed"),))
    plan = dataclasses.replace(document.plan, planted=Planted(process=1, delay_ms=50), hosts=3)
    said = said_of(KIND, dataclasses.replace(document, plan=plan))
    assert "planted: each batch of process 1 is held back by 50 ms" in said
    assert "left out mirrored: the process was killed" in said
    assert "TF_CONFIG names 3 workers: Keras 3 does not work with tf.distribute.MultiWorkerMirroredStrategy" in said
    assert "keras-team/keras issue 20585" in said


def test_the_page_holds_what_is_printed():
    document = a_run()
    page = KIND.page(document, KIND.derive(document))
    assert "<h1>Several trainers</h1>" in page
    assert "50% in vain" in page
    assert page.count("<table") == 3


def test_nothing_is_said_to_be_in_vain_where_each_image_is_decoded_once():
    assert "in vain" not in printed(KIND, a_trainers_document(a_measured_trainers("jax-processes-sharded", 2)))
    assert a_process_epoch().decoded == a_process_epoch().trained
