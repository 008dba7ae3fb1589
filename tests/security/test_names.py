"""Names lead nowhere: none of a file, class or variant has anything written outside of its folder."""

import dataclasses
import importlib
import os
import pathlib

import numpy as np
import pytest
from rich.console import Console

from tests import bad_files
from tests.builders import (
    a_gate_check_document,
    a_measured_service,
    a_measured_trainers,
    a_service_document,
    a_service_plan_document,
    a_sweep_plan,
    a_trainers_document,
    an_advice_document,
)
from tests.builders import an_accuracy_plan as a_plan
from unstall.benchmarks.accuracy import measure
from unstall.benchmarks.devices import holder as devices_holder
from unstall.benchmarks.lab import command, rounds
from unstall.benchmarks.lab import run as lab_run
from unstall.benchmarks.lab.child import ChildDied, JobRefused
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.lab.photos import held_out
from unstall.benchmarks.pipeline.parser import parser
from unstall.benchmarks.pipeline.plan import read_plan
from unstall.benchmarks.pipeline.sweep import measure as sweep_run
from unstall.benchmarks.pipeline.sweep.plan import Plan as SweepPlan
from unstall.benchmarks.service import measure as service_run
from unstall.benchmarks.service.plan import Plan as ServicePlan
from unstall.benchmarks.service.planning import measure as service_plan_run
from unstall.benchmarks.service.planning.plan import Plan as PredictionPlan
from unstall.benchmarks.trainers import measure as trainers_run
from unstall.benchmarks.trainers import processes as trainers_processes
from unstall.benchmarks.trainers.plan import Plan as TrainersPlan
from unstall.benchmarks.tune.own import measure as advice_run
from unstall.benchmarks.tune.plan import AdvicePlan
from unstall.pipeline import SourceError, from_folder
from unstall.pipeline.sources import tfds
from unstall.pipeline.sources.folder import check_folder_name, folder_of_links
from unstall.profiles.devices import CPU
from unstall.profiles.gate import write
from unstall.profiles.remedies import Trial
from unstall.profiles.report.writing_files import write_atomically

LEADING_OUT = ["../outside", "/tmp/outside", "a/../../outside", "..", ".", "", ".hidden", "a\0b"]


def tree(root: pathlib.Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


@pytest.fixture
def pets(tmp_path):
    for name in ("cats", "dogs"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        (tmp_path / "pets" / name / "1.jpg").write_bytes(bad_files.PHOTO)
    return tmp_path / "pets"


@pytest.mark.parametrize("name", LEADING_OUT)
def test_a_class_that_leads_out_of_a_folder_is_no_name_of_one(name):
    with pytest.raises(SourceError, match=r"^class .* cannot be the name of a folder\.$"):
        check_folder_name(name)


@pytest.mark.parametrize("name", ["cats", "Kätz chen [1]", "a.b", "=1+1", "a\nb"])
def test_a_class_may_have_any_other_name(name):
    check_folder_name(name)


@pytest.mark.parametrize("name", LEADING_OUT[:4])
def test_a_folder_of_links_is_not_left_by_a_class_name(name, pets, tmp_path, monkeypatch):
    monkeypatch.setenv("UNSTALL_CACHE", str(tmp_path / "cache"))
    source = dataclasses.replace(from_folder(pets), class_names=("cats", name))
    before = tree(tmp_path)
    with pytest.raises(SourceError, match="cannot be the name of a folder"):
        folder_of_links(source)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", LEADING_OUT[:4])
def test_an_exported_data_set_is_not_left_by_a_class_name(name, tmp_path):
    class Records:
        def as_numpy_iterator(self):
            yield {"image": bad_files.PHOTO, "label": np.int64(1)}

    with pytest.raises(SourceError, match="cannot be the name of a folder"):
        tfds._export(Records(), ["cats", name], tmp_path / "export", None, 1)
    assert tree(tmp_path) == set()


@pytest.mark.parametrize("name", ["a b", "x;y", "../up", "é", "a\nb", "<b>", "$(x)", "[bold]"])
def test_a_variant_is_named_by_letters_digits_dots_hyphens_and_underscores(name, tmp_path):
    path = tmp_path / f"{name.replace('/', '_ ')}.toml"
    path.write_text("workers = 2\n")
    with pytest.raises(UserError, match="its name is the variant's, of letters, digits"):
        read_plan(parser().parse_args(["--config", str(path)]), tmp_path)


def test_a_variant_may_have_a_plain_name(tmp_path):
    (tmp_path / "My_own-2.1.toml").write_text("workers = 2\n")
    asked = read_plan(parser().parse_args(["--config", str(tmp_path / "My_own-2.1.toml")]), tmp_path)
    assert "My_own-2.1" in asked.variants


def test_looking_whether_a_folder_can_be_written_to_touches_no_file_of_the_users(tmp_path):
    (tmp_path / "mine").write_text("mine")
    os.utime(tmp_path / "mine", ns=(1, 1))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".writable").symlink_to(tmp_path / "mine")
    command.check_out(tmp_path / "out")
    assert (tmp_path / "mine").stat().st_mtime_ns == 1
    assert os.readlink(tmp_path / "out" / ".writable") == str(tmp_path / "mine")


def test_results_take_the_place_of_a_link_and_do_not_follow_it(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "results.json").symlink_to(tmp_path / "mine")
    write_atomically(tmp_path / "results.json", "{}\n")
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (tmp_path / "results.json").is_symlink()


# What a user keeps in the folder of --out

WRITES = {
    "benchmarks.pipeline": ("results.json", "report.html"),
    "benchmarks.tune": ("results.json", "report.html", "tuned.toml", "tuned.py"),
    "benchmarks.tune --pipeline=mine:make": ("results.json", "report.html"),
    "benchmarks.gate compare mine:a mine:b": ("results.json", "report.html"),
    "benchmarks.gate check mine": ("results.json", "report.html"),
    "benchmarks.doctor --data=PETS": ("results.json", "report.html", "skip.jsonl"),
    "benchmarks.devices": ("results.json", "report.html"),
    "benchmarks.devices --inference": ("results.json", "report.html"),
    "benchmarks.service local": ("results.json", "report.html"),
    "benchmarks.trainers": ("results.json", "report.html"),
    "benchmarks.service plan": ("results.json", "report.html"),
    "benchmarks.accuracy --data=PETS": ("results.json", "report.html"),
    "benchmarks.pipeline --sweep workers=1,2": ("results.json", "report.html"),
    "benchmarks.evidence.augmentation": ("results.json",),
    "benchmarks.evidence.peers": ("results.json",),
    "profiles": ("results.json", "report.html"),
}


@pytest.mark.parametrize("kind", ["file", "link", "link to nothing"])
@pytest.mark.parametrize(("words", "name"), [(words, name) for words, names in WRITES.items() for name in names])
def test_what_lies_where_a_command_writes_stays_as_it_is(words, name, kind, pets, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    out, mine = tmp_path / "out", tmp_path / "mine"
    out.mkdir()
    if kind == "file":
        (out / name).write_bytes(b"mine")
    else:
        (out / name).symlink_to(mine)
    if kind == "link":
        mine.write_bytes(b"mine")
    (tmp_path / "script.py").write_text("raise SystemExit(7)\n")
    write(a_gate_check_document().plan.baseline, tmp_path / "benchmarks_baseline" / "mine.json", overwrite=False)
    module, *given = words.replace("PETS", str(pets)).split()
    main = importlib.import_module(f"{module}.__main__").main
    before = tree(tmp_path)
    assert main([*given, "--out", "out", *["script.py"] * (module == "profiles")]) == 2
    said = capsys.readouterr().err
    assert f" holds {name} already: nothing is overwritten. Choose another folder." in said
    assert len(said.splitlines()) == 1
    assert tree(tmp_path) == before
    assert kind == "link to nothing" or (out / name).read_bytes() == b"mine"
    assert kind == "file" or os.readlink(out / name) == str(mine)


class Chatty:
    """A child that writes to its log, and fails."""

    error: Exception
    _killed = True  # what `kill_all` asks

    def __init__(self, session, device, log, *arguments, environment=None, prefix=()):
        with open(log, "a") as file:
            file.write("said")

    def ask(self, method, *arguments, timeout_s):
        raise self.error

    def close(self):
        pass

    kill = close


def group(photos, folder):
    one = rounds.Group(CPU, from_folder(photos), [], folder / "cpu.log", {})
    try:
        one.open()
    finally:
        one.close()


def holder(photos, folder):
    one = devices_holder.Holder(CPU, None, folder / "cpu.log")
    try:
        one.start()
    finally:
        one.close()


def places(photos, folder):
    models = {"cats-dogs-64": "cats-dogs-64"}
    some = SweepPlan(
        asked=a_sweep_plan(sweeps={"cores": (1,)}), models=models, devices=None, data=str(photos), out=folder
    )
    console = Console(quiet=True)
    sweep_run.Run(some, from_folder(photos), (CPU,), command.progress_bar(console), console).measure(lambda: None)


def ladder(photos, folder):
    splits = held_out(from_folder(photos), seed=0)
    bar = command.progress_bar(Console(quiet=True))
    measure.Ladder(a_plan(rungs=("tutorial",)), splits, CPU, folder / "children.log", bar).measure(lambda: None)


def advice(photos, folder):
    asked = an_advice_document(Trial()).plan
    some = AdvicePlan(asked=asked, pipeline=asked.pipeline, model="cats-dogs-64", out=folder)
    advice_run.Run(some, command.progress_bar(Console(quiet=True))).measure(lambda: None)


def service(photos, folder):
    asked = a_service_document(a_measured_service("local:1", 1000.0)).plan
    some = ServicePlan(asked=asked, data=str(photos), out=folder)
    bar = command.progress_bar(Console(quiet=True))
    service_run.Run(some, from_folder(photos), bar).measure(lambda: None)


def trainers(photos, folder):
    asked = a_trainers_document(a_measured_trainers("one-tensorflow")).plan
    asked = dataclasses.replace(asked, config=dataclasses.replace(asked.config, batch_size=1))
    some = TrainersPlan(asked=asked, data=str(photos), model=asked.model, out=folder)
    bar = command.progress_bar(Console(quiet=True))
    trainers_run.Run(some, from_folder(photos), bar).measure(lambda: None)


def service_plan(photos, folder):
    asked = a_service_plan_document().plan
    some = PredictionPlan(asked=asked, data=str(photos), model=asked.model, out=folder)
    bar = command.progress_bar(Console(quiet=True))
    service_plan_run.Run(some, from_folder(photos), bar).measure(lambda: None)


LOGS = {
    "cpu.log": ((group, rounds), (holder, devices_holder)),
    "cpu-1-cores.log": ((places, rounds),),
    "children.log": ((ladder, measure),),
    "tune.log": ((advice, advice_run),),
    "one-tensorflow-0.log": ((trainers, trainers_processes),),
    "child.log": (
        (service, lab_run),
        (service_plan, lab_run),
    ),
}


@pytest.mark.parametrize("error", [ChildDied("gone"), JobRefused("no")])
@pytest.mark.parametrize(
    ("name", "run", "module"), [(name, *one) for name, runs in LOGS.items() for one in runs], ids=lambda one: ""
)
def test_a_log_of_that_name_is_neither_added_to_nor_removed(name, run, module, error, photos, tmp_path, monkeypatch):
    monkeypatch.setenv("UNSTALL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "Child", type("Child", (Chatty,), {"error": error}))
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_bytes(b"mine")
    try:
        run(photos, out)
    except (UserError, ChildDied, JobRefused) as ended:
        print(ended)
    ours = out / name.replace(".", "-2.")
    assert (out / name).read_bytes() == b"mine"
    assert {path.name for path in out.iterdir()} <= {name, ours.name}
    if isinstance(error, ChildDied):
        assert ours.read_text().startswith("said")


def test_a_log_follows_no_link(tmp_path):
    (tmp_path / "cpu.log").symlink_to(tmp_path / "mine")
    (tmp_path / "cpu-2.log").touch()
    assert command.new_log(tmp_path / "cpu.log") == tmp_path / "cpu-3.log"
    assert (tmp_path / "cpu-3.log").stat().st_size == 0
    assert not (tmp_path / "mine").exists()
