"""The user's cache folder, and folders that get their name only when they are complete."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

# Open descriptors of the folders that this process builds or uses. Each holds a lock, which the system releases when
# the process ends, however it ends.
_locked: dict[Path, int] = {}


def cache_root() -> Path:
    """Returns the folder for generated photos, exports and links: `$UNSTALL_CACHE`, or the user's cache folder."""
    folder = os.environ.get("UNSTALL_CACHE")
    if folder:
        return Path(folder).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unstall"


def held(folder: Path) -> Path:
    """Returns a folder of the cache, which `remove_unused` leaves alone for as long as this process runs.

    The time at which the folder was last used is that of the folder's last change.
    """
    with contextlib.suppress(OSError):  # a cache that only others may write to, or a file system without locks
        if folder not in _locked:
            descriptor = os.open(folder, os.O_RDONLY)
            _locked[folder] = descriptor
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.utime(folder)
    return folder


def let_go(folder: Path) -> None:
    """Lets go of the lock of a folder that this process uses or builds."""
    if folder in _locked:
        os.close(_locked.pop(folder))


def is_used(folder: Path) -> bool:
    """Whether a process uses or builds a folder; true where that cannot be known."""
    return folder.is_dir() and _is_locked(folder)


def remove_unused(folder: Path) -> bool:
    """Removes a folder of the cache, or a file. Returns False if a process uses it."""
    if is_used(folder):
        return False
    # Under a name that nobody looks for: a process that starts now makes a folder of its own.
    gone = folder.with_name(f"{folder.name}.new-{secrets.token_hex(4)}")
    folder.rename(gone)
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    return True


@contextlib.contextmanager
def built_aside(folder: Path) -> Iterator[Path]:
    """Yields a new folder beside `folder` to build in, and renames it to `folder` at the end of the block.

    So a folder of that name is always complete. If building fails, or if another process was first, the new folder is
    removed. Folders that killed processes left behind are removed at the start.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(folder.parent)
    building = _make_locked(folder, mode=0o777)
    try:
        yield building
        try:
            building.rename(folder)
        except OSError:
            if not folder.is_dir() or not any(folder.iterdir()):
                raise  # no other process was first: a file, a link, or an empty folder that is mounted
    finally:
        remove_scratch(building)


def scratch_folder(parent: Path) -> Path:
    """Makes a folder below `parent` that only this user can read, for use until this process ends.

    Folders that killed processes left behind are removed at the start.
    """
    parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(parent)
    return _make_locked(parent / "unstall-scratch", mode=0o700)


def remove_scratch(folder: Path) -> None:
    """Removes a folder that this process made, if it exists.

    If a signal interrupts the removal, the removal begins again: within `signals()` only the first signal raises, so
    the second attempt is complete.
    """
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        let_go(folder)


def _make_locked(folder: Path, *, mode: int) -> Path:
    """Makes a folder to build `folder` in. It is locked before it gets a name that `_remove_stale` looks for."""
    token = secrets.token_hex(4)
    new = folder.with_name(f"{folder.name}.new-{token}")
    building = folder.with_name(f"{folder.name}.building-{os.getpid()}-{token}")
    new.mkdir(mode)
    _locked[building] = os.open(new, os.O_RDONLY)
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(_locked[building], fcntl.LOCK_EX)
    return new.rename(building)


def _is_locked(folder: Path) -> bool:
    """Whether another process builds in `folder`, also on another machine if the file system shares its locks."""
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
    for path in parent.glob("*.building-*"):
        if match := re.search(r"\.building-(\d+)-[0-9a-f]+$", path.name):
            try:
                os.kill(int(match[1]), 0)
            except ProcessLookupError:
                # The process may live in another container, where this one cannot see it. Its lock shows here.
                if not _is_locked(path):
                    shutil.rmtree(path, ignore_errors=True)
            except (PermissionError, OverflowError):
                pass  # the process lives, or this module did not make the folder
