"""What a sweep is asked: refused in one line with the fix; values change one thing, and places are measured once."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from unstall.benchmarks.devices import __main__ as devices
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.pipeline import __main__ as pipeline
from unstall.benchmarks.pipeline.parser import parser
from unstall.benchmarks.pipeline.sweep import plan as sweep_plan
from unstall.benchmarks.pipeline.sweep.axes import AXES, Place, read_sweeps
from unstall.benchmarks.pipeline.sweep.plan import Plan, read_plan
from unstall.models import MODELS
from unstall.pipeline import VARIANTS
from unstall.profiles.devices import CPU


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_plan, "usable_cores", lambda: 4.0)


def a_plan(*words: str) -> Plan:
    return read_plan(parser().parse_args(words), Path("runs/now"))


def test_unasked_the_tutorials_pipeline_and_tf_data_are_swept_in_three_rounds() -> None:
    plan = a_plan("--sweep", "batch-size=8,32")
    assert tuple(plan.asked.variants) == ("generator", "tf-data-autotune")
    assert (plan.asked.rounds, plan.asked.models, plan.asked.sweeps) == (3, ("cats-dogs-64",), {"batch-size": (8, 32)})
    assert (plan.devices, plan.out, plan.data) == (None, Path("runs/now"), "generated:2000")


def test_options_of_the_main_job_choose_what_is_swept(tmp_path: Path) -> None:
    (tmp_path / "net.keras").touch()
    words = ("--variants", "tf-data,py-dataset", "--model", f"cats-dogs-64,{tmp_path / 'net.keras'}", "--rounds", "5")
    plan = a_plan("--sweep", "workers=1,2", *words, "--set", "seed=7", "--device", "cpu", "--batch-size", "64")
    assert tuple(plan.asked.variants) == ("tf-data", "py-dataset")
    assert {(config.seed, config.batch_size) for config in plan.asked.variants.values()} == {(7, 64)}
    assert plan.asked.models == ("cats-dogs-64", "net.keras") and plan.asked.rounds == 5
    assert plan.models["net.keras"] == str(tmp_path / "net.keras") and plan.devices == (CPU,)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--sweep batches=1,2", r"--sweep: 'batches' is not known\. Did you mean 'batch-size'\? Known: batch-size, "),
        ("--sweep files=1,2", r"--sweep: 'files' is not known\."),
        ("--sweep =1,2", r"--sweep: '' is not known\."),
        ("--sweep batch-size", r"batch-size needs two values at least, such as batch-size=32,64,128,512\. Received"),
        ("--sweep batch-size=", "--sweep batch-size needs two values at least"),
        ("--sweep batch-size=,", "--sweep batch-size needs two values at least"),
        ("--sweep batch-size=8", "--sweep batch-size needs two values at least.* Received: 'batch-size=8'"),
        ("--sweep batch-size=0,1", r"values must be whole numbers from 1 to 65,536\. Received: '0'\."),
        ("--sweep batch-size=-1,1", r"values must be whole numbers from 1 to 65,536\. Received: '-1'\."),
        ("--sweep batch-size=8,1.5", r"values must be whole numbers from 1 to 65,536\. Received: '1.5'\."),
        ("--sweep batch-size=8,99999999999", "values must be whole numbers from 1 to 65,536"),
        ("--sweep batch-size=32,8", r"--sweep batch-size: values must ascend\. Received: '32,8'\."),
        ("--sweep batch-size=8,8,16", r"--sweep batch-size: each value comes once\. Received: '8,8,16'\."),
        ("--sweep batch-size=8,008", "--sweep batch-size: each value comes once"),
        ("--sweep workers=1,2 --sweep workers=4,8", "--sweep workers is given twice: give all of its values at once"),
        ("--sweep workers=1,many", "--sweep workers: values must be whole numbers from 1 to 64"),
        ("--sweep workers=1,65", "--sweep workers: values must be whole numbers from 1 to 64"),
        ("--sweep image-size=32,1025", "--sweep image-size: values must be whole numbers from 1 to 1,024"),
        ("--sweep image-size=9,32", r"image-size: cats-dogs-64 takes 10 pixels a side at least\. Received: 9\."),
        (
            "--sweep image-size=32,64 --model mine:build",
            r"--sweep image-size: the input of mine:build has a size of its own\. Choose one of --list\.",
        ),
        ("--sweep cores=1,5", r"--sweep cores: this process may use 4 cores\. Received: 5\."),
        ("--sweep precision=float32,float23", r"precision: 'float23' is not known\. Did you mean 'float32'\? Known: "),
        ("--sweep precision=float32,float32", "--sweep precision: each value comes once"),
        (
            "--sweep precision=float32,mixed_float16 --device emulated:400",
            r"sleeps, and has no precision\.",
        ),
        ("--sweep steps-per-execution=1,1001", "values must be whole numbers from 1 to 1,000"),
        ("--sweep steps-per-execution=1,4 --device emulated:400", "sleeps, and has no steps-per-execution"),
        ("--sweep workers=1,2 --variants directory", r"has no number of workers\. Choose other --variants\."),
        ("--sweep workers=1,2 --list", "--sweep does not go with --list: leave out --sweep"),
        ("--sweep workers=1,2 --cold", "--sweep does not go with --cold: a sweep is measured from the page cache"),
        ("--sweep workers=1,2 --stages", "--sweep does not go with --stages: "),
        ("--sweep workers=1,2 --lines", "--sweep does not go with --lines: "),
        ("--sweep workers=1,2 --thorough", "--sweep does not go with --thorough: --rounds says"),
        ("--sweep batch-size=8,16 --batch-size 8", "--sweep batch-size and --batch-size set the same"),
        ("--sweep batch-size=8,16 --set batch_size=8", "--sweep batch-size and --set batch_size set the same"),
        ("--sweep workers=1,2 --set workers=4", "--sweep workers and --set workers set the same"),
        ("--sweep cores=1,2 --set workers=4", "--sweep cores and --set workers set the same"),
        ("--sweep workers=1,2 --rounds 0", r"--rounds must be at least 1\. Received: 0\."),
        ("--sweep workers=1,2 --variants generater", r"'generater' is not a variant\. Did you mean 'generator'\?"),
        ("--sweep workers=1,2 --variants ,", "--variants needs at least one name"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        a_plan(*words.split())
    assert "\n" not in str(refused.value) and refused.value.exit_code == 2


def test_a_file_keeps_the_precision_that_it_was_saved_with(tmp_path: Path) -> None:
    (tmp_path / "net.keras").touch()
    with pytest.raises(UserError, match=r"^--sweep precision: net\.keras holds a precision of its own\."):
        a_plan("--sweep", "precision=float32,mixed_float16", "--model", str(tmp_path / "net.keras"))


def test_cores_are_bound_only_where_the_system_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    with pytest.raises(UserError, match="--sweep cores needs a system that binds processes to cores, such as Linux"):
        a_plan("--sweep", "cores=1,2")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sweep", "batch=8,16"], "Did you mean 'batch-size'?"),
        (["--sweep", "batch-size=8,16", "--list"], "--sweep does not go with --list"),
        (["--sweep", "batch-size=8,16", "--data", "nowhere"], "nowhere does not exist"),
        (["--sweep", "batch-size=8,16", "--out", "/proc/nowhere"], "results cannot be written there"),
    ],
)
def test_bad_options_get_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert pipeline.main(words) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert (len(said.err.strip().splitlines()), said.out) == (1, "")
    assert list(tmp_path.glob("runs/*")) == []


def test_the_sweeps_of_devices_name_their_successor(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--sweep", "batch-size=8,16"], ["--sweep=workers=1"]):
        with pytest.raises(SystemExit) as gone:
            devices.main(words)
        said = capsys.readouterr()
        assert (gone.value.code, said.out) == (2, "")
        assert said.err == "unstall devices --sweep is gone: unstall pipeline --sweep AXIS=VALUES measures it.\n"


@pytest.mark.parametrize("axis", AXES)
def test_every_axis_takes_its_own_example(axis: str) -> None:
    sweeps = read_sweeps([f"{axis}={AXES[axis].example}"])
    assert list(sweeps) == [axis] and len(sweeps[axis]) > 1
    base = Place(variant="generator", config=VARIANTS["generator"], model="cats-dogs-64")
    places = [AXES[axis].change(base, value) for value in sweeps[axis]]
    assert len(set(places)) == len(places) and all(isinstance(place, Place) for place in places)
    assert len({place.name for place in places if isinstance(place, Place)}) == len(places)


@pytest.mark.parametrize(
    ("axis", "value", "changed", "settings"),
    [
        ("batch-size", 64, {}, {"batch_size": 64}),
        ("workers", 3, {}, {"workers": 3}),
        ("image-size", 128, {"image_size": 128}, {}),
        ("cores", 2, {"cores": 2}, {"workers": 2}),
        ("precision", "mixed_float16", {"precision": "mixed_float16"}, {}),
        ("steps-per-execution", 8, {"steps_per_execution": 8}, {}),
    ],
)
def test_a_value_changes_one_thing_of_a_place(
    axis: str, value: Any, changed: dict[str, Any], settings: dict[str, Any]
) -> None:
    base = Place(variant="generator", config=VARIANTS["generator"], model="cats-dogs-64")
    expected = dataclasses.replace(base, config=dataclasses.replace(base.config, **settings), **changed)
    assert AXES[axis].change(base, value) == expected


def test_a_number_of_workers_follows_the_cores_and_the_tuner_is_left_alone() -> None:
    asked = a_plan("--sweep", "cores=1,2").asked
    found = [(place.variant, place.cores, place.config.workers) for place in asked.places]
    assert found == [
        ("generator", 1, 1),
        ("generator", 2, 2),
        ("tf-data-autotune", 1, "auto"),
        ("tf-data-autotune", 2, "auto"),
    ]
    others = a_plan("--sweep", "batch-size=8,16", "--sweep", "image-size=32,64").asked
    assert {place.cores for place in others.places} == {None}


def test_a_model_is_opened_under_a_name_for_each_way() -> None:
    words = ("image-size=32,64", "precision=float32,mixed_float16", "steps-per-execution=1,4", "batch-size=8,16")
    asked = a_plan(*(word for sweep in words for word in ("--sweep", sweep)), "--variants", "tf-data").asked
    assert [place.opened for place in asked.places] == [
        "cats-dogs-64, 32 px",
        "cats-dogs-64, 64 px",
        "cats-dogs-64",
        "cats-dogs-64, mixed_float16",
        "cats-dogs-64, 1 steps an execution",
        "cats-dogs-64, 4 steps an execution",
        "cats-dogs-64",
        "cats-dogs-64",
    ]


def test_axes_share_the_places_at_which_they_cross() -> None:
    words = ("--sweep", "batch-size=16,32", "--sweep", "workers=1,2", "--variants", "tf-data-composed,generator")
    asked = a_plan(*words).asked
    assert len(asked.points) == 8
    assert len(asked.places) == 6  # the two axes cross at batch 32 and the workers that each variant has
    assert all(point.reason is None for point in asked.points)


def test_what_cannot_be_swept_beside_what_can_has_its_reason() -> None:
    asked = a_plan("--sweep", "workers=1,2", "--variants", "directory,tf-data").asked
    assert [(point.name, point.reason) for point in asked.points if point.place is None] == [
        (f"directory, workers {value} (cats-dogs-64)", "Keras' image_dataset_from_directory has no number of workers")
        for value in (1, 2)
    ]
    assert {place.variant for place in asked.places} == {"tf-data"}


@pytest.mark.parametrize("name", [name for name, network in MODELS.items() if hasattr(network, "image_size")])
def test_every_network_of_photos_is_built_at_its_least_side_and_not_below(name: str) -> None:
    network: Any = MODELS[name]
    least = network.least_side
    built = dataclasses.replace(network, input_shape=(least, least, 3)).build(2)
    assert built.input_shape[1:] == (least, least, 3)
    if least > 1:
        with pytest.raises(ValueError):
            dataclasses.replace(network, input_shape=(least - 1, least - 1, 3)).build(2)
