"""What was read of the files of a folder, kept in the user's cache: a file whose status is unchanged is not read again.

The status is device, inode, size, time of modification and time of change (ctime). No program can set the ctime, so an
edit in place shows even if size and modification time are put back. An edit within the same tick of the file system's
clock does not show. Therefore a file that changed just before it was read gets no entry in the memo; git does the same
with its index. Source: git's Documentation/technical/racy-git.txt.

A memo is a text file. Each line is a JSON object: first one that names the format, then a block of entries by file.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import secrets
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import IO, Any, NoReturn

from unstall.pipeline.cache import cache_root

VERSION = 2
# The coarsest clock of a file system: FAT counts two seconds, ext3 one, today's Linux a few milliseconds.
MARGIN_NS = 2_000_000_000
STATUS_BYTES = 8
# The files of a line of a memo: so many are held in memory at a time.
_BLOCK_FILES = 1000
# So much of an old memo is copied at a time.
_COPIED_BYTES = 1 << 20


def status_digest(status: os.stat_result) -> str:
    """Returns a digest of all by which a file's status shows that the file has changed."""
    values = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return hashlib.blake2b(b"%d %d %d %d %d" % values, digest_size=STATUS_BYTES).hexdigest()


def memo_path(root: Path, kind: str) -> Path:
    """Returns the path of the memo of a folder's files; its name is a digest of the folder's path."""
    name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:24]
    return cache_root() / kind / f"{name}.json"


class Memo:
    """The memo of a folder's files, which is read and written beside a walk over them, a block of files at a time.

    So it takes the same memory whatever the number of files. Ask for files in the order of `walk_order`; one that is
    asked for later may be read again.

    Use it in a `with` statement. Args:
      root: the folder.
      kind: what is kept, such as "digests": the name of the folder of such memos in the cache.
      text: what an entry is, as a regular expression. A memo is used up to the first entry that is another.
    """

    def __init__(self, root: Path, kind: str, text: str) -> None:
        self._root, self._format = root, f"unstall file {kind}"
        self._path = memo_path(root, kind)
        # The digest of the status, then the text, in one string.
        self._entry = re.compile(f"[0-9a-f]{{{2 * STATUS_BYTES}}}(?:{text})")
        self._open = contextlib.ExitStack()
        self._kept: IO[bytes] | None = None
        self._blocks = self._open.enter_context(contextlib.closing(self._read()))
        # The block of the old memo in which the present file stands, without the files that were asked for, and where
        # the block ends in the old memo.
        self._old: dict[str, str] = {}
        self._old_end = 0
        # Whether the new memo will begin with all blocks of the old one up to here, and where these end in the old one.
        self._unchanged, self._unchanged_bytes = True, 0
        self._last: list[tuple[int, str]] | None = []
        self._new: dict[str, str] = {}
        self._written: IO[bytes] | None = None
        self._begin_ns: int | None = None
        self._begun = self._added = self._unasked = self._failed = False

    def __enter__(self) -> Memo:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # what a full disk did not take is written again when its file is closed
            self._open.close()

    def get(self, file: str, status: os.stat_result) -> str | None:
        """Returns what was kept of a file; None if there is nothing, or the file has changed since.

        Args:
          file: path below the folder.
        """
        entry = self._old.pop(file, None)
        if entry is None:
            self._advance(file)
            entry = self._old.pop(file, None)
        if entry is not None and entry.startswith(status_digest(status)):
            self._keep(file, entry)
            return entry[2 * STATUS_BYTES :]
        if not self._begun:
            # What is added is read after this moment.
            self._begun, self._begin_ns = True, _file_time_ns(self._path.parent)
        return None

    def add(self, file: str, status: os.stat_result, text: str) -> None:
        """Keeps what was read of a file that `get` did not have, unless the file changed just before."""
        changed_ns = max(status.st_mtime_ns, status.st_ctime_ns)
        if self._begin_ns is not None and changed_ns < self._begin_ns - MARGIN_NS:
            self._added = True
            self._keep(file, status_digest(status) + text)

    def write(self) -> None:
        """Replaces the memo by one rename, if anything was added; a memo that cannot be written does no harm.

        Entries of other files are kept, which a source of another part of the folder may use; deleted files are not.
        """
        if not self._added:
            return
        self._advance(None)
        if self._new:
            self._write_block()
        if self._failed or self._written is None:
            return
        with contextlib.suppress(OSError):
            partial = self._path.with_name(f".{self._path.name}-{secrets.token_hex(8)}")
            try:
                self._written.seek(0)
                with partial.open("xb") as file:
                    file.write(self._written.readline())
                    file.writelines(self._present(line) for line in self._written)
                partial.replace(self._path)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise

    def _advance(self, file: str | None) -> None:
        """Goes on to the block in which a file stands, if it stands in one; None: to the end."""
        if self._last is None:
            return
        place = None if file is None else walk_order(file)
        while self._last is not None and (place is None or place > self._last):
            self._unasked |= bool(self._old)
            # A short block is not copied: it is joined with the next one.
            self._unchanged &= not self._begun and len(self._old) + len(self._new) in (0, _BLOCK_FILES)
            if self._unchanged:
                self._new, self._unchanged_bytes = {}, self._old_end
            elif self._old:
                self._new = dict(sorted((self._old | self._new).items(), key=lambda entry: walk_order(entry[0])))
            self._write_full_blocks()
            self._old, self._old_end = next(self._blocks, ({}, self._old_end))
            self._last = walk_order(next(reversed(self._old))) if self._old else None

    def _keep(self, file: str, entry: str) -> None:
        self._new[file] = entry
        if self._last is None and len(self._new) >= _BLOCK_FILES:  # else others of the old block may come before it
            self._write_full_blocks()

    def _write_full_blocks(self) -> None:
        while len(self._new) >= _BLOCK_FILES:
            self._write_block()

    def _write_block(self) -> None:
        """Writes a block to a file without a name, which ends with this process."""
        block = dict(itertools.islice(self._new.items(), _BLOCK_FILES))
        for file in block:
            del self._new[file]
        try:
            if self._written is None:
                written = tempfile.TemporaryFile(dir=self._path.parent)  # noqa: SIM115 - closed with the memo
                self._written = self._open.enter_context(written)
                self._write_begin(written)
            self._written.write(_line(block))
        except OSError:
            self._failed = True

    def _write_begin(self, written: IO[bytes]) -> None:
        """Writes the line that names the format, with the old memo's blocks behind it that stay as they are."""
        if self._kept is None or not self._unchanged_bytes:
            written.write(_line({"format": self._format, "version": VERSION}))
            return
        for first in range(0, self._unchanged_bytes, _COPIED_BYTES):
            size_bytes = min(_COPIED_BYTES, self._unchanged_bytes - first)
            written.write(os.pread(self._kept.fileno(), size_bytes, first))

    def _present(self, line: bytes) -> bytes:
        """Returns a block without the files that are gone; looks for them only if some were not asked for."""
        if not self._unasked:
            return line
        entries = json.loads(line).items()
        present = {file: entry for file, entry in entries if os.path.lexists(os.path.join(self._root, file))}
        return _line(present) if present else b""

    def _read(self) -> Generator[tuple[dict[str, str], int]]:
        """Yields blocks of entries by file, and where each ends; none of a memo that is missing or of another program.

        The file stays open.
        """
        with contextlib.suppress(OSError, ValueError, RecursionError):
            file = self._kept = self._open.enter_context(self._path.open("rb"))
            line = file.readline()
            end, head = len(line), json.loads(line, parse_constant=_refuse)
            if type(head) is not dict or (head.get("format"), head.get("version")) != (self._format, VERSION):
                return
            for line in file:
                block = json.loads(line, parse_constant=_refuse)
                entries = block.values() if type(block) is dict else (None,)
                if not block or not all(type(entry) is str and self._entry.fullmatch(entry) for entry in entries):
                    return
                end += len(line)
                yield block, end


def walk_order(file: str) -> list[tuple[int, str]]:
    """Returns a key that sorts paths as a walk over folders lists them: files before the folders beside them."""
    *folders, name = file.split("/")
    return [*((1, folder) for folder in folders), (0, name)]


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _file_time_ns(folder: Path) -> int | None:
    """Returns the present time by the clock that stamps files; None if no memo can be kept.

    This is the time of a new file in the cache, not of the system's clock: on a network share the two can differ.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
