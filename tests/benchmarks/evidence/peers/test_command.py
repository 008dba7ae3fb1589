"""The command that measures peers: refusals, the plan, a run from end to end, and a run that is stopped."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import io
import json
import pathlib
import signal
import subprocess
import sys
import time
import types

import psutil
import pytest
from rich.console import Console

from tests import PROJECT_ROOT
from tests.benchmarks.evidence.peers.builders import planted_peer
from tests.checks import have_ended, lives
from unstall.benchmarks.evidence.peers import __main__ as peers
from unstall.benchmarks.evidence.peers import child as peer_child
from unstall.benchmarks.evidence.peers import measure, processes, rounds
from unstall.benchmarks.evidence.peers.catalogue import OURS, all_peers, our_peers
from unstall.benchmarks.evidence.peers.loaders.work import WORKS
from unstall.benchmarks.evidence.peers.plan import parser, read_plan
from unstall.benchmarks.lab.child import JobRefused
from unstall.benchmarks.lab.command import progress_bar
from unstall.benchmarks.lab.options import UserError
from unstall.pipeline.commands import Stopped


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--rounds", "0"], "--rounds must be at least 1. Received: 0."),
        (["--work", "colt"], "--work: 'colt' is not known. Did you mean 'cold'?"),
        (["--work", ","], "--work needs at least one name. Received: ','."),
        (["--peers", "torch-pilow"], "--peers: 'torch-pilow' is not known. Did you mean 'torch-pillow'?"),
        (["--peers", "ffcv", "--work", "cold"], "--peers: none of ffcv does the work cold."),
        (
            ["--peers", "parts", "--work", "prepared"],
            "--peers: none of decode, read-decode, read-decode-warp, read-decode-warp-tf-data, decode-gpu does",
        ),
        (["--workers", "two"], "--workers needs numbers from 0 to 1024, such as 1,2,4. Received: 'two'."),
        (["--python", "ffcv"], "--python needs PEER=PATH. Received: 'ffcv'."),
        (["--python", "ffcv=/no/python"], "--python ffcv: /no/python is not an interpreter that can be run."),
        (["--prepared-images", "3"], "--prepared-images must be at least 64. Received: 3."),
        (["--data", "/no/folder"], "/no/folder does not exist."),
    ],
)
def test_bad_options_are_refused_in_one_line(capsys, tmp_path, monkeypatch, words, expected):
    monkeypatch.chdir(tmp_path)
    assert peers.main(words) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(expected)
    assert len(printed.splitlines()) == 1
    assert not list(tmp_path.glob("runs/*"))


def test_a_plan_keeps_no_path_in_what_the_document_holds(tmp_path):
    words = ["--data", str(tmp_path), "--python", f"ffcv={sys.executable}"]
    plan = read_plan(parser().parse_args(words), tmp_path)
    assert plan.pythons == {"ffcv": sys.executable}
    assert (plan.asked.other_pythons, plan.asked.data) == (("ffcv",), tmp_path.name)


def test_children_find_what_they_are_given_from_their_own_folders(photos, tmp_path, monkeypatch):
    given = []

    def made(source, launcher, folder, **others):
        given.append(folder)
        raise UserError("enough")

    monkeypatch.setattr(measure, "make_material", made)
    monkeypatch.chdir(tmp_path)
    assert peers.main(["--data", str(photos), "--out", "out"]) == 2
    assert given[0].is_absolute() and given[0].parent == tmp_path / "out"
    assert not (tmp_path / "out").exists()


@pytest.fixture
def planted_run(launcher, planted_material, tmp_path, monkeypatch):
    """Returns a lab whose peers are planted, in two rounds of the two prepared works."""

    def lab(*functions: str) -> measure.Run:
        monkeypatch.setattr(measure, "make_material", lambda *arguments, **others: planted_material)
        monkeypatch.setattr(measure, "link_packages", lambda folder: tmp_path / "modules")
        words = ["--work", "prepared,prepared-float", "--rounds", "2"]
        plan = read_plan(parser().parse_args(words), tmp_path / "out")
        asked = dataclasses.replace(plan.asked, peers=tuple(map(planted_peer, functions)))
        plan = dataclasses.replace(plan, asked=asked)
        return measure.Run(plan, planted_material.source, progress_bar(Console(file=io.StringIO())))

    return lab


@pytest.mark.long
def test_each_round_of_each_work_is_there_to_be_written(planted_run, tmp_path):
    lab = planted_run("planted", "uint8")
    seen = []

    def look() -> None:
        document = lab.document(complete=False)
        samples = {
            (measured_work.work, measured.peer): len(measured.samples)
            for measured_work in document.samples.works
            for measured in measured_work.peers
        }
        seen.append(samples)

    lab.measure(look)
    assert seen[0] == {("prepared", "uint8"): 1}  # the other serves floats
    assert [sum(samples.values()) for samples in seen] == [1, 2, 3, 4]
    assert list((tmp_path / "out").iterdir()) == []


def test_a_run_that_is_stopped_keeps_its_samples_and_leaves_no_process_and_no_file(planted_run, tmp_path):
    lab, children = planted_run("uint8"), []
    before = psutil.Process().children(recursive=True)  # such as a server of processes that an earlier test has started

    def stop() -> None:
        children.extend(child for child in psutil.Process().children(recursive=True) if child not in before)
        raise Stopped(signal.SIGINT)

    with pytest.raises(Stopped):
        lab.measure(stop)
    assert len(children) >= 1
    assert [child for child in children if lives(child.pid)] == []
    assert list((tmp_path / "out").iterdir()) == []
    [work_samples] = lab.document(complete=False).samples.works
    assert [(measured.peer, len(measured.samples)) for measured in work_samples.peers] == [("uint8", 1)]


def test_a_peer_that_fails_at_two_works_for_one_reason_is_left_out_once(planted_run):
    lab = planted_run("planted", "no_such_function")
    lab.measure(lambda: None)
    left_out = {left_out.who for left_out in lab.document(complete=True).left_out}
    assert left_out == {"no_such_function (prepared, prepared-float)", "planted (prepared)"}  # which serves floats


def test_images_that_cannot_be_decoded_are_exit_code_3(photos, tmp_path, monkeypatch, capsys):
    def fails(*arguments, **others):
        raise JobRefused("ValueError: 3.jpg is damaged")

    monkeypatch.setattr(measure, "make_material", fails)
    assert peers.main(["--data", str(photos), "--out", str(tmp_path / "out")]) == 3
    assert capsys.readouterr().err == "the images cannot be decoded: ValueError: 3.jpg is damaged\n"
    assert not (tmp_path / "out").exists()


def test_every_peer_is_listed(capsys):
    assert peers.main(["--list"]) == 0
    printed = capsys.readouterr().out
    assert [name for name in all_peers() if name[:20] not in printed] == []


@pytest.mark.parametrize("peer", all_peers().values(), ids=lambda peer: peer.name)
def test_every_entry_names_what_exists(peer):
    assert set(peer.functions) <= set(WORKS)
    assert importlib.util.find_spec(peer.module) is not None
    source = pathlib.Path(importlib.util.find_spec(peer.module).origin).read_text()
    assert [name for name in peer.functions.values() if f"\ndef {name}(job: Job) -> Loader:" not in source] == []
    assert set(peer.configs) <= set(peer.functions)


def test_the_version_of_tensorflow_is_known_where_its_distribution_has_another_name(monkeypatch):
    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(__version__="2.99.0"))
    versions = peer_child.PeerSession().load(
        "tests.benchmarks.evidence.peers.plain", "prepared", ["tensorflow", "no-such-package"]
    )
    assert versions == {"tensorflow": "2.99.0", "no-such-package": "unknown"}


def test_ours_are_known_by_their_works():
    assert set(OURS) == set(WORKS)
    assert all(f"ours:{name}" in our_peers() for configs in OURS.values() for name in configs)


@pytest.fixture(scope="module")
def finished(photos, tmp_path_factory):
    """One run on 40 photos with what is installed everywhere; returns its exit code, output and results."""
    out = tmp_path_factory.mktemp("run")
    chosen = "ours:tf-data-composed,ours:tf-data-autotune,image_dataset_from_directory,ImageDataGenerator,decode"
    words = ["--data", str(photos), "--work", "cold", "--peers", chosen, "--rounds", "3", "--workers", "1"]
    words += ["--out", str(out)]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("WINDOW_S", 0.05), ("TRIAL_S", 0.02), ("TRIALS", 1)):
            patch.setattr(rounds, name, value)
        patch.setattr(processes, "_REST_MS", 20)
        patch.setattr(sys, "stdout", io.StringIO())
        patch.setenv("COLUMNS", "140")
        exit_code = peers.main(words)
        return exit_code, sys.stdout.getvalue(), json.loads((out / "results.json").read_text()), out


@pytest.mark.claims
def test_a_run_has_every_peer_that_was_asked_for(finished):
    exit_code, _, document, _ = finished
    assert exit_code == 0
    assert document["left_out"] == []
    assert {(result["work"], result["peer"]) for result in document["results"]} == {
        ("cold", "ours:tf-data-composed"),
        ("cold", "ours:tf-data-autotune"),
        ("cold", "image_dataset_from_directory"),
        ("cold", "ImageDataGenerator"),
        ("cold", "decode"),
    }


@pytest.mark.claims
def test_a_run_keeps_its_raw_samples(finished):
    _, _, document, _ = finished
    assert document["complete"] is True
    [work_samples] = document["samples"]["works"]
    assert len(work_samples["peers"]) == len(document["results"]) == 5
    for measured in work_samples["peers"]:
        assert [sample["round"] for sample in measured["samples"]] == [0, 1, 2]
        assert all(sample["images"] == 40 * sample["epochs"] for sample in measured["samples"])
        assert measured["versions"]
    for result in document["results"]:
        assert "samples" not in result
        if result["peer"] == "ImageDataGenerator":  # no loader of ours makes images in its way
            assert result["ratio_to_ours"] is None
        else:
            assert result["ratio_low"] <= result["ratio_to_ours"] <= result["ratio_high"]
    assert str(pathlib.Path.home()) not in json.dumps(document)


@pytest.mark.claims
def test_a_run_prints_its_tables_and_leaves_nothing_else_behind(finished):
    _, printed, _, out = finished
    assert "cold: JPEG files to float32 in [0, 1]" in printed
    assert "to ours: images/sec over those of our fastest loader under the same heading, round by round." in printed
    assert sorted(path.name for path in out.iterdir()) == ["results.json"]


def test_ctrl_c_ends_everything_soon(photos, tmp_path):
    words = [sys.executable, "-m", "benchmarks.evidence.peers", "--data", str(photos), "--out", str(tmp_path / "out")]
    run = subprocess.Popen(words, cwd=PROJECT_ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    children = []
    for _ in range(2400):
        children = psutil.Process(run.pid).children(recursive=True)
        if children:
            break
        time.sleep(0.05)
    assert children
    run.send_signal(signal.SIGINT)
    assert run.wait(20) == 130
    assert have_ended(*(child.pid for child in children))
    assert not (tmp_path / "out").exists()
    run.stderr.close()
