"""Ways in which a gate cannot measure: no data, nothing served, an interrupted run, another machine."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import unstall
from unstall.profiles import provenance
from unstall.profiles.gate import EPOCH, RECORDED, Invariants, MeasuredRates, machine_of, new_baseline, path_of, write

_TIMEOUT_S = 600.0
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A way in which the gate cannot measure.

    Attributes:
      run: brings it about, and returns the exit code of the gate.
      promised: exit code.
    """

    name: str
    run: Callable[[], int]
    promised: int


def faults() -> tuple[Fault, ...]:
    """Returns the faults, each of which runs `benchmarks.gate` in a temporary folder."""
    return (
        Fault(name="no data: the folder is empty", run=_no_data, promised=3),
        *(
            Fault(name=f"feed: {name.replace('_', ' ')}", run=functools.partial(_feed, name), promised=3)
            for name in ("nothing", "not_a_number", "no_batch", "one_sample", "dies", "hangs", "missing")
        ),
        Fault(name="interrupted (SIGINT)", run=_interrupted, promised=128 + signal.SIGINT),
        Fault(name="another machine's baseline", run=_elsewhere, promised=3),
        Fault(name="a baseline cut short", run=_cut_short, promised=3),
        Fault(name="a baseline of one sample", run=_one_recorded, promised=3),
    )


def _run(folder: Path, *words: str, interrupt_after_s: float | None = None) -> int:
    """Runs the command in a folder. Returns its exit code; that of a killed process if it does not end in time."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gate", *words, "--out", str(folder / "out")],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(unstall.ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            if interrupt_after_s is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(interrupt_after_s)
                process.send_signal(signal.SIGINT)
            return process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
        except BaseException:  # else the end of this block would wait for the process
            process.kill()
            raise


def _no_data() -> int:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "photos").mkdir()
        return _run(Path(name), "compare", "tf-data", "tf-data", "--data", "photos")


def _feed(function: str) -> int:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "feeds.py").write_text(_FEEDS)
        timeout_s = "20" if function == "hangs" else "120"
        return _run(Path(name), "compare", f"feeds:{function}", f"feeds:{function}", "--timeout", timeout_s)


def _interrupted() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "feeds.py").write_text(_FEEDS)
        return _run(folder, "compare", "feeds:hangs", "feeds:hangs", interrupt_after_s=5)


def _elsewhere() -> int:
    return _with_baseline(lambda text: text.replace('"cpu": "', '"cpu": "not '))


def _cut_short() -> int:
    return _with_baseline(lambda text: text[: len(text) // 2])


def _one_recorded() -> int:
    return _with_baseline(lambda text: re.sub(r'("samples": \[[\d.]+)[^\]]*', r"\1", text))


def _with_baseline(change: Callable[[str], str]) -> int:
    """Checks against a baseline that was written here and then changed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "feeds.py").write_text(_FEEDS)
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
        return _run(folder, "check", "loader", "--baselines", ".", "--subject", "feeds:works")
