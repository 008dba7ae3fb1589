"""Where this project keeps what it made, and how it gets there whole."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path


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
    building = _building(folder)
    building.mkdir()
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
    """Makes a folder for as long as this process runs; one whose process was killed goes when the next is made."""
    parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(parent)
    folder = _building(parent / "unstall-scratch")
    folder.mkdir()
    return folder


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


def _building(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.building-{os.getpid()}-{secrets.token_hex(4)}")


def _remove_stale(parent: Path) -> None:
    if os.name != "posix":
        return  # Signal 0 ends a process elsewhere; leaving a folder behind is the lesser harm.
    for path in parent.glob("*.building-*"):
        if match := re.search(r"\.building-(\d+)-[0-9a-f]+$", path.name):
            try:
                os.kill(int(match[1]), 0)
            except ProcessLookupError:
                shutil.rmtree(path, ignore_errors=True)
            except (PermissionError, OverflowError):
                pass  # alive, or not a name that this module gives
