"""What becomes of files while they are read (deleted, changed, new), and whether two sources are the same."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.sources.folder import files_below, fingerprint_of
from pipeline.sources.source import ImageSource
from pipeline.text import shown

# Files whose bytes are read: enough to tell another data set of the same names, few enough for any size of it.
_FILES_READ = 64


def content_fingerprint(source: ImageSource) -> str:
    """Returns 16 hexadecimal digits that a copy of the images in another folder has, too.

    Of files: every name below the root, every size, and the bytes of 64 of them, spread over the list. Of anything else
    the source's own fingerprint, which is of bytes.
    """
    if source.root is None:
        return source.fingerprint
    digest = hashlib.sha256()
    for file, path in zip(source.files, source.paths, strict=True):
        digest.update(os.fsencode(file) + f"\0{os.path.getsize(path)}\n".encode())
    count = min(_FILES_READ, len(source.files))
    for index in np.linspace(0, len(source.files) - 1, count).round().astype(int):
        with open(source.paths[index], "rb") as file_:
            digest.update(hashlib.file_digest(file_, "sha256").digest())
    return digest.hexdigest()[:16]


Statuses = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A file that is not what it was.

    Attributes:
      path: below the source's root, as it is safe to show.
      what: "deleted", "changed" or "new".
    """

    path: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What changed in a source's class folders since they were looked at, by size and modification time.

    Attributes:
      files: by name.
      fingerprint: of the source's own files now, without those that are gone.
      differs: whether that is another one than after the scan.
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
        files = [{"path": one.path, "what": one.what} for one in self.files]
        return {"changed_files": files, "fingerprint_at_end": self.fingerprint}

    def sentence(self) -> str:
        """Says what changed, and names the first."""
        if not self.files:
            return "files were changed while the folder was scanned"
        first, others = self.files[0], len(self.files) - 1
        more = f", and {others} more" if others else ""
        return f"{first.path} ({first.what}){more}"


class FolderWatch:
    """Remembers a source's files, to tell later what became of them; arrays and copies in one file have none.

    Args:
      source: just scanned. What changed during the scan shows in its fingerprint, but not by name.
    """

    def __init__(self, source: ImageSource) -> None:
        self._source = source
        self._before = _statuses(source)
        # That of a prepared copy is of its index, not of its files.
        self._fingerprint = self._now(self._before) if source.kind == "resized" else source.fingerprint

    def changes(self) -> Changes:
        """Looks again."""
        if self._source.root is None:
            return Changes()
        before, now = self._before, _statuses(self._source)
        files = [
            Change(path=shown(file), what="new" if file not in before else "changed" if file in now else "deleted")
            for file in sorted(before.keys() | now.keys())
            if before.get(file) != now.get(file)
        ]
        fingerprint = self._now(now)
        return Changes(files=tuple(files), fingerprint=fingerprint, differs=fingerprint != self._fingerprint)

    def _now(self, statuses: Statuses) -> str:
        return fingerprint_of({file: statuses[file] for file in self._source.files if file in statuses})


def _statuses(source: ImageSource) -> dict[str, tuple[int, int]]:
    """Returns the size and modification time of all that lies below the class folders."""
    statuses: dict[str, tuple[int, int]] = {}
    for name in source.class_names if source.root is not None else ():
        assert source.root is not None
        # A folder that is gone is one without files.
        for path in files_below(source.root / name, failed=lambda _: None):
            with contextlib.suppress(OSError):
                status = os.stat(path)
                statuses[os.path.relpath(path, source.root)] = status.st_size, status.st_mtime_ns
    return statuses
