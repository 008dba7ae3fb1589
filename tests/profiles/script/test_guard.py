"""The process that runs a script, and its parent: exit codes, signals, and trials that crash or hang."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from tests import INSTALLED
from tests.checks import have_ended

PROGRAM = """
import os, signal, subprocess, sys, time
import unstall
from unstall.profiles.script import guard as module
module._LEAVE_S = {leave_s}
def say(line):
    print("said:", line, file=sys.stderr, flush=True)
def run(guard):
    print(os.getpid(), flush=True)
{body}
sys.exit(module.guarded(run, say))
"""
# Linux: a process that sets this becomes the parent of processes below it whose own parent has ended.
_SUBREAPER = 36


def started(body: str, leave_s: float = 2.0) -> subprocess.Popen[str]:
    text = PROGRAM.format(body=textwrap.indent(textwrap.dedent(body), "    "), leave_s=leave_s)
    return subprocess.Popen(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": str(INSTALLED)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(body: str) -> tuple[int, str]:
    process = started(body)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_exit_code_is_the_scripts(code: int) -> None:
    assert ended(f"return {code}") == (code, "")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGSEGV", "SIGABRT"])
def test_a_script_that_a_signal_ends_ends_the_parent_by_it(name: str) -> None:
    code, errors = ended(f"import faulthandler; faulthandler.disable(); os.kill(os.getpid(), signal.{name})")
    assert (code, errors) == (-signal.Signals[name], "")


@pytest.mark.parametrize("how", ["os.kill(os.getpid(), signal.SIGKILL)", "os.abort()", "os._exit(9)", "return 9"])
def test_a_trial_that_crashes_leaves_the_exit_code(how: str) -> None:
    code, errors = ended(f"guard.fix(5, 30.0)\n{how}")
    assert code == 5
    assert ("said: the trial of remedies was ended by SIG" in errors) is ("kill" in how or "abort" in how)


def test_a_trial_that_hangs_is_ended_with_its_processes_and_leaves_the_exit_code() -> None:
    process = started(
        """
        worker = subprocess.Popen(["sleep", "1000"])
        print(worker.pid, flush=True)
        guard.fix(6, 1.0)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        time.sleep(1000)
        """
    )
    assert process.stdout is not None
    pids = [int(process.stdout.readline()) for _ in range(2)]
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 6
    assert "said: the trial of remedies did not end within 1 s, and was ended" in errors
    assert have_ended(*pids)


def test_a_worker_that_has_ended_is_not_waited_for_though_nobody_asked_how_it_ended() -> None:
    prctl = ctypes.CDLL(None).prctl
    assert prctl(_SUBREAPER, 1, 0, 0, 0) == 0  # this process inherits the worker, as a container's first would
    try:
        process = started(
            """
            worker = subprocess.Popen(["sleep", "1000"])
            print(worker.pid, flush=True)
            guard.fix(6, 0.2)
            time.sleep(1000)
            """,
            leave_s=1000.0,
        )
        assert process.stdout is not None
        worker = [int(process.stdout.readline()) for _ in range(2)][1]
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 6 and "did not end within" in errors
        assert psutil.Process(worker).status() == psutil.STATUS_ZOMBIE
    finally:
        prctl(_SUBREAPER, 0, 0, 0, 0)
    os.waitpid(worker, 0)


def test_there_is_no_limit_behind_a_trial() -> None:
    assert ended("guard.fix(7, 0.5)\nguard.release()\ntime.sleep(1.5)\nreturn 7") == (7, "")


def test_a_signal_after_a_trial_does_not_end_the_trial() -> None:
    """Python ends by SIGINT where a library's call of Python code met it, also if that was dealt with."""
    ends = "signal.signal(signal.SIGINT, signal.SIG_DFL)\nos.kill(os.getpid(), signal.SIGINT)"
    assert ended(f"guard.fix(7, 30.0)\nguard.release()\n{ends}") == (7, "")


@pytest.mark.parametrize(
    "name",
    [
        "SIGTERM",
        "SIGINT",
        pytest.param("SIGHUP", marks=pytest.mark.slow),
        pytest.param("SIGUSR1", marks=pytest.mark.slow),
    ],
)
def test_a_signal_to_the_parent_reaches_the_script_once(name: str) -> None:
    process = started(
        f"""
        seen = []
        signal.signal(signal.{name}, lambda *_: seen.append(1))
        print("ready", flush=True)
        until = time.monotonic() + 60
        while not seen and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.5)  # for a second one
        return 40 + len(seen)
        """
    )
    assert process.stdout is not None
    process.stdout.readline()
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.Signals[name])
    process.communicate(timeout=60)
    assert process.returncode == 41


def test_a_script_does_not_outlive_its_parent() -> None:
    process = started("time.sleep(1000)")
    assert process.stdout is not None
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    assert have_ended(child, within_s=10)


def test_what_was_printed_before_is_printed_once(tmp_path: Path) -> None:
    text = 'import sys\nimport unstall\nfrom unstall.profiles.script.guard import guarded\nprint("once", end="")\n'
    text += "sys.exit(guarded(lambda guard: 0, print))"
    shown = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": str(INSTALLED)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (shown.stdout, shown.returncode) == ("once", 0)
