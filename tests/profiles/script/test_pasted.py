"""Every command and snippet of the terminal and of the page, run as pasted where the command ran."""

from __future__ import annotations

import html
import json
import os
import re
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import INSTALLED
from tests.checks import SHORTEN, pasted, run_python, snippets_in

pytestmark = pytest.mark.long

# `unstall` with shorter and fewer rounds, as a program.
PROGRAM = f"""#!{sys.executable}
{SHORTEN}
shorten("remedies.turns", _WINDOW_S=0.1, _MOST_ROUNDS=4, _ROUNDS_AGAIN=3)
import unstall
sys.exit(unstall.main())
"""
TF_DATA = """
import argparse, time
import numpy as np, keras, tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--name", required=True)
asked = parser.parse_args()


def slow(index):
    time.sleep(0.004)
    return np.float32(index)


def load(index):
    value = tf.ensure_shape(tf.numpy_function(slow, [index], tf.float32), ())
    return tf.ones((8,)) * value / 96, value / 96


def made():
    numbers = tf.data.Dataset.range(96)
    return (
        numbers.map(load)
        .batch(8)
    )


model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(made(), epochs=asked.epochs, verbose=0)
print("trained", asked.epochs, asked.name)
"""
LOOP = """
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.ones(8) * index + 0 * torch.rand(8), torch.tensor([float(index)])


def main():
    net = torch.nn.Linear(8, 1)
    sgd = torch.optim.SGD(net.parameters(), 1e-6)
    loader = DataLoader(
        Rows(),
        batch_size=8,
        shuffle=True,
    )
    for _ in range(4):
        for rows, numbers in loader:
            sgd.zero_grad()
            torch.nn.functional.mse_loss(net(rows), numbers).backward()
            sgd.step()
    print("trained")


if __name__ == "__main__":
    main()
"""
PY_DATASET = """
import time

import keras
import numpy as np


class Rows(keras.utils.PyDataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        time.sleep(0.02)
        return np.ones((8, 8), np.float32), np.ones(8, np.float32)


def train(rows):
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(
        rows,
        epochs=3,
        verbose=0,
    )


train(Rows())
print("trained")
"""
SCRIPTS = {
    "tf.data": (TF_DATA, ("--epochs", "3", "--name", "a b")),
    "a loop of PyTorch's": (LOOP, ()),
    "a PyDataset": (PY_DATASET, ()),
}
SCRIPT = "my scripts/train.py"


@dataclass(frozen=True)
class Shown:
    """A profiled script, and what a user can paste: commands, and the code of a remedy."""

    folder: Path
    source: str
    words: tuple[str, ...]
    terminal: str
    page: str

    @property
    def commands(self) -> set[str]:
        """Of the terminal: those below a label."""
        return set(re.findall(r"^ {15}(unstall .*)$", self.terminal, re.MULTILINE))

    @property
    def code(self) -> str:
        """Of the terminal: what stands below FASTER, from the comment with its first place on."""
        [code] = re.findall(r"^FASTER .*\n(?: {15}(?!#).*\n)*((?: {15}.*\n)+)", self.terminal, re.MULTILINE)
        return "".join(f"{line[15:]}\n" for line in code.splitlines()).rstrip("\n")

    @property
    def copied(self) -> list[str]:
        """What the page's Copy buttons copy."""
        return [html.unescape(text) for text in re.findall(r'<pre class="paste">(.*?)</pre>', self.page, re.DOTALL)]

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command in the shell in which the script was profiled."""
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(INSTALLED)},
            capture_output=True,
            text=True,
            timeout=300,
        )


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.needs("torch")) if "torch" in source else name
        for name, (source, _) in SCRIPTS.items()
    ],
)
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, alone) -> Shown:
    folder = tmp_path_factory.mktemp("pasted")
    source, words = SCRIPTS[request.param]
    (folder / "bin").mkdir()
    (folder / "bin" / "unstall").write_text(PROGRAM)
    (folder / "bin" / "unstall").chmod(stat.S_IRWXU)
    (folder / SCRIPT).parent.mkdir()
    (folder / SCRIPT).write_text(source)
    shown = Shown(folder, source, words, "", "")
    given = " ".join(f"'{word}'" for word in (SCRIPT, *words))
    for number in range(3):  # a few rounds that another program disturbs may show no gain
        with alone():
            done = shown.run(f"unstall profile --budget 8 --out run{number} {given}")
        assert done.returncode == 0, done.stderr[-3000:]
        if "\nFASTER " in done.stderr:
            break
    return Shown(folder, source, words, done.stderr, (folder / f"run{number}" / "report.html").read_text())


def test_every_command_runs_with_the_scripts_arguments(shown: Shown) -> None:
    [profile] = [command for command in shown.commands if command.startswith("unstall profile")]
    assert len(shown.commands) == 2  # and that of MORE, which shows all tables
    for command in shown.commands:
        done = shown.run(command)
        assert done.returncode == 0, (command, done.stderr[-3000:])
        if command == profile:
            assert "in place at train.py:" in done.stderr and done.stdout.startswith("trained"), done.stderr[-3000:]


def test_the_page_and_show_say_what_the_terminal_says(shown: Shown) -> None:
    [profile] = [command for command in shown.commands if command.startswith("unstall profile")]
    assert set(shown.copied) == {shown.code, profile}
    assert f"apply it: {profile}" in html.unescape(shown.page)
    [show] = shown.commands - {profile}
    again = shown.run(show.removesuffix(" --details")).stdout
    assert profile in again and all(line in again for line in shown.code.splitlines())


def test_what_is_to_be_edited_are_whole_statements_that_run_in_the_place_of_the_users(shown: Shown) -> None:
    changed = shown.folder / "changed.py"
    changed.write_text(pasted(shown.source, shown.code))
    assert changed.read_text() != shown.source and snippets_in(shown.code)
    done = run_python(shown.folder, changed.name, *shown.words)
    assert done.returncode == 0 and done.stdout.startswith("trained"), done.stderr[-3000:]


def test_the_file_holds_the_words_as_they_were_typed(shown: Shown) -> None:
    typed = json.loads((shown.folder / "run0" / "results.json").read_text())["typed"]
    assert typed == {"train.py": " ".join(["'my scripts/train.py'", *shown.words]).replace("a b", "'a b'")}
