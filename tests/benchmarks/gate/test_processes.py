"""One measurement in a fresh process: its answer, and every way in which there is none."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from benchmarks.gate import processes
from benchmarks.gate.processes import MeasureError, Setting, Subject, measure
from profiles.devices import Device

CPU = Device(kind="cpu", name="cpu")
SETTING = Setting(data="generated:8", measure="loader", model="cats-dogs-64", device=CPU, timeout_s=120)

FEEDS = """
import sys

import pipeline  # the user's own, of the same name as ours

print("this is no answer")

def count():
    return pipeline.IMAGES * len(sys.argv[:1])

def fails():
    raise RuntimeError("no photos today")
"""


@pytest.fixture
def project(tmp_path):
    """A user's folder with feeds, and a package of its own called `pipeline`."""
    (tmp_path / "feeds.py").write_text(FEEDS)
    (tmp_path / "pipeline.py").write_text("IMAGES = 7\n")
    return tmp_path


def a_function(project, name):
    return Subject(label=name, kind="function", text=f"feeds:{name}", root=project)


def test_a_function_is_measured_beside_the_anchors_in_the_users_folder(project, tmp_path):
    process = measure(a_function(project, "count"), SETTING, tmp_path / "log", anchors=True, inspect=True)
    assert len(process.rates) == processes.WINDOWS
    assert {name: len(rates) for name, rates in process.anchors.items()} == {"decode": 4, "copy": 4, "resident": 4}
    assert process.invariants.images == 7
    assert "this is no answer" in (tmp_path / "log").read_text()
    assert not (project / "__pycache__").exists()


def test_a_function_that_is_not_there_or_fails_is_said_in_one_line(project, tmp_path):
    with pytest.raises(MeasureError, match="^missing: AttributeError: module 'feeds' has no attribute 'missing'$"):
        measure(a_function(project, "missing"), SETTING, tmp_path / "log")
    with pytest.raises(MeasureError, match="^fails: RuntimeError: no photos today$"):
        measure(a_function(project, "fails"), SETTING, tmp_path / "log")


def test_what_is_not_the_revisions_own_code_is_no_measurement_of_it(project, tmp_path):
    """An installed package would be the same code on both sides, and both sides the same."""
    elsewhere = Subject(label="cpu_count at main", kind="function", text="os:cpu_count", root=project, revision=True)
    with pytest.raises(MeasureError, match="'os' was loaded from .*, not from the revision: both sides would be"):
        measure(elsewhere, SETTING, tmp_path / "log")
    ours = Subject(label="tf-data at main", kind="variant", text="tf-data", root=tmp_path / "nothing", revision=True)
    ours.root.mkdir()
    with pytest.raises(MeasureError, match="'pipeline' was loaded from"):
        measure(ours, SETTING, tmp_path / "log")


def test_a_revision_with_a_folder_src_is_measured_from_there(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "mine.py").write_text("def count():\n    return 7\n")
    mine = Subject(label="count at main", kind="function", text="mine:count", root=tmp_path, revision=True)
    assert len(measure(mine, SETTING, tmp_path / "log").rates) == processes.WINDOWS


def test_a_revision_without_the_public_parts_says_which(project, tmp_path):
    old = Subject(label="tf-data at v0", kind="variant", text="tf-data", root=project)
    with pytest.raises(MeasureError, match=r"tf-data at v0: .* lacks what is measured of it \(pipeline.VARIANTS"):
        measure(old, SETTING, tmp_path / "log")


def an_answer(rates):
    rest = '"anchors": {}, "invariants": null, "backend": "tensorflow", "gpus": []'
    return f"""print('{{"images_per_sec": {rates}, {rest}}}')"""


@pytest.fixture
def a_child(monkeypatch, tmp_path):
    """Puts a script in the place of the child."""

    def write(script):
        monkeypatch.setattr(processes, "_CHILD", script)
        return Subject(label="loader", kind="variant", text="tf-data", root=tmp_path)

    return write


@pytest.mark.parametrize(
    ("script", "match"),
    [
        ("import os; os.kill(os.getpid(), 9)", "gave no answer and ended with signal SIGKILL"),
        ("raise SystemExit(3)", "gave no answer and ended with exit code 3"),
        ("print('{')", "gave no answer and ended with exit code 0"),
        ("print('[]')", "gave no answer that can be read"),
        ("print('{}')", "no figures that can be used: 'images_per_sec'"),
        ("""print('{"error": "it is broken"}')""", "^loader: it is broken$"),
        (an_answer("[]"), "at least one window"),
        (an_answer("[0]"), "number above 0"),
        (an_answer("[NaN]"), "number above 0"),
    ],
)
def test_a_process_without_an_answer_could_not_measure(a_child, tmp_path, script, match):
    with pytest.raises(MeasureError, match=match):
        measure(a_child(script), SETTING, tmp_path / "log")


def test_a_process_that_hangs_is_ended_with_all_that_it_started(a_child, tmp_path):
    script = """
import pathlib, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
pathlib.Path("worker").write_text(str(worker.pid))
time.sleep(60)
"""
    patience = Setting(data="", measure="loader", model="", device=CPU, timeout_s=2)
    with pytest.raises(MeasureError, match=r"no answer within 2 s. Measure less, such as dataset.take\(100\)"):
        measure(a_child(script), patience, tmp_path / "log")
    pid = (tmp_path / "worker").read_text()
    for _ in range(50):  # a killed process is there until its new parent has looked
        state = subprocess.run(["ps", "-o", "stat=", pid], capture_output=True, text=True).stdout.strip()
        if not state or state.startswith("Z"):
            return
        time.sleep(0.1)
    pytest.fail(f"the worker lives on: {state}")


def test_a_child_ends_when_its_parent_is_gone(project, tmp_path):
    """Its standard input closes when the parent dies, of whatever."""
    code = f"""
import sys
sys.path.insert(0, {str(processes._OURS)!r})
from benchmarks.gate import child
import os, threading, time
os.setsid()
threading.Thread(target=child._end_with_parent, daemon=True).start()
print("ready", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"ready\n"
        child.stdin.close()
        assert child.wait(20) == -9
