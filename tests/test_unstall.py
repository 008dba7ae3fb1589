"""Where a user has packages named as our folders are, every command works with the user's own; and what importing
`unstall` does to a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import INSTALLED, PROJECT_ROOT
from tests.checks import in_forks
from unstall import forks
from unstall.benchmarks.cli import VERBS

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
    """Writes the four packages."""
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
    return {**os.environ, "PYTHONPATH": str(INSTALLED), "COLUMNS": "100"}


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
    ended = run([program, "pipeline", *QUICK, "--out", "out"], folder)
    document = json.loads((folder / "out" / "results.json").read_text())
    assert [result["model"] for result in document["results"]] == ["models:build_model"], ended.stderr
    assert document["left_out"] == []


@pytest.mark.long
@pytest.mark.parametrize(
    "folder",
    [*(pytest.param(write, marks=pytest.mark.claims) for write in (models_file, models_package)), all_four],
    indirect=True,
)
def test_a_script_gets_its_own_modules(folder, program):
    ended = run([program, "profile", "--no-ceilings", "--out", "out", "train.py"], folder)
    assert "the model is theirs" in ended.stdout
    assert len(json.loads((folder / "out" / "results.json").read_text())["results"]) == 1


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


@pytest.mark.parametrize("module", ["benchmarks.pipeline", "profiles", "unstall"])
def test_a_checkout_runs_its_modules(module, tmp_path):
    ended = run(["-m", module, "--help"], PROJECT_ROOT)
    assert ended.stdout.startswith("usage: ") and ended.stderr == ""  # no folder there is taken for the user's


def test_a_function_that_the_user_names_is_never_ours():
    """In a checkout the current folder holds ours."""
    code = "import unstall\ntry:\n    unstall.of_users('models:MODELS')\nexcept ImportError as error:\n    print(error)"
    assert run(["-c", code], PROJECT_ROOT).stdout == "there is no models here but unstall's own\n"


def answers(folder, code):
    return run(["-c", code], folder).stdout.split()


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
import gc, os, time
from unstall import forks
forks.keep_inherited_garbage()
{line}
class EndsHereOnly:
    def __init__(self):
        self.itself, self.owner = self, os.getpid()
    def __del__(self):
        while os.getpid() != self.owner:
            time.sleep(0.1)
{collects}
EndsHereOnly()
asks = forks.collect_garbage()
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
        (forks.LINE, "", "False 0 True 0"),
        ("os.register_at_fork(after_in_child=gc.freeze)", "", "False 1 True 0"),
    ],
)
def test_a_fork_collects_as_its_parent_does_but_not_what_it_inherits(line, collects, printed, tmp_path):
    """The garbage of the parent waits for ever where a child collects it, as an iterator of tf.data does."""
    assert answers(tmp_path, FORKING.format(line=line, collects=collects)) == printed.split()


REGISTERED = """
import os, sys
hooks, finders = [], list(sys.meta_path)
os.register_at_fork = lambda **functions: hooks.append(functions)
import unstall, unstall.pipeline, unstall.models, unstall.profiles, unstall.benchmarks.cli
import unstall.profiles.pytest_plugin
print(len(hooks), sys.meta_path == finders, "__import__" in dir(unstall), [*filter(short, sys.modules)])
"""


def test_importing_it_and_its_plugin_registers_nothing(tmp_path):
    """`pytest` itself is imported first: it registers what it wants."""
    short = "import pytest\nshort = {'pipeline', 'models', 'profiles', 'benchmarks'}.__contains__"
    assert answers(tmp_path, short + REGISTERED) == ["0", "True", "False", "[]"]


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
from unstall import profiles
from unstall.profiles import devices
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
