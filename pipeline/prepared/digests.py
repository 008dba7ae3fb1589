"""Digests of files' bytes: a file that is in the memo, and has not changed since, is not read again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from unstall.pipeline.errors import SourceError
from unstall.pipeline.memo import Memo, status_digest, walk_order
from unstall.text import printable

# The memo of these digests in the user's cache.
KIND = "digests"
_DIGEST_BYTES = 16


def file_digests(root: Path, files: Sequence[str]) -> list[bytes]:
    """Returns a digest of each file's bytes. Reads only files that are new, or have changed since they were last read.

    Args:
      root: the folder that `files` are relative to.
      files: paths below it.
    Raises:
      SourceError: if a file cannot be read.
    """
    digests: dict[str, bytes] = {}
    with Memo(root, KIND, f"[0-9a-f]{{{2 * _DIGEST_BYTES}}}") as memo:
        for file in sorted(set(files), key=walk_order):
            try:
                kept = memo.get(file, os.stat(os.path.join(root, file)))
                digests[file], status = _read(root, file) if kept is None else (bytes.fromhex(kept), None)
            except OSError as error:
                raise SourceError(f"{printable(file)} cannot be read: {error.strerror}.") from error
            if status is not None:
                memo.add(file, status, digests[file].hex())
        memo.write()
    return [digests[file] for file in files]


def _read(root: Path, file: str) -> tuple[bytes, os.stat_result | None]:
    """Returns the digest of a file's bytes, and the file's status; None if the file changed while it was read."""
    with open(os.path.join(root, file), "rb") as opened:
        before = os.fstat(opened.fileno())
        digest = hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=_DIGEST_BYTES)).digest()
        after = os.fstat(opened.fileno())
    return digest, before if status_digest(before) == status_digest(after) else None
