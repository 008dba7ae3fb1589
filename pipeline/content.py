"""What images are, wherever they lie and whenever they were written."""

from __future__ import annotations

import hashlib
import os

import numpy as np

from pipeline.sources import ImageSource

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
