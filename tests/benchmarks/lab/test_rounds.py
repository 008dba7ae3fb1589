"""Rounds: interleaving, and what becomes of jobs whose child refuses, dies or hangs."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from tests.fakes import MODEL_FACTS as MODEL
from tests.fakes import FakeChild
from unstall.benchmarks.lab import rounds
from unstall.benchmarks.lab.child import ChildDied, JobRefused
from unstall.benchmarks.lab.rounds import Group, Turn, run_round, window_images
from unstall.benchmarks.lab.session import Job
from unstall.pipeline.sources.arrays import from_arrays
from unstall.pipeline.variants import VARIANTS
from unstall.profiles.devices import CPU, Device


def opened_group(monkeypatch, tmp_path, *, cold):
    monkeypatch.setattr(rounds, "Child", FakeChild)
    FakeChild.started, FakeChild.asked, FakeChild.trouble = 0, [], {}
    source = from_arrays(np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, 0, 1]))
    names = ("tf-data", "tf-data-cache", "py-dataset")
    jobs = [Job(variant=name, config=VARIANTS[name], model="m", cold=cold) for name in names]
    group = Group(CPU, source, jobs, tmp_path / "log", {})
    group.open()
    return group


@pytest.fixture
def group(monkeypatch, tmp_path):
    return opened_group(monkeypatch, tmp_path, cold=False)


@pytest.fixture
def cold_group(monkeypatch, tmp_path):
    return opened_group(monkeypatch, tmp_path, cold=True)


def prepare_all(group):
    for job in group.jobs:
        group.prepare(job)
    FakeChild.asked.clear()


class AsGiven(random.Random):
    """Draws every order as it is given."""

    def sample(self, population, k):
        return list(population)[:k]


def a_round(group, number, *, loader, order=None, **calls):
    run_round(group.turns(loader=loader), number, order or AsGiven(), **calls)


def variants(group):
    return [job.variant for job in group.jobs]


def test_a_round_interleaves_variants_and_measures_the_shared_model_once(group):
    prepare_all(group)
    done = []
    a_round(group, 0, loader=True, done=done.append)
    assert FakeChild.asked == [
        ("window", "tf-data", "resident"),
        ("window", "tf-data", "replay"),
        ("window", "tf-data", "loader"),
        ("window", "tf-data", "train"),
        ("window", "tf-data-cache", "loader"),
        ("window", "tf-data-cache", "train"),
        ("window", "py-dataset", "loader"),
        ("window", "py-dataset", "train"),
    ]
    assert len(done) == 6
    assert [s.window for s in group.ceilings["m, 32"]] == ["resident", "replay"]


def test_the_order_of_a_round_is_drawn_anew(group):
    """An order that repeats meets the rhythm of another program in step."""
    prepare_all(group)
    order, orders = random.Random(0), []
    for number in range(4):
        FakeChild.asked.clear()
        a_round(group, number, loader=False, order=order)
        orders.append(tuple(window for _, *window in FakeChild.asked))
    assert len(set(map(str, orders))) == 4
    assert {str(sorted(order)) for order in orders} == {str(sorted(orders[0]))}


def test_the_model_alone_is_measured_though_the_job_that_came_first_is_left_out(group):
    prepare_all(group)
    turns = group.turns(loader=False)
    FakeChild.trouble = {("window", "tf-data", "train"): JobRefused("a file cannot be decoded")}
    run_round(sorted(turns, key=lambda turn: turn.window != "train"), 0, AsGiven())
    assert [s.window for s in group.ceilings["m, 32"]] == ["resident", "replay"]


@pytest.mark.parametrize("error", [JobRefused("no"), ChildDied("killed")])
def test_who_fails_when_measured_again_keeps_its_row(group, error):
    prepare_all(group)
    a_round(group, 0, loader=False)
    FakeChild.trouble = {("window", "tf-data", "again"): error}
    turns = [Turn(group=group, of=job, window="again") for job in group.jobs]
    for number in (1, 2):
        run_round(turns, number, AsGiven())
    assert variants(group) == ["tf-data", "tf-data-cache", "py-dataset"] and group.left_out == []
    numbers = {
        job.variant: [sample.round for sample in measured.samples if sample.window == "again"]
        for job, measured in group.measured.items()
    }
    assert numbers == {"tf-data": [], "tf-data-cache": [1, 2], "py-dataset": [1, 2]}


def test_an_emulated_device_has_no_replay(group):
    group.device = Device(kind="emulated", name="emulated:5", images_per_sec=5.0)
    prepare_all(group)
    a_round(group, 0, loader=False)
    assert [window for _, _, window in FakeChild.asked] == ["resident", "train", "train", "train"]


def test_a_variant_that_is_refused_is_left_out_and_the_child_goes_on(group):
    FakeChild.trouble = {("prepare", "tf-data-cache", None): JobRefused("not enough memory for the cache")}
    prepare_all(group)
    assert variants(group) == ["tf-data", "py-dataset"]
    assert [(left_out.job.variant, left_out.reason) for left_out in group.left_out] == [
        ("tf-data-cache", "not enough memory for the cache")
    ]
    assert FakeChild.started == 1


def test_a_child_that_dies_is_replaced_without_its_job_and_samples_stay(group):
    prepare_all(group)
    a_round(group, 0, loader=False)
    FakeChild.trouble = {("window", "tf-data-cache", "train"): ChildDied("the process was killed")}
    a_round(group, 1, loader=False)
    assert FakeChild.started == 2
    assert variants(group) == ["tf-data", "py-dataset"]
    by_variant = {job.variant: measured for job, measured in group.measured.items()}
    assert [s.round for s in by_variant["tf-data"].samples if s.window == "train"] == [0, 1]
    assert [s.round for s in by_variant["tf-data-cache"].samples if s.window == "train"] == [0]
    assert [s.round for s in by_variant["py-dataset"].samples if s.window == "train"] == [0, 1]
    # Both that are left were built again in the new child.
    assert [variant for method, variant, _ in FakeChild.asked if method == "prepare"] == ["tf-data", "py-dataset"]


def test_a_replacement_that_dies_is_replaced_too_and_nobody_is_left_out_twice(group):
    prepare_all(group)
    FakeChild.trouble = {
        ("window", "tf-data", "train"): ChildDied("killed"),
        ("prepare", "tf-data-cache", None): ChildDied("killed as well"),
    }
    a_round(group, 0, loader=False)
    assert FakeChild.started == 3
    assert variants(group) == ["py-dataset"]
    assert [(left_out.job.variant, left_out.reason) for left_out in group.left_out] == [
        ("tf-data", "killed"),
        ("tf-data-cache", "killed as well"),
    ]
    assert [variant for method, variant, _ in FakeChild.asked if method == "prepare"] == ["tf-data-cache", "py-dataset"]
    # No child is forgotten alive.
    assert sum(method == "kill" for method, _, _ in FakeChild.asked) == 2


def test_a_child_that_cannot_be_replaced_leaves_all_out(group):
    prepare_all(group)
    FakeChild.trouble = {
        ("window", "tf-data", "train"): ChildDied("killed"),
        ("backend", None, None): ChildDied("killed again"),
    }
    a_round(group, 0, loader=False)
    assert variants(group) == []
    assert [left_out.reason for left_out in group.left_out] == ["killed", "killed again", "killed again"]


def test_a_child_opens_the_file_of_a_model_that_jobs_name_without_its_folder(monkeypatch, tmp_path):
    opened = []

    class Opens(FakeChild):
        def ask(self, method, *arguments, timeout_s):
            if method == "open_model":
                opened.append(arguments)
            return super().ask(method, *arguments, timeout_s=timeout_s)

    monkeypatch.setattr(rounds, "Child", Opens)
    monkeypatch.setattr(FakeChild, "trouble", {})
    source = from_arrays(np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, 0, 1]))
    jobs = [Job(variant="tf-data", config=VARIANTS["tf-data"], model=model) for model in ("net.keras", "other")]
    group = Group(CPU, source, jobs, tmp_path / "log", {}, paths={"net.keras": "/home/anna/net.keras"})
    group.open()
    assert opened == [("net.keras", 32, "/home/anna/net.keras"), ("other", 32, None)]
    assert list(group.models) == ["net.keras", "other"]


def test_a_job_that_was_left_out_with_all_others_is_not_prepared_any_more(group):
    FakeChild.trouble = {
        ("prepare", "tf-data", None): ChildDied("killed"),
        ("backend", None, None): ChildDied("killed again"),
        ("prepare", "tf-data-cache", None): ChildDied("has ended"),
    }
    FakeChild.asked.clear()
    for job in group.jobs:
        group.prepare(job)
    assert [left_out.reason for left_out in group.left_out] == ["killed", "killed again", "killed again"]
    assert [variant for method, variant, _ in FakeChild.asked if method == "prepare"] == ["tf-data"]


def test_a_new_child_has_the_model_of_jobs_that_are_added_later(group):
    """As in a search, whose first pipeline may end the child before there are others."""
    for job in group.jobs:
        group.retire(job)
    FakeChild.trouble = {("prepare", "first", None): ChildDied("killed")}
    FakeChild.asked.clear()
    for name in ("first", "second"):
        group.add(Job(variant=name, config=VARIANTS["tf-data"], model="m"))
    assert [method for method, *_ in FakeChild.asked] == ["prepare", "kill", "backend", "open_model", "prepare"]
    assert variants(group) == ["second"]


def cold_rounds(group):
    """The rounds of the cold windows of each variant."""
    return {
        job.variant: [sample.round for sample in measured.samples if sample.window == "cold"]
        for job, measured in group.measured.items()
    }


def left_out(group):
    return [(row.label, row.page_cache, row.reason) for row in group.left_out]


def test_cold_windows_follow_the_warm_ones_of_the_same_round(cold_group):
    prepare_all(cold_group)
    done = []
    a_round(cold_group, 0, loader=False, done=done.append)
    assert FakeChild.asked[2:] == [
        ("window", "tf-data", "train"),
        ("window", "tf-data", "cold"),
        ("window", "tf-data-cache", "train"),
        ("window", "py-dataset", "train"),
        ("window", "py-dataset", "cold"),
    ]
    # A progress bar counts the cold window that is left out as well.
    assert done == ["tf-data"] * 2 + ["tf-data-cache"] * 2 + ["py-dataset"] * 2
    assert cold_rounds(cold_group) == {"tf-data": [0], "tf-data-cache": [], "py-dataset": [0]}


def test_a_window_on_storage_gets_more_time_before_it_counts_as_hung(cold_group):
    prepare_all(cold_group)
    a_round(cold_group, 0, loader=False)
    assert (FakeChild.timeouts_s["train"], FakeChild.timeouts_s["cold"]) == (60, 300)


def test_a_variant_that_reads_no_files_is_measured_warm_only_and_leaves_no_log(cold_group):
    cold_group.log.touch()
    prepare_all(cold_group)
    assert left_out(cold_group) == [("tf-data-cache, cold", "cold", "it reads its cache")]
    assert variants(cold_group) == ["tf-data", "tf-data-cache", "py-dataset"]
    cold_group._remove_log()
    assert not cold_group.log.exists()


def test_pages_that_cannot_be_dropped_cost_the_cold_row_only(cold_group):
    cold_group.log.touch()
    prepare_all(cold_group)
    FakeChild.trouble = {("window", "tf-data", "cold"): JobRefused("100% of the files stay in the page cache")}
    for number in range(2):
        a_round(cold_group, number, loader=False)
    assert left_out(cold_group)[1:] == [("tf-data, cold", "cold", "100% of the files stay in the page cache")]
    assert variants(cold_group) == ["tf-data", "tf-data-cache", "py-dataset"]
    assert cold_rounds(cold_group) == {"tf-data": [], "tf-data-cache": [], "py-dataset": [0, 1]}
    assert ("window", "tf-data", "train") in FakeChild.asked[-5:]
    assert FakeChild.started == 1
    cold_group._remove_log()
    assert cold_group.log.exists()  # it may say more


def test_a_child_that_dies_in_a_cold_window_is_replaced_and_the_warm_row_goes_on(cold_group):
    prepare_all(cold_group)
    FakeChild.trouble = {("window", "tf-data", "cold"): ChildDied("no answer within 300 s: it hung and was ended")}
    for number in range(2):
        a_round(cold_group, number, loader=False)
    assert FakeChild.started == 2
    assert left_out(cold_group) == [
        ("tf-data-cache, cold", "cold", "it reads its cache"),
        ("tf-data, cold", "cold", "no answer within 300 s: it hung and was ended"),
    ]
    by_variant = {job.variant: measured for job, measured in cold_group.measured.items()}
    assert [s.round for s in by_variant["tf-data"].samples if s.window == "train"] == [0, 1]
    assert cold_rounds(cold_group) == {"tf-data": [], "tf-data-cache": [], "py-dataset": [0, 1]}


def test_a_variant_that_is_left_out_is_not_measured_cold_either(cold_group):
    prepare_all(cold_group)
    FakeChild.trouble = {("window", "tf-data", "train"): JobRefused("a file cannot be decoded")}
    a_round(cold_group, 0, loader=False)
    assert ("window", "tf-data", "cold") not in FakeChild.asked
    assert left_out(cold_group)[1:] == [("tf-data", "warm", "a file cannot be decoded")]


@pytest.mark.parametrize(
    ("rate", "batch_size", "images"), [(3000.0, 32, 768), (500.0, 32, 480), (3.0, 32, 384), (10_000.0, 256, 3072)]
)
def test_a_window_epoch_is_a_second_of_the_model_but_has_enough_batches(rate, batch_size, images):
    assert window_images(dataclasses.replace(MODEL, step_images_per_sec=rate), batch_size) == images


def test_each_window_is_announced_before_it_is_measured(group):
    prepare_all(group)
    announced = []

    def begin(turn, job):
        assert len(FakeChild.asked) == len(announced)
        announced.append(("window", job.variant, turn.window))

    a_round(group, 0, loader=True, done=lambda name: None, begin=begin)
    assert announced == FakeChild.asked and len(announced) == 8
