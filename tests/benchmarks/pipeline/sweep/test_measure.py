"""The parent's side of a sweep: a process for each number of cores, rounds in turn, and what is left out."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.fakes import FakeChild
from unstall.benchmarks.lab import rounds
from unstall.benchmarks.lab.child import ChildDied, JobRefused
from unstall.benchmarks.lab.command import progress_bar
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.pipeline.parser import parser
from unstall.benchmarks.pipeline.sweep import measure
from unstall.benchmarks.pipeline.sweep import plan as sweep_plan
from unstall.benchmarks.pipeline.sweep.measure import Run, core_order
from unstall.benchmarks.pipeline.sweep.plan import read_plan
from unstall.benchmarks.pipeline.sweep.results import Results, derive
from unstall.pipeline import from_folder
from unstall.profiles.devices import CPU, Device, parse_device

EMULATED = parse_device("emulated:400")


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The arguments of each child that was started; the children take no time."""
    started: list[tuple[Any, ...]] = []

    class Child(FakeChild):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            started.append(arguments)

        def close(self) -> None:
            pass

    monkeypatch.setattr(rounds, "Child", Child)
    FakeChild.asked, FakeChild.trouble = [], {}
    monkeypatch.setattr(measure, "core_order", lambda: (5, 7, 6))
    monkeypatch.setattr(sweep_plan, "usable_cores", lambda: 4.0)
    return started


def a_run(photos: Path, out: Path, *words: str, devices: tuple[Device, ...] = (CPU,)) -> Run:
    plan = read_plan(parser().parse_args(words), out)
    console = Console(file=io.StringIO(), width=200)
    return Run(plan, from_folder(photos), devices, progress_bar(console), console)


def results_of(run: Run) -> Results:
    run.measure(lambda: None)
    run.close()
    return derive(run.document(complete=True))


def test_rounds_take_every_value_in_turn(children: list[Any], photos: Path, tmp_path: Path) -> None:
    after: list[int] = []
    run = a_run(photos, tmp_path, "--sweep", "batch-size=8,16", "--rounds", "2")
    run.measure(lambda: after.append(1))
    assert len(after) == 2 and len(children) == 1
    windows = [(variant, window) for method, variant, window in FakeChild.asked if method == "window"]
    assert sorted(window for _, window in windows) == sorted(
        ["train"] * 8 + ["loader"] * 8 + ["resident"] * 4 + ["replay"] * 4
    )
    # Every window of the first round comes before those of the second.
    assert sorted(windows[:12]) == sorted(windows[12:])
    results = derive(run.document(complete=True))
    assert [(curve.variant, [one.point.value for one in curve.points]) for curve in results.curves] == [
        ("generator", [8, 16]),
        ("tf-data-autotune", [8, 16]),
    ]
    assert all(set(one.rounds["train"]) == {0, 1} for curve in results.curves for one in curve.points)
    run.close()
    assert list(tmp_path.iterdir()) == []  # the logs of children that did well


def test_a_number_of_cores_has_a_process_of_its_own(children: list[Any], photos: Path, tmp_path: Path) -> None:
    words = ("--sweep", "cores=1,2", "--sweep", "batch-size=8,16", "--variants", "tf-data-autotune")
    results = results_of(a_run(photos, tmp_path, *words))
    assert [arguments[5] for arguments in children] == [(5,), (5, 7), None]
    assert {arguments[0] for arguments in children} == {"benchmarks.pipeline.sweep.child:SweepSession"}
    assert [(curve.axis, len(curve.points)) for curve in results.curves] == [("cores", 2), ("batch-size", 2)]


def test_workers_that_are_forked_have_a_process_of_their_own(children: list[Any], photos: Path, tmp_path: Path) -> None:
    words = ("--sweep", "workers=1,2", "--variants", "generator-processes,generator")
    results = results_of(a_run(photos, tmp_path, *words))
    assert len(children) == 2 and len(results.curves) == 2


def test_a_process_opens_a_model_for_each_way(children: list[Any], photos: Path, tmp_path: Path) -> None:
    words = ("--sweep", "precision=float32,mixed_float16", "--sweep", "image-size=32,64", "--variants", "tf-data")
    results_of(a_run(photos, tmp_path, *words))
    (arguments,) = children
    opened = {name: (place.precision, place.image_size) for name, place in arguments[6].items()}
    assert opened == {
        "cats-dogs-64": ("float32", None),
        "cats-dogs-64, mixed_float16": ("mixed_float16", None),
        "cats-dogs-64, 32 px": ("float32", 32),
        "cats-dogs-64, 64 px": ("float32", 64),
    }


def test_a_value_that_fails_is_left_out_with_the_reason_and_not_tried_again(
    children: list[Any], photos: Path, tmp_path: Path
) -> None:
    FakeChild.trouble = {
        ("prepare", "generator", None): JobRefused("it cannot read this"),
        ("window", "tf-data", "train"): ChildDied("the process was killed"),
    }
    run = a_run(photos, tmp_path, "--sweep", "batch-size=8,16", "--variants", "generator,tf-data")
    results = results_of(run)
    left_out = {(one.who.partition(",")[0], one.reason) for one in run.document(complete=True).left_out}
    assert left_out == {("generator", "it cannot read this"), ("tf-data", "the process was killed")}
    assert [(curve.variant, len(curve.points)) for curve in results.curves] == [("generator", 1), ("tf-data", 1)]
    assert (tmp_path / "cpu.log").exists()


def test_what_cannot_be_taken_is_left_out_and_not_measured(children: list[Any], photos: Path, tmp_path: Path) -> None:
    words = ("--sweep", "workers=1,2", "--sweep", "batch-size=8,64", "--sweep", "precision=float32,mixed_float16")
    run = a_run(photos, tmp_path, *words, "--variants", "directory,tf-data", devices=(CPU, EMULATED))
    results = results_of(run)
    reasons: dict[str, set[str]] = {}
    for one in run.document(complete=True).left_out:
        reasons.setdefault(one.reason, set()).add(one.who)
    both = ("cpu", "emulated:400")
    workers = {f"directory, workers {value} (cats-dogs-64), {device}" for value in (1, 2) for device in both}
    assert reasons == {
        "Keras' image_dataset_from_directory has no number of workers": workers,
        "there are 40 images, too few for a batch": {
            f"{variant}, batch-size 64 (cats-dogs-64), {device}"
            for variant in ("directory", "tf-data")
            for device in both
        },
        "an emulated device computes nothing, and has no precision": {
            f"{variant}, precision {name} (cats-dogs-64), emulated:400"
            for variant in ("directory", "tf-data")
            for name in ("float32", "mixed_float16")
        },
    }
    assert {(curve.axis, curve.variant) for curve in results.curves} == {
        ("workers", "tf-data"),
        ("batch-size", "directory"),
        ("batch-size", "tf-data"),
        ("precision", "directory"),
        ("precision", "tf-data"),
    }


def test_a_gpu_that_is_missing_is_left_out_unless_it_was_asked_for(
    children: list[Any], photos: Path, tmp_path: Path
) -> None:
    gpu = Device(kind="gpu", name="gpu")
    FakeChild.trouble = {("backend", None, None): JobRefused("there is no GPU here")}
    run = a_run(photos, tmp_path, "--sweep", "batch-size=8,16", "--variants", "tf-data", devices=(gpu, CPU))
    assert {curve.device for curve in results_of(run).curves} == {CPU}
    FakeChild.trouble = {("backend", None, None): JobRefused("there is no GPU here")}
    asked = a_run(photos, tmp_path, "--sweep", "batch-size=8,16", "--device", "gpu", devices=(gpu,))
    with pytest.raises(UserError, match="^gpu: there is no GPU here") as refused:
        asked.measure(lambda: None)
    assert refused.value.exit_code == 3


def test_nothing_measured_has_no_rows_and_its_reasons(children: list[Any], photos: Path, tmp_path: Path) -> None:
    run = a_run(photos, tmp_path, "--sweep", "batch-size=64,128", "--variants", "tf-data")
    assert results_of(run).curves == ()
    assert [one.reason for one in run.document(complete=True).left_out] == [
        "there are 40 images, too few for a batch"
    ] * 2


def test_second_threads_of_a_core_come_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 9})
    for cpu, siblings in enumerate(("0-1", "0-1", "2-3", "2-3")):
        (tmp_path / f"cpu{cpu}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}" / "topology" / "thread_siblings_list").write_text(f"{siblings}\n")
    assert core_order(tmp_path) == (0, 2, 9, 1, 3)
