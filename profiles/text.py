"""A console on which nobody else's text can do anything but be read."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import IO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

# Line and paragraph separators; the other categories that are no text all begin with C: control, direction, surrogate.
_SEPARATORS = ("Zl", "Zp")


def printable(text: str) -> str:
    """Returns a text in which what a terminal would obey, or cannot show, is written as an escape; lines stay."""
    if text.isprintable():
        return text
    return "".join(_escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    category = unicodedata.category(letter)
    if letter == "\n" or not (category.startswith("C") or category in _SEPARATORS):
        return letter
    return letter.encode("unicode_escape", "backslashreplace").decode()


def print_files(console: Console, what: str, *files: object) -> None:
    """Prints which files a command leaves, in one line however narrow the terminal, so that a path can be copied."""
    said = f"\n{what}: {', '.join(map(str, files))}"
    console.print(said, highlight=False, markup=False, emoji=False, soft_wrap=True)


class Terminal(Console):
    """A console that prints names, errors and settings as they are, whatever they hold.

    Colours are the console's own; an escape sequence in a text is shown as one. Whoever prints a text that is not ours
    switches rich's markup off; its emoji codes are off.

    Args:
      stderr: whether it is standard error, not standard output.
      file: where to instead.
      width: columns; those of the terminal unless given.
      force_terminal: whether to write as to a terminal, whatever it is.
    """

    def __init__(
        self,
        *,
        stderr: bool = False,
        file: IO[str] | None = None,
        width: int | None = None,
        force_terminal: bool | None = None,
    ) -> None:
        super().__init__(stderr=stderr, file=file, width=width, force_terminal=force_terminal, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            plain = segment.control is not None or segment.text.isprintable()
            yield segment if plain else Segment(printable(segment.text), segment.style)
