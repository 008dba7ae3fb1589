"""How the commands end that `benchmarks.lab.command.run` does not run; tests/benchmarks/lab/test_run.py has the others.

Each is called by its words. `PHOTOS` stands for a folder of photos, `OUT` for what the command is to write.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import pytest

from tests import INSTALLED
from tests.checks import state
from unstall.benchmarks.doctor import measure as doctor_measure
from unstall.benchmarks.gate import measure as gate_measure
from unstall.benchmarks.gate.samples import Process
from unstall.benchmarks.train import session as train_session
from unstall.pipeline.commands import materialize as materialize_command
from unstall.pipeline.prepared.write import materialize
from unstall.profiles.gate import Invariants


@dataclass(frozen=True, kw_only=True)
class Ending:
    """A command, and what its tests need to know.

    Attributes:
      main: "module:function".
      words: that would do its work.
      writes: what it would write, below `OUT`; None for a command that writes nothing.
      bad: words that name something which is not there.
      unwritable_code: the exit code where `OUT` cannot be written.
    """

    main: str
    words: str
    writes: str | None
    bad: str
    unwritable_code: int = 2

    def run(self, words: str, photos: Path, out: Path) -> int:
        module, _, name = self.main.partition(":")
        given = words.replace("PHOTOS", str(photos)).replace("OUT", str(out)).split()
        code: int = getattr(importlib.import_module(module), name)(given)
        return code


def tiny_model(classes: int) -> keras.Model:
    layers = [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(1, activation="sigmoid")]
    network = keras.Sequential(layers)
    network.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
    return network


COMMANDS = {
    "materialize": Ending(
        main="benchmarks.cli:main",
        words="materialize --data PHOTOS --out OUT --as raw --image-size 8",
        writes="mine",
        bad="materialize --data nowhere --out OUT --as raw",
        unwritable_code=3,
    ),
    "train": Ending(
        main="benchmarks.train.__main__:main",
        words=f"--data PHOTOS --out OUT.keras --epochs 1 --model {__name__}:tiny_model",
        writes=".keras",
        bad="--data nowhere --out OUT.keras",
    ),
    "gate record": Ending(
        main="benchmarks.gate.__main__:main",
        words="record loader --data PHOTOS --baselines OUT --out logs",
        writes="loader.json",
        bad="record loader --subject nothing --baselines OUT --out logs",
    ),
    "doctor": Ending(
        main="benchmarks.doctor.__main__:main",
        words="--data PHOTOS --out OUT",
        writes="results.json",
        bad="--data nowhere --out OUT",
    ),
    "profiles": Ending(
        main="profiles.__main__:main", words="--out OUT script.py", writes="results.json", bad="--out OUT nowhere.py"
    ),
    "predict": Ending(
        main="benchmarks.cli:main", words="predict a.keras 1.png", writes=None, bad="predict nowhere.keras 1.png"
    ),
}
WRITERS = [name for name, command in COMMANDS.items() if command.writes is not None]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the folder in which the commands run."""
    (tmp_path / "script.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has the gate measure made-up rates; returns the list of its measurements."""
    asked: list[int] = []

    def measure(subject: Any, setting: Any, log: Path, *, anchors: bool = False, inspect: bool = False) -> Process:
        asked.append(len(asked))
        return Process(
            rates={"epoch": (1000.0,)},
            anchors={"decode": (2000.0,)},
            invariants=Invariants(images=40) if inspect else None,
        )

    monkeypatch.setattr(gate_measure, "measure", measure)
    return asked


@pytest.mark.parametrize("name", COMMANDS)
def test_bad_input_is_exit_code_2_in_one_line_and_leaves_nothing(
    name: str, photos: Path, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = state(folder)
    assert COMMANDS[name].run(COMMANDS[name].bad, photos, folder / "out") == 2
    printed = capfd.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert state(folder) == before


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_there_is_not_overwritten(
    name: str, photos: Path, folder: Path, measured: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    command = COMMANDS[name]
    path = folder / "out.keras" if command.writes == ".keras" else folder / "out" / str(command.writes)
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    before = state(folder)
    assert command.run(command.words, photos, folder / "out") == 2
    printed = capfd.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1 and "already" in printed.err
    assert state(folder) == before and measured == []


@pytest.mark.parametrize("place", ["a file", "no folder at all"])
@pytest.mark.parametrize("name", WRITERS)
def test_a_place_that_cannot_be_written_to_is_one_line(
    name: str, place: str, photos: Path, folder: Path, measured: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    if name == "profiles" and place != "a file" and os.geteuid() == 0:
        pytest.skip("root may write everywhere, as far as the system tells")
    (folder / "file").write_text("mine")
    before = state(folder)
    # Nobody, not even root, can make a folder in /proc.
    out = folder / "file" / "out" if place == "a file" else Path("/proc/nowhere/out")
    command = COMMANDS[name]
    assert command.run(command.words, photos, out) == command.unwritable_code
    printed = capfd.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert state(folder) == before and measured == []


def stop_materialize(monkeypatch: pytest.MonkeyPatch, stop: Callable[..., None]) -> None:
    def stopped(*arguments: Any, progress: Any, **named: Any) -> Any:
        return materialize(*arguments, progress=stop, **named)

    monkeypatch.setattr(materialize_command, "_materialize", lambda: stopped)


def stop_train(monkeypatch: pytest.MonkeyPatch, stop: Callable[..., None]) -> None:
    monkeypatch.setattr(train_session, "print_pass", stop)


def stop_record(monkeypatch: pytest.MonkeyPatch, stop: Callable[..., None]) -> None:
    monkeypatch.setattr(gate_measure, "measure", stop)


def stop_doctor(monkeypatch: pytest.MonkeyPatch, stop: Callable[..., None]) -> None:
    monkeypatch.setattr(doctor_measure, "examine_all", stop)


STOPS = {"materialize": stop_materialize, "train": stop_train, "gate record": stop_record, "doctor": stop_doctor}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("name", STOPS)
def test_a_signal_in_the_midst_leaves_nothing_and_is_one_line(
    name: str,
    number: int,
    code: int,
    photos: Path,
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop(*arguments: Any, **named: Any) -> None:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), signal.SIGTERM)  # one more, while the first is dealt with

    STOPS[name](monkeypatch, stop)
    handler, before = signal.getsignal(number), state(folder)
    assert COMMANDS[name].run(COMMANDS[name].words, photos, folder / "out") == code
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("stopped: ")
    assert state(folder) == before
    assert signal.getsignal(number) is handler


# These two leave signals to Python: the one writes nothing, the other runs somebody's script. So each has a process.
PREDICTS = """
import os, sys
from unstall.models import command, predict
predict.check_file = predict.import_keras = predict.open_finished = lambda *_: None
predict.classify = lambda *_: os.kill(os.getpid(), {number})
sys.exit(command.main(["a.keras", "1.png"]))
"""
SCRIPT = """
import os
os.kill(os.getpid(), {number})
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["predict", "profiles"])
def test_a_signal_that_python_answers_leaves_nothing(name: str, number: int, folder: Path) -> None:
    (folder / "script.py").write_text(SCRIPT.format(number=int(number)))
    before = state(folder)
    words = ["-c", PREDICTS.format(number=int(number))] if name == "predict" else []
    ended = subprocess.run(
        [sys.executable, *(words or ["-m", "unstall", "profile", "--out", "out", "script.py"])],
        env={**os.environ, "PYTHONPATH": str(INSTALLED), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    # A process that a signal ends has the signal's negative number; a shell says 128 + number.
    assert ended.returncode in (128 + number, -number)
    assert ended.stdout == "" and state(folder) == before
    assert f"{os.sep}profiles{os.sep}" not in ended.stderr and f"{os.sep}models{os.sep}" not in ended.stderr
    if name == "predict":
        assert ended.stderr == ("stopped\n" if number == signal.SIGINT else "")
