"""The command that shows what is kept in the user's cache folder, and removes what no process uses.

unstall cache
unstall cache --clear
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.parser import ArgumentParser
from unstall.pipeline.cache import cache_root, is_used, remove_unused
from unstall.pipeline.commands.terminal import tell

if TYPE_CHECKING:
    from rich.console import Console

# Folders of the cache that hold one folder or file for each thing, and what that is.
_KINDS = {
    "generated": "photos that generated:N made",
    "links": "links to photos, for loaders that take only a folder",
    "tfds": "photos that tfds:NAME was written to",
    "headers": "what headers of files say, so that a folder is scanned faster",
    "digests": "digests of files, so that copies are found again",
    "prepared": "copies that pipelines, and scripts of tune, read in the place of photos",
    "cached": "decoded photos that pipelines, and scripts of tune, read",
    "scratch": "what a process has left behind",
}
# The names of what unstall writes, by kind; all but "generated" lie in the folder of their kind. The folder that
# `$UNSTALL_CACHE` names may hold files of the user: what has another name is neither shown nor removed.
_NAMES = {
    "generated": r"generated-v\d+-\d+-s\d+",
    "links": r"[0-9a-f]{16}.*-[0-9a-f]{8}",
    "tfds": r".+-\d+\.\d+\.\d+-.+",
    "headers": r"[0-9a-f]{24}\.json",
    "digests": r"[0-9a-f]{24}\.json",
    "prepared": r"[0-9a-f]{24}",
    "cached": r"[0-9a-f]{24}",
}
_SCRATCH = r".+\.(building-\d+|new)-[0-9a-f]{8}|\.[0-9a-f]{24}\.json-[0-9a-f]{16}"
# Scripts that tune has written may read these, and no process says so.
_OF_SCRIPTS = ("prepared", "cached")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Something in the cache.

    Attributes:
      size_bytes: of all files, without what links lead to.
      used: when it was last used, in seconds since 1970.
    """

    kind: str
    path: Path
    size_bytes: int
    used: float


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0; 2 for bad input, 3 if something cannot be removed."""
    arguments = _parser().parse_args(argv)
    from rich.console import Console

    console, errors = Console(), Console(stderr=True)
    kinds = [name for name in _KINDS if name not in _OF_SCRIPTS]
    if arguments.clear:
        kinds = [name.strip() for name in arguments.clear.split(",")]
        if unknown := [name for name in kinds if name not in _KINDS]:
            text = f"--clear: {unknown[0]!r} is no kind. Known: {', '.join(_KINDS)}."
            tell(errors, text, style="bold red")
            return 2
    try:
        entries = list(_entries(cache_root()))
        if arguments.clear is None:
            _print(console, entries)
            return 0
        _clear([entry for entry in entries if entry.kind in kinds], console)
    except OSError as error:
        tell(errors, f"{error.filename}: {error.strerror}.", style="bold red")
        return 3
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="unstall cache",
        description="Shows what unstall keeps in its cache folder: how large it is, and when it was last used.",
    )
    parser.add_argument(
        "--clear",
        nargs="?",
        const="",
        metavar="KIND,...",
        help="removes what no process uses: of these kinds, or of all but prepared and cached, which scripts that tune "
        "has written may read",
    )
    return parser


def _entries(root: Path) -> Iterator[Entry]:
    """Yields what the cache holds; nothing where there is no cache."""
    for kind, names in _NAMES.items():
        folder = root if kind == "generated" else root / kind
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if re.fullmatch(_SCRATCH, path.name):
                yield _entry("scratch", path)
            elif re.fullmatch(names, path.name):
                yield _entry(kind, path)


def _entry(kind: str, path: Path) -> Entry:
    files = [path]
    if path.is_dir():
        files = [Path(parent, name) for parent, _, names in os.walk(path) for name in names]
    return Entry(
        kind=kind,
        path=path,
        size_bytes=sum(file.lstat().st_size for file in files if os.path.lexists(file)),
        used=path.stat().st_mtime,
    )


def _print(console: Console, entries: Sequence[Entry]) -> None:
    from rich.table import Table

    total = sum(entry.size_bytes for entry in entries)
    tell(console, f"{cache_root()}: {_size(total)}")
    if not entries:
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("kind")
    for heading in ("how many", "size", "in use", "last used"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("what it is", overflow="fold")
    for kind, what in _KINDS.items():
        own = [entry for entry in entries if entry.kind == kind]
        if own:
            used = datetime.datetime.fromtimestamp(max(entry.used for entry in own)).strftime("%Y-%m-%d")
            in_use = sum(is_used(entry.path) for entry in own)
            size = _size(sum(entry.size_bytes for entry in own))
            table.add_row(kind, str(len(own)), size, str(in_use), used, what)
    console.print(table)


def _clear(entries: Sequence[Entry], console: Console) -> None:
    removed = [entry for entry in entries if remove_unused(entry.path)]
    left = len(entries) - len(removed)
    text = f"removed: {len(removed)}, {_size(sum(entry.size_bytes for entry in removed))}"
    if left:
        text += f"; {left} in use, and left alone"
    tell(console, text)


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:,.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:,.1f} MB"
