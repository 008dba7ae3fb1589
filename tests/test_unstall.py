"""Where a user has packages named `models`, `pipeline`, `profiles` or `benchmarks`, each import gets the right module,
and every command works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.cli import VERBS
from tests import PROJECT_ROOT
from tests.checks import OURS, in_forks
from unstall import FORKS_LINE

# The program `unstall` as pip installs it.
PROGRAM = "import sys\nfrom unstall import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
MODEL = """
def build_model():
    import keras
    print("the model is theirs")
    return keras.Sequential(
        [keras.Input((16, 16, 3)), keras.layers.Flatten(), keras.layers.Dense(1, activation="sigmoid")]
    )
"""
DATA = """
import pipeline
import tensorflow as tf

def make():
    assert pipeline.MINE, "the pipeline is theirs"
    return tf.data.Dataset.range(64).map(lambda index: (tf.zeros((16, 16, 3)), index % 2)).batch(8)
"""


def models_file(folder: Path) -> None:
    (folder / "models.py").write_text(MODEL)


def models_package(folder: Path) -> None:
    """Writes a package `models` whose modules have the names of ours, and a file `pipeline.py`."""
    (folder / "models").mkdir()
    (folder / "models" / "__init__.py").write_text("from models.network import build_model\n")
    (folder / "models" / "network.py").write_text("from . import catalogue\n" + MODEL)
    (folder / "models" / "catalogue.py").write_text("import pipeline\nassert pipeline.MINE\n")
    (folder / "pipeline.py").write_text("MINE = True\n")


def all_four(folder: Path) -> None:
    """Writes the four packages. `python -m profiles` and `python -m benchmarks` would run the user's."""
    models_package(folder)
    for name in ("profiles", "benchmarks"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("MINE = True\n")


@pytest.fixture
def folder(request, tmp_path):
    request.param(tmp_path)
    (tmp_path / "train.py").write_text(
        "import models, numpy as np\n"
        "model = models.build_model()\n"
        "model.compile(loss='mse')\n"
        "model.fit(np.zeros((64, 16, 16, 3)), np.zeros(64), batch_size=8, epochs=2, verbose=0)\n"
    )
    return tmp_path


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The installed program; Python puts its folder, and not the user's, first on the path."""
    path = tmp_path_factory.mktemp("bin") / "unstall"
    path.write_text(PROGRAM)
    return path


def environment():
    return {**os.environ, "PYTHONPATH": str(PROJECT_ROOT), "COLUMNS": "100"}


def run(words, folder, *, code=0):
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"{command}: {done.stdout[-2000:]} {done.stderr[-3000:]}"
    return done


QUICK = [
    *("--data", "generated:16", "--variants", "py-dataset", "--device", "emulated:20000", "--rounds", "1"),
    *("--batch-size", "2", "--model", "models:build_model"),
]


@pytest.mark.long
@pytest.mark.parametrize(
    "folder",
    [*(pytest.param(write, marks=pytest.mark.claims) for write in (models_file, models_package)), all_four],
    indirect=True,
)
def test_the_main_job_measures_the_users_model(folder, program):
    """The parent opens the model, and so does each child."""
    own = (folder / "benchmarks").is_dir()
    words = [program, "pipeline"] if own else ["-m", "benchmarks.pipeline"]
    ended = run([*words, *QUICK, "--out", "out"], folder)
    document = json.loads((folder / "out" / "results.json").read_text())
    assert [result["model"] for result in document["results"]] == ["models:build_model"], ended.stderr
    assert document["left_out"] == []
    assert ("is yours, and what `python -m benchmarks` runs here" in ended.stderr) == own


@pytest.mark.long
@pytest.mark.parametrize(
    "folder",
    [*(pytest.param(write, marks=pytest.mark.claims) for write in (models_file, models_package)), all_four],
    indirect=True,
)
def test_a_script_gets_its_own_modules(folder, program):
    own = (folder / "profiles").is_dir()
    words = [program, "profile"] if own else ["-m", "profiles"]
    ended = run([*words, "--no-ceilings", "--out", "out", "train.py"], folder)
    assert "the model is theirs" in ended.stdout
    assert len(json.loads((folder / "out" / "results.json").read_text())["results"]) == 1
    assert ("is yours, and what `python -m profiles` runs here" in ended.stderr) == own


@pytest.mark.claims  # 30 s: the tuner's rounds
def test_a_pipeline_of_the_users_imports_its_own_modules(tmp_path, program):
    models_package(tmp_path)
    (tmp_path / "data.py").write_text(DATA)
    words = ["--pipeline", "data:make", "--model", "models:build_model", "--device", "emulated:5000", "--out", "out"]
    assert "data:make" in run([program, "tune", *words], tmp_path).stdout


@pytest.fixture(scope="module")
def helped(tmp_path_factory):
    """What the program prints for each verb's `--help` where the user has all four packages."""
    home, folder = tmp_path_factory.mktemp("bin"), tmp_path_factory.mktemp("beside")
    all_four(folder)
    codes = {verb: f"import sys\nsys.argv = ['unstall', {verb!r}, '--help']\n{PROGRAM}" for verb in VERBS}
    return in_forks(codes, home, cwd=folder, env=environment())


@pytest.mark.long
@pytest.mark.parametrize("verb", VERBS)
def test_every_command_starts_beside_all_four(verb, helped):
    code, output, errors = helped[verb]
    assert code == 0 and output.startswith("usage: "), errors


MODULES = ["pipeline", "tune", "train", "doctor", "gate", "devices", "scaling"]


@pytest.mark.parametrize(
    "verb",
    [pytest.param(verb, marks=() if verb in ("pipeline", "devices") else pytest.mark.claims) for verb in MODULES],
)
def test_every_command_starts_as_a_module_beside_the_other_three(verb, tmp_path):
    models_package(tmp_path)
    (tmp_path / "profiles.py").write_text("raise RuntimeError('not what a command of ours wants')\n")
    assert run(["-m", f"benchmarks.{verb}", "--help"], tmp_path).stdout.startswith("usage: ")


def test_module_and_function_are_never_ours(tmp_path):
    code = """
import unstall
try:
    unstall.of_users("models:build_model")
except ImportError as error:
    print(error)
"""
    assert run(["-c", code], tmp_path).stdout == "there is no models here but unstall's own\n"


def answers(folder, code):
    return run(["-c", code], folder).stdout.split()


def test_who_imports_decides(tmp_path):
    """Our modules import ours, before and after the user's code has imported a module of the same name."""
    models_package(tmp_path)
    code = """
import unstall.models
import models, pipeline
from models import network
from unstall.pipeline import PipelineConfig
import unstall.benchmarks.lab.options
assert unstall.models.MODELS and not hasattr(models, "MODELS") and pipeline.MINE
print(models.__file__, network.__file__, PipelineConfig.__module__, unstall.benchmarks.lab.options.__name__)
import sys
assert sys.modules["models"] is models
"""
    theirs = str(tmp_path / "models")
    assert answers(tmp_path, code) == [
        f"{theirs}/__init__.py",
        f"{theirs}/network.py",
        "unstall.pipeline.config",
        "unstall.benchmarks.lab.options",
    ]


@pytest.mark.parametrize("name", sorted(OURS))
def test_without_a_package_of_the_users_a_name_means_ours_once(name, tmp_path):
    code = f"import {name}, unstall, unstall.{name}\nprint({name} is unstall.{name}, {name}.__name__)"
    assert answers(tmp_path, code) == ["True", f"unstall.{name}"]


def test_a_module_of_ours_is_loaded_once_whatever_it_is_called(tmp_path):
    code = """
import profiles.statistics
from unstall.profiles import statistics
import importlib
print(profiles.statistics is statistics, importlib.import_module("profiles.statistics") is statistics)
"""
    assert answers(tmp_path, code) == ["True", "True"]


@pytest.mark.parametrize("ending", ["", "raise ValueError('broken')"])
def test_modules_are_imported_without_a_search_for_garbage_which_goes_on_afterwards(ending, tmp_path):
    (tmp_path / "of_mine.py").write_text(f"import gc\nprint(gc.isenabled())\n{ending}\n")
    code = """
import gc, sys, unstall
sys.path.append("")
try:
    unstall.of_ours("of_mine:gc")
except ValueError as error:
    print(error)
print(gc.isenabled())
"""
    assert answers(tmp_path, code) == ["False", *(["broken"] if ending else []), "True"]


FORKING = """
import gc, os, time, unstall
{line}
class EndsHereOnly:
    def __init__(self):
        self.itself, self.owner = self, os.getpid()
    def __del__(self):
        while os.getpid() != self.owner:
            time.sleep(0.1)
{collects}
EndsHereOnly()
asks = unstall.forks_collect()
child = os.fork()
if not child:
    gc.collect()
    os._exit(7 + gc.isenabled())
ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(asks, ended - 7, gc.isenabled(), gc.get_freeze_count())
"""


@pytest.mark.parametrize(
    ("line", "collects", "printed"),
    [
        ("", "", "True 1 True 0"),
        ("", "gc.disable()", "False 0 False 0"),
        (FORKS_LINE, "", "False 0 True 0"),
        ("os.register_at_fork(after_in_child=gc.freeze)", "", "False 1 True 0"),
    ],
)
def test_a_fork_collects_as_its_parent_does_but_not_what_it_inherits(line, collects, printed, tmp_path):
    """The garbage of the parent waits for ever where a child collects it, as an iterator of tf.data does."""
    assert answers(tmp_path, FORKING.format(line=line, collects=collects)) == printed.split()


def test_a_folder_of_data_is_no_package_of_the_users(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "best.keras").touch()
    assert answers(tmp_path, "import profiles, models\nprint(models.__name__)") == ["unstall.models"]


def test_a_package_without_an_init_is_the_users(tmp_path):
    """Python itself would prefer our package, which has an `__init__.py`."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.py").write_text("WIDTH = 3\n")
    assert answers(tmp_path, "import profiles\nfrom models.net import WIDTH\nprint(WIDTH)") == ["3"]


def test_a_package_without_an_init_may_hold_its_code_further_down(tmp_path):
    (tmp_path / "models" / "vision").mkdir(parents=True)
    (tmp_path / "models" / "vision" / "net.py").write_text("WIDTH = 4\n")
    assert answers(tmp_path, "import profiles\nfrom models.vision.net import WIDTH\nprint(WIDTH)") == ["4"]


@pytest.mark.parametrize("option", ["-um", pytest.param("-Bm", marks=pytest.mark.claims)])
def test_options_of_python_may_stand_before_the_module(option, tmp_path):
    models_package(tmp_path)
    assert run([option, "benchmarks.pipeline", "--help"], tmp_path).stdout.startswith("usage: ")


def test_threads_that_import_at_once_get_the_whole_module(tmp_path):
    code = """
import threading, time, unstall
failed = []
def imports():
    try:
        from pipeline import VARIANTS
    except ImportError as error:
        failed.append(error)
threads = [threading.Thread(target=imports) for _ in range(20)]
for thread in threads:
    thread.start()
    time.sleep(0.004)
for thread in threads:
    thread.join()
print(len(failed))
"""
    assert answers(tmp_path, code) == ["0"]


def test_the_module_may_be_imported_again(tmp_path):
    models_file(tmp_path)
    code = """
import importlib, sys
from unittest import mock
with mock.patch.dict(sys.modules):
    import profiles
import profiles, unstall
importlib.reload(unstall)
import pipeline, models
print(models.__file__)
"""
    assert answers(tmp_path, code) == [str(tmp_path / "models.py")]


def test_a_folder_that_is_gone_is_no_matter(tmp_path):
    code = "import os, profiles\nos.chdir('gone')\nos.rmdir('../gone')\nimport models\nprint(models.__name__)"
    (tmp_path / "gone").mkdir()
    assert answers(tmp_path, code) == ["unstall.models"]


def test_a_package_that_is_put_on_the_path_later_is_found_where_a_user_names_it(tmp_path):
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "models.py").write_text("def build():\n    return 'theirs'\n")
    code = """
import sys
import models, unstall
assert models is unstall.models
sys.path.append("late")
print(unstall.of_users("models:build")())
"""
    assert answers(tmp_path, code) == ["theirs"]


def test_another_copy_of_ours_on_the_path_is_measured_as_the_users(tmp_path):
    """The gate measures an older revision so: that revision's `pipeline` must not be taken for ours."""
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "__init__.py").write_text("import unstall\nREVISION = 'older'\n")
    (tmp_path / "unstall.py").write_text("raise RuntimeError('the one that runs is there already')\n")
    code = """
import sys
here = sys.path.pop(0)
import profiles, unstall
sys.path.insert(0, here)
import pipeline
print(pipeline.REVISION)
"""
    assert answers(tmp_path, code) == ["older"]


def test_a_program_of_the_users_that_is_run_as_a_module_keeps_its_imports(tmp_path):
    """It imports `profiles` while Python looks for the main module, which is when `unstall` recognises our commands."""
    models_file(tmp_path)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "__init__.py").write_text("import profiles\n")
    (tmp_path / "theirs" / "__main__.py").write_text("import models\nprint(models.__file__)\n")
    assert run(["-m", "theirs"], tmp_path).stdout.split() == [str(tmp_path / "models.py")]


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_elsewhere_than_on_linux_it_can_be_imported_and_says_what_is_missing(platform, tmp_path):
    lacks = ["fcntl", "resource", "termios", "pwd", "grp"]
    code = f"""
import os, shutil, signal, sys  # shutil asks what machine it is on
sys.platform = {platform!r}
for name in {lacks}:
    sys.modules[name] = None
for name in ("fork", "register_at_fork", "sched_getaffinity", "killpg"):
    delattr(os, name)
del signal.SIGKILL
import profiles, unstall
from profiles import devices
print(profiles.Device.__name__)
"""
    ended = run(["-c", code], tmp_path)
    assert ended.stdout == "Device\n"
    assert ended.stderr.startswith("unstall: tested on Linux. ") and ended.stderr.count("\n") == 1


def test_pytest_runs_beside_a_profiles_of_the_users(tmp_path):
    """pytest loads our plugin into the tests of every project in the same environment."""
    (tmp_path / "profiles.py").write_text("MINE = True\n")
    (tmp_path / "test_it.py").write_text("import profiles\n\ndef test_it():\n    assert profiles.MINE\n")
    output = run(["-m", "pytest", "-p", "no:cacheprovider", "test_it.py"], tmp_path).stdout
    assert "1 passed" in output and "unstall-" in output


def test_the_program_runs_as_a_module_too(tmp_path):
    answer = run(["-m", "unstall", "gate", "--help"], tmp_path).stdout
    assert answer.startswith("usage: ")
