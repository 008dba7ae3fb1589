"""How our commands are named in what we print: one function for the terminal, and the environment for a page.

Our code, files and pages say `unstall VERB`. The terminal says it as the user can type it there, which depends on how
this process was started.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

from unstall.home import HOME, ROOT
from unstall.importing import of_ours

# Noted at once: a script that is profiled changes the arguments, and may change the folder.
_STARTED = sys.argv[0] if sys.argv else ""
try:
    _FOLDER = os.getcwd()
except OSError:  # a folder that was deleted
    _FOLDER = "/"
# What may stand before a name that is a part of another, or that was made typable already.
_NOT_BEFORE = r"(?<![\w./-])(?<!-m )"


def typed(text: str) -> str:
    """Returns a text in which every command of ours is as the user can type it here: `.venv/bin/unstall tune`."""
    for place in reversed(places(text)):
        text = text[:place] + program() + text[place + len("unstall") :]
    return text


def places(text: str) -> list[int]:
    """Returns where a text says `unstall` for what the user types otherwise."""
    if "unstall " not in text or program() == "unstall":
        return []
    return [match.start() for match in _commands().finditer(text)]


@functools.cache
def program() -> str:
    """Returns the words that start our commands in the shell in which this process was started."""
    of_python = Path(sys.executable or "python").with_name("unstall")
    script = Path(_FOLDER, _STARTED) if Path(_STARTED).name == "unstall" else of_python
    if not script.is_file():  # a checkout that is not installed
        return f"{shlex.quote(_python())} -m unstall"
    found = shutil.which("unstall")
    if found is not None and os.path.samefile(found, script):
        return "unstall"
    return shlex.quote(_shortest(script))


def pip_install(*requirements: str) -> str:
    """Returns the command that installs packages into the environment of this process.

    Where `unstall` itself is not installed, its extras are those of the checkout.
    """
    wanted = [
        f"{HOME}{requirement.removeprefix('unstall')}"
        if requirement.startswith("unstall") and HOME == ROOT
        else requirement
        for requirement in requirements
    ]
    pip = "pip" if program() == "unstall" else f"{shlex.quote(_python())} -m pip"
    return f"{pip} install {shlex.join(wanted)}"


def activation() -> str | None:
    """Returns the command that makes `unstall` typable, for a page; None where this is no virtual environment."""
    if name := os.environ.get("CONDA_DEFAULT_ENV"):
        return f"conda activate {shlex.quote(name)}"
    if sys.prefix == sys.base_prefix:
        return None
    script = Path(sys.prefix, "bin", "activate")
    return f"source {_shortest(script).replace(str(Path.home()), '~', 1)}"


def _python() -> str:
    """Returns the interpreter as it was typed."""
    if Path(_STARTED).name == "unstall":
        return _shortest(Path(sys.executable))
    return sys.orig_argv[0] if sys.orig_argv else sys.executable


@functools.cache
def _commands() -> re.Pattern[str]:
    return re.compile(rf"{_NOT_BEFORE}unstall (?=(?:{'|'.join(of_ours('benchmarks.cli:VERBS'))})\b)")


def _shortest(path: Path) -> str:
    """Returns a path from the folder in which this process was started, if the path lies in it; else as it is."""
    return str(path.relative_to(_FOLDER)) if path.is_relative_to(_FOLDER) else str(path)
