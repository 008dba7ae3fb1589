"""Pickles of arrays that were published as such: read only when their checksum is the published one, and restricted.

Unpickling calls whatever the file names. Here it is a known file, and may rebuild NumPy arrays and nothing else.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from typing import Any

from pipeline.published_data import DatasetError

# What rebuilding an array takes, by the names that NumPy 1 and NumPy 2 pickle them under.
_ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)  # NumPy 2 moved it


def check_digest(content: bytes, algorithm: str, expected: str, where: str) -> None:
    """Refuses a file that is not the published one.

    Raises:
      DatasetError: if the checksum differs.
    """
    # Not for security as FIPS has it: CIFAR-10's files have published MD5 sums only, and the unpickler trusts none.
    found = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise DatasetError(
            f"{where}: it is not the published file, and is not read. {algorithm.upper()} is {found}, "
            f"published {expected}. Get it again."
        )


def load_arrays(content: bytes, where: str) -> Any:
    """Unpickles dicts, lists, numbers, bytes and arrays, and nothing that could run code.

    Raises:
      DatasetError: if the pickle holds anything else, or is broken.
    """
    try:
        return _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a broken pickle raises of all kinds
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise DatasetError(f"{where}: it is no pickle of plain arrays, and is not read: {reason}.") from error
