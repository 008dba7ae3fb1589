"""The command: what it takes, what it refuses, what it prints, writes and returns."""

from __future__ import annotations

import json
import math
import pathlib
import random
import shlex
import shutil
import subprocess

import pytest

from unstall.benchmarks.gate import __main__ as gate
from unstall.benchmarks.gate import measure as gate_measure
from unstall.benchmarks.gate import plan
from unstall.benchmarks.gate.parser import parser, record_again
from unstall.benchmarks.gate.processes import MeasureError
from unstall.benchmarks.gate.samples import Process
from unstall.benchmarks.lab.show import show
from unstall.pipeline.commands.terminal import Stopped
from unstall.pipeline.sources.arrays import from_arrays
from unstall.pipeline.sources.changes import content_fingerprint
from unstall.pipeline.sources.folder import from_folder
from unstall.profiles.gate.invariants import Invariants

ANCHORS = {"decode": 2000.0, "copy": 100.0, "resident": 500.0}


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Made-up rates by label, in the place of processes; 1,000 images/sec unless set. `stops_at` is a measurement."""
    monkeypatch.chdir(tmp_path)
    noise = random.Random(3)
    rates = {"stops_at": None}
    asked = []

    def measure(subject, setting, log, *, anchors=False, inspect=False):
        asked.append((subject, setting))
        if len(asked) == rates["stops_at"]:
            raise Stopped(2)
        log.touch()
        rate = rates.get(subject.label, 1000.0)
        if isinstance(rate, BaseException):
            log.write_text("Traceback")
            raise rate
        return Process(
            rates={name: (rate * math.exp(noise.gauss(0, 0.005)),) for name in ("steady", "epoch")},
            anchors={name: (value,) for name, value in ANCHORS.items()} if anchors else {},
            invariants=Invariants(images=768, decodes_per_image=1.0) if inspect else None,
        )

    monkeypatch.setattr(gate_measure, "measure", measure)
    rates["asked"] = asked
    return rates


def run(*words):
    return gate.main([*words, "--out", "out"])


def results():
    return json.loads(pathlib.Path("out/results.json").read_text())


COMPARED = ("compare", "mine:a", "mine:b")


ROWS = ["mine:b", "against mine:a", "steady", "with epoch edges"]


@pytest.mark.parametrize(
    ("b", "code", "verdict"), [(800.0, 1, "regression"), (1250.0, 0, "improved"), (1000.0, 0, "same")]
)
def test_two_functions_are_compared(machine, capsys, b, code, verdict):
    machine["mine:b"] = b
    assert run(*COMPARED) == code
    printed = capsys.readouterr().out
    assert f"mine:b against mine:a: {verdict}: " in " ".join(printed.split())
    lines = [line[:18].strip() for line in printed.splitlines()]
    assert [line for line in lines if line in ROWS] == ROWS
    assert lines[1].startswith(verdict.upper())
    assert max(map(len, printed.splitlines())) <= 80
    (comparison,) = results()["comparisons"].values()
    assert (comparison["decision"]["verdict"], comparison["decision"]["exit_code"]) == (verdict, code)
    assert results()["complete"] and results()["plan"]["data"] is None
    assert not pathlib.Path("out/gate.log").exists()


def test_the_same_seed_gives_the_same_orders(machine):
    orders = []
    for seed in ("1", "1", "2"):
        run(*COMPARED, "--seed", seed)
        (comparison,) = results()["comparisons"].values()
        orders.append(comparison["orders"])
        shutil.rmtree("out")
    assert orders[0] == orders[1] != orders[2]


def test_what_cannot_be_measured_is_exit_code_3_and_says_where_to_look(machine, capsys):
    machine["mine:b"] = MeasureError("mine:b: it died")
    assert run(*COMPARED) == 3
    printed = capsys.readouterr()
    assert "failed: mine:b: it died" in printed.out
    assert "the output of the processes is in out/gate.log" in printed.err


@pytest.mark.parametrize("rate", [1000.0, MeasureError("mine:b: it died"), Stopped(2)])
def test_a_log_that_is_there_stays_as_it_is(machine, rate, capsys):
    machine["mine:b"] = rate
    pathlib.Path("out").mkdir()
    pathlib.Path("out/gate.log").write_text("mine")
    code = run(*COMPARED)
    assert pathlib.Path("out/gate.log").read_text() == "mine"
    assert pathlib.Path("out/gate-2.log").exists() == (code == 3)
    assert ("the output of the processes is in out/gate-2.log" in capsys.readouterr().err) == (code == 3)


def test_a_run_that_is_stopped_later_keeps_its_pairs_and_decides_nothing(machine, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    machine["mine:b"] = 500.0
    machine["stops_at"] = 20  # one short of the look that would find a regression
    assert run(*COMPARED) == 130
    errors = capsys.readouterr().err.splitlines()
    partial = "These results are partial; unstall show out shows them"
    assert errors == [f"stopped: what was measured so far is in out. {partial}", "stopped: nothing was decided"]
    (measurements,) = results()["samples"]["comparisons"].values()
    (comparison,) = results()["comparisons"].values()
    assert (len(measurements), results()["complete"], comparison["decision"]) == (19, False, None)
    assert show(["out"]) == 0
    assert "mine:b against mine:a: stopped: nothing was decided" in capsys.readouterr().out
    assert "This run was stopped before its end" in pathlib.Path("out/report.html").read_text()


def test_the_results_are_written_after_each_pair(machine, monkeypatch):
    kept = []
    measured = gate_measure.measure

    def measure(*words, **options):
        path = pathlib.Path("out/results.json")
        kept.append(len(*results()["samples"]["comparisons"].values()) if path.exists() else 0)
        return measured(*words, **options)

    monkeypatch.setattr(gate_measure, "measure", measure)
    assert run(*COMPARED) == 0
    assert kept == [2 * (number // 2) for number in range(12)]


@pytest.mark.parametrize("words", [COMPARED, ("check", "loader", "--subject", "mine:b")])
def test_the_verdict_is_shown_again_from_the_file(machine, capsys, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "80")
    if words[0] == "check":
        assert run("record", *words[1:]) == 0
        capsys.readouterr()
    machine["mine:b"] = 700.0
    assert run(*words) == 1
    printed = capsys.readouterr().out
    assert show(["out"]) == 0
    again = capsys.readouterr().out
    assert "regression: " in again
    assert printed == f"{again}\nresults and report: out/results.json, out/report.html\n"


def test_a_floor_is_asked_for(machine, capsys):
    machine["mine:b"] = 2500.0
    assert run(*COMPARED, "--at-least", "2", "--timeout", "77") == 0
    assert {setting.timeout_s for _, setting in machine["asked"]} == {77}
    shutil.rmtree("out")
    assert run(*COMPARED, "--at-least", "3") == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "mine:b against mine:a: asked for at least 3 times A: regression" in printed


def test_files_and_variants_are_compared_on_images(machine, photos, tmp_path):
    (tmp_path / "mine.toml").write_text("workers = 2\n")
    machine["mine"] = 1500.0
    assert run("compare", "tf-data", "mine.toml", "--data", str(photos), "--measure", "train") == 0
    (first, setting), *_ = machine["asked"]
    assert {subject.kind for subject, _ in machine["asked"]} == {"variant", "toml"}
    assert (setting.data, setting.measure, setting.model) == (str(photos), "train", "cats-dogs-64")
    assert first.root == pathlib.Path(plan.__file__).parents[2]


def git(folder, *words):
    subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *words], cwd=folder, check=True)


@pytest.fixture
def repository(tmp_path):
    """A repository with an empty commit, which the tag `old` names."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "one")
    git(folder, "tag", "old")
    return folder


def test_revisions_are_measured_in_worktrees(machine, repository, monkeypatch):
    monkeypatch.chdir(repository)
    machine["mine:a at main"] = 700.0
    assert run("compare", "old", "main", "--rev", "--subject", "mine:a") == 1
    roots = {subject.root for subject, _ in machine["asked"]}
    assert len(roots) == 2
    assert not any(root.exists() for root in roots)
    assert all(subject.revision for subject, _ in machine["asked"])


def test_revisions_are_measured_in_the_folder_in_which_one_stands(machine, repository, capsys, monkeypatch):
    here = repository / "loaders"
    here.mkdir()
    (here / "mine.py").touch()
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "two")
    monkeypatch.chdir(here)
    assert run("compare", "main", "main", "--rev", "--subject", "mine:a") == 0
    assert {subject.root.name for subject, _ in machine["asked"]} == {"loaders"}
    shutil.rmtree("out")
    assert run("compare", "old", "main", "--rev", "--subject", "mine:a") == 2
    assert "old has no folder 'loaders/', in which you stand" in capsys.readouterr().err


@pytest.mark.parametrize("subject", [(), ("--subject", "tf-data"), ("--subject", "mine.toml")])
def test_revisions_are_measured_by_a_function_alone(subject, machine, repository, capsys, monkeypatch):
    monkeypatch.chdir(repository)
    assert run("compare", "old", "main", "--rev", *subject) == 2
    assert "--rev measures a function of the repository here: give --subject module:" in capsys.readouterr().err
    assert machine["asked"] == []


def test_revisions_of_this_project_are_compared_in_environments(machine, repository, capsys, monkeypatch):
    """Of a revision the code would not run: the `unstall` that measures would be loaded already."""
    monkeypatch.chdir(repository)
    (repository / "unstall.py").touch()
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "two")
    assert run("compare", "old", "main", "--rev", "--subject", "mine:a") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "main holds unstall itself" in error
    assert "gate compare mymodule:epoch --python OLD/bin/python NEW/bin/python" in error
    assert machine["asked"] == []


def test_what_nobody_foresaw_is_no_regression(machine, capsys):
    machine["mine:b"] = RuntimeError("the sky fell")
    assert run(*COMPARED) == 3
    assert "could not measure: RuntimeError: the sky fell" in capsys.readouterr().err


def test_a_subject_without_revisions_is_refused(machine, capsys):
    assert run(*COMPARED, "--subject", "mine:a") == 2
    assert "--subject is what --rev measures of each revision" in capsys.readouterr().err


def test_another_subject_is_not_held_against_a_baseline(machine, photos, capsys):
    recorded(photos, "record")
    machine["asked"].clear()
    assert recorded(photos, "check", "--subject", "tf-data") == 3
    assert "not comparable: subject: tf-data-composed -> tf-data" in capsys.readouterr().out
    assert machine["asked"] == []


def recorded(photos, *words, name="loader"):
    return run(*words, name, "--data", str(photos), "--baselines", "speed")


def test_a_benchmark_is_recorded_and_checked(machine, photos, capsys):
    assert recorded(photos, "record") == 0
    assert "judges: varied least" in capsys.readouterr().out
    assert recorded(photos, "check") == 0
    assert "loader: same: " in capsys.readouterr().out
    machine["tf-data-composed"] = 700.0
    shutil.rmtree("out")
    assert recorded(photos, "check") == 1
    assert results()["decision"]["verdict"] == "regression"


def test_a_baseline_names_no_person_folder_or_host(machine, photos):
    recorded(photos, "record")
    text = pathlib.Path("speed/loader.json").read_text()
    assert str(photos) not in text and str(pathlib.Path.home()) not in text and '"command"' not in text
    assert len(text) < 4000


def test_a_model_of_the_users_own_is_named_without_its_folder(machine, tmp_path):
    (tmp_path / "mine.keras").touch()
    words = (
        "loader",
        "--subject",
        "mine:a",
        "--baselines",
        "speed",
        "--measure",
        "train",
        "--model",
        str(tmp_path / "mine.keras"),
    )
    assert run("record", *words) == 0
    assert run("check", *words) == 0
    baseline = json.loads(pathlib.Path("speed/loader.json").read_text())
    assert baseline["measure"] == results()["plan"]["measure"] == "train mine.keras on cpu"
    assert str(tmp_path) not in pathlib.Path("out/results.json").read_text()
    assert {setting.model for _, setting in machine["asked"]} == {str(tmp_path / "mine.keras")}


def test_a_baseline_is_replaced_where_that_is_asked_for(machine, photos):
    assert recorded(photos, "record") == 0
    assert recorded(photos, "record", "--overwrite") == 0


def test_other_photos_are_not_comparable(machine, photos, tmp_path, capsys):
    recorded(photos, "record")
    shutil.copytree(photos, tmp_path / "others")
    next((tmp_path / "others").glob("*/*.jpg")).unlink()
    machine["tf-data-composed"] = 1.0
    assert recorded(tmp_path / "others", "check") == 3
    assert "not comparable: dataset images: 40 -> 39" in capsys.readouterr().out


def test_a_copy_of_the_photos_elsewhere_is_the_same_data(machine, photos, tmp_path):
    recorded(photos, "record")
    shutil.copytree(photos, tmp_path / "others", copy_function=shutil.copyfile)
    assert recorded(tmp_path / "others", "check") == 0


def test_what_could_not_be_recorded_leaves_no_baseline(machine, photos, capsys):
    machine["tf-data-composed"] = MeasureError("it died")
    assert recorded(photos, "record") == 3
    assert "could not measure: it died" in capsys.readouterr().err
    assert not pathlib.Path("speed").exists()


@pytest.mark.parametrize("text", [None, "", "{}", '{"schema_version": 1'])
def test_no_baseline_or_half_of_one_could_not_measure(machine, photos, text):
    pathlib.Path("speed").mkdir()
    if text is not None:
        pathlib.Path("speed/loader.json").write_text(text)
    assert recorded(photos, "check") == 3
    assert machine["asked"] == []


def test_no_photos_could_not_measure(machine, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert run("compare", "tf-data", "tf-data-cache", "--data", "empty") == 3
    assert "is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("compare", "tf-dat", "tf-data"),
            "A 'tf-dat' is no variant, no FILE.toml and no module:function. Did you mean",
        ),
        (("compare", "tf-data", "nothing.toml"), "nothing.toml cannot be read"),
        ((*COMPARED, "--threshold", "0"), "--threshold must be above 0 and below 1. Received: 0.0"),
        ((*COMPARED, "--at-least", "-1"), "--at-least must be above 0"),
        ((*COMPARED, "--timeout", "0"), "--timeout must be above 0 seconds, and finite. Received: 0.0."),
        ((*COMPARED, "--timeout", "inf"), "--timeout must be above 0 seconds, and finite. Received: inf."),
        ((*COMPARED, "--model", "cats"), "'cats' is not a model"),
        ((*COMPARED, "--device", "moon"), "A device must be auto, cpu, gpu or emulated:RATE"),
        (("compare", "no", "such", "--rev", "--subject", "mine:a"), "--rev: "),
        (("record", "../up"), "A benchmark's name must be letters"),
        (("check", "loader", "--threshold", "1"), "--threshold must be above 0 and below 1"),
    ],
)
def test_bad_input_is_said_in_one_line(machine, capsys, words, message):
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1
    assert not pathlib.Path("out").exists()


def test_the_content_of_images_is_what_counts(photos, tmp_path):
    copy = shutil.copytree(photos, tmp_path / "copy", copy_function=shutil.copyfile)
    fingerprint = content_fingerprint(from_folder(photos))
    assert content_fingerprint(from_folder(copy)) == fingerprint != from_folder(copy).fingerprint
    path = next(copy.glob("*/*.jpg"))
    encoded = bytearray(path.read_bytes())
    encoded[-20] ^= 1
    path.write_bytes(encoded)
    assert content_fingerprint(from_folder(copy)) != fingerprint


def test_arrays_have_their_bytes_as_content():
    import numpy as np

    source = from_arrays(np.zeros((4, 2, 2, 3), np.uint8), np.array([0, 1, 0, 1]))
    assert content_fingerprint(source) == source.fingerprint


def test_the_command_that_records_again_has_the_options_of_the_check():
    words = [
        "check",
        "mine",
        "--subject",
        "my.mod:epoch",
        "--data",
        "my photos",
        "--threshold",
        "0.2",
        "--timeout",
        "9",
    ]
    arguments = parser().parse_args(words)
    again = record_again(arguments)
    assert again.startswith("unstall gate record mine --overwrite ") and "--threshold" not in again
    recorded = parser().parse_args(shlex.split(again)[2:])
    assert (recorded.verb, recorded.name, recorded.overwrite) == ("record", "mine", True)
    for name in ("subject", "data", "timeout", "baselines", "measure"):
        assert getattr(recorded, name) == getattr(arguments, name)
