"""Finds out what a training run waits for: `unstall VERB`, and `from unstall import profiles`.

This package holds all of ours (`unstall.profiles`, `unstall.pipeline`, `unstall.models`, `unstall.benchmarks`), so that
no name of ours hides a package of a user's. In a checkout their folders lie next to this one.

Importing it registers nothing in the process. It needs the standard library alone.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

from unstall.forks import not_collecting

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
    ours = module.partition(".")[0] in _OURS
    with not_collecting():  # an import makes little garbage: the search takes a quarter of the time of TensorFlow's
        imported = importlib.import_module(f"unstall.{module}" if ours else module)
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


if sys.platform != "linux":
    print(
        f"unstall: tested on Linux. On {sys.platform} `import profiles` works; worker processes, the page cache, "
        "hardware counters and quotas of control groups are not supported.",
        file=sys.stderr,
    )
