"""The one kind of child: its answers, its end by kill, timeout, signal and its parent's death, and where it runs."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

import psutil
import pytest

from tests.checks import have_ended, lives
from unstall.benchmarks.lab import child as child_module
from unstall.benchmarks.lab.child import Child, ChildDied, ChildHung, Home, JobRefused, images_timeout_s, kill_all
from unstall.profiles.devices import CPU

GONE_S = 10
# Linux: a process that sets this becomes the parent of processes below it whose own parent has ended.
_SUBREAPER = 36


PLANTED = "tests.benchmarks.lab.sessions:Planted"


@pytest.fixture
def worker(tmp_path):
    """A file for the number of a child's worker."""
    return tmp_path / "worker"


@pytest.fixture
def child(tmp_path, worker):
    child = Child(PLANTED, CPU, tmp_path / "log", str(worker))
    assert child.ask("number", timeout_s=60) == child.pid
    yield child
    child.kill()


def test_a_request_that_fails_is_refused_in_one_line_and_the_child_goes_on(child):
    with pytest.raises(JobRefused, match="^ValueError: it is broken$"):
        child.ask("fails", timeout_s=60)
    assert child.ask("number", timeout_s=60) == child.pid


def test_code_that_calls_exit_is_refused_and_names_no_folder_of_the_users(child):
    """Its answer must not be taken for a result, nor end the child."""
    with pytest.raises(JobRefused, match="^SystemExit: no photos in photos$"):
        child.ask("leaves", timeout_s=60)
    assert child.ask("number", timeout_s=60) == child.pid


def test_requests_may_be_sent_before_the_first_is_answered(child):
    child.send("number")
    child.send("fails")
    assert child.receive(timeout_s=60) == child.pid
    with pytest.raises(JobRefused):
        child.receive(timeout_s=60)


@pytest.mark.parametrize("end", [Child.close, Child.kill])
def test_a_child_that_is_ended_removes_what_it_wrote_and_leaves_no_worker(child, worker, tmp_path, end):
    end(child)
    assert (tmp_path / "log").read_text() == "closed\n"
    assert have_ended(child.pid, int(worker.read_text()), within_s=GONE_S)
    with pytest.raises(ChildDied):
        child.ask("number", timeout_s=1)


def test_many_children_are_ended_at_the_same_time(tmp_path, monkeypatch):
    children = [Child(PLANTED, CPU, tmp_path / f"log-{number}") for number in range(3)]
    for child in children:
        child.ask("number", timeout_s=60)
        os.kill(child.pid, signal.SIGSTOP)  # it cannot leave
    waits_s = []
    monkeypatch.setattr(child_module, "_wait_until", lambda condition, timeout_s: waits_s.append(timeout_s))
    kill_all(children)
    assert waits_s == [child_module._LEAVE_S, child_module._WORKERS_LEAVE_S]
    assert not any(lives(child.pid) for child in children)


def test_a_worker_that_has_ended_is_not_waited_for_though_nobody_asked_how_it_ended(child, worker, monkeypatch):
    monkeypatch.setattr(child_module, "_WORKERS_LEAVE_S", 60.0)
    number = int(worker.read_text())
    prctl = ctypes.CDLL(None).prctl
    assert prctl(_SUBREAPER, 1, 0, 0, 0) == 0  # the worker becomes this process' child, as a container's first would
    try:
        begun = time.monotonic()
        child.kill()
        assert time.monotonic() - begun < 30
        assert psutil.Process(number).status() == psutil.STATUS_ZOMBIE
    finally:
        prctl(_SUBREAPER, 0, 0, 0, 0)
        os.waitpid(number, 0)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (("dies", "SIGKILL"), "^the process was killed; most likely the machine ran out of memory$"),
        (("dies", "SIGSEGV"), "^the process died of signal SIGSEGV$"),
        (("ends", 7, "out of luck"), "^the process ended with exit code 7: out of luck$"),
        (("ends", 0, ""), "^the process ended with exit code 0$"),
        (("half",), "^the process ended with exit code 7$"),
        (("forks",), "^the process ended with exit code 7$"),
    ],
)
def test_a_child_that_is_gone_says_how_and_leaves_no_worker(child, worker, request_, reason):
    with pytest.raises(ChildDied, match=reason):
        child.ask(*request_, timeout_s=60)
    assert have_ended(child.pid, int(worker.read_text()), within_s=GONE_S)


def test_a_child_that_was_killed_before_it_is_asked_is_named_as_killed(child):
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ChildDied, match="the process was killed"):
        child.ask("number", timeout_s=60)


def test_a_session_that_cannot_be_made_says_why(tmp_path):
    child = Child("no_such_module:Session", CPU, tmp_path / "log")
    reason = "^the process ended with exit code 1: ModuleNotFoundError: No module named 'no_such_module'$"
    with pytest.raises(ChildDied, match=reason):
        child.ask("number", timeout_s=60)


@pytest.mark.long
@pytest.mark.parametrize("stopped", [True, False])
def test_a_child_that_does_not_answer_in_time_is_ended_with_its_worker(child, worker, stopped):
    if stopped:
        os.kill(child.pid, signal.SIGSTOP)
    with pytest.raises(ChildHung, match="^no answer within 0 s: it hung and was ended$"):
        child.ask("hangs", timeout_s=0.2)
    assert have_ended(child.pid, int(worker.read_text()), within_s=GONE_S)


@pytest.mark.parametrize("busy", [True, False])
def test_a_child_whose_parent_is_gone_ends_with_its_worker(child, worker, busy):
    if busy:
        child.send("hangs")
    child._connection.close()
    assert child._process.wait(GONE_S) == -signal.SIGKILL
    assert have_ended(child.pid, int(worker.read_text()), within_s=GONE_S)


def test_arguments_that_cannot_be_sent_leave_no_process(tmp_path):
    before = {process.pid for process in psutil.Process().children()}
    with pytest.raises(Exception, match="<lambda>"):
        Child(PLANTED, CPU, tmp_path / "log", lambda: None)
    assert {process.pid for process in psutil.Process().children()} <= before


def test_a_child_of_the_cpu_sees_no_gpu_of_any_maker_and_runs_as_its_parent_does(tmp_path):
    child = Child(PLANTED, CPU, tmp_path / "log")
    try:
        environment, path, folder, read = child.ask("surroundings", timeout_s=60)
    finally:
        child.close()
    hidden = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), "-1")
    assert {name: environment.get(name) for name in hidden} == hidden and environment["JAX_PLATFORMS"] == "cpu"
    assert (path, folder, read) == (sys.path, os.getcwd(), "")


AWAY = """
import os, sys

class Session:
    def surroundings(self):
        return dict(os.environ), sys.path, os.getcwd()

    def close(self):
        pass
"""


def test_a_child_with_a_home_has_none_of_its_parents_path(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, "/of/the/parent"])
    (tmp_path / "home").mkdir()
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "away.py").write_text(AWAY)
    home = Home(folder=tmp_path / "home", environment={"PYTHONPATH": str(tmp_path / "path")})
    child = Child("away:Session", CPU, tmp_path / "log", home=home)
    try:
        environment, path, folder = child.ask("surroundings", timeout_s=60)
    finally:
        child.close()
    assert environment["PYTHONPATH"] == str(tmp_path / "path") and folder == str(tmp_path / "home")
    assert str(tmp_path / "path") in path and not {"", folder, "/of/the/parent"} & set(path)


def test_a_child_with_an_environment_keeps_the_path_of_its_parent(tmp_path, monkeypatch):
    (tmp_path / "away.py").write_text(AWAY)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    child = Child("away:Session", CPU, tmp_path / "log", environment={"UNSTALL_TESTED": "yes"})
    try:
        environment, path, _ = child.ask("surroundings", timeout_s=60)
    finally:
        child.close()
    assert environment["UNSTALL_TESTED"] == "yes" and environment["PATH"] == os.environ["PATH"]
    assert str(tmp_path) in path


def test_a_child_is_run_by_the_words_before_its_command(tmp_path, monkeypatch):
    (tmp_path / "away.py").write_text(AWAY)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    child = Child("away:Session", CPU, tmp_path / "log", prefix=("env", "UNSTALL_TESTED=by a prefix"))
    try:
        environment, _, _ = child.ask("surroundings", timeout_s=60)
    finally:
        child.close()
    assert environment["UNSTALL_TESTED"] == "by a prefix"


def test_a_child_that_reads_many_images_may_take_longer():
    assert [images_timeout_s(images) for images in (40, 6_000, 60_000)] == [300, 300, 3_000]
    assert images_timeout_s(60_000, least_s=5_000) == 5_000
