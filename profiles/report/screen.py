"""The first screen of a run: what limits its rate, a picture, why, and what to type next."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.text import Text

# Columns of labels: those of the longest one.
_LABEL_WIDTH = 13
# Columns of the longest bar, and of a name before it is cut.
_MOST_BAR, _LEAST_BAR = 40, 12
# What a label says of training: it is held up, it may be, or it is not. Labels that are no verdict say nothing of it.
TONES: dict[str, Literal["bad", "doubt", "good"]] = {
    **dict.fromkeys(("INPUT-BOUND", "REGRESSION", "STOPS"), "bad"),
    **dict.fromkeys(("BALANCED", "UNCERTAIN", "NO VERDICT", "AT LEAST", "INCONCLUSIVE", "FINDINGS"), "doubt"),
    **dict.fromkeys(("COMPUTE-BOUND", "FASTER", "FASTEST", "IMPROVED", "SAME", "HEALTHY"), "good"),
}
_STYLES = {"bad": "bold red", "doubt": "bold yellow", "good": "bold green"}
# Colours of the parts of a bar; the sign tells a part where there are no colours.
_COLOURS = {"#": "green", "=": "red", "+": "yellow", "~": "magenta", "-": "blue"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenLine:
    """A sentence behind a label.

    Attributes:
      code: lines below it that a user may copy; they are never wrapped.
    """

    label: str
    text: str
    code: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenBar:
    """A row of the picture: a name, cells, and parts of any unit, by their sign."""

    name: str
    cells: tuple[str, ...]
    parts: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Bars below each other, all of one scale.

    Attributes:
      columns: headings of the cells.
      signs: what each sign stands for, in the order of the parts.
    """

    columns: tuple[str, ...]
    signs: Mapping[str, str]
    bars: tuple[ScreenBar, ...]

    @property
    def used(self) -> list[str]:
        """The signs of which a bar has a part."""
        return [sign for sign in self.signs if any(bar.parts.get(sign, 0.0) > 0 for bar in self.bars)]

    @property
    def longest(self) -> float:
        """The length of the longest bar."""
        return max((sum(max(part, 0.0) for part in bar.parts.values()) for bar in self.bars), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """What is printed first, from top to bottom.

    Attributes:
      heading: what was measured.
      warning: a reason to doubt all that follows; None where there is none.
      verdict: what limits the rate, and how fast it could be.
      why: the causes.
      next: what to do.
    """

    heading: tuple[str, ...]
    warning: str | None = None
    verdict: tuple[ScreenLine, ...] = ()
    picture: Picture | None = None
    why: tuple[ScreenLine, ...] = ()
    next: tuple[ScreenLine, ...] = ()


def print_screen(console: Console, screen: Screen) -> None:
    """Prints a screen, with everything that is to be done next."""
    print_findings(console, screen)
    print_lines(console, screen.next)


def print_findings(console: Console, screen: Screen) -> None:
    """Prints a screen without what is to be done next."""
    console.print()
    for line in screen.heading:
        for part in textwrap.wrap(line, console.width, break_long_words=False, break_on_hyphens=False):
            console.print(Text(part))
    if screen.warning is not None:
        for part in textwrap.wrap(screen.warning, console.width, break_long_words=False):
            console.print(Text(part, style="yellow"))
    console.print()
    print_lines(console, screen.verdict)
    if screen.picture is not None:
        console.print()
        _print_picture(console, screen.picture)
        console.print()
    print_lines(console, screen.why)


def print_more(console: Console, folder: Path) -> None:
    """Prints where the files of a run lie, and how all of its tables are printed."""
    command = f"unstall show {shlex.quote(str(folder))} --details"
    print_lines(console, [ScreenLine(label="MORE", text=str(folder / "report.html"), code=(command,))])


def print_lines(console: Console, lines: Sequence[ScreenLine]) -> None:
    """Prints sentences behind their labels."""
    for line in lines:
        label = f"{line.label:<{_LABEL_WIDTH}}  "
        width = max(console.width - len(label), 20)
        parts = textwrap.wrap(line.text, width, break_long_words=False, break_on_hyphens=False) or [""]
        console.print(Text.assemble((label, _STYLES.get(TONES.get(line.label, ""), "bold")), parts[0]), soft_wrap=True)
        for part in parts[1:]:
            console.print(Text(" " * len(label) + part), soft_wrap=True)
        for code in line.code:
            console.print(Text(" " * len(label) + code, style="cyan"), soft_wrap=True)


def _print_picture(console: Console, picture: Picture) -> None:
    used, longest = picture.used, picture.longest
    names = max(len(bar.name) for bar in picture.bars)
    widths = [
        max(len(heading), *(len(bar.cells[at]) for bar in picture.bars)) for at, heading in enumerate(picture.columns)
    ]
    left = console.width - sum(widths) - 2 * len(widths) - 3
    bar_width = max(min(_MOST_BAR, left - names), _LEAST_BAR)
    names = min(names, max(left - bar_width, 8))
    headings = "".join(f"{heading:>{width}}  " for heading, width in zip(picture.columns, widths, strict=True))
    legend = Text.assemble(*((f"{sign} {picture.signs[sign]}  ", _COLOURS.get(sign, "")) for sign in used))
    legend.rstrip()
    indent = " " * (names + 2)
    if len(indent) + len(headings) + len(legend) > console.width:
        console.print(Text.assemble("  ", legend), soft_wrap=True)
        legend = Text()
    console.print(Text.assemble(indent, headings, legend), soft_wrap=True)
    for bar in picture.bars:
        cells = "".join(f"{cell:>{width}}  " for cell, width in zip(bar.cells, widths, strict=True))
        drawn = Text()
        total = 0.0
        for sign in used:
            before = round(total / longest * bar_width) if longest else 0
            total += max(bar.parts.get(sign, 0.0), 0.0)
            after = round(total / longest * bar_width) if longest else 0
            drawn.append(sign * (after - before), _COLOURS.get(sign, ""))
        first, *rest = textwrap.wrap(bar.name, names, break_on_hyphens=False) or [""]
        console.print(Text.assemble(f"{first:<{names}}  ", cells, drawn), soft_wrap=True)
        for part in rest:
            console.print(Text(f"  {part}"), soft_wrap=True)
