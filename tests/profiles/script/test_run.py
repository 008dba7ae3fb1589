"""Somebody's script under `unstall profile`: what it does stays its own, and what it waited for is found.

Long because each way in which a script can train or end has its case, and all share the scripts that are made here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from tests import INSTALLED, PROJECT_ROOT
from tests.checks import SHORT_PROFILES, in_forks, run_here, run_python, samples_of
from tests.planted import planted
from unstall.profiles.__main__ import main

pytestmark = pytest.mark.long

KERAS = """
import sys, time
import keras, numpy as np, tensorflow as tf
keras.utils.set_random_seed(1)
images = np.random.default_rng(0).random((320, 16, 16, 3)).astype("float32")
labels = images.mean((1, 2, 3))
def network():
    model = keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Conv2D(8, 3), keras.layers.Dropout(0.5),
                              keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model
"""


def write(folder, text, name="train.py", keras=True):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((KERAS if keras else "") + textwrap.dedent(text))
    return path


def run(folder, *words, plain=False, **environment):
    # Remedies are tried in test_trying.py.
    return run_python(
        folder, *(() if plain else ("-m", "unstall", "profile", "--no-trial", "--details")), *words, **environment
    )


def run_short(folder, *words, **environment):
    return run_python(folder, "-c", SHORT_PROFILES, "--no-trial", "--details", *words, **environment)


def results(folder):
    return json.loads((folder / "out" / "results.json").read_text())


@pytest.fixture
def two_fits(tmp_path):
    """A script of two fits, which waits 40 ms for each batch of the first."""
    return write(
        tmp_path,
        """
        def slow(x, y):
            time.sleep(0.04)
            return x, y
        options = tf.data.Options()
        options.experimental_optimization.apply_default_optimizations = False
        data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32)
        data = data.map(lambda x, y: tf.numpy_function(slow, [x, y], [tf.float32, tf.float32]))
        data = data.map(lambda x, y: (tf.ensure_shape(x, (None, 16, 16, 3)), tf.ensure_shape(y, (None,))))
        model = network()
        first = model.fit(data.with_options(options), epochs=5, verbose=0)
        second = model.fit(images, labels, epochs=5, verbose=0)
        print(sys.argv, first.history, second.history, float(model.get_weights()[0].sum()), np.random.random())
        sys.exit(3)
        """,
    )


@pytest.mark.claims
def test_a_script_that_trains_comes_to_the_same(two_fits, tmp_path):
    shown = run(tmp_path, "--out", "out", two_fits, "--epochs", 5)
    plain = run(tmp_path, two_fits, "--epochs", 5, plain=True)
    assert (shown.stdout, shown.returncode) == (plain.stdout, 3), shown.stderr[-3000:]


@planted  # epochs that other programs disturb are left out and noted
def test_fits_of_a_script_are_reported_apart_and_their_waits_are_found(two_fits, tmp_path):
    shown = run_short(tmp_path, "--out", "out", two_fits, "--epochs", 5)
    assert shown.returncode == 3, shown.stderr[-3000:]
    found = results(tmp_path)
    (first, second) = found["results"]
    assert [one["variant"].split(" (")[0] for one in (first, second)] == ["fit 1", "fit 2"]
    for fit, fed_by in ((first, "a tf.data.Dataset"), (second, "NumPy arrays")):
        # On a busy machine a note may also say in how many epochs other programs took the cores.
        assert [note for note in fit["notes"] if not note.startswith("other programs")] == [f"fed by {fed_by}"]
    assert (found["verdicts"][0]["bound"], found["verdicts"][0]["culprit"]) == ("input", "prep_stall")
    # 40 ms a batch of 32.
    assert 40 <= first["seconds_per_image"]["prep_stall"] * 32e3 < 52
    assert any((stage["wait_us_per_image"] or 0) > 500 for stage in first["stages"])
    assert second["stages"] == []
    assert not any(flag.startswith("unclaimed: ") for one in (first, second) for flag in one["flags"])
    assert all(one["claimed_ns"] for fit in (first, second) for one in samples_of(found, fit))
    assert "input-bound" in shown.stderr
    assert (tmp_path / "out" / "report.html").stat().st_size > 1000


@pytest.mark.claims
def test_enough_steps_leave_fit_and_what_comes_after_it_does_not_run(tmp_path):
    script = write(
        tmp_path,
        """
        network().fit(images, labels, batch_size=8, epochs=1000, verbose=0)
        print("saved")
        """,
    )
    shown = run(tmp_path, "--max-steps", 60, "--no-ceilings", "--out", "out", script)
    assert (shown.stdout, shown.returncode) == ("", 0), shown.stderr[-3000:]
    (one,) = results(tmp_path)["results"]
    assert "fit was left before its end" in one["notes"]
    assert any("--no-ceilings" in note for note in one["notes"])
    assert (one["batch_size"], one["attribution"]["interference"]) == (8, None)


def test_an_error_is_shown_without_our_frames_and_a_folder_of_data_hides_no_monitor(tmp_path):
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "users.csv").touch()
    script = write(
        tmp_path,
        """
        from unstall import profiles
        print(profiles.StallMonitor.__name__)
        def batches():
            for start in range(4):
                yield images[:8], labels[:8]
            raise ZeroDivisionError("the loader broke")
        network().fit(batches(), verbose=0)
        """,
    )
    shown = run(tmp_path, "--out", "out", script)
    assert (shown.stdout, shown.returncode) == ("StallMonitor\n", 1)
    assert "the loader broke" in shown.stderr
    assert "profiles/" not in shown.stderr.split("fit 1")[0]
    assert f'File "{script}", line' in shown.stderr


@pytest.mark.slow
def test_a_wrong_argument_of_fit_is_refused_in_keras_own_words(tmp_path):
    script = write(tmp_path, "network().fit(images, labels, epoch=1)\n")
    shown = run(tmp_path, script)
    assert shown.returncode == 1
    assert "fit() got an unexpected keyword argument 'epoch'" in shown.stderr
    assert "nothing measured" in shown.stderr


@pytest.mark.slow
def test_a_monitor_in_the_script_and_a_look_for_keras_before_it_is_imported(tmp_path):
    script = write(
        tmp_path,
        """
        import importlib.util
        assert importlib.util.find_spec("keras") is not None
        """
        + textwrap.indent(KERAS, " " * 8)
        + """
        from unstall import profiles
        monitor, model = profiles.StallMonitor(), network()
        model.fit(images, labels, epochs=3, verbose=0, callbacks=[monitor])
        assert model.train_function.__module__.startswith("keras.")
        assert "unknown" not in monitor.summary().values(), monitor.summary()
        """,
        keras=False,
    )
    shown = run(tmp_path, "--out", "out", script)
    assert shown.returncode == 0, shown.stderr[-3000:]
    assert len(results(tmp_path)["results"]) == 1


@pytest.mark.claims
def test_what_a_users_callbacks_take_is_not_called_loading(tmp_path):
    script = write(
        tmp_path,
        """
        class Slow(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                time.sleep(0.1)
        network().fit(images, labels, epochs=3, verbose=0, callbacks=[Slow()])
        """,
    )
    run(tmp_path, "--out", "out", "--no-ceilings", script)
    (one,) = results(tmp_path)["results"]
    assert one["images_per_sec"] > 32 / 0.1
    assert any(note.startswith("callbacks took 9") for note in one["notes"])


def test_the_scripts_own_packages_are_found_wherever_they_lie(tmp_path):
    """Behind ours on the path, too, and put there by the script."""
    write(tmp_path, "def answer():\n    return 'their models'\n", "late/models/__init__.py", keras=False)
    script = write(
        tmp_path,
        """
        import os, sys
        from importlib.machinery import PathFinder
        assert PathFinder in sys.meta_path  # import hooks look for it
        sys.path.append("late")
        import models
        print(models.answer(), os.path.isabs(__file__), sys.path[0] == os.path.dirname(__file__), __name__, sys.argv)
        """,
        keras=False,
    )
    shown = run(tmp_path, "train.py", "--out", "x")
    assert shown.stdout == "their models True True __main__ ['train.py', '--out', 'x']\n", shown.stderr
    assert shown.returncode == 0
    assert "nothing measured, train.py made no step of fit" in shown.stderr
    assert script.exists()


PYTHON = "import subprocess, sys\nsubprocess.run([sys.executable, 'inner.py', '--epochs', '3'])"
SHELL = "import os\nos.system('true || jupyter execute train.ipynb')"
PROCESS = """
import multiprocessing
def work():
    print("inner", flush=True)
if __name__ == "__main__":
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
"""


THREAD = """import threading, time
def beat():
    while threading.main_thread().is_alive():
        time.sleep(0.05)
    print("ended")
threading.Thread(target=beat).start()
"""
HOOK = "import sys\nsys.excepthook = lambda kind, error, trace: print(kind.__name__, trace.tb_lineno)\n1 / 0\n"
BROKEN_HOOK = "import sys\nsys.excepthook = lambda *error: [][1]\n1 / 0\n"
INNER = {"inner.py": "print('inner', flush=True)\n"}
# Scripts without Keras, which run in forks of one process: the files of a folder, of which train.py is run.
SCRIPTS = {
    "a script": {**INNER, "train.py": PYTHON},
    "a notebook": {**INNER, "train.py": SHELL},
    "a process": {**INNER, "train.py": PROCESS},
    "neither": {**INNER, "train.py": "import os\nos.system('true')"},
    "an excepthook": {"train.py": HOOK},
    "an excepthook that fails": {"train.py": BROKEN_HOOK},
    **{
        place: {place: "answer = 'theirs'", "train.py": f"import {name}\nprint({name}.answer)"}
        for place, name in (
            ("profiles.py", "profiles"),
            ("profiles/__init__.py", "profiles"),
            ("profiles/load.py", "profiles.load"),
        )
    },
}


@pytest.fixture(scope="module")
def shown_of(tmp_path_factory):
    """Exit code, output and errors of each script under the profiler."""
    codes = {}
    for name, files in SCRIPTS.items():
        folder = tmp_path_factory.mktemp("above") / "project"
        for file, text in files.items():
            write(folder, text, file, keras=False)
        place = folder.parent if name.startswith("profiles") else folder
        words = ["--no-trial", "--details", str(folder / "train.py")]
        codes[name] = (
            f"import os, sys\nos.chdir({str(place)!r})\n"
            f"from unstall.profiles.__main__ import guarded_main\nsys.exit(guarded_main({words!r}))"
        )
    home = tmp_path_factory.mktemp("forks")
    return in_forks(codes, home, cwd=home, env={**os.environ, "PYTHONPATH": str(INSTALLED)})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a script", "(train.py:2): type unstall profile inner.py --epochs 3."),
        ("a notebook", "(train.py:2): put `%load_ext unstall` into train.ipynb, and"),
        ("a process", "a process for `work` (train.py:7), and one process is watched: call"),
        ("neither", "is watched by `for batch in profiles.watch(data)`."),
    ],
)
def test_where_training_happened_instead_is_named_with_what_to_type(name, said, shown_of):
    code, output, errors = shown_of[name]
    assert code == 0 and said in errors, errors
    assert output == ("inner\n" if name in ("a script", "a process") else "")


def test_a_script_that_uses_our_packages_gets_the_ones_that_are_running(tmp_path):
    lines = (
        "import sys\nloaded = sys.modules['unstall.profiles']\nfrom unstall import profiles\nprint(profiles is loaded)"
    )
    shown = run(tmp_path, write(tmp_path, lines, keras=False))
    assert (shown.stdout, shown.returncode) == ("True\n", 0), shown.stderr


ENDS = [
    ("raise SystemExit(7)", 7, ""),
    ("raise SystemExit", 0, ""),
    ("raise SystemExit('no data')", 1, "no data\n"),
    ("raise KeyboardInterrupt", 130, "KeyboardInterrupt\n"),
    ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
    ("this is no Python", 1, "SyntaxError: invalid syntax\n"),
]


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Exit code, output and errors of scripts of one line each."""
    folder = tmp_path_factory.mktemp("ends")
    profile = "import sys\nfrom unstall.profiles.__main__ import main\nsys.exit(main([{!r}]))"
    codes = {
        line: profile.format(str(write(folder, line, f"{number}.py", keras=False)))
        for number, (line, *_) in enumerate(ENDS)
    }
    return in_forks(codes, folder, cwd=folder, env={**os.environ, "PYTHONPATH": str(INSTALLED)})


@pytest.mark.parametrize(("line", "code", "error"), ENDS)
def test_the_exit_code_is_the_scripts_own(line, code, error, ended):
    exit_code, _, errors = ended[line]
    assert exit_code == code
    own, _, ours = errors.partition("unstall profile: ")
    assert own.endswith(error)
    assert "profiles" not in own
    assert "nothing measured" in ours


def test_an_excepthook_of_the_scripts_own_is_called(shown_of):
    code, output, _ = shown_of["an excepthook"]
    assert (output, code) == ("ZeroDivisionError 3\n", 1)


EDITED = """
import sys
from pathlib import Path
from unstall.profiles.script.run import Replaced, run_script
path = Path("train.py").resolve()
replaced = Replaced({path: "# put in front\\n\\n" + path.read_text()})
sys.exit(run_script("train.py", [], lambda error, code: None, replaced=replaced))
"""
READS_ITSELF = """import inspect, linecache
def first():
    return 1
def second():
    return 2
linecache.updatecache(__file__)  # as AutoGraph does
print(inspect.getsource(first), first.__code__.co_filename == __file__)
1 / 0
"""


def test_code_of_an_edited_text_is_looked_up_in_that_text(tmp_path):
    write(tmp_path, READS_ITSELF, keras=False)
    shown = run(tmp_path, "-c", EDITED, plain=True)
    assert (shown.stdout, shown.returncode) == ("def first():\n    return 1\n True\n", 1), shown.stderr
    assert 'train.py", line 10, in <module>\n    1 / 0\n' in shown.stderr
    assert (tmp_path / "train.py").read_text() == READS_ITSELF


def test_a_thread_that_runs_as_long_as_the_main_thread_does_not_hold_the_report_up(tmp_path):
    shown = run(tmp_path, write(tmp_path, THREAD, keras=False))
    assert (shown.stdout, shown.returncode) == ("ended\n", 0) and "nothing measured" in shown.stderr


def test_an_excepthook_that_fails_is_told_as_python_tells_it(shown_of, tmp_path):
    code, _, errors = shown_of["an excepthook that fails"]
    plain = run(tmp_path, write(tmp_path, BROKEN_HOOK, keras=False), plain=True)
    own, _, ours = errors.partition("unstall profile: ")
    assert code == plain.returncode == 1 and "nothing measured" in ours
    for line in ("Error in sys.excepthook:", "IndexError", "Original exception was:", "ZeroDivisionError"):
        assert line in plain.stderr and line in own
    assert "profiles" not in own


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--max-steps", "0", "train.py"], "--max-steps must be at least 1. Received: 0."),
        (["--files-per-sample", "0", "train.py"], "--files-per-sample must be at least 1. Received: 0."),
        (["--max-step", "3", "train.py"], "unrecognized arguments: --max-step"),
        ([], "the following arguments are required: SCRIPT.py"),
        (["x" * 300], f"{'x' * 300}: File name too long."),
    ],
)
def test_a_wrong_call_is_one_line(tmp_path, words, line, monkeypatch, capsys):
    write(tmp_path, "print('ran')", keras=False)
    monkeypatch.chdir(tmp_path)
    try:
        code = main(words)
    except SystemExit as left:
        code = left.code
    printed = capsys.readouterr()
    assert (code, printed.out) == (2, "")
    assert printed.err.startswith("unstall profile: ")
    assert line in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("place", ["profiles.py", "profiles/__init__.py", "profiles/load.py"])
def test_a_profiles_of_the_scripts_own_is_what_it_imports(place, shown_of):
    code, output, errors = shown_of[place]
    assert (output, code) == ("theirs\n", 0), errors


@planted
@pytest.mark.slow  # 20 s: a script of many fits
def test_calls_in_a_loop_and_in_a_thread_nothing_to_train_on_and_loaders_that_print(tmp_path):
    # One script for all: each start of TensorFlow takes seconds.
    script = write(
        tmp_path,
        """
        import threading
        class Loud(keras.utils.PyDataset):
            def __len__(self):
                return 4
            def __getitem__(self, index):
                if trained:
                    print("loaded again")
                return images[:32], labels[:32]
        trained = False
        model = network()
        for _ in range(12):
            model.fit(Loud(), verbose=0)
        trained = True
        try:
            network().fit(tf.data.Dataset.from_tensor_slices((images[:0], labels[:0])).batch(4), verbose=0)
        except Exception as error:
            print(type(error).__name__, error)
        def later():
            time.sleep(1)
            network().fit(images, labels, epochs=2, verbose=0)
            print("thread ended")
        threading.Thread(target=later).start()
        """,
    )
    plain = run(tmp_path, script, plain=True)
    shown = run(tmp_path, "--out", "out", script)
    assert (shown.stdout, shown.returncode) == (plain.stdout, 0), shown.stderr[-3000:]
    assert "loaded again" in shown.stderr
    document = results(tmp_path)
    loop, threads = document["results"]
    assert loop["notes"] == ["fed by a PyDataset (Loud)", "12 calls of fit, one after another"]
    assert len([one for one in samples_of(document, loop) if one["window"] == "train"]) == 11
    assert threads["notes"] == ["fed by NumPy arrays"]


@pytest.mark.slow
def test_data_that_blocks_when_it_is_read_again_is_given_up(tmp_path):
    script = write(
        tmp_path,
        """
        import atexit, queue
        atexit.register(print, "at exit")
        waiting = queue.Queue()
        for start in range(0, 320, 32):
            waiting.put((images[start : start + 32], labels[start : start + 32]))
        waiting.put(None)
        def batches():
            yield from iter(waiting.get, None)
        specs = (tf.TensorSpec((None, 16, 16, 3)), tf.TensorSpec((None,)))
        data = tf.data.Dataset.from_generator(batches, output_signature=specs)
        network().fit(data, verbose=0)
        import unstall.profiles.trial.rereading
        unstall.profiles.trial.rereading.STAGES_LIMIT_S = 3
        sys.exit(5)
        """,
    )
    shown = run(tmp_path, "--out", "out", script)
    assert (shown.stdout, shown.returncode) == ("at exit\n", 5), shown.stderr[-3000:]
    (one,) = results(tmp_path)["results"]
    assert one["stage_table"]["reason"] == "reading the data again did not end within 3 s"


@pytest.mark.slow
def test_ctrl_c_while_data_are_read_again_ends_the_command_and_leaves_its_results(tmp_path):
    script = write(
        tmp_path,
        """
        def slow(x):
            time.sleep(0.01)
            return x
        data = tf.data.Dataset.from_tensor_slices((images, labels))
        data = data.map(lambda x, y: (tf.ensure_shape(tf.numpy_function(slow, [x], tf.float32), (16, 16, 3)), y))
        network().fit(data.batch(32), epochs=2, verbose=0)
        print("ended", flush=True)
        """,
    )
    command = [sys.executable, "-m", "unstall", "profile", "--no-ceilings", "--out", "out", str(script)]
    environment = {**os.environ, "PYTHONPATH": str(INSTALLED)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        said = next(line for line in running.stderr if line.startswith("reading the stages of fit 1 (train.py:"))
        time.sleep(1)
        running.send_signal(signal.SIGINT)
        interrupted = time.monotonic()
        stdout, stderr = running.communicate(timeout=120)
    assert time.monotonic() - interrupted < 20  # reading would take longer
    assert said.endswith("; Ctrl-C leaves them out\n")
    assert (running.returncode, stdout) == (0, "ended\n")
    assert "reading the stages of fit 1 (train.py:" in stderr and " s\n" in stderr
    assert "no stages: reading the data again was interrupted." in " ".join(stderr.split())
    (one,) = results(tmp_path)["results"]
    assert one["images_per_sec"] > 0
    assert one["stage_table"]["reason"] == "reading the data again was interrupted"


def test_a_closed_stderr_changes_nothing(tmp_path):
    script = write(tmp_path, "print('ran')", keras=False)
    line = f"{sys.executable} -m unstall profile {script} 2>&-"
    environment = {**os.environ, "PYTHONPATH": str(INSTALLED)}
    shown = subprocess.run(line, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (shown.returncode, shown.stdout) == (0, "ran\n")


EXAMPLES = PROJECT_ROOT / "docs" / "examples"


@pytest.mark.claims
@pytest.mark.parametrize("name", ["tutorial_generator.py", "cached_augmentation.py"])
def test_examples_run_under_the_profiler(tmp_path, photos, name):
    import shutil

    for label, folder in zip(("cats", "dogs"), sorted(one for one in photos.iterdir() if one.is_dir()), strict=True):
        shutil.copytree(folder, tmp_path / "train" / label)
    shown = run(tmp_path, "--out", "out", EXAMPLES / name, tmp_path / "train")
    assert shown.returncode == 0, shown.stderr[-3000:]
    assert results(tmp_path)["results"]


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        pytest.param("csv_rows.py", "parse (csv_rows.py:", marks=pytest.mark.claims),
        pytest.param("tfrecord_examples.py", "parse (tfrecord_examples.py:", marks=pytest.mark.claims),
        ("text_lines.py", "numbers (text_lines.py:"),
        pytest.param("numpy_small.py", None, marks=pytest.mark.claims),
    ],
)
def test_examples_of_tables_records_text_and_arrays_are_explained(tmp_path, name, stage):
    words = ("--max-steps", 60, "--no-ceilings", "--out", "out", EXAMPLES / name)
    shown = run_short(tmp_path, *words, TMPDIR=str(tmp_path))
    assert shown.returncode == 0, shown.stderr[-3000:]
    (one,) = results(tmp_path)["results"]
    assert one["unit"]["noun"] == ("sample" if stage else "image")
    stages = [f"{each['name']} ({each['location']})" for each in one["stages"]]
    assert stage is None or any(each.startswith(stage) for each in stages), stages


@pytest.mark.claims
@pytest.mark.parametrize("name", ["csv_rows.py", "tfrecord_examples.py"])
def test_records_that_are_parsed_one_by_one_are_told_to_be_parsed_in_batches(tmp_path, name):
    shown = run(tmp_path, "--out", "out", EXAMPLES / name, TMPDIR=str(tmp_path))
    assert "calls for each element" in shown.stderr or "does next to nothing" in shown.stderr, shown.stderr[-3000:]


@pytest.mark.needs("jax")
@pytest.mark.parametrize("steps", [5, *(pytest.param(steps, marks=pytest.mark.claims) for steps in (1, 8))])
def test_a_limit_of_steps_leaves_a_model_on_jax_with_its_weights(tmp_path, steps):
    script = write(
        tmp_path,
        """
        model = network()
        try:
            model.fit(images[:32], labels[:32], batch_size=4, epochs=3, verbose=0)
        finally:
            print(np.isfinite(model.get_weights()[0]).all(), int(model.optimizer.iterations))
        """,
    )
    script.write_text(script.read_text().replace(", tensorflow as tf", ""))
    ended = run_short(tmp_path, "--max-steps", steps, "--out", "out", script, KERAS_BACKEND="jax")
    assert (ended.returncode, ended.stdout) == (0, f"True {steps}\n"), ended.stderr
    assert "Array has been deleted" not in ended.stderr


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        pytest.param(
            '{"cluster": {"worker": ["a:1", "b:1"]}}',
            "TF_CONFIG names 2 workers: Keras 3 does not work with ",
            id="two hosts",
        ),
        # What else is said, and where nothing is, has unit tests: tests/profiles/test_cluster.py.
        pytest.param("{x", "TF_CONFIG must be JSON. Received: TF_CONFIG={x", id="malformed", marks=pytest.mark.slow),
        pytest.param('{"cluster": {"worker": ["a:1"]}}', None, id="one host", marks=pytest.mark.slow),
    ],
)
def test_hosts_that_keras_cannot_train_on_are_said_in_one_line(tmp_path, cluster, said):
    script = write(tmp_path, "print(len(images))")
    ended = run(tmp_path, "--out", "out", script, TF_CONFIG=cluster)
    assert ended.returncode == 0 and "Traceback" not in ended.stderr
    lines = [line for line in ended.stderr.splitlines() if "TF_CONFIG" in line]
    assert len(lines) == (0 if said is None else 1)
    assert said is None or said in lines[0]


@pytest.mark.needs("torch")
def test_a_fit_on_pytorch_is_watched_and_comes_to_the_same(tmp_path):
    script = write(
        tmp_path,
        """
        import os, sys, time
        os.environ["KERAS_BACKEND"] = "torch"
        import numpy as np, keras
        keras.utils.set_random_seed(1)
        class Slow(keras.utils.PyDataset):
            def __len__(self):
                return 12
            def __getitem__(self, index):
                time.sleep(0.04)
                return np.full((4, 2), index, "float32"), np.zeros((4, 1), "float32")
        class Takes(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                self.began = time.perf_counter()
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        print(model.fit(Slow(), epochs=4, verbose=0, shuffle=False, callbacks=[Takes()]).history)
        """,
        keras=False,
    )
    shown = run_short(tmp_path, "--out", "out", script)
    script.write_text(script.read_text().replace("time.sleep(0.04)", "pass"))
    plain = run(tmp_path, script, plain=True)
    assert shown.stdout == plain.stdout and plain.stdout, shown.stderr[-3000:]
    [result] = results(tmp_path)["results"]
    assert result["attribution"]["prep_stall"] > 0.6
    assert "Keras' torch backend cannot run it by itself yet" in " ".join(shown.stderr.split())


@pytest.mark.needs("torch")
def test_a_fit_on_pytorch_over_a_data_loader_has_stages_and_remedies(tmp_path):
    script = write(
        tmp_path,
        """
        import os, time
        os.environ["KERAS_BACKEND"] = "torch"
        import keras, torch
        class Rows:
            def __len__(self):
                return 240
            def __getitem__(self, index):
                time.sleep(0.003)
                return torch.full((2,), float(index)), torch.zeros(1)
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(torch.utils.data.DataLoader(Rows(), batch_size=8), epochs=2, verbose=0)
        """,
        keras=False,
    )
    shown = run_python(tmp_path, "-c", SHORT_PROFILES, "--details", "--out", "out", "--budget", 5, script)
    assert shown.returncode == 0, shown.stderr[-3000:]
    document = results(tmp_path)
    [result] = document["results"]
    assert result["notes"][0] == "fed by a DataLoader (0 workers)"
    assert "Rows.__getitem__" in {stage["name"] for stage in result["stages"]}
    [trial] = document["samples"]["trials"].values()
    assert [remedy["name"] for remedy in trial["remedies"]] == [
        "cache-samples",
        "workers",
        "more-workers",
        "half-workers",
    ]
    assert "stands in for them" in " ".join(shown.stderr.split())


@planted
def test_evaluate_and_predict_have_rows_of_their_own(tmp_path):
    text = """
        class Slow(keras.utils.PyDataset):
            def __len__(self):
                return 10
            def __getitem__(self, index):
                time.sleep(0.05)
                return np.zeros((4, 16, 16, 3), "float32"), np.zeros((4,), "float32")
        model = network()
        for _ in range(4):
            print(model.evaluate(Slow(), verbose=0, return_dict=False))
        print(model.evaluate(images[:32], labels[:32], verbose=0, callbacks=keras.callbacks.CallbackList([])))
        for _ in range(4):
            print(float(model.predict(Slow(), verbose=0).sum()), model.predict(images[:6], verbose=0).shape)
        """
    shown = run_short(tmp_path, "--out", "out", write(tmp_path, text))
    plain, _ = run_here(write(tmp_path, text.replace("time.sleep(0.05)", "pass"), "plain.py"))
    assert shown.stdout == plain and plain.count("\n") == 9, shown.stderr[-3000:]
    rows = {result["variant"].partition(" (")[0]: result for result in results(tmp_path)["results"]}
    for name in ("evaluate 1", "predict 1"):
        assert rows[name]["attribution"]["prep_stall"] > 0.6, name
    assert "only the model of a fit is run by itself" in " ".join(shown.stderr.split())
