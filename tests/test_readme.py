"""The commands, options and modules that the README names exist."""

from __future__ import annotations

import importlib
import importlib.util
import re

import pytest

from tests import PROJECT_ROOT
from unstall.benchmarks.cli import GROUPS, VERBS

README = (PROJECT_ROOT / "README.md").read_text(encoding="utf-8")


def test_every_module_that_it_runs_exists():
    modules = set(re.findall(r"python3? -m ([a-z_.]+)", README))
    assert {"benchmarks.pipeline", "venv", "pytest"} <= modules
    assert [name for name in modules if importlib.util.find_spec(name) is None] == []


def test_its_table_is_the_list_of_verbs_and_every_command_has_a_time():
    assert set(re.findall(r"(?:^|`)unstall ([a-z]+)", README, flags=re.MULTILINE)) == set(VERBS)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in README.splitlines() if line.startswith("| ")]
    named = [re.match(r"\*\*(.+)\*\*$|`unstall ([a-z]+)", row[0]) for row in rows[1:]]
    assert [name[1] or name[2] for name in named] == [one for group, verbs in GROUPS.items() for one in (group, *verbs)]
    assert all(len(row) == 4 and row[2] and row[3] for row, name in zip(rows[1:], named, strict=True) if name[2])


def test_it_is_short_enough_to_be_read_to_its_end():
    assert len(README.splitlines()) <= 140


def test_every_option_that_it_names_exists(capsys):
    def help_of(function, *words):
        module, _, name = function.partition(":")
        with pytest.raises(SystemExit):
            getattr(importlib.import_module(module), name)([*words, "--help"])
        return capsys.readouterr().out

    options = set()
    for function, _ in VERBS.values():
        text = help_of(function)
        # A command of several verbs has each verb's options in a help of its own.
        verbs = re.findall(r"^    ([a-z]+) {2,}\S", text, flags=re.MULTILINE) if " VERB " in text else []
        for words in ([], *([verb] for verb in verbs)):
            options |= set(re.findall(r"--[a-z-]+", help_of(function, *words)))
    ours = re.sub(r"-m pytest.*|pip install --no-deps", "", README)
    assert set(re.findall(r"(?<![\w-])--[a-z-]+", ours)) <= options


def test_no_placeholder_is_left_in_it_or_in_the_docs():
    for path in (PROJECT_ROOT / "README.md", *sorted((PROJECT_ROOT / "docs").rglob("*.md"))):
        text = path.read_text(encoding="utf-8")
        assert re.findall(r"^[A-Z]{5,}$|TODO|FIXME", text, flags=re.MULTILINE) == [], path.name


def test_its_two_commands_install_and_run():
    marks = {"<!-- run -->": "-m benchmarks.pipeline", "<!-- test -->": "-m pytest -n 2 --dist loadfile"}
    for mark, ends in marks.items():
        (block,) = re.findall(rf"{mark}\n```bash\n(.*)\n```\n", README)
        assert "pip install" in block
        assert block.endswith(ends)
