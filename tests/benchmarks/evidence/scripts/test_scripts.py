"""A folder of training scripts: what is derived from planted runs, and the command on scripts that sleep."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.evidence.documents import printed
from tests.benchmarks.evidence.scripts.builders import a_scripts_document
from tests.checks import have_ended
from tests.planted import planted
from unstall.benchmarks.evidence.scripts.__main__ import main
from unstall.benchmarks.evidence.scripts.results import Result, derive, is_known, without_times
from unstall.benchmarks.evidence.scripts.view import note_of, view_of


def result_of(*times: Any, **settings: Any) -> Result:
    [result] = derive(a_scripts_document(*times, **settings)).scripts
    return result


def test_the_part_of_the_experts_gain_is_that_of_the_logarithms() -> None:
    result = result_of([(8.0, 1.0), (8.0, 1.0)], [(8.0, 2.0), (8.0, 2.0)], promised=4.4)
    assert result.expert is not None and result.expert[0] == pytest.approx(8.0)
    assert result.gained == pytest.approx(4.0) and result.part == pytest.approx(math.log(4) / math.log(8))
    assert result.promise_off == pytest.approx(0.1) and result.is_near is None
    assert result.train_s == 8.0


def test_where_nothing_is_advised_nothing_is_gained() -> None:
    result = result_of([(8.0, 2.0), (8.0, 2.0)])
    assert (result.gained, result.part, result.promise_off, result.is_slower) == (1.0, 0.0, None, False)
    assert result_of([(8.0, 2.0)], advised=False).part is None


def test_where_an_expert_gains_little_the_time_counts() -> None:
    assert result_of([(1.2, 1.0)] * 2).is_near is False
    assert result_of([(1.04, 1.0)] * 2).is_near is True
    assert result_of([(1.2, 1.0)] * 2, [(1.2, 1.02)] * 2, promised=1.2).is_near is True
    assert result_of([(1.2, 1.0)] * 2).part is None


@pytest.mark.parametrize(("times", "slower"), [([(1.0, 1.1)] * 3, True), ([(1.0, 1.1), (1.0, 0.9)], False)])
def test_an_edit_is_slower_where_its_whole_interval_is(times: list[tuple[float, float]], slower: bool) -> None:
    assert result_of((), times, promised=1.2).is_slower is slower
    text = next(text for text in derive(a_scripts_document((), times, promised=1.2)).conclusions if "Slower" in text)
    assert text == f"Slower with the tool's edit: {'train' if slower else 'none'}; broken by it: none."


def test_an_edit_that_breaks_a_script_is_named() -> None:
    document = a_scripts_document([(8.0, 1.0)] * 2, promised=2.0, broken="tool, it ended with exit code 1")
    assert "broken by it: train." in " ".join(derive(document).conclusions)


def test_a_script_that_tells_no_time_is_timed_as_a_whole() -> None:
    result = result_of([(None, 33.0)] * 2)
    assert result.train_s == 99.0 and result.expert is not None and result.expert[0] == pytest.approx(3.0)


def test_a_gain_is_known_by_its_interval() -> None:
    assert is_known((2.0, (1.92, 2.08))) and not is_known((2.0, (1.8, 2.05)))
    assert not is_known(None) and not is_known((2.0, None))


def test_what_follows_from_all_scripts() -> None:
    document = a_scripts_document([(8.0, 1.0)] * 2, [(8.0, 2.0)] * 2, promised=4.2)
    parts, slower, promises = derive(document).conclusions
    assert "at least 1.3 times as fast" in parts and "0.67 (median), 0.67 (tenth percentile)" in parts
    assert slower == "Slower with the tool's edit: none; broken by it: none."
    assert promises == "1 promised gains are off what was gained by 5% (median); 1 by at most 10%."


@pytest.mark.parametrize(
    ("plain", "tool", "difference"),
    [("a\nb", "a\nb", None), ("a\nb", "a\nc", ("b", "c")), ("a", "a\nc", ("", "c")), ("a\nb", "a", ("b", ""))],
)
def test_the_first_line_that_differs_is_found(plain: str, tool: str, difference: tuple[str, str] | None) -> None:
    told = {"unmodified": plain, "tool": tool, "profiled": plain}
    result = result_of((), [(2.0, 1.0)], promised=2.0, printed=told)
    assert result.differences == ({} if difference is None else {"tool": difference})


def test_what_differs_from_run_to_run_is_not_compared() -> None:
    text = "TRAIN_S 1.5\n\r1/4 loss: 3\r4/4 ━ 2s 12ms/step - loss: 0.25\nran 3.5 seconds, 0:00:12 in all, 3 steps"
    assert without_times(text) == "4/4 ━ _ _ - loss: 0.25\nran _, _ in all, 3 steps"
    assert without_times("\x1b[1m 3/4\x1b[0m ━ 0.3\n4/4 - \x1b[1m3s\x1b[0m - 0.2\n\nelapsed time: 3.25") == (
        "4/4 - _ - 0.2\nelapsed time_"
    )


def test_the_table_has_a_row_and_a_line_for_each_script() -> None:
    told = {"unmodified": "a", "expert": "a", "profiled": "a", "tool": "b"}
    document = a_scripts_document([(8.0, 1.0)] * 3, [(8.0, 2.0)] * 3, promised=4.4, printed=told)
    [row] = view_of(document).rows
    assert row["differences"] == {"tool": ("a", "b")} and row["printed"] == "something else: tool"
    assert printed(document, view_of(document)).startswith(
        "script train s load% expert tool part promised  off\ntrain      8.0   50%   8.00 4.00 0.67     4.40 +10%\n"
    )
    [result] = derive(document).scripts
    assert note_of(result) == (
        "train: expert 8.00 (8.00 to 8.00), keeps the photos; advised cache; tool 4.00 (4.00 to 4.00); "
        "printed something else: tool"
    )


SLEEPS = """
import sys
import time
began = time.perf_counter()
time.sleep({seconds})
print("loss", 0.5, "- 12ms/step")
print("TRAIN_S", time.perf_counter() - began)
"""
# A map that waits, which `unstall profile` calls several times at once.
WAITS = """
import time
import numpy as np
import keras
import tensorflow as tf


def slow(x):
    time.sleep(0.02)
    return x


def load(x):
    return tf.ensure_shape(tf.numpy_function(slow, [x], tf.float32), (4,)), 1.0


model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
data = tf.data.Dataset.from_tensor_slices(np.ones((120, 4), np.float32)).map(load).batch(4)
began = time.perf_counter()
model.fit(data, epochs=3, verbose=0)
print("TRAIN_S", time.perf_counter() - began)
"""


@planted
def test_scripts_run_in_pairs_and_what_fails_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("good", SLEEPS.format(seconds=0.2)), ("bad", "raise SystemExit(3)")):
        (tmp_path / "scripts" / name).mkdir(parents=True)
        (tmp_path / "scripts" / name / "train.py").write_text(text)
        (tmp_path / "scripts" / name / "expert.py").write_text(SLEEPS.format(seconds=0.1))
        (tmp_path / "scripts" / name / "about.toml").write_text('source = "me@1, a.py"\nexpert = "sleeps less"\n')
    (tmp_path / "scripts" / "good" / "profiles.py").write_text("raise SystemExit('a module of the user, not ours')")
    assert main([str(tmp_path / "scripts"), "--pairs", "2", "--out", str(tmp_path / "out")]) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    [good] = results["results"]
    assert good["script"] == "good" and good["expert_ratio"] == pytest.approx(2, rel=0.1)
    reasons = {left_out["who"]: left_out["reason"] for left_out in results["left_out"]}
    assert reasons["bad"] == "unmodified, it ended with exit code 3; see bad-unmodified.log"
    assert reasons["good"] == "under `unstall profile` nothing was measured of it"
    assert good["source"] == "me@1, a.py" and good["expert_edit"] == "sleeps less"
    assert "left out bad: unmodified" in capsys.readouterr().out


@pytest.mark.slow  # a trial, and six runs of a script
def test_the_diff_that_is_written_runs_in_a_copy_and_gains(tmp_path: Path) -> None:
    folder = tmp_path / "scripts" / "waits"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(WAITS)
    (folder / "data.txt").write_text("none")
    assert main([str(tmp_path / "scripts"), "--pairs", "2", "--budget", "20", "--out", str(tmp_path / "out")]) == 0
    [row] = json.loads((tmp_path / "out" / "results.json").read_text())["results"]
    assert row["tool_ratio"] > 1.5 and row["expert_ratio"] is None and row["printed"] == "the same"
    assert row["advised"] and not row["is_slower"]
    assert (folder / "train.py").read_text() == WAITS
    assert "num_parallel_calls" in (tmp_path / "out" / "waits" / "fix.diff").read_text()


@pytest.mark.long
def test_a_script_that_does_not_end_is_ended_with_its_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hangs").mkdir()
    text = "import pathlib, subprocess\nchild = subprocess.Popen(['sleep', '1000'])\n"
    text += "pathlib.Path('pid').write_text(str(child.pid))\nchild.wait()"
    (tmp_path / "hangs" / "train.py").write_text(text)
    assert main([str(tmp_path), "--limit", "4", "--out", str(tmp_path / "out")]) == 3
    assert "profiled, it was ended after 4 s (--limit)" in capsys.readouterr().err
    child = int((tmp_path / "hangs" / "pid").read_text())
    assert have_ended(child)


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ('exprt = "cache"', "has 'exprt'. Did you mean 'expert'? Known: "),
        ('words = "a"', "words must be a list, of texts only. Received: 'a'."),
        ("words = [1]", "words must be a list, of texts only. Received: [1]."),
        ("environment = 3", "environment must be a dict, of texts only. Received: 3."),
        ('expert = "cache"', "expert.py and `expert` in about.toml, what that edit does, go together."),
        ("words = [", "cannot be read: "),
    ],
)
def test_what_is_described_wrongly_is_one_line(
    about: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "train.py").write_text("")
    (tmp_path / "one" / "about.toml").write_text(about)
    assert main([str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1 and not (tmp_path / "out").exists()
