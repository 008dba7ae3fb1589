"""Commands in what we print: as the user can type them in the terminal, as `unstall VERB` in files and pages."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests import INSTALLED, PROJECT_ROOT
from tests.builders import a_comparisons_document
from tests.checks import kind_of
from unstall import commands
from unstall.benchmarks.gate.__main__ import COMPARE

# Prints what a terminal is told, and what a file.
SAYS = """
import io
from unstall.profiles.text import Terminal
from rich.text import Text
from rich.table import Table
words = "see `unstall tune --data x`, what unstall keeps, x/unstall show, then unstall show runs"
table = Table(box=None, show_header=False)
table.add_row(words)
console, file = Terminal(width=200), Terminal(width=200, file=io.StringIO())
for said in (words, Text(words, style="bold"), table):
    console.print(said)
    file.print(said)
print(file.file.getvalue())
"""


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment that holds a program `unstall`, and what ours needs by its path."""
    venv.create(tmp_path / ".venv")
    program = tmp_path / ".venv" / "bin" / "unstall"
    program.write_text(f"#!{sys.executable}\nimport sys\nexec(sys.stdin.read())\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def said(folder: Path, *words: str, path: str = "/usr/bin:/bin", cwd: str = ".") -> tuple[set[str], set[str]]:
    """Returns what the program says in the terminal, and in a file."""
    packages = os.pathsep.join([str(INSTALLED), *(entry for entry in sys.path if "site-packages" in entry)])
    done = subprocess.run(
        words,
        input=SAYS,
        cwd=folder / cwd,
        env={"PATH": path, "PYTHONPATH": packages},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return set(lines[:3]), set(lines[3:])


def expected(program: str) -> set[str]:
    return {f"see `{program} tune --data x`, what unstall keeps, x/unstall show, then {program} show runs"}


@pytest.mark.parametrize(
    ("words", "cwd", "program"),
    [
        ((".venv/bin/unstall",), ".", ".venv/bin/unstall"),
        ((".venv/bin/python", "-"), ".", ".venv/bin/unstall"),
        (("../.venv/bin/python", "-"), "in", "../.venv/bin/unstall"),
    ],
)
def test_a_command_is_said_as_it_can_be_typed(
    words: tuple[str, ...], cwd: str, program: str, environment: Path
) -> None:
    (environment / "in").mkdir()
    in_terminal, in_file = said(environment, *words, cwd=cwd)
    assert in_terminal == expected(program)
    assert in_file == expected("unstall")


def test_in_an_environment_that_is_activated_the_name_is_enough(environment: Path) -> None:
    path = f"{environment}/.venv/bin:/usr/bin:/bin"
    for words in (("unstall",), ("python", "-")):
        assert said(environment, *words, path=path)[0] == expected("unstall")


def test_a_checkout_that_is_not_installed_runs_as_a_module(environment: Path) -> None:
    (environment / ".venv" / "bin" / "unstall").unlink()
    in_terminal, in_file = said(environment, ".venv/bin/python", "-")
    assert in_terminal == expected(".venv/bin/python -m unstall")
    assert in_file == expected("unstall")


HELP = "import sys; from unstall.benchmarks import cli; cli.main({words!r})"


@pytest.mark.parametrize(
    ("words", "prints"), [(["tune", "--help"], "usage: {} tune"), (["tune", "--no"], "{} tune: error: ")]
)
def test_parsers_say_it_so_too(words: list[str], prints: str, environment: Path) -> None:
    done = subprocess.run(
        [".venv/bin/python", "-c", HELP.format(words=words)],
        cwd=environment,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join([str(INSTALLED), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert prints.format(".venv/bin/unstall") in done.stdout + done.stderr


_PYTHON = os.path.realpath(sys.executable)
ACTIVATION = "import os\nfrom unstall.commands import activation\nprint(activation())"


@pytest.mark.parametrize(
    ("python", "variables", "printed"),
    [
        (".venv/bin/python", {}, "source .venv/bin/activate"),
        # conda's base is active in many shells in which another environment runs.
        (".venv/bin/python", {"CONDA_DEFAULT_ENV": "base", "CONDA_PREFIX": "/opt"}, "source .venv/bin/activate"),
        (_PYTHON, {"CONDA_DEFAULT_ENV": "vision", "CONDA_PREFIX": sys.base_prefix}, "conda activate vision"),
        (_PYTHON, {}, "None"),
    ],
)
def test_a_page_names_the_environment(python: str, variables: dict[str, str], printed: str, environment: Path) -> None:
    done = subprocess.run(
        [python, "-c", ACTIVATION],
        cwd=environment,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(INSTALLED), **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{printed}\n"


def test_an_environment_with_spaces_in_its_path_is_named_so_that_a_shell_reads_it(tmp_path: Path) -> None:
    venv.create(tmp_path / "my env" / ".venv")
    done = subprocess.run(
        [tmp_path / "my env" / ".venv" / "bin" / "python", "-c", ACTIVATION],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(INSTALLED), "HOME": str(tmp_path)},
        cwd="/usr",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "source ~/'my env/.venv/bin/activate'\n"


ON_PAGE = """
from pathlib import Path
from unstall.profiles.report.html import template
Path("page.j2").write_text("{{ text }}")
print(template(Path("page.j2").absolute()).render(text="unstall tune --data x"))
"""


@pytest.mark.parametrize(
    ("has_program", "printed"),
    [(True, "unstall tune --data x"), (False, ".venv/bin/python -m unstall tune --data x")],
    ids=["installed", "a checkout"],
)
def test_a_page_says_commands_as_they_are_typed_in_its_environment(
    has_program: bool, printed: str, environment: Path
) -> None:
    if not has_program:
        (environment / ".venv" / "bin" / "unstall").unlink()
    packages = os.pathsep.join([str(INSTALLED), *(entry for entry in sys.path if "site-packages" in entry)])
    done = subprocess.run(
        [".venv/bin/python", "-c", ON_PAGE],
        cwd=environment,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": packages},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{printed}\n"


@pytest.mark.parametrize(
    "given", ["a b", "$HOME/x", "~/photos", "it's", "{home}/my photos/train", "{home}", "--out={home}/x", "*", ""]
)
def test_words_come_out_of_a_shell_as_they_were_given(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    given = given.format(home=tmp_path)
    words = commands.shell_words("first", given)
    done = subprocess.run(["bash", "-c", f"printf '%s\\n' {words}"], capture_output=True, text=True, check=True)
    assert done.stdout == f"first\n{given}\n"
    assert (str(tmp_path) in words) is (given.startswith("--out") or given == str(tmp_path))


def test_a_page_says_once_what_its_commands_need(monkeypatch: pytest.MonkeyPatch) -> None:
    document = a_comparisons_document()
    kind = kind_of(COMPARE)
    without = kind.page(document, kind.derive(document))
    monkeypatch.setattr(commands, "activation", lambda: "source ~/<b>env</b>/bin/activate")
    page = kind.page(document, kind.derive(document))
    line = "<code>source ~/&lt;b&gt;env&lt;/b&gt;/bin/activate</code>"
    assert (without.count("need their environment"), page.count("need their environment"), page.count(line)) == (
        0,
        1,
        1,
    )


def test_our_code_writes_every_command_in_one_way() -> None:
    """What is printed is made typable in one place; no text names a way to start us that only a checkout has."""
    of_checkout = {
        f"{path.relative_to(PROJECT_ROOT)}"
        for folder in ("unstall", "pipeline", "models", "profiles", "benchmarks")
        for path in (PROJECT_ROOT / folder).rglob("*")
        if path.suffix in (".py", ".j2", ".js") and "/benchmarks/evidence/" not in path.as_posix()
        for line in path.read_text().splitlines()
        if any(f"python -m {name}" in line for name in ("pipeline", "models", "profiles", "benchmarks", "unstall"))
    }
    # The first names what only a checkout has, the second is run by its path there; of the others, one is a comment,
    # one a docstring.
    assert of_checkout == {
        "benchmarks/cli.py",
        "benchmarks/pipeline/__main__.py",
        "profiles/script/run.py",
        "unstall/__main__.py",
    }
