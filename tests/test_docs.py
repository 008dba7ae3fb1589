"""The documents: links inside of the repository lead somewhere, and each block of code runs, or says why not."""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import PROJECT_ROOT
from unstall import profiles
from unstall.benchmarks.cli import VERBS

DOCS = PROJECT_ROOT / "docs"
DOCUMENTS = [PROJECT_ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted((DOCS / "evidence").glob("*.md"))]
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
# Modules that documents run by `python -m`, and the verbs of `unstall` that are the same.
_MODULES = {
    "profiles": "profile",
    "models predict": "predict",
    "pipeline materialize": "materialize",
    "pipeline migrate": "migrate",
}


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of code in a document.

    Attributes:
      note: the comment before it: "not run: ..." with the reason, or the mark by which another test finds it.
    """

    document: str
    note: str
    language: str
    text: str

    @property
    def runs_here(self) -> bool:
        """Whether no other test runs it, and no note says why none does."""
        return not self.note


def name_of(path: Path) -> str:
    """Returns the name of a document; that of one that shows a proof has its folder before it."""
    return f"evidence/{path.name}" if path.parent.name == "evidence" else path.name


def blocks(*languages: str) -> list[Block]:
    """Returns the blocks of all documents in these languages."""
    return [
        Block(document=name_of(path), note=note, language=language, text=text)
        for path in DOCUMENTS
        for note, language, text in _BLOCK.findall(path.read_text(encoding="utf-8"))
        if language in languages
    ]


def commands(block: Block) -> list[tuple[str, list[str]]]:
    """Returns the commands of a block of shell code as verbs of `unstall`, with their words.

    What measures our own claims is no verb: it is named by its module, such as `benchmarks.evidence.peers`.
    """
    verbs = []
    for line in block.text.splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "unstall":
            verbs.append((words[1], words[2:]))
            continue
        assert words[:2] == ["python", "-m"], line
        if words[2].startswith("benchmarks.evidence."):
            verbs.append((words[2], words[3:]))
            continue
        name, verb = words[2], _MODULES.get(" ".join(words[2:4])) or _MODULES.get(words[2])
        skipped = 4 if verb and verb != "profile" else 3
        verbs.append((verb or name.removeprefix("benchmarks."), words[skipped:]))
    return verbs


def anchors(text: str) -> set[str]:
    """Returns what a link may name behind `#`, as GitHub makes it from headings."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_inside_of_the_repository_lead_somewhere(path: Path) -> None:
    broken = []
    for link in _LINK.findall(path.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    assert broken == []


def test_each_block_that_runs_nowhere_says_why() -> None:
    takers = "".join(
        path.read_text(encoding="utf-8")
        for path in (
            *(PROJECT_ROOT / "tests").rglob("*.py"),
            PROJECT_ROOT / ".ci" / "run",
            PROJECT_ROOT / ".ci" / "cells",
        )
    )
    for block in blocks("bash", "python", "yaml", "toml"):
        if block.note.startswith("not run: "):
            assert len(block.note) > 30, block
        elif block.note:
            assert f"<!-- {block.note} -->" in takers, block
        else:
            assert block.language in ("bash", "python"), block


class _Accepted(Exception):
    """The words of a command were accepted."""


@pytest.mark.parametrize(
    "block", [block for block in blocks("bash") if block.runs_here], ids=lambda block: block.document
)
def test_commands_of_documents_are_accepted(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = argparse.ArgumentParser.parse_args

    def parse_only(self: argparse.ArgumentParser, words: Any = None, namespace: Any = None) -> argparse.Namespace:
        parse(self, words, namespace)
        raise _Accepted

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
    for verb, words in commands(block):
        function = f"{verb}.__main__:main" if verb.startswith("benchmarks.") else VERBS[verb][0]
        module, _, name = function.partition(":")
        with pytest.raises(_Accepted):
            getattr(importlib.import_module(module), name)(words)


@pytest.fixture
def names(tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the Python code of a document is given: data, a model, and a folder of photos."""
    shutil.copytree(photos, tmp_path / "photos" / "train")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(profiles, "profile", functools.partial(profiles.profile, rounds=1, budget_s=1))
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    arrays = np.zeros((256, 4), np.float32), np.zeros((256, 1), np.float32)
    dataset = tf.data.Dataset.from_tensor_slices(arrays).batch(8)
    return {"dataset": dataset, "model": model, "batches": dataset, "train": lambda batch: None}


@pytest.mark.parametrize(
    "block", [block for block in blocks("python") if block.runs_here], ids=lambda block: block.document
)
def test_python_of_documents_runs(block: Block, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    if "register_at_fork" in block.text:  # nobody could take such a hook away again
        monkeypatch.setattr(os, "register_at_fork", lambda **hooks: None)
    exec(compile(block.text, block.document, "exec"), {"__name__": "document", **names})


# What the documents call a file or folder of the reader's, and what it is in the test.
_FILLED = {"ARGS": "photos/train", "my-cat.jpg": "photos/train/cats/1.jpg", "my-dog.png": "photos/train/dogs/1.jpg"}
_MODULE = """
import keras, tensorflow as tf

def make_dataset():
    images = tf.data.Dataset.from_tensor_slices(tf.zeros((640, 16, 16, 3)))
    return images.map(lambda image: (tf.image.random_flip_left_right(image), 0.0)).batch(32).prefetch(2)

old = new = make_dataset

def build_model():
    model = keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model
"""
# Runs that a document takes for granted.
_BEFORE = {
    "documents.md": [
        f"pipeline --data photos/train --variants tf-data --out runs/{name}" for name in ("TIME", "BEFORE", "AFTER")
    ],
    "gate.md": ["gate compare mymodule:old mymodule:new --out runs/TIME"],
    "doctor.md": ["doctor --data photos/train --out runs/TIME"],
    "scripts.md": ["profile --out runs/TIME train.py"],
    "gpu-idle.md": ["profile --out runs/TIME train.py"],
    "README.md": ["profile --out runs/TIME train.py"],
}
# What a document shows took hours: its commands are not run again.
_HOURS = ("evidence/peers.md", "evidence/augmentation.md")
# Exit codes that are an answer: the gate's of a difference between two that are the same, and of a noisy machine; the
# doctor's of a damaged file.
_ANSWERS = {"gate": (0, 1, 3, 4), "doctor": (0, 1)}
# A script whose data wait 5 ms for each element, so that remedies surely help.
_SCRIPT = """
import time
import keras, numpy as np, tensorflow as tf

def slow(index):
    time.sleep(0.005)
    return np.float32(index)

data = tf.data.Dataset.range(160)
data = data.map(lambda index: (tf.ensure_shape(tf.numpy_function(slow, [index], tf.float32), ()), index / 160))
data = data.map(lambda value, target: (value[tf.newaxis], target))
data = data.batch(8)
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(data, epochs=3, verbose=0)
"""


@pytest.mark.claims
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", sorted({block.document for block in blocks("bash") if block.runs_here} - {*_HOURS}))
def test_commands_of_documents_run(name: str, tmp_path: Path, real_photos: Path) -> None:
    for label in ("cats", "dogs"):
        folder = tmp_path / "photos" / "train" / label
        folder.mkdir(parents=True)
        for number, path in enumerate(sorted((real_photos / "train" / label).glob("*.jpg"))[:200]):
            shutil.copy(path, folder / f"{number}.jpg")
    shutil.copytree(real_photos / "test", tmp_path / "photos" / "test")
    if name == "doctor.md":
        (tmp_path / "photos" / "train" / "cats" / "cut.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    shutil.copytree(PROJECT_ROOT / "docs" / "examples", tmp_path / "docs" / "examples")
    (tmp_path / "train.py").write_text(_SCRIPT)
    if name == "migrate.md":
        shutil.copy(tmp_path / "docs" / "examples" / "tutorial_generator.py", tmp_path / "train.py")
    (tmp_path / "DIR" / "directory").mkdir(parents=True)
    (tmp_path / "DIR" / "directory" / "train.py").write_text("print('EPOCH_S 1.0')")
    (tmp_path / "mymodule.py").write_text(_MODULE)
    for words in ("init -q -b main", "add mymodule.py", "-c user.name=a -c user.email=a@b commit -q -m first"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)
    runs = [(line.split()[0], line.split()[1:]) for line in _BEFORE.get(name, ())]
    runs += [
        command for block in blocks("bash") if block.document == name and block.runs_here for command in commands(block)
    ]
    for verb, words in runs:
        words = [_FILLED.get(word, word) for word in words]
        done = subprocess.run(
            [sys.executable, "-m", *(() if verb.startswith("benchmarks.") else ("unstall",)), verb, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{PROJECT_ROOT}{os.pathsep}{tmp_path}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode in _ANSWERS.get(verb, (0,)), (verb, words, done.stdout[-2000:], done.stderr[-3000:])


def test_every_document_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [PROJECT_ROOT / "README.md"]
    while waiting:
        path = waiting.pop()
        reached.add(path)
        for link in _LINK.findall(path.read_text(encoding="utf-8")):
            target = (path.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.exists() and target not in reached:
                waiting.append(target)
    assert {*DOCUMENTS} - reached == set()
