"""What was read of the files of a folder, kept in the user's cache: a file whose status is unchanged is not read again.

The status is device, inode, size, time of modification and time of change (ctime). No program can set the ctime, so an
edit in place shows even if size and modification time are put back. An edit within the same tick of the file system's
clock does not show. Therefore a file that changed just before it was read gets no entry in the memo; git does the same
with its index. Source: git's Documentation/technical/racy-git.txt.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import tempfile
from pathlib import Path
from typing import NoReturn

from pipeline.cache import cache_root

VERSION = 1
# The coarsest clock of a file system: FAT counts two seconds, ext3 one, today's Linux a few milliseconds.
MARGIN_NS = 2_000_000_000
STATUS_BYTES = 8


def status_digest(status: os.stat_result) -> str:
    """Returns a digest of all by which a file's status shows that the file has changed."""
    values = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return hashlib.blake2b(b"%d %d %d %d %d" % values, digest_size=STATUS_BYTES).hexdigest()


def memo_path(root: Path, kind: str) -> Path:
    """Returns the path of the memo of a folder's files; its name is a digest of the folder's path."""
    name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:24]
    return cache_root() / kind / f"{name}.json"


class Memo:
    """The memo of a folder's files.

    Args:
      root: the folder.
      kind: what is kept, such as "digests": the name of the folder of such memos in the cache.
      text: what an entry is, as a regular expression. A memo with another entry is not used.
    """

    def __init__(self, root: Path, kind: str, text: str) -> None:
        self._root, self._format = root, f"unstall file {kind}"
        self._path = memo_path(root, kind)
        # The digest of the status, then the text, in one string to keep the memo of a million files small.
        self._entry = re.compile(f"[0-9a-f]{{{2 * STATUS_BYTES}}}(?:{text})")
        self._old = self._read()
        self._new: dict[str, str] = {}
        self._begin_ns: int | None = None

    def get(self, file: str, status: os.stat_result) -> str | None:
        """Returns what was kept of a file; None if there is nothing, or the file has changed since.

        Args:
          file: path below the folder.
        """
        entry = self._old.get(file)
        if entry is None or not entry.startswith(status_digest(status)):
            return None
        return entry[2 * STATUS_BYTES :]

    def begin(self) -> None:
        """Notes the present moment: what is added was read after it."""
        self._begin_ns = _file_time_ns(self._path.parent)

    def add(self, file: str, status: os.stat_result, text: str) -> None:
        """Keeps what was read of a file, unless the file changed just before."""
        changed_ns = max(status.st_mtime_ns, status.st_ctime_ns)
        if self._begin_ns is not None and changed_ns < self._begin_ns - MARGIN_NS:
            self._new[file] = status_digest(status) + text

    def write(self) -> None:
        """Replaces the memo by one rename, if anything was added; a memo that cannot be written does no harm.

        Entries of other files are kept, which a source of another part of the folder may use; deleted files are not.
        """
        if not self._new:
            return
        others = {file: entry for file, entry in self._old.items() if os.path.lexists(os.path.join(self._root, file))}
        document = {"format": self._format, "version": VERSION, "files": others | self._new}
        with contextlib.suppress(OSError):
            partial = self._path.with_name(f".{self._path.name}-{secrets.token_hex(8)}")
            try:
                with partial.open("x", encoding="ascii") as file:
                    file.write(json.dumps(document, allow_nan=False, separators=(",", ":")))
                partial.replace(self._path)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise

    def _read(self) -> dict[str, str]:
        """Returns the entries of a memo by file; none if the memo is missing, damaged or of another program."""
        try:
            document = json.loads(self._path.read_bytes(), parse_constant=_refuse)
        except (OSError, ValueError, RecursionError):
            return {}
        if type(document) is not dict or (document.get("format"), document.get("version")) != (self._format, VERSION):
            return {}
        entries = document.get("files")
        if type(entries) is not dict:
            return {}
        valid = all(type(entry) is str and self._entry.fullmatch(entry) for entry in entries.values())
        return entries if valid else {}


def _file_time_ns(folder: Path) -> int | None:
    """Returns the present time by the clock that stamps files; None if no memo can be kept.

    This is the time of a new file in the cache, not of the system's clock: on a network share the two can differ.
    """
    if os.name != "posix":
        return None  # On Windows `st_ctime` is the time of creation, which does not show changes.
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
