"""Draws the bars of a page as SVG: of the parts of an epoch, in cells of tables, and strips of what came in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from markupsafe import Markup  # comes with Jinja2

from unstall.profiles.report.charts import filled, joined
from unstall.profiles.report.screen import Picture

# The parts of an epoch's time in the order of a bar, as a legend calls them.
PART_NAMES = {
    "compute": "compute",
    "prep_stall": "waiting for batches",
    "fetch_stall": "waiting for storage",
    "interference": "interference",
    "device_augment": "device augmentation",
    "transfer": "transfer",
    "epoch_overhead": "epoch edges",
}
_KEY = '<span><svg class="key" viewBox="0 0 12 12"><rect class="{}" width="12" height="12"></rect></svg>{}</span>'
_PART = '<rect class="{}" x="{}" width="{}" height="1"><title>{}</title></rect>\n'
_SVG = '<svg class="bar" viewBox="0 0 100 1" preserveAspectRatio="none" role="img"><title>{}</title>\n{}</svg>'
# The part of an epoch whose colour stands for a sign of the first screen.
_SIGN_PARTS = {"#": "compute", "=": "prep_stall", "+": "interference", "~": "transfer", "-": "epoch_overhead"}


class PartSeconds(Protocol):
    """The seconds of each part by its name; None where a part was not measured."""

    def __getitem__(self, part: str, /) -> float | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar that is made of parts of an epoch, by their names; a part below 0 is left out.

    Attributes:
      text: stands behind the bar.
    """

    label: str
    text: str
    seconds: PartSeconds


def bar_chart(bars: Sequence[Bar]) -> Markup:
    """Draws bars one below the other; the longest is as long as there is room."""
    longest_s = max((sum(_positive(bar).values()) for bar in bars), default=0.0)
    rows = (
        filled(
            '<div>{}</div>\n{}<div class="dim">{}</div>\n',
            bar.label,
            _bar(
                f"{bar.label}: {bar.text}",
                [(part, s, f"{PART_NAMES[part]} {1e3 * s:.3g} ms") for part, s in _positive(bar).items()],
                longest_s,
            ),
            bar.text,
        )
        for bar in bars
    )
    return filled('<div class="bars">\n{}</div>', Markup("").join(rows))


def _positive(bar: Bar) -> dict[str, float]:
    return {part: seconds for part in PART_NAMES if (seconds := bar.seconds[part] or 0.0) > 0}


def _bar(title: str, pieces: Sequence[tuple[str, float, str]], longest: float) -> Markup:
    """Draws a bar of pieces, each (part of an epoch, length, title)."""
    drawn, left = [], 0.0
    for part, length, text in pieces:
        width = round(100 * length / longest, 2)
        drawn.append(filled(_PART, part, round(left, 2), width, text))
        left += width
    return filled(_SVG, title, Markup("").join(drawn))


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """What happened one after the other: (part of an epoch, how long) each."""

    label: str
    pieces: tuple[tuple[str, float], ...]


def strips(rows: Sequence[Strip], names: Mapping[str, str], *, unit: str) -> Markup:
    """Draws strips one below the other, all of one scale.

    Args:
      names: what each part is called here.
      unit: of the lengths.
    """
    whole = max(sum(length for _, length in row.pieces) for row in rows)
    keys = (filled(_KEY, part, name) for part, name in names.items())
    drawn = []
    for row in rows:
        pieces = [(part, length, f"{names[part]} {length:.3g} {unit}") for part, length in row.pieces]
        drawn.append(filled("<div>{}</div>\n{}", row.label, _bar(f"{row.label}: {unit}", pieces, whole)))
    return filled(
        '<p class="legend">{}</p>\n<div class="strips">\n{}\n<div></div><div class="dim ends"><span>0</span>'
        "<span>{} {}</span></div>\n</div>",
        joined(keys),
        joined(drawn),
        f"{whole:,.0f}",
        unit,
    )


def legend_of_parts() -> Markup:
    """Returns the colour of each part beside its name."""
    keys = (filled(_KEY, part, name) for part, name in PART_NAMES.items())
    return filled('<p class="legend">{}</p>', joined(keys))


def picture_table(picture: Picture) -> Markup:
    """Draws the picture of a first screen: a row for each bar, with its cells, and a legend."""
    keys = (filled(_KEY, _SIGN_PARTS[sign], picture.signs[sign]) for sign in picture.used)
    headings = joined(filled("<th>{}</th>", heading) for heading in ("", *picture.columns))
    rows = []
    for bar in picture.bars:
        pieces = [
            (_SIGN_PARTS[sign], max(bar.parts.get(sign, 0.0), 0.0), f"{bar.name}: {picture.signs[sign]}")
            for sign in picture.used
        ]
        cells = joined(filled("<td>{}</td>", cell) for cell in (bar.name, *bar.cells))
        rows.append(filled("<tr>{}<td>{}</td></tr>\n", cells, _bar(bar.name, pieces, picture.longest)))
    return filled(
        '<p class="legend">{}</p>\n<table class="picture">\n<tr>{}<th class="wide"></th></tr>\n{}</table>\n',
        joined(keys),
        headings,
        joined(rows),
    )


def waterfall_bar(begin: float, length: float, limit: float | None, text: str) -> Markup:
    """Draws a bar for a cell of a table, behind the bars of the rows above, and a line where the limit is.

    Args:
      begin, length, limit: from 0 to 1; None for no limit.
    """
    line = filled('<rect class="limit" x="{}" width="0.6" height="1"></rect>', round(100 * (limit or 0), 1))
    return filled(
        _SVG,
        text,
        joined(
            [
                filled(_PART, "prep_stall", round(100 * begin, 1), round(100 * length, 1), text),
                line if limit is not None else Markup(""),
            ]
        ),
    )
