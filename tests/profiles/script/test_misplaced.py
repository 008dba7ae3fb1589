"""Options of ours that were typed after the script: the script gets them, and one line says how they are ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks import run_python
from unstall.profiles.script.misplaced import misplaced

OPTIONS = {"--no-trial": False, "--budget": True, "--out": True}


@pytest.mark.parametrize(
    ("before", "behind", "names", "command"),
    [
        ([], ["--no-trial"], ("--no-trial",), "--no-trial train.py"),
        (["--lines"], ["data", "--budget", "5", "-v"], ("--budget",), "--lines --budget 5 train.py data -v"),
        ([], ["--budget=5", "a b"], ("--budget",), "--budget=5 train.py 'a b'"),
        ([], ["--out", "--no-trial", "x"], ("--out", "--no-trial"), "--out --no-trial train.py x"),
    ],
)
def test_the_command_has_what_was_typed_with_our_options_before_the_script(
    before: list[str], behind: list[str], names: tuple[str, ...], command: str
) -> None:
    found = misplaced(before, "train.py", behind, OPTIONS)
    assert found is not None and found.names == names
    assert found.line.partition(" before: ")[2] == f"unstall profile {command}"


def test_the_line_says_whose_the_option_is() -> None:
    found = misplaced([], "train.py", ["--no-trial"], OPTIONS)
    assert found is not None and found.line == (
        "--no-trial comes after train.py and is the script's own; for unstall, type it before: "
        "unstall profile --no-trial train.py"
    )


@pytest.mark.parametrize(
    ("before", "behind"), [([], []), ([], ["--epochs", "3"]), (["--out", "a"], ["--out", "b"]), ([], ["--no-trials"])]
)
def test_what_is_the_scripts_own_for_certain_is_no_slip(before: list[str], behind: list[str]) -> None:
    assert misplaced(before, "train.py", behind, OPTIONS) is None


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("parser.add_argument('--out')", True),
        ("def main(out=None): ...", True),
        ("output = 3", False),
    ],
)
def test_a_script_that_names_an_option_has_it(text: str, there: bool) -> None:
    found = misplaced([], "train.py", ["--out", "x"], OPTIONS)
    assert found is not None and found.are_in(text) is there


ASKS = "import argparse\nparser = argparse.ArgumentParser()\n{}print(parser.parse_args())\n"


@pytest.mark.parametrize(
    ("script", "code", "hints"),
    [
        ("import sys\nprint(sys.argv[1:])\n", 0, 1),  # it may not know the option
        (ASKS.format(""), 2, 1),  # it does not
        (ASKS.format("parser.add_argument('--no-trial', action='store_true')\n"), 0, 0),
        (ASKS.format("# --no-trial is no option here\n"), 2, 1),
    ],
)
def test_the_script_gets_the_option_and_one_line_says_so(script: str, code: int, hints: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(script)
    shown = run_python(tmp_path, "-m", "unstall", "profile", "train.py", "--no-trial")
    plain = run_python(tmp_path, "train.py", "--no-trial")
    assert (shown.stdout, shown.returncode) == (plain.stdout, plain.returncode) == (plain.stdout, code)
    assert shown.stderr.count("--no-trial comes after train.py") == hints
