"""A line of code, carried with the whole name of its file, and printed as the user knows it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLine:
    """A line in a file of code.

    Attributes:
      file: the file, as Python names it; without folders in a results file.
      line: its number; the first is 1.
    """

    file: str
    line: int

    def __str__(self) -> str:
        return f"{named(self.file)}:{self.line}"

    @property
    def without_folders(self) -> CodeLine:
        """The line as a results file holds it, which names no folder of the user's."""
        return CodeLine(file=named(self.file), line=self.line)

    def is_at(self, other: CodeLine) -> bool:
        """Whether two lines are one for the user, whatever the folders of their files."""
        return str(self) == str(other)


def line_of(frame: FrameType) -> CodeLine:
    """Returns the line that a frame is at."""
    return CodeLine(file=frame.f_code.co_filename, line=frame.f_lineno)


def named(file: str) -> str:
    """Returns how the user knows a file of code: by its name without folders, a notebook's cell as "In[3]"."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", lambda file: None)  # not before IPython 8
    _, cell = name_of(file) or ("", None)
    return cell or Path(file).name
