"""Checks that many tests share: on processes, files and pages; and running tests again on another backend."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import json
import os
import pathlib
import random
import re
import runpy
import subprocess
import sys
import time
from html.parser import HTMLParser
from types import ModuleType
from typing import Any

import psutil
import pytest

import unstall
from tests import INSTALLED, PROJECT_ROOT
from unstall.benchmarks.lab.command import Command
from unstall.benchmarks.lab.show import _Kinds
from unstall.profiles.report import Document, Kind, load, write
from unstall.profiles.text import Terminal

# Seconds that processes may take to disappear after they, or their parents, have ended.
GONE_S = 5


def samples_of(document: dict[str, Any], result: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the samples of a result in a file of results; a cold row also has those of its warm row."""
    return [sample for key in result["windows"] for sample in document["samples"]["windows"][key]]


def kind_of(command: Command) -> Kind[Any, Any, Any]:
    """Returns the kind of a command's documents."""
    kind: Kind[Any, Any, Any] = unstall.of_ours(command.kind)
    return kind


def printed(kind: Kind[Any, Any, Any], document: Document[Any, Any]) -> str:
    """Returns what is printed of a document in 80 columns, in which no cell is cut."""
    text = tables_of(kind, document)
    assert "…" not in text
    return text


def said_of(kind: Kind[Any, Any, Any], document: Document[Any, Any]) -> str:
    """Returns what is printed of a document, without line breaks."""
    return " ".join(printed(kind, document).split())


def assert_follows_from_its_file(kind: Kind[Any, Any, Any], document: Document[Any, Any], folder: pathlib.Path) -> None:
    """Checks that a document which is read again from its file is the same, and is shown as the document is."""
    write(folder, document, kind, kind.derive(document))
    again, kind_again = load(folder, _Kinds())
    assert kind_again is kind and again == document
    assert kind.page(again, kind.derive(again)) == (folder / "report.html").read_text()
    assert tables_of(kind, again) == tables_of(kind, document)
    assert kind.rows(kind.derive(again)) == kind.rows(kind.derive(document))


def snippets_in(code: str) -> list[tuple[str, str]]:
    """Returns ("9-12", the statements that take the place of these lines) of code as a remedy shows it."""
    parts = re.split(r"^# \S+\.py:([\d-]+)\n", f"{code}\n", flags=re.MULTILINE)
    assert parts[0] == ""
    return list(zip(parts[1::2], parts[2::2], strict=True))


def pasted(source: str, code: str) -> str:
    """Returns the text of a script with what is shown in the place of the lines that it names."""
    lines = source.splitlines(keepends=True)
    for span, text in reversed(snippets_in(code)):
        first, _, last = span.partition("-")
        lines[int(first) - 1 : int(last or first)] = [text]
    return "".join(lines)


def passes_on_jax(file: str, chosen: str) -> None:
    """Runs some tests of a file again in a process whose Keras computes with JAX."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, file],
        env=os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]


def entries(folder: pathlib.Path) -> list[str]:
    """Returns the names in a folder, sorted."""
    return sorted(path.name for path in folder.iterdir())


def dead_pid() -> int:
    """Returns the id of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def lives(pid: int) -> bool:
    """Whether a process has not ended. A zombie has; its parent has not asked yet how."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def have_ended(*pids: int, within_s: float = GONE_S) -> bool:
    """Waits for processes: a killed one goes a moment later. Returns whether all have ended."""
    until = time.monotonic() + within_s
    while any(map(lives, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(map(lives, pids))


def with_gpus() -> dict[str, str]:
    """Returns the environment of a process that is to see the GPUs: the tests hide them from their own process."""
    return {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}


def run_python(folder: pathlib.Path, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with these words as its command line, in a folder that need not know of this project."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(INSTALLED), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


# The head of a program for `python -c`, which makes windows of the model alone, and looks at stages and lines, short.
SHORTEN = """
import sys
from unstall.profiles.measure import schedule
from unstall.profiles.script.run import after_import
def shorten(module, **values):
    name = "unstall.profiles." + module
    def update():
        assert values.keys() <= vars(sys.modules[name]).keys()
        vars(sys.modules[name]).update(values)
    after_import(name, update)
shorten("script.ceilings", _MOST_ROUNDS=3, _LONGEST_STEP_TOGETHER_S=0.0)
shorten("stages.tf_stages", ROUNDS=1, RUN_S=0.05, _WHOLE_BATCHES=4, TAIL_S=0.2)
shorten("stages.python_stages", ROUNDS=1, ROUND_S=0.1)
shorten("stages.loader_stages", _ROUNDS=1, _ROUND_S=0.1)
shorten("stages.lines", SEARCH_S=0.1, LINES_S=0.2)
schedule.READY_WINDOW_S = 0.05
"""
# `unstall profile`, for `python -c`.
SHORT_PROFILES = f"""{SHORTEN}
from unstall.profiles.__main__ import guarded_main
sys.exit(guarded_main(sys.argv[1:]))
"""


def run_here(script: pathlib.Path, *words: object) -> tuple[str, int]:
    """Runs a script on TensorFlow as the main program of this process, which has imported TensorFlow already.

    The script must seed what it draws: then it comes to the same as in a process of its own. The random states of this
    process are put back; TensorFlow has no seed afterwards.

    Returns:
      What the script has printed, and its exit code.
    """
    import numpy as np
    import tensorflow as tf

    printed, code = io.StringIO(), 0
    states = random.getstate(), np.random.get_state()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(sys, "argv", [str(script), *map(str, words)])
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
            tf.random.set_seed(None)
    return printed.getvalue(), code


# Slow libraries, imported once, so that each fork has them already.
_SLOW = "import numpy, PIL.Image, psutil, rich.console, rich.progress, rich.table\n"
_FORKS = """
import json, os, sys, tempfile, traceback

def run(code):
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        if not (child := os.fork()):
            os.dup2(out.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            status = 1
            try:
                exec(code, {"__name__": "__main__"})
                status = 0
            except SystemExit as left:
                status = left.code if isinstance(left.code, int) else int(left.code is not None)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return status, *(file.seek(0) or file.read() for file in (out, errors))

print(json.dumps({name: run(code) for name, code in json.load(sys.stdin).items()}))
"""


def in_forks(
    codes: dict[str, str],
    home: pathlib.Path,
    *,
    cwd: pathlib.Path,
    python: pathlib.Path | str = sys.executable,
    env: dict[str, str] | None = None,
    imported: tuple[str, ...] | None = (),
) -> dict[str, tuple[int, str, str]]:
    """Runs each code as a program that lies in the folder `home`, in a process that has imported nothing of ours.

    Args:
      imported: modules that each process has already, besides slow libraries; None for none of both.
    Returns:
      Exit code, output and errors of each.
    """
    program = home / "forks.py"
    first = "" if imported is None else _SLOW + "".join(f"import {name}\n" for name in imported)
    program.write_text(first + _FORKS)
    done = subprocess.run(
        [python, program], input=json.dumps(codes), cwd=cwd, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return {name: tuple(results) for name, results in json.loads(done.stdout).items()}


def working_tfds() -> ModuleType:
    """Returns TensorFlow Datasets; skips the calling test if it does not work.

    It does not if the installed tensorflow-metadata needs a newer protobuf than TensorFlow allows.
    """
    import tensorflow_datasets as tfds

    try:
        tfds.features.FeaturesDict({}).to_proto()
        importlib.import_module("tensorflow_metadata.proto.v0.schema_pb2")
    except Exception as error:
        pytest.skip(f"TensorFlow Datasets does not work here: {(str(error).splitlines() or [type(error).__name__])[0]}")
    return tfds


def children() -> set[psutil.Process]:
    """Returns all processes that this one started, and those that they started in turn."""
    return set(psutil.Process().children(recursive=True))


def assert_gone(before: set[psutil.Process]) -> None:
    """Asserts that all processes that were started since `before` end within `GONE_S` seconds."""
    _, alive = psutil.wait_procs(children() - before, timeout=GONE_S)
    assert alive == []


def state(root: pathlib.Path) -> dict[str, object]:
    """Returns what could be changed below a folder: names, status, and the content of regular files."""
    states = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        states[str(path)] = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, content)
    return states


INDEPENDENT = ("pipeline", "models", "profiles")
OURS = {*INDEPENDENT, "benchmarks"}

VOID = {"meta", "br", "img", "link", "input", "hr"}


# What a page runs where scripts may run.
PAGE_SCRIPT = (PROJECT_ROOT / "profiles" / "report" / "templates" / "page.js").read_text(encoding="utf-8")


class Page(HTMLParser):
    """The tags with their attributes, and the text of a page. Refuses tags that are not closed in the right order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" in self._open:
            self.scripts.append(data)
        elif "style" not in self._open:
            self.text += data


def assert_harmless(page: Page) -> None:
    """Asserts that a page runs no script but our own, loads nothing and links to nothing."""
    assert page.scripts in ([], [PAGE_SCRIPT]) and [tag for tag, _ in page.tags].count("script") == len(page.scripts)
    assert not {tag for tag, _ in page.tags} & {"iframe", "object", "embed", "link", "img", "base", "form"}
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name not in ("href", "src", "action"), (tag, name)
            assert name != "style", (tag, value)


def tables_of(kind: Kind[Any, Any, Any], document: Any, width: int = 80) -> str:
    """Returns all tables and sentences of a document, as a terminal of so many columns shows them."""
    text = io.StringIO()
    kind.print(Terminal(width=width, file=text), document, kind.derive(document))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def details_of(shown: Any) -> str:
    """Returns all tables and sentences of what `profiles.profile` or `profiles.watch` returned, as text."""
    text = io.StringIO()
    shown.print(Terminal(width=100, file=text), details=True)
    return text.getvalue()
