"""Remedies for somebody's script: tried behind it, applied to it, and written as a diff; the script stays its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import INSTALLED
from tests.builders import a_measurement_document, a_result, an_attribution, rounds_of
from tests.checks import SHORT_PROFILES, SHORTEN, run_here, run_python
from tests.planted import planted
from unstall.profiles.__main__ import main
from unstall.profiles.report.remedies import trial_sentences
from unstall.profiles.trial.trying import needs_of, with_trial

pytestmark = pytest.mark.long

SCRIPT = """
import sys, time
import numpy as np, keras, tensorflow as tf
keras.utils.set_random_seed(1)
def slow(index):
    time.sleep(0.004)
    return np.float32(index)
def load(index):
    value = tf.ensure_shape(tf.numpy_function(slow, [index], tf.float32), ())
    return tf.ones((8,)) * value / 96 + tf.random.uniform((8,)), value / 96
data = tf.data.Dataset.range(96)
data = data.map(load)
data = data.batch(8)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1)])
model.compile("sgd", "mse")
history = model.fit(data, epochs=4, verbose=0)
print(history.history["loss"], float(model.get_weights()[0].sum()), np.random.random())
sys.exit(int(sys.argv[1]) if sys.argv[1:] else 0)
"""


def run(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return run_python(folder, "-c", SHORT_PROFILES, *words)


def results(folder: Path) -> dict:
    return json.loads((folder / "results.json").read_text())


def trial_of(folder: Path) -> dict:
    [(_, trial)] = results(folder)["trials"].items()
    return trial


# `unstall profile` with shorter and fewer rounds, also of the model alone and of the stages.
SHORTER = f"""{SHORTEN}
from unstall.profiles.__main__ import guarded_main
from unstall.profiles.remedies import turns
turns._WINDOW_S, turns._MOST_ROUNDS, turns._ROUNDS_AGAIN = 0.1, 4, 3
sys.exit(guarded_main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory, alone):
    folder = tmp_path_factory.mktemp("script")
    (folder / "train.py").write_text(SCRIPT)
    (folder / "plain.py").write_text(SCRIPT.replace("time.sleep(0.004)", "pass"))
    plain = run_here(folder / "plain.py", 3)
    # A few rounds that another program disturbs may show no gain: three such runs in a row are no accident.
    for _ in range(3):
        with alone():
            shown = run_python(folder, "-c", SHORTER, "--budget", 8, "--out", "out", "train.py", 3)
        if "\nFASTER " in shown.stderr and "num_parallel_calls=" in shown.stderr:
            break
    return folder, plain, shown


def test_the_script_stays_its_own_to_the_last_digit(tried) -> None:
    folder, plain, shown = tried
    assert (shown.stdout, shown.returncode) == plain == (plain[0], 3), shown.stderr[-3000:]
    assert (folder / "train.py").read_text() == SCRIPT


@planted
def test_a_map_that_waits_gets_calls_beside_each_other(tried) -> None:
    folder, _, shown = tried
    trial = trial_of(folder / "out")
    assert trial["chosen"] is not None and {"pool", "parallel"} & set(trial["chosen"].split(" + ")), shown.stderr[
        -3000:
    ]
    best = next(remedy for remedy in trial["remedies"] if remedy["name"] == trial["chosen"])
    assert best["ratio"] > 1.7 and best["ci95"][0] > 1
    # Random draws: no cache may stand behind them.
    assert any(one["name"] == "cache" and "random" in one["reason"] for one in trial["untried"])


def test_the_report_comes_first_and_then_what_was_tried_with_the_code_and_the_command(tried) -> None:
    _, _, shown = tried
    text = shown.stderr
    first, begins, remedies, files = (
        text.index(part) for part in ("\nINPUT-BOUND ", "trying remedies for fit 1", "\nFASTER ", "\nMORE ")
    )
    assert first < begins < remedies < files
    assert "for up to 8 s (--budget; Ctrl-C ends it; --no-trial)" in text
    assert re.search(r"# train.py:12[^\n]*\n(?: +[^\n]*\n)*? +data = data.map\(load, num_parallel_calls=", text)
    assert re.search(r"unstall profile --apply=\S+ train.py 3\n", text)


def test_the_file_names_no_folder_of_the_users(tried) -> None:
    folder, _, _ = tried
    assert str(folder) not in (folder / "out" / "results.json").read_text()
    assert str(folder) not in (folder / "out" / "report.html").read_text()
    assert "Remedies for fit 1" in (folder / "out" / "report.html").read_text()


def test_a_remedy_is_applied_by_its_name(tried) -> None:
    folder, plain, _ = tried
    shown = run(folder, "--apply=prefetch", "--no-ceilings", "--out", "named", "train.py", 3)
    assert (shown.stdout, shown.returncode) == plain, shown.stderr[-3000:]
    assert "in place at train.py:16: prefetch" in shown.stderr


@pytest.mark.slow  # 25 s: a trial of its own
def test_a_remedy_that_is_applied_is_measured_beside_the_data_as_written(tried) -> None:
    folder, _, _ = tried
    shown = run(folder, "--apply=prefetch", "--budget", 12, "--out", "applied", "train.py")
    assert shown.returncode == 0, shown.stderr[-3000:]
    assert "in place at train.py:16: prefetch" in shown.stderr
    trial = trial_of(folder / "applied")
    assert [remedy["name"] for remedy in trial["remedies"]] == ["as written", "prefetch"]
    assert (folder / "train.py").read_text() == SCRIPT


def test_an_earlier_run_is_applied_and_written_as_a_diff_that_applies(
    tried, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _, _ = tried
    above, name = folder.parent, folder.name  # a script of a subfolder: the diff is applied where the command was typed
    words = (f"--apply={name}/out", "--write", "fix.diff", "--no-ceilings", "--out", "second", f"{name}/train.py")
    shown = run(above, *words)
    assert shown.returncode == 0 and "written: fix.diff" in shown.stderr, shown.stderr[-3000:]
    patched = subprocess.run(["patch", "-p1", "--dry-run", "-i", "fix.diff"], cwd=above, capture_output=True, text=True)
    assert patched.returncode == 0, patched.stdout
    assert "num_parallel_calls=" in (above / "fix.diff").read_text()
    message = refused(above, [f"--apply={name}/out", "--write", "fix.diff", f"{name}/train.py"], capsys)
    assert "fix.diff exists already" in message


def refused(folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Returns the one line by which the command refuses these words, before it runs anything."""
    capsys.readouterr()
    (folder / "cache").mkdir(exist_ok=True)  # a folder may have the name of a remedy
    with contextlib.chdir(folder):
        assert main(words) == 2
    printed = capsys.readouterr()
    [line] = printed.err.splitlines()
    assert printed.out == ""
    return line


REFUSED = {
    "no names": (["--apply=", "train.py"], "--apply needs names of remedies, or the results of an earlier run"),
    "no file": (["--apply=nothing.json", "train.py"], "--apply nothing.json: No such file or directory."),
    "a diff without results": (["--apply=cache", "--write", "x.diff", "train.py"], "--write needs --apply=RESULTS"),
    "a budget of nothing": (["--budget", "0", "train.py"], "--budget must be from 1 to 86400 seconds. Received: 0."),
    "a budget that is none": (["--budget", "nan", "train.py"], "--budget must be from 1 to 86400 seconds"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_applied_is_said_in_one_line_before_the_script_runs(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, message = REFUSED[name]
    (tmp_path / "train.py").write_text("print('ran')")
    assert message in refused(tmp_path, words, capsys)


def test_results_of_another_script_and_results_without_a_gain_are_refused(
    tried, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _, _ = tried
    (folder / "other.py").write_text("print('ran')")
    message = refused(folder, ["--apply=out", "other.py"], capsys)
    assert "--apply out is of train.py, and the script is other.py." in message


@pytest.mark.slow  # a run of the script; the sentence has a unit test
def test_a_name_that_these_data_have_not_leaves_the_script_as_it_is(tried) -> None:
    folder, plain, _ = tried
    shown = run(folder, "--apply=workers", "--no-ceilings", "--out", "unknown", "train.py", 3)
    assert (shown.stdout, shown.returncode) == plain
    assert "not in place at train.py:16: there is no remedy workers for these data. Known: " in shown.stderr


LOOP = """
import time
import torch

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.full((8,), float(index))

model = torch.nn.Linear(8, 1)
loader = torch.utils.data.DataLoader(Slow(), batch_size=8)
for epoch in range(3):
    for batch in loader:
        model(batch).sum().backward()
"""


@pytest.mark.needs("torch")
def test_workers_of_a_data_loader_are_applied_and_measured_beside_none(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP)
    shown = run_python(tmp_path, "-c", SHORTER, "--apply=workers", "--budget", 20, "--out", "out", "train.py")
    assert shown.returncode == 0, shown.stderr[-3000:]
    assert "in place at train.py:16: workers" in shown.stderr
    trial = trial_of(tmp_path / "out")
    assert [one["name"] for one in trial["remedies"]] == ["as written", "workers"]
    before, after = trial["remedies"]
    assert after["images_per_sec"] > before["images_per_sec"] and after["ci95"] is not None
    assert re.search(
        r"^BEFORE +[\d,]+ samples/s \(.*^AFTER +[\d,]+ samples/s \(", shown.stderr, re.DOTALL | re.MULTILINE
    )
    assert "apply it" not in shown.stderr and "--write fix.diff train.py" in shown.stderr


# A trial that crashes, hangs or fails: the data behave well while the script runs.
BAD = """
import os, signal, sys, time
import numpy as np, keras
class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 20
    def __getitem__(self, index):
        if sys.argv[1:] and os.path.exists("ended"):
            {how}
        time.sleep(0.03)
        return np.zeros((4, 2), "float32"), np.zeros((4,), "float32")
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(Batches(), epochs=3, verbose=0)
print("trained")
import threading
def later():
    from pathlib import Path
    import sys
    while "trying remedies" not in Path("log").read_text():
        time.sleep(0.01)
    Path("ended").touch()
threading.Thread(target=later, daemon=True).start()
sys.exit(7)
"""


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "was ended by SIGKILL"),
        pytest.param("raise RuntimeError('no more')", "it failed (RuntimeError: no more)", marks=pytest.mark.slow),
        pytest.param("time.sleep(1000)", "did not end within 4 s, and was ended", marks=pytest.mark.slow),
    ],
)
def test_a_trial_that_goes_wrong_costs_the_trial_and_never_the_script(tmp_path: Path, how: str, said: str) -> None:
    (tmp_path / "train.py").write_text(BAD.format(how=how))
    command = f"from unstall.profiles.trial import trying; trying.GRACE_S = 2.0\n{SHORT_PROFILES}"
    with (tmp_path / "log").open("w") as log:
        shown = subprocess.run(
            [sys.executable, "-c", command, "--budget", "2", "--out", "out", "train.py", "bad"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(INSTALLED)},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            timeout=120,
        )
    text = (tmp_path / "log").read_text()
    assert (shown.returncode, shown.stdout) == (7, "trained\n"), text[-3000:]
    assert said in " ".join(text.split()), text[-3000:]
    assert results(tmp_path / "out")["results"][0]["epoch_images_per_sec"] > 0


def test_a_fit_that_waits_for_nothing_has_nothing_tried() -> None:
    result = a_result(train=rounds_of("train", 4, 4, 4, wait_ms=0.01), device="cpu")
    document = a_measurement_document(result)
    name = result.subject.variant
    held = SimpleNamespace(name=name, took_ns=1, epochs=3, opened=lambda needs: pytest.fail("its data are built again"))
    [last] = with_trial(document, held, budget_s=60.0, begins=lambda limit_s: pytest.fail("a trial begins"))
    [untried] = last.samples.trials[name].untried
    assert re.fullmatch(r"loading is at most \d% of an epoch, and no data could make it much faster", untried.reason)
    assert f"nothing tried: {untried.reason}" in trial_sentences(last.samples.trials[name])


# What calls for remedies


def needs(*, frozen: bool = False, **parts: float) -> tuple[str, ...]:
    return needs_of(an_attribution(sum(parts.values()), parts=parts), frozen=frozen)


def test_the_parts_that_cost_call_for_remedies_the_largest_first() -> None:
    assert needs(prep_stall=0.3) == needs(fetch_stall=0.02, prep_stall=0.28) == ("waiting",)
    assert needs(prep_stall=0.3, interference=0.1, epoch_overhead=0.2) == ("waiting", "edges", "interference")
    assert needs(prep_stall=0.1, epoch_overhead=0.2, frozen=True) == ("drawn once", "edges", "waiting")
    assert needs(epoch_overhead=0.5, prep_stall=0.01) == ("edges",)


def test_parts_that_only_add_up_to_much_call_for_what_mends_the_largest() -> None:
    assert needs(prep_stall=0.035, interference=0.03, epoch_overhead=0.037) == ("edges",)


def test_training_that_is_bound_by_compute_calls_for_none() -> None:
    assert needs(prep_stall=0.05) == ()
    assert needs(prep_stall=0.05, frozen=True) == ("drawn once",)
