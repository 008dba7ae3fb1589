"""Finds out what a training run waits for: `unstall VERB`, and `from unstall import profiles`.

This package holds all of ours (`unstall.profiles`, `unstall.pipeline`, `unstall.models`, `unstall.benchmarks`), so that
no name of ours hides a package of a user's. In a checkout their folders lie next to this one.

Also here, because processes are forked by every package of ours and in the scripts that we run: no forked process
collects the garbage that it inherits.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import re
import sys
import threading
from pathlib import Path
from typing import Any

# The folder on the path in which Python finds this package.
ROOT = Path(__file__).resolve().parents[1]
# The folder that holds the code of ours: this one, or in a checkout the one that holds this one.
HOME = ROOT / "unstall" if (ROOT / "unstall" / "pipeline").is_dir() else ROOT
if HOME == ROOT:
    __path__.append(str(HOME))
# The part of a command that the console script replaces.
_MODULE = re.compile(
    r"python -m (?:benchmarks\.|pipeline |models |unstall |profiles (?=(?:show|compare)\b))|python -m profiles\b"
)
_OURS = frozenset({"pipeline", "models", "profiles", "benchmarks"})
# Whether the console script runs. A script that is profiled changes `sys.argv`, so that this is noted at once.
_typed_unstall = Path(sys.argv[0] if sys.argv else "").name == "unstall"


def main() -> int:
    """The console script: `unstall VERB`."""
    code: int = of_ours("benchmarks.cli:main")()
    return code


def command(module: str) -> str:
    """Returns a command of ours as the user types commands: "unstall tune" where the console script runs.

    Args:
      module: the command and its words without the console script, such as "python -m benchmarks.tune --data photos".
    """
    if not _typed_unstall:
        return module
    return _MODULE.sub(
        lambda match: "unstall profile" if match[0].endswith("profiles") else "unstall ", module, count=1
    )


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython for `%load_ext unstall`: registers the cell magic `%%stalls`."""
    of_ours("profiles.magic:load")(shell)


def of_ours(text: str) -> Any:
    """Imports an object that our own code names by a text, such as the class that answers in a child process.

    Args:
      text: "module:name"; a module of ours stands without the `unstall` before it, any other as it is.
    """
    module, _, name = text.partition(":")
    collects = gc.isenabled()
    gc.disable()  # an import makes little garbage: looking for it takes a quarter of the time of importing TensorFlow
    try:
        ours = module.partition(".")[0] in _OURS
        imported = importlib.import_module(f"unstall.{module}" if ours else module)
    finally:
        if collects:
            gc.enable()
    return getattr(imported, name)


def of_users(text: str) -> Any:
    """Imports a function that the user names at the command line, from the current folder or the path; never ours.

    Args:
      text: "module:function".
    Raises:
      ImportError: if there is no such module, or only one of ours.
    """
    module, _, name = text.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # the current folder: `python -m` puts it on the path, an installed script does not
    first = module.partition(".")[0]
    if first in _OURS and _lies_in_home(first):
        raise ImportError(f"there is no {first} here but unstall's own")
    return getattr(importlib.import_module(module), name)


def _lies_in_home(name: str) -> bool:
    """Whether the name of a package would be found in a checkout of ours, on the path."""
    spec = importlib.util.find_spec(name)
    places = [] if spec is None else [*(spec.submodule_search_locations or [spec.origin or ""])]
    return any(Path(place).resolve() == HOME / name for place in places)


# The line by which a script without us keeps its forked workers from waiting for ever: they collect no garbage at all.
FORKS_LINE = "os.register_at_fork(before=gc.disable, after_in_parent=gc.enable)"


class _Fork(threading.local):
    """Of a thread that forks: whether garbage is collected, and whether its children keep what they inherit."""

    collects, keeps = True, True


_fork = _Fork()


def _pause_collecting() -> None:
    _fork.collects = gc.isenabled()
    gc.disable()


def _resume_collecting() -> None:
    if _fork.collects:
        gc.enable()


def _keep_what_is_inherited() -> None:
    if _fork.keeps:
        gc.freeze()
    _resume_collecting()


# The garbage may be an iterator of tf.data. Its end waits for threads of TensorFlow, of which a fork copies none: a
# forked process that collects it waits for ever. So do the workers of Keras, mostly in the second `fit` of a script.
if hasattr(os, "register_at_fork"):  # Windows forks no process
    os.register_at_fork(
        before=_pause_collecting, after_in_parent=_resume_collecting, after_in_child=_keep_what_is_inherited
    )


def forks_collect() -> bool:
    """Whether a process that is forked here would collect the garbage that it inherits if we did not keep it from it.

    A process is forked to see that: the script that runs may have `FORKS_LINE`, or one to the same end.

    Raises:
      OSError: if no process can be forked.
    """
    frozen = gc.get_freeze_count()
    _fork.keeps = False
    try:
        child = os.fork()
        if not child:
            os._exit(gc.isenabled() and gc.get_freeze_count() <= frozen)
    finally:
        _fork.keeps = True
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


if sys.platform != "linux":
    print(
        f"unstall: tested on Linux. On {sys.platform} `import profiles` works; worker processes, the page cache, "
        "hardware counters and quotas of control groups are not supported.",
        file=sys.stderr,
    )
