"""Shows a document of a measurement where Python shows an object: as text, and as a page in a notebook."""

from __future__ import annotations

import html
import io
from pathlib import Path
from typing import Any

from rich.console import Console

from unstall.profiles.report.document import REPORT, RESULTS, content_of, print_document, write
from unstall.profiles.report.measurements import KIND, MeasurementDocument
from unstall.profiles.report.screen import ScreenLine, print_lines
from unstall.profiles.text import Terminal


class Shown:
    """Something that has a document of a measurement: print it, save it, or let a notebook show it."""

    __slots__ = ()

    def _shown(self) -> MeasurementDocument:
        """Returns the document."""
        raise NotImplementedError

    def __str__(self) -> str:
        text = io.StringIO()
        self.print(Terminal(width=100, file=text))
        return text.getvalue().strip("\n")

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """Returns the page, in a frame of its own, so that its styles and those of the notebook stay apart."""
        document = self._shown()
        page = html.escape(KIND.page(document, KIND.derive(document)))
        return f'<iframe srcdoc="{page}" style="width:100%;height:40em;border:0" sandbox></iframe>'

    def print(self, console: Console | None = None, *, details: bool = False) -> None:
        """Prints the first screen; with `details` all tables and sentences."""
        document, console = self._shown(), console or Terminal()
        print_document(console, document, KIND, KIND.derive(document), details=details)
        if not details:
            text = "`.print(details=True)` prints all tables and sentences, `.save(FOLDER)` writes them as report.html."
            print_lines(console, [ScreenLine(label="MORE", text=text)])

    def to_dict(self) -> dict[str, Any]:
        """Returns the content of results.json."""
        document = self._shown()
        return content_of(document, KIND, KIND.derive(document))

    def save(self, folder: str | Path) -> Path:
        """Writes results.json and report.html into a folder, and returns the path of the report.

        Raises:
          FileExistsError: if the folder holds results already.
        """
        folder = Path(folder)
        if (folder / RESULTS).exists():
            raise FileExistsError(f"{folder} holds results already. Choose another folder, or remove them.")
        document = self._shown()
        write(folder, document, KIND, KIND.derive(document))
        return folder / REPORT
