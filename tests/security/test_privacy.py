"""What a run leaves behind names no user, no host and no folder of theirs; source only where it was asked for."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from tests.checks import SHORT_PROFILES, run_python
from unstall.benchmarks.cli import main

pytestmark = pytest.mark.long

USER = "planted-user"
SOURCE = "planted_source"
SCRIPT = f"""
import os, sys, time
import numpy as np, keras, tensorflow as tf
HOME = os.path.expanduser("~")
def slow(index):
    {SOURCE} = float(index)
    time.sleep(0.002)
    return np.float32({SOURCE} + os.path.getsize(os.path.join(HOME, "photos", "cats", "1.jpg")))
def load(index):
    return tf.ones((8,)) * tf.ensure_shape(tf.numpy_function(slow, [index], tf.float32), ()), 1.0
data = tf.data.Dataset.range(96).map(load).batch(8)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(data, epochs=2, verbose=0)
"""


def printed_in(folder: Path, *words: str) -> str:
    text = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(text):
        assert main(words) == 0
    return text.getvalue()


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """All that runs without and with `--lines` left in their folders, and what was made of it, by the kind of run."""
    home = tmp_path_factory.mktemp("homes") / USER
    (home / "photos" / "cats").mkdir(parents=True)
    (home / "photos" / "cats" / "1.jpg").write_bytes(b"x")
    (home / "work").mkdir()
    script = home / "work" / "train.py"
    script.write_text(SCRIPT)
    named = {"HOME": str(home), "USER": USER, "LOGNAME": USER, "UNSTALL_CACHE": str(home / "cache")}
    texts = {}
    for lines in ((), ("--lines",)):
        out = home / f"out{len(lines)}"
        options = ("--no-trial", *lines, *(("--no-ceilings",) if lines else ()))
        done = run_python(home / "work", "-c", SHORT_PROFILES, *options, "--out", out, script, **named)
        assert done.returncode == 0, done.stderr[-2000:]
        shown = [
            printed_in(home, "show", str(out), *words) for words in (("--json",), ("--as", "perfetto"), ("--csv",))
        ]
        files = [path.read_text() for path in sorted(out.iterdir())]
        assert len(files) >= 2 and all(shown)
        texts[" ".join(lines)] = "\n".join([*files, *shown])
    return texts


def test_no_user_and_no_folder_of_theirs_is_named(left_behind: dict[str, str]) -> None:
    for text in left_behind.values():
        assert "(train.py:" in text and USER not in text and "/homes" not in text


def test_source_is_there_only_where_it_was_asked_for(left_behind: dict[str, str]) -> None:
    assert SOURCE not in left_behind[""] and SOURCE in left_behind["--lines"]
