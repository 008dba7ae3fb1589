"""Digests of files' bytes, and a memo of them in the user's cache: a file whose status is unchanged is not read again.

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from pipeline.cache import cache_root
from pipeline.errors import SourceError
from pipeline.text import printable

FORMAT = "unstall file digests"
VERSION = 1
# The coarsest clock of a file system: FAT counts two seconds, ext3 one, today's Linux a few milliseconds.
MARGIN_NS = 2_000_000_000
_DIGEST_BYTES, _STATUS_BYTES = 16, 8
# An entry: the digest of the status, then that of the bytes, in one string to keep the memo of a million files small.
_ENTRY = re.compile(f"[0-9a-f]{{{2 * (_STATUS_BYTES + _DIGEST_BYTES)}}}")


def file_digests(root: Path, files: Sequence[str]) -> list[bytes]:
    """Returns a digest of each file's bytes. Reads only files that are new, or have changed since they were last read.

    Args:
      root: the folder that `files` are relative to.
      files: paths below it.
    Raises:
      SourceError: if a file cannot be read.
    """
    memo = memo_path(root)
    old_entries = _entries(memo)
    digests: dict[str, bytes] = {}
    unread = []
    for file in files:
        entry = old_entries.get(file)
        if entry is not None and entry.startswith(_status_of_path(root, file)):
            digests[file] = bytes.fromhex(entry[2 * _STATUS_BYTES :])
        else:
            unread.append(file)
    if unread:
        begin_ns = _file_time_ns(memo.parent)
        new_entries = {}
        for file in unread:
            digests[file], status, changed_ns = _read(root, file)
            if status and begin_ns is not None and changed_ns < begin_ns - MARGIN_NS:
                new_entries[file] = status + digests[file].hex()
        if new_entries:
            # Keep the entries of other files, which a source of another part of the folder may use; drop deleted files.
            others = {file: entry for file, entry in old_entries.items() if os.path.lexists(os.path.join(root, file))}
            _write(memo, others | new_entries)
    return [digests[file] for file in files]


def memo_path(root: Path) -> Path:
    """Returns the path of the memo of a folder's files; its name is a digest of the folder's path."""
    name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:24]
    return cache_root() / "digests" / f"{name}.json"


def _status_of_path(root: Path, file: str) -> str:
    try:
        return _status_digest(os.stat(os.path.join(root, file)))
    except OSError as error:
        raise _unreadable(file, error) from error


def _status_digest(status: os.stat_result) -> str:
    values = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return hashlib.blake2b(b"%d %d %d %d %d" % values, digest_size=_STATUS_BYTES).hexdigest()


def _read(root: Path, file: str) -> tuple[bytes, str, int]:
    """Returns the digest of a file's bytes, the digest of its status, and the time of its last change in nanoseconds.

    The second is "" if the file changed while it was read.
    """
    try:
        with open(os.path.join(root, file), "rb") as opened:
            before = os.fstat(opened.fileno())
            digest = hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=_DIGEST_BYTES)).digest()
            after = os.fstat(opened.fileno())
    except OSError as error:
        raise _unreadable(file, error) from error
    status = _status_digest(before)
    if status != _status_digest(after):
        status = ""
    return digest, status, max(before.st_mtime_ns, before.st_ctime_ns)


def _unreadable(file: str, error: OSError) -> SourceError:
    return SourceError(f"{printable(file)} cannot be read: {error.strerror}.")


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


def _entries(memo: Path) -> dict[str, str]:
    """Returns the entries of a memo by file; none if the memo is missing, damaged or of another program."""
    try:
        document = json.loads(memo.read_bytes(), parse_constant=_refuse)
    except (OSError, ValueError, RecursionError):
        return {}
    if type(document) is not dict or (document.get("format"), document.get("version")) != (FORMAT, VERSION):
        return {}
    entries = document.get("files")
    if type(entries) is not dict:
        return {}
    valid = all(type(entry) is str and _ENTRY.fullmatch(entry) for entry in entries.values())
    return entries if valid else {}


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _write(memo: Path, entries: Mapping[str, str]) -> None:
    """Replaces a memo by one rename. If that fails, the files are read again next time, which does no harm."""
    text = json.dumps({"format": FORMAT, "version": VERSION, "files": entries}, allow_nan=False, separators=(",", ":"))
    with contextlib.suppress(OSError):
        partial = memo.with_name(f".{memo.name}-{secrets.token_hex(8)}")
        try:
            with partial.open("x", encoding="ascii") as file:
                file.write(text)
            partial.replace(memo)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
