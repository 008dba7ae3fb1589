"""A console for texts of others, such as file names and errors: no text can send commands to the terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from unstall.commands import places, program, typed

# Unicode's line and paragraph separators. All other categories that are not text (control, direction, surrogate) begin
# with "C".
_SEPARATORS = ("Zl", "Zp")


def printable(text: str) -> str:
    """Returns the text with every character that is not text written as an escape, except line ends."""
    if text.isprintable():
        return text
    return "".join(_escaped(letter) for letter in text)


def error_text(error: BaseException) -> str:
    """Returns the kind of an error, and the first line of its message, shortened."""
    first_line = (str(error).strip().splitlines() or [""])[0][:160]
    return f"{type(error).__name__}: {first_line}"


def rate_text(per_sec: float) -> str:
    """Returns a rate for people: whole from 10 on, else to three digits."""
    return f"{per_sec:,.0f}" if per_sec >= 10 else f"{per_sec:.3g}"


def _typed(text: Text) -> Text:
    """Returns a text with our commands as the user can type them, in the same style."""
    for place in reversed(places(text.plain)):
        before, _, after = text.divide((place, place + len("unstall")))
        changed = before.append(program()).append_text(after)
        changed.end, changed.no_wrap = text.end, text.no_wrap
        text = changed
    return text


def _escaped(letter: str) -> str:
    category = unicodedata.category(letter)
    if letter == "\n" or not (category.startswith("C") or category in _SEPARATORS):
        return letter
    return letter.encode("unicode_escape", "backslashreplace").decode()


def print_files(console: Console, what: str, *files: object) -> None:
    """Prints which files a command wrote. The line is never wrapped, so that a path can be copied."""
    line = f"\n{what}: {', '.join(map(str, files))}"
    console.print(line, soft_wrap=True)


class Terminal(Console):
    """A console that prints names, errors and settings literally, and our commands as the user can type them.

    An escape sequence inside a text is shown as characters and colours nothing. Rich's markup, emoji codes and
    highlighting are off, and so is its output of notebooks, which goes into the cell whatever the file is.

    Args:
      stderr: print to standard error instead of standard output.
      file: print to this file instead, with commands as they stand in files.
      width: in columns; the terminal's width unless given.
      force_terminal: whether to treat the output as a terminal; found out unless given.
    """

    def __init__(
        self,
        *,
        stderr: bool = False,
        file: IO[str] | None = None,
        width: int | None = None,
        force_terminal: bool | None = None,
    ) -> None:
        super().__init__(
            stderr=stderr,
            file=file,
            width=width,
            force_terminal=force_terminal,
            force_jupyter=False,
            markup=False,
            emoji=False,
            highlight=False,
        )
        self._is_users = file is None

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(typed(text) if self._is_users else text, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, Text) and self._is_users:
            renderable = _typed(renderable)
        for segment in super().render(renderable, options):
            plain = segment.control is not None or segment.text.isprintable()
            yield segment if plain else Segment(printable(segment.text), segment.style)
