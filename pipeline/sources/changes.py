"""Finds files that are deleted, changed or new since a source was scanned, and tells whether two sources are equal."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from unstall.pipeline.sources.folder import Fingerprint, files_below
from unstall.pipeline.sources.source import ImageSource
from unstall.text import printable

# Hash the bytes of this many files: tells data sets with equal names and sizes apart, in constant time.
_HASHED_FILES = 64


def content_fingerprint(source: ImageSource) -> str:
    """Returns 16 hexadecimal digits, which are the same for a copy of the images in another folder.

    For files, a digest of all names below the root, all sizes, and the bytes of 64 files spread over the list. For
    anything else the source's own fingerprint, which is a digest of bytes.

    Raises:
      OSError: if a file cannot be read.
    """
    if source.root is None:
        return source.fingerprint
    digest = hashlib.sha256()
    for file, path in zip(source.files, source.paths, strict=True):
        digest.update(os.fsencode(file) + f"\0{os.path.getsize(path)}\n".encode())
    count = min(_HASHED_FILES, len(source.files))
    for index in np.linspace(0, len(source.files) - 1, count).round().astype(int):
        with open(source.paths[index], "rb") as file_:
            digest.update(hashlib.file_digest(file_, "sha256").digest())
    return digest.hexdigest()[:16]


# Size in bytes and modification time in nanoseconds, by a file's path below the root.
Statuses = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A file that is deleted, changed or new.

    Attributes:
      path: below the source's root, safe to print.
      what: "deleted", "changed" or "new".
    """

    path: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What changed in a source's class folders since the scan, by size and modification time.

    Attributes:
      files: sorted by path.
      fingerprint: of the source's own files now, without deleted files.
      differs: whether `fingerprint` differs from that of the scan.
    """

    files: tuple[Change, ...] = ()
    fingerprint: str = ""
    differs: bool = False

    def __bool__(self) -> bool:
        return self.differs or bool(self.files)

    def to_dict(self) -> dict[str, Any]:
        """Returns what a results file says beside the source; nothing where nothing changed."""
        if not self:
            return {}
        files = [{"path": file.path, "what": file.what} for file in self.files]
        return {"changed_files": files, "fingerprint_at_end": self.fingerprint}

    def sentence(self) -> str:
        """Returns a sentence that names the first change and counts the others."""
        if not self.files:
            return "files were changed while the folder was scanned"
        first, others = self.files[0], len(self.files) - 1
        more = f", and {others} more" if others else ""
        return f"{first.path} ({first.what}){more}"


class FolderWatch:
    """Remembers the status of a source's files, to find changes later; sources without files never change.

    Args:
      source: just scanned. A change during the scan shows in its fingerprint, but the file is not named.
    """

    def __init__(self, source: ImageSource) -> None:
        self._source = source
        self._before = _statuses(source)
        # A prepared copy's own fingerprint is that of its index, not of its files.
        self._fingerprint = self._fingerprint_of(self._before) if source.kind == "resized" else source.fingerprint

    def changes(self) -> Changes:
        """Returns what has changed by now."""
        if self._source.root is None:
            return Changes()
        before, now = self._before, _statuses(self._source)
        files = [
            Change(path=printable(file), what="new" if file not in before else "changed" if file in now else "deleted")
            for file in sorted(before.keys() | now.keys())
            if before.get(file) != now.get(file)
        ]
        fingerprint = self._fingerprint_of(now)
        return Changes(files=tuple(files), fingerprint=fingerprint, differs=fingerprint != self._fingerprint)

    def _fingerprint_of(self, statuses: Statuses) -> str:
        fingerprint = Fingerprint()
        for file in self._source.files:
            if file in statuses:
                fingerprint.add(file, *statuses[file])
        return str(fingerprint)


def _statuses(source: ImageSource) -> dict[str, tuple[int, int]]:
    """Returns the status of all files below the class folders."""
    statuses: dict[str, tuple[int, int]] = {}
    for name in source.class_names if source.root is not None else ():
        assert source.root is not None
        # A deleted folder counts as one without files.
        for path in files_below(source.root / name, failed=lambda _: None):
            with contextlib.suppress(OSError):
                status = os.stat(path)
                statuses[os.path.relpath(path, source.root)] = status.st_size, status.st_mtime_ns
    return statuses
