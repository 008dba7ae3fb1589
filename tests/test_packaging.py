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
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import PROJECT_ROOT
from tests.checks import OURS, in_forks
from unstall.benchmarks.cli import VERBS

pytestmark = pytest.mark.long

FOLDERS = ("unstall", *sorted(OURS))
BUILT_FROM = ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE", *FOLDERS)
EVIDENCE = PROJECT_ROOT / "benchmarks" / "evidence"
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


@dataclass(frozen=True)
class Environment:
    """A clean environment in which the wheel is installed.

    Attributes:
      programs: its folder `bin`.
      added: what the installation has added to its site-packages, by the first part of the path.
      theirs: what the user's program and tests said before, and after.
    """

    programs: Path
    added: set[str]
    theirs: tuple[list[str], list[str]]


# A project whose modules have the names of our folders; that of `models` has no `__init__.py`.
NAMES = ("benchmarks", "models.net", "pipeline", "profiles")
PROJECT = {
    **dict.fromkeys(
        ("benchmarks/__init__.py", "models/net.py", "pipeline.py", "profiles/__init__.py"), "print(__name__)\n"
    ),
    "train.py": "".join(f"import {name}\n" for name in NAMES) + "print('trained')\n",
    "test_mine.py": "".join(f"import {name}\n" for name in NAMES)
    + "def test_it():\n    assert models.net and pipeline\n",
    "mine.py": "import pipeline\n\ndef epoch():\n    return 7\n",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("theirs")
    for name, text in PROJECT.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def environment_with_it(wheel: Path, project: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    python = folder / "bin" / "python"
    site_packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    # All that the tests' own environment has but this project: what the wheel lacks is found to be missing.
    dependencies = folder / "dependencies"
    dependencies.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("unstall", "__editable__")):
            (dependencies / path.name).symlink_to(path)
    (site_packages / "dependencies.pth").write_text(f"{dependencies}\n")

    def theirs() -> list[str]:
        trained = run([python, "train.py"], cwd=project).splitlines()
        tested = run([python, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "test_mine.py"], cwd=project)
        return [*trained, *(line for line in tested.splitlines() if line in NAMES or "passed" in line.split())]

    said, files = theirs(), held(site_packages)
    run(
        [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel], cwd=folder
    )
    added = {name.partition("/")[0] for name in held(site_packages) - files}
    return Environment(programs=python.parent, added=added, theirs=(said, theirs()))


def held(folder: Path) -> set[str]:
    """Returns the files below a folder, without bytecode."""
    paths = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {path for path in paths if "__pycache__" not in path}


@pytest.fixture(scope="module")
def installed(environment_with_it: Environment) -> Path:
    """The folder of programs (`bin`) of the environment."""
    return environment_with_it.programs


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PIP_CONFIG_FILE")}


def run(words: list[object], *, cwd: Path, code: int = 0) -> str:
    command = [str(word) for word in words]
    done = subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, f"{command}: {done.stdout[-2000:]} {done.stderr[-3000:]}"
    return done.stdout


def test_the_wheel_holds_every_file_of_the_packages_and_none_of_the_tests_and_the_evidence(wheel):
    with zipfile.ZipFile(wheel) as file:
        held = {name for name in file.namelist() if ".dist-info/" not in name}
    ours = {
        (
            path.relative_to(PROJECT_ROOT / "unstall") if folder == "unstall" else path.relative_to(PROJECT_ROOT)
        ).as_posix()
        for folder in FOLDERS
        for path in (PROJECT_ROOT / folder).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__" and not path.is_relative_to(EVIDENCE)
    }
    assert list(EVIDENCE.glob("*/__main__.py"))
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


def test_a_project_with_our_names_does_what_it_did_before(environment_with_it):
    before, after = environment_with_it.theirs
    assert before[:5] == [*NAMES, "trained"] and before[5:9] == [*NAMES]
    assert after[:-1] == before[:-1]  # the last line has the time of the tests
    assert after[-1].split()[:2] == before[-1].split()[:2] == ["1", "passed"]


def test_nothing_but_unstall_comes_into_the_environment(environment_with_it):
    assert environment_with_it.added == {"unstall", "unstall-0.1.0.dist-info"}


def test_a_regression_between_two_of_their_revisions_is_seen(installed, project):
    """The two differ by one constant; the second sleeps."""
    git = ["git", "-c", "user.name=n", "-c", "user.email=e", "-C", project]
    run([*git[:-2], "init", "-q", "-b", "main", project], cwd=project)
    for sleeps in (0.001, 0.01):
        (project / "mine.py").write_text(
            f"import time\n\nimport pipeline\n\ndef epoch():\n    time.sleep({sleeps})\n    return 7\n"
        )
        run([*git, "add", "."], cwd=project)
        run([*git, "commit", "-q", "-m", str(sleeps)], cwd=project)
    words = [
        "gate",
        "compare",
        "main~1",
        "main",
        "--rev",
        "--subject",
        "mine:epoch",
        "--most-pairs",
        "10",
        "--out",
        "gate",
    ]
    text = run([installed / "unstall", *words], cwd=project, code=1)
    assert "REGRESSION" in text


def test_it_is_the_wheel_that_runs(installed, empty):
    code = "\n".join([*(f"from unstall import {name}; print({name}.__file__)" for name in sorted(OURS))])
    files = run([installed / "python", "-c", code], cwd=empty).split()
    assert len(files) == 4 and all(Path(file).is_relative_to(installed.parent) for file in files)


def test_the_program_answers_for_help(installed, empty):
    assert run([installed / "unstall", "pipeline", "--help"], cwd=empty).startswith("usage: ")
    assert list(empty.iterdir()) == []


@pytest.fixture(scope="module")
def helped(installed, project, tmp_path_factory):
    """What the wheel's `main` prints for each verb's `--help` in the user's folder, and the files that it leaves."""
    home, before = tmp_path_factory.mktemp("bin"), held(project)
    code = "import sys\nfrom unstall import main\nsys.argv = ['unstall', {!r}, '--help']\nsys.exit(main())"
    codes = {verb: code.format(verb) for verb in VERBS}
    answers = in_forks(codes, home, cwd=project, python=installed / "python", env=environment())
    return answers, held(project) - before


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_answers_for_help(verb, helped):
    answers, files = helped
    code, output, errors = answers[verb]
    assert code == 0 and output.startswith("usage: "), errors
    assert files == set()


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
