"""Where this project keeps what it made, and how it gets there whole."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Linux: nothing is locked, and nothing of another process is removed
    fcntl = None  # type: ignore[assignment]

# Descriptors of the folders that this process builds, each locked: the lock ends with the process, however that ends.
_locked: dict[Path, int] = {}


def cache_root() -> Path:
    """Returns the folder for generated photos, exports and links: `$UNSTALL_CACHE`, or the user's cache folder."""
    named = os.environ.get("UNSTALL_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unstall"


@contextlib.contextmanager
def built_aside(folder: Path) -> Iterator[Path]:
    """Gives a new folder beside `folder` to build in, which takes that name by one rename when it is whole.

    A folder of that name is therefore always whole. What is built is removed if building fails, or if another builder
    was first; what builders that were killed left behind is removed at the start.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(folder.parent)
    building = _make_locked(folder, mode=0o777)
    try:
        yield building
        try:
            building.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        remove_scratch(building)


def scratch_folder(parent: Path) -> Path:
    """Makes a folder, for this user alone and for as long as this process runs.

    The folder of a process that was killed goes when the next one is made.
    """
    parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(parent)
    return _make_locked(parent / "unstall-scratch", mode=0o700)


def remove_scratch(folder: Path) -> None:
    """Removes a folder that this process made, if it is there.

    A signal that comes meanwhile does not leave half of it: of those within `signals()` only the first one raises, so
    that a second go ends.
    """
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        if folder in _locked:
            os.close(_locked.pop(folder))


def _make_locked(folder: Path, *, mode: int) -> Path:
    """Makes a folder to build `folder` in, locked before it has a name that others look for."""
    token = secrets.token_hex(4)
    new = folder.with_name(f"{folder.name}.new-{token}")
    building = folder.with_name(f"{folder.name}.building-{os.getpid()}-{token}")
    new.mkdir(mode)
    if fcntl is not None:
        _locked[building] = os.open(new, os.O_RDONLY)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(_locked[building], fcntl.LOCK_EX)
    return new.rename(building)


def _is_locked(folder: Path) -> bool:
    """Whether another process builds here; on this machine or, where the file system shares its locks, on another."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _remove_stale(parent: Path) -> None:
    if os.name != "posix":
        return  # Signal 0 ends a process elsewhere; leaving a folder behind is the lesser harm.
    for path in parent.glob("*.building-*"):
        if match := re.search(r"\.building-(\d+)-[0-9a-f]+$", path.name):
            try:
                os.kill(int(match[1]), 0)
            except ProcessLookupError:
                # Another container has processes of its own, which cannot be seen from here.
                if not _is_locked(path):
                    shutil.rmtree(path, ignore_errors=True)
            except (PermissionError, OverflowError):
                pass  # alive, or not a name that this module gives
