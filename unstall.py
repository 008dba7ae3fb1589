"""Our packages under names that no package of a user's has: `unstall.profiles` is our `profiles`, and so on.

Many projects have a `models.py`, or a `pipeline`, `profiles` or `benchmarks` of their own, and a process can hold only
one module of each name. So the file that imports decides which module a name means:

- Our files write `import pipeline` and get `unstall.pipeline`. Every module of ours is loaded under such a name, and
  has an `__import__` of its own (Python looks for it in the module's `__builtins__`) that puts `unstall.` in front.
- All other files write `import pipeline` and get the user's package, wherever on the path it lies; ours if the user
  has none. `from unstall import profiles` always means ours.

So no module of ours stands in `sys.modules` under a name that belongs to a module of the user's.

Also here, because processes are forked by every package of ours and in the scripts that we run: no forked process
collects the garbage that it inherits.
"""

from __future__ import annotations

import builtins
import functools
import gc
import importlib
import os
import re
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.metadata import distributions
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

OURS = frozenset({"pipeline", "models", "profiles", "benchmarks"})
_HERE = Path(__file__).resolve().parent
# Python's option -m, which runs a module, alone or together with options that take no value: "-m", "-um", "-mNAME".
_RUN = re.compile(r"-[bBdEhiIOPqRsSuvVx?]*m(.*)")
# A module with a `__path__` is a package. The list is empty because `_Finder` finds our packages, beside this file.
__path__: list[str] = []
# The part of a command that the console script replaces.
_MODULE = re.compile(
    r"python -m (?:benchmarks\.|pipeline |models |unstall |profiles (?=(?:show|compare)\b))|python -m profiles\b"
)
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
      text: "module:name"; the module may be ours or any other.
    """
    module, _, name = text.partition(":")
    collects = gc.isenabled()
    gc.disable()  # an import makes little garbage: looking for it takes a quarter of the time of importing TensorFlow
    try:
        imported = importlib.import_module(_full_name(module))
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
    first = _first(module)
    if first in OURS and _users(first) is None:
        raise ImportError(f"there is no {first} here but unstall's own")
    forget()
    return getattr(importlib.import_module(module), name)


def forget() -> None:
    """Removes the short names of our packages from `sys.modules`, so that the next import of one looks on the path.

    The path may by then hold a package of the user's with that name.
    """
    for name in [name for name in sys.modules if _first(name) in OURS]:
        if sys.modules[name] is sys.modules.get(f"unstall.{name}"):
            del sys.modules[name]


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


def is_users_here(name: str) -> bool:
    """Whether the current folder holds a package of the user's with one of our names."""
    return _is_users(PathFinder.find_spec(name, [""]))


def _first(name: str) -> str:
    return name.partition(".")[0]


def _full_name(name: str) -> str:
    return f"unstall.{name}" if _first(name) in OURS else name


def _import(
    name: str,
    globals: dict[str, Any] | None = None,
    locals: dict[str, Any] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """The `__import__` of our own modules."""
    if level or _first(name) not in OURS:
        return builtins.__import__(name, globals, locals, fromlist or (), level)
    module = builtins.__import__(_full_name(name), globals, locals, fromlist or (), 0)
    return module if fromlist else sys.modules[_full_name(_first(name))]


_BUILTINS = {**vars(builtins), "__import__": _import}


class _Ours(SourceFileLoader):
    """Loads a module of ours as a part of `unstall`, with `_import` as its `__import__`."""

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = _BUILTINS
        super().exec_module(module)


class _Alias(SourceFileLoader):
    """Answers the import of a short name, such as `models`, with our module.

    For a main module (`python -m`) Python asks a loader only for the code, which `SourceFileLoader` returns.
    """

    _own_spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(f"unstall.{spec.name}")
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own_spec  # Python has replaced it by the spec of the short name


class _Finder:
    """Finds our packages, before Python's own finders are asked, and nothing else."""

    # Marks our finder. `isinstance` would not recognise it if this module is imported a second time, as another class.
    of_unstall = True

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        first, _, rest = name.partition(".")
        if first == "unstall":
            return _spec(name, rest, _Ours) if _first(rest) in OURS else None
        if first not in OURS:
            return None
        if rest:  # a module inside a package: ours, if the package that has the name is ours
            ours = sys.modules.get(f"unstall.{first}")
            return _spec(name, name, _Alias) if ours is not None and sys.modules.get(first) is ours else None
        return _users(first) or _spec(name, name, _Alias)


def _spec(name: str, ours: str, loader: type[SourceFileLoader]) -> ModuleSpec | None:
    place = _HERE.joinpath(*ours.split("."))
    if (init := place / "__init__.py").is_file():
        return spec_from_file_location(
            name, init, loader=loader(name, str(init)), submodule_search_locations=[str(place)]
        )
    if (file := place.with_name(f"{place.name}.py")).is_file():
        return spec_from_file_location(name, file, loader=loader(name, str(file)))
    return None


def _users(name: str) -> ModuleSpec | None:
    """Looks for a user's package with one of our names, with all other finders, in all folders of the path but ours."""
    homes = _homes()
    others = [entry for entry in sys.path if _folder(entry) not in homes]
    for finder in list(sys.meta_path):
        find = getattr(finder, "find_spec", None)
        if getattr(finder, "of_unstall", False) or find is None:
            continue
        spec = find(name, others if finder is PathFinder else None)
        if _is_users(spec):
            return spec
    return None


def _is_users(spec: ModuleSpec | None) -> bool:
    return spec is not None and _home_of(spec) not in _homes() and _is_code(spec)


def _home_of(spec: ModuleSpec) -> Path | None:
    """Returns the folder that holds a package or a module."""
    if spec.submodule_search_locations:
        folder = _folder(next(iter(spec.submodule_search_locations)))
    else:
        folder = _folder(spec.origin) if spec.origin else None
    return None if folder is None else folder.parent


def _folder(entry: str) -> Path | None:
    """Returns an entry of the path as a folder; None if it is no folder, such as a current folder that was deleted."""
    try:
        return Path(entry or os.curdir).resolve()
    except (OSError, ValueError, TypeError, RuntimeError):
        return None


def _is_code(spec: ModuleSpec) -> bool:
    """Whether a spec has Python code: Python also takes a folder of data for a package without an `__init__.py`."""
    if spec.origin is not None:
        return True
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    deep = ("*.py", "*/*.py", "*/*/*.py")
    return any(not folder.is_dir() or any(any(folder.glob(pattern)) for pattern in deep) for folder in folders)


@functools.cache
def _homes() -> frozenset[Path]:
    """Returns the folders that hold our packages: this file's folder, and the folders where pip has installed them."""
    installed = {Path(str(distribution.locate_file(""))).resolve() for distribution in distributions(name="unstall")}
    return frozenset({_HERE, *(folder for folder in installed if (folder / "unstall.py").is_file())})


def _claim(name: str) -> None:
    """Replaces a package of ours that was imported under its short name before this module by `unstall`'s.

    `python -m benchmarks.pipeline` imports `benchmarks`, which imports this module, and then runs a file of ours as the
    main module: that module gets our `__import__` as well.
    """
    if Path(getattr(sys.modules[name], "__file__", None) or "").resolve().parent.parent != _HERE:
        return  # a package of the user's, or another copy of ours, such as an older revision
    sys.modules[name] = importlib.import_module(f"unstall.{name}")
    if sys.argv[:1] == ["-m"]:  # Python sets this while it looks for the module to run
        rest = iter(sys.orig_argv[1:])
        options = (_RUN.fullmatch(word) for word in rest)
        run = next((option[1] or next(rest, "") for option in options if option), "")
        if _first(run) == name:
            vars(sys.modules["__main__"])["__builtins__"] = _BUILTINS


if sys.platform != "linux":
    print(
        f"unstall: tested on Linux. On {sys.platform} `import profiles` works; worker processes, the page cache, "
        "hardware counters and quotas of control groups are not supported.",
        file=sys.stderr,
    )
sys.meta_path[:] = [_Finder(), *(finder for finder in sys.meta_path if not getattr(finder, "of_unstall", False))]
for _name in OURS & sys.modules.keys():
    _claim(_name)
if __name__ == "__main__":  # python -m unstall
    sys.exit(importlib.import_module("unstall").main())
