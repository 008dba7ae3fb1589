"""The files of the user's that a script runs: their names in results, and whether they are as they were loaded."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.profiles import clock
from unstall.profiles.stages.places import is_library

if TYPE_CHECKING:
    from unstall.profiles.remedies import Trial


def digest_of(source: bytes) -> str:
    return hashlib.blake2b(source, digest_size=16).hexdigest()


class UsersFiles:
    """The files of a script, by the names that they have in results: relative to the folder of the script.

    Make it before the script runs, which may go to another folder, and change files.

    Args:
      script: path of the script.
    """

    def __init__(self, script: Path) -> None:
        self._script = script.absolute()
        self._folders = (script.resolve().parent, Path.cwd())
        self._began_ns = clock.file_time_ns()
        self._text = self._read(self._script)

    @property
    def text(self) -> str:
        """The script's text before it runs; what is no UTF-8 is left out."""
        return (self._text or b"").decode(errors="ignore")

    def named(self, trial: Trial) -> Trial:
        """Returns a trial as its file holds it: no folder of the user's is named, and edited files have digests."""
        places = [place for remedy in trial.remedies for edit in remedy.edits for place in edit.places]
        names = {file: self._name(file) for file in {str(self._script), *(place.file for place in places)}}
        digests = {name: digest for file, name in names.items() if (digest := self._digest(Path(file))) is not None}
        return trial.with_names(names.__getitem__, digests)

    def _name(self, file: str) -> str:
        """Returns "parts/data.py" of a file in the folder of the script; ".../data.py" of a file elsewhere."""
        if Path(file) == self._script:
            return self._script.name
        return (
            os.path.relpath(Path(file).resolve(), self._folders[0])
            if self._is_users(file)
            else f".../{Path(file).name}"
        )

    def _is_users(self, file: str) -> bool:
        return not is_library(file) and any(Path(file).resolve().is_relative_to(folder) for folder in self._folders)

    def _digest(self, file: Path) -> str | None:
        """Returns a digest of a file as it was loaded; None where it cannot be read, lies elsewhere, or was changed."""
        text = self._read(file)
        if file == self._script:
            return digest_of(text) if text is not None and text == self._text else None
        with suppress(OSError):
            if text is not None and self._is_users(str(file)) and file.stat().st_mtime_ns <= self._began_ns:
                return digest_of(text)
        return None

    @staticmethod
    def _read(file: Path) -> bytes | None:
        with suppress(OSError):
            return file.read_bytes()
        return None
