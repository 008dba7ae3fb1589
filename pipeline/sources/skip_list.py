"""A list of files that every loader leaves out: `unstall doctor` writes it, `--skip-list` reads it.

The format is JSON lines: a header, then a line per file. A user who wants a file after all removes its line. An entry
names a file by its path, its size and a digest of its content, so that an old list leaves out no file that has changed.
The list of a folder with splits serves each of the splits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unstall.pipeline.errors import SourceError
from unstall.text import printable

FORMAT = "unstall skip list"
VERSION = 1


class SkipListError(SourceError):
    """A skip list that cannot be used; the message names the file and the line, and says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file to leave out.

    Attributes:
      path: below the folder that was examined, as the system names it; it is compared, never opened.
      reason: in words.
      bytes, sha256: size and digest of the file's content; None if it could not be read.
    """

    path: str
    reason: str
    bytes: int | None
    sha256: str | None

    def stale(self, path: Path) -> str | None:
        """Returns why this entry does not apply to the readable file at `path`; None if it applies."""
        if self.sha256 is None:
            return "could not be read when it was listed, and now it can"
        try:
            size_bytes = path.stat().st_size
            if size_bytes != self.bytes:
                return f"has {size_bytes:,} bytes now, and had {self.bytes:,}"
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        return None if digest == self.sha256 else "has other content now"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipList:
    """The entries of a skip list.

    Attributes:
      entries: by their path.
      splits: splits, such as train and test, of the folder that was examined; empty if it held classes.
    """

    entries: Mapping[str, Entry]
    splits: tuple[str, ...] = ()

    def below(self, root: Path) -> dict[str, Entry]:
        """Returns the entries for a folder of classes, by their path below it; for a split only its own entries."""
        name = root.resolve().name
        if name not in self.splits:
            return dict(self.entries)
        begin = f"{name}/"
        return {path.removeprefix(begin): entry for path, entry in self.entries.items() if path.startswith(begin)}


def skip_list_text(entries: Iterable[Entry], splits: Iterable[str] = ()) -> str:
    """Returns the text of a skip list; names that are not UTF-8 survive, with escapes for single bytes."""
    lines: list[dict[str, Any]] = [{"format": FORMAT, "version": VERSION, "splits": list(splits)}]
    lines += [asdict(entry) for entry in sorted(entries, key=lambda entry: entry.path)]
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)


def read_skip_list(path: Path | None) -> SkipList | None:
    """Reads a skip list; returns None if `path` is None.

    Raises:
      SkipListError: if the file cannot be read, or is not a skip list.
    """
    if path is None:
        return None
    name = f"--skip-list {printable(path)}"
    try:
        if path.exists() and not path.is_file():
            raise SkipListError(f"{name} is not a file.")
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError as error:
        raise SkipListError(f"{name} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise SkipListError(f"{name} is not a skip list: it is not ASCII text.") from error
    splits = _splits(_object(lines[0])) if lines else None
    if splits is None:
        first = json.dumps({"format": FORMAT, "version": VERSION, "splits": []})
        raise SkipListError(f"{name} is not a skip list of this version. Its first line must be {first}.")
    entries = {}
    for number, line in enumerate(lines[1:], start=2):
        entry = _entry(_object(line)) if line.strip() else None
        if entry is not None:
            entries[entry.path] = entry
        elif line.strip():
            raise SkipListError(
                f"{name}, line {number}: an entry must be an object of path, reason, bytes and sha256. "
                f"Received: {printable(line[:80])}."
            )
    return SkipList(entries=entries, splits=splits)


def _object(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _splits(first: Any) -> tuple[str, ...] | None:
    """Returns the splits that a list's header names; None if the first line is no header of this version."""
    if not isinstance(first, dict) or first.keys() != {"format", "version", "splits"}:
        return None
    splits = first["splits"]
    readable = (first["format"], first["version"]) == (FORMAT, VERSION)
    return tuple(splits) if readable and type(splits) is list and all(type(name) is str for name in splits) else None


def _entry(values: Any) -> Entry | None:
    """Returns an entry; None if a line is not one."""
    if not isinstance(values, dict) or values.keys() != {"path", "reason", "bytes", "sha256"}:
        return None
    content = (values["bytes"], values["sha256"])
    was_read = type(content[0]) is int and type(content[1]) is str
    is_named = type(values["path"]) is str and type(values["reason"]) is str
    return Entry(**values) if is_named and (was_read or content == (None, None)) else None
