"""Ways in which a gate cannot measure: no data, nothing served, an interrupted run, another machine.

Each ends with exactly the exit code that is promised, and none with 1, the code of a regression.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import INSTALLED
from unstall.profiles import provenance
from unstall.profiles.gate import EPOCH, RECORDED, Invariants, MeasuredRates, machine_of, new_baseline, path_of, write

_FEEDS = """
import pathlib

import numpy as np

BATCH = np.zeros((5, 4, 4, 3), np.float32), np.zeros((5,), np.float32)


def nothing():
    return 0


def not_a_number():
    return float("nan")


def works():
    return 5


def no_batch():
    return []


first = None


def one_sample():
    global first
    if first is None:
        first = not pathlib.Path("measured").exists()
        pathlib.Path("measured").touch()
    if not first:
        raise RuntimeError("the machine has gone")
    return 5


def dies():
    import os

    os.kill(os.getpid(), 9)


def hangs():
    import time

    time.sleep(600)
"""


def exit_code(folder: Path, *words: str, interrupt_after_s: float | None = None) -> int:
    """Runs `unstall gate` in a folder. Returns its exit code; that of a killed process if it does not end in time."""
    (folder / "feeds.py").write_text(_FEEDS)
    command = [sys.executable, "-m", "unstall", "gate", *words, "--out", str(folder / "out")]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = {**os.environ, "PYTHONPATH": str(INSTALLED)}
    with subprocess.Popen(command, cwd=folder, env=environment, **silent) as process:
        try:
            if interrupt_after_s is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(interrupt_after_s)
                process.send_signal(signal.SIGINT)
            return process.wait(600)
        finally:  # else the end of this block would wait for a process that hangs
            process.kill()


def of_feed(folder: Path, function: str) -> int:
    timeout_s = "20" if function == "hangs" else "120"
    return exit_code(folder, "compare", f"feeds:{function}", f"feeds:{function}", "--timeout", timeout_s)


def without_data(folder: Path) -> int:
    (folder / "photos").mkdir()
    return exit_code(folder, "compare", "tf-data", "tf-data", "--data", "photos")


def interrupted(folder: Path) -> int:
    return exit_code(folder, "compare", "feeds:hangs", "feeds:hangs", interrupt_after_s=5)


def with_baseline(folder: Path, change: Callable[[str], str]) -> int:
    """Checks against a baseline that was written here and then changed."""
    path = path_of(folder, "loader")
    rates = [{EPOCH: 100.0 + number} for number in range(RECORDED)]
    baseline = new_baseline(
        [MeasuredRates(images_per_sec=rate, anchors={"decode": 200.0}) for rate in rates],
        subject="feeds:works",
        measure="loader",
        reading="loop",
        invariants=Invariants(images=5),
        machine=machine_of(provenance.machine(), "tensorflow", ()),
        dataset=None,
    )
    write(baseline, path, overwrite=False)
    path.write_text(change(path.read_text()))
    return exit_code(folder, "check", "loader", "--baselines", ".", "--subject", "feeds:works")


FAULTS = {
    "no data: the folder is empty": without_data,
    **{
        f"feed: {name.replace('_', ' ')}": lambda folder, name=name: of_feed(folder, name)
        for name in ("nothing", "not_a_number", "no_batch", "one_sample", "dies", "hangs", "missing")
    },
    "interrupted (SIGINT)": interrupted,
    "another machine's baseline": lambda folder: with_baseline(
        folder, lambda text: text.replace('"cpu": "', '"cpu": "not ')
    ),
    "a baseline cut short": lambda folder: with_baseline(folder, lambda text: text[: len(text) // 2]),
    "a baseline of one sample": lambda folder: with_baseline(
        folder, lambda text: re.sub(r'("samples": \[[\d.]+)[^\]]*', r"\1", text)
    ),
}
# Those that are refused before anything is measured.
AT_ONCE = ("no data: the folder is empty", "another machine's baseline", "a baseline of one sample")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in AT_ONCE else pytest.mark.slow) for name in FAULTS]
)
def test_a_fault_ends_as_promised(name: str, tmp_path: Path) -> None:
    promised = 128 + signal.SIGINT if name == "interrupted (SIGINT)" else 3
    assert FAULTS[name](tmp_path) == promised
