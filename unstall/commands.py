"""How our commands are named in what we print: as typed in the terminal, and after activation on a page.

Our code and files say `unstall VERB`. The terminal says it as the user can type it there, which depends on how this
process was started. A page says it as the user can type it once the environment that the page names is active.
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


def on_page(text: str) -> str:
    """Returns a text with our commands as they can be typed where what `activation` returns was typed before.

    An environment without the program `unstall`, such as that of a checkout, runs it as a module.
    """
    programs = Path(os.environ["CONDA_PREFIX"] if _in_conda() else sys.prefix, "bin")
    return text if activation() is not None and (programs / "unstall").is_file() else typed(text)


def shell_words(*given: str) -> str:
    """Returns words for a shell. A path in the home folder begins with "~", since that folder's name is a user's."""
    home = f"{os.path.expanduser('~')}{os.sep}"  # it stays "~" where nobody knows
    return " ".join(
        f"~/{shlex.quote(word.removeprefix(home))}" if word.startswith(home) and word != home else shlex.quote(word)
        for word in given
    )


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
    if _in_conda():
        return f"conda activate {shlex.quote(os.environ['CONDA_DEFAULT_ENV'])}"
    if sys.prefix == sys.base_prefix:
        return None
    script = Path(sys.prefix, "bin", "activate")
    return f"source {shell_words(_shortest(script))}" if script.is_file() else None


def _in_conda() -> bool:
    """Whether conda's environment that is active runs this process, and not a virtual environment in it."""
    return "CONDA_DEFAULT_ENV" in os.environ and os.environ.get("CONDA_PREFIX") == sys.prefix


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
