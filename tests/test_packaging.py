"""The wheel, built from the sdist and installed into an environment that holds nothing else of ours, works.

Dependencies come from the environment of the tests; only our packages are installed anew.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests import PROJECT_ROOT
from tests.checks import OURS, in_forks
from unstall.benchmarks.cli import VERBS

pytestmark = pytest.mark.long

FOLDERS = ("unstall", *sorted(OURS))
BUILT_FROM = ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE", *FOLDERS)
NO_BYTECODE = shutil.ignore_patterns("__pycache__")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from the sdist of a copy of this project, tests included."""
    copy, out = tmp_path_factory.mktemp("project") / "unstall", tmp_path_factory.mktemp("dist")
    copy.mkdir()
    for name in (*BUILT_FROM, "tests"):
        source = PROJECT_ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=NO_BYTECODE)
        else:
            shutil.copy2(source, copy / name)
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, copy], cwd=copy)
    [wheel_file] = out.glob("*.whl")
    assert len(list(out.glob("*.tar.gz"))) == 1
    return wheel_file


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs (`bin`) of a clean environment in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    programs = folder / "bin"
    pip = [sys.executable, "-m", "pip", "--python", programs / "python"]
    run([*pip, "install", "-q", "--no-deps", "--no-index", wheel], cwd=folder)
    site_packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    # The dependencies come after the wheel on the path, so that a module that the wheel lacks is found to be missing.
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return programs


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PIP_CONFIG_FILE")}


def run(words: list[object], *, cwd: Path) -> str:
    command = [str(word) for word in words]
    done = subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]} {done.stderr[-3000:]}"
    return done.stdout


def test_the_wheel_holds_every_file_of_the_packages_and_none_of_the_tests(wheel):
    with zipfile.ZipFile(wheel) as file:
        held = {name for name in file.namelist() if ".dist-info/" not in name}
    ours = {
        (
            path.relative_to(PROJECT_ROOT / "unstall") if folder == "unstall" else path.relative_to(PROJECT_ROOT)
        ).as_posix()
        for folder in FOLDERS
        for path in (PROJECT_ROOT / folder).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    assert held == {f"unstall/{name}" for name in ours}
    assert {Path(name).suffix for name in ours} == {".py", ".j2", ".js", ".typed"}


def test_the_wheel_brings_the_console_script_and_the_pytest_plugin(wheel):
    with zipfile.ZipFile(wheel) as file:
        [name] = [path for path in file.namelist() if path.endswith("entry_points.txt")]
        lines = file.read(name).decode().split("\n")
    assert [line for line in lines if line] == [
        "[console_scripts]",
        "unstall = unstall:main",
        "[pytest11]",
        "unstall = unstall.profiles.pytest_plugin",
    ]


def test_it_is_the_wheel_that_runs(installed, empty):
    code = "\n".join([*(f"from unstall import {name}; print({name}.__file__)" for name in sorted(OURS))])
    files = run([installed / "python", "-c", code], cwd=empty).split()
    assert len(files) == 4 and all(Path(file).is_relative_to(installed.parent) for file in files)


def test_the_program_answers_for_help(installed, empty):
    assert run([installed / "unstall", "pipeline", "--help"], cwd=empty).startswith("usage: ")
    assert list(empty.iterdir()) == []


@pytest.fixture(scope="module")
def helped(installed, tmp_path_factory):
    """What the wheel's `main` prints for each verb's `--help`, and the files in the current folder afterwards."""
    home, folder = tmp_path_factory.mktemp("bin"), tmp_path_factory.mktemp("empty")
    code = "import sys\nfrom unstall import main\nsys.argv = ['unstall', {!r}, '--help']\nsys.exit(main())"
    codes = {verb: code.format(verb) for verb in VERBS}
    answers = in_forks(codes, home, cwd=folder, python=installed / "python", env=environment())
    return answers, list(folder.iterdir())


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_answers_for_help(verb, helped):
    answers, files = helped
    code, output, errors = answers[verb]
    assert code == 0 and output.startswith("usage: "), errors
    assert files == []


def test_the_main_job_measures_and_leaves_its_report(installed, empty):
    words = ["--data", "generated:16", "--variants", "py-dataset", "--rounds", "1", "--device", "emulated:20000"]
    words += ["--batch-size", "2", "--out", "out"]
    output = run([installed / "python", "-m", "unstall", "pipeline", *words], cwd=empty)
    assert "py-dataset" in output
    document = json.loads((empty / "out" / "results.json").read_text())
    assert [result["variant"] for result in document["results"]] == ["py-dataset"]
    assert "<!doctype html>" in (empty / "out" / "report.html").read_text()


@pytest.mark.slow  # the same template as the main job's, with a `fit` of its own
def test_a_script_is_profiled(installed, empty):
    (empty / "train.py").write_text(
        "import keras, numpy as np\n"
        "model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])\n"
        "model.compile(loss='mse')\n"
        "model.fit(np.zeros((320, 4)), np.zeros(320), batch_size=16, epochs=2, verbose=0)\n"
    )
    run([installed / "unstall", "profile", "--out", "out", "train.py"], cwd=empty)
    assert (empty / "out" / "report.html").is_file()
