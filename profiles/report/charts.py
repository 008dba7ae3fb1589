"""Draws the charts of a page as SVG: lines over an axis. Bars: `bars.py`.

Every text is escaped. Colours are classes: `templates/style.css.j2` gives each class a colour for light screens, dark
screens and paper. Shapes of points and dashes tell lines apart where there is no colour.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup  # comes with Jinja2

from unstall.profiles.text import printable

# The style sheet has this many colours of lines.
COLOURS = 8
# Width and height of a drawing, and the space around the lines in it, in pixels.
_SIZE, _WIDE_SIZE = (440, 250), (1160, 190)
_LEFT, _RIGHT, _TOP, _BOTTOM, _AXIS_TITLE = 64, 16, 22, 24, 20
# The width of a letter at the size of labels.
_LETTER_PX = 6.5
# The intervals between the labels of an axis, so that there are at most so many.
_MOST_INTERVALS = 4
# A circle, a square, a triangle and a diamond around (0, 0).
_SHAPES = ("M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z", "M-3-3h6v6h-6z", "M0-4.5L4 3H-4z", "M0-5L4.5 0L0 5L-4.5 0z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """The values from `low` to `high` along one side of a chart.

    Attributes:
      title: the quantity and its unit; empty where the labels name them.
      labels: the values that are labelled, and their labels.
      logarithmic: whether equal distances are equal ratios.
    """

    title: str
    low: float
    high: float
    labels: tuple[tuple[float, str], ...]
    logarithmic: bool = False

    def position(self, value: float) -> float:
        """Returns where a value lies: 0 at the beginning of the axis, 1 at its end."""
        if self.logarithmic:
            return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def round_step(least: float) -> float:
    """Returns the smallest of 1, 2, 2.5 and 5 times a power of ten that is at least `least`; 1 for 0 or less."""
    if least <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= least * (1 - 1e-9))


def axis_from_zero(title: str, most: float, *, per_unit: float = 1.0, unit: str = "") -> Axis:
    """Returns an axis from 0 to a round number that is at least `most`.

    Args:
      per_unit: the size of the unit of the labels.
      unit: written behind each label.
    """
    step = round_step(most / per_unit / _MOST_INTERVALS)
    count = max(1, math.ceil(most / per_unit / step - 1e-9))
    marks = [round(step * number, 6) for number in range(count + 1)]
    labels = tuple((mark * per_unit, f"{mark:,.10g} {unit}".strip()) for mark in marks)
    return Axis(title=title, low=labels[0][0], high=labels[-1][0], labels=labels)


def log_axis_of_values(title: str, values: Sequence[int]) -> Axis:
    """Returns a logarithmic axis whose labels are these values, ascending, with some space at both ends."""
    space = (values[-1] / values[0]) ** 0.05 if len(values) > 1 else 2.0
    labels = tuple((value, f"{value:,}") for value in values)
    return Axis(title=title, low=values[0] / space, high=values[-1] * space, labels=labels, logarithmic=True)


def axis_of_names(title: str, names: Sequence[str]) -> Axis:
    """Returns an axis with a name at each of 0, 1, 2 and so on."""
    return Axis(title=title, low=-0.5, high=len(names) - 0.5, labels=tuple(enumerate(names)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point of a line.

    Attributes:
      text: what the page says when the pointer rests on the point; only a point with a text is marked by a shape.
      low, high: the ends of a vertical line through the point; None for none.
      ring: the class of a ring around the point; empty for none.
    """

    x: float
    y: float
    text: str = ""
    low: float | None = None
    high: float | None = None
    ring: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLine:
    """A line of a chart; None among its points divides the line.

    Attributes:
      style: tells the line's colour and shape: 0, 1, 2 and so on.
    """

    label: str
    points: tuple[Point | None, ...]
    style: int
    dashed: bool = False

    @property
    def classes(self) -> str:
        """The classes that give the line its colour and its dashes; the colours begin again behind the last."""
        again = " again" if self.style >= COLOURS else ""
        return f"line{self.style % COLOURS}{' dashed' if self.dashed else ''}{again}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A stretch of the horizontal axis that is shaded, and what it is called."""

    begin: float
    end: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Area:
    """Where the values of two axes lie in a drawing, in pixels."""

    x: Axis
    y: Axis
    width: int
    height: int

    @property
    def right(self) -> int:
        return self.width - _RIGHT

    @property
    def bottom(self) -> int:
        return self.height - _BOTTOM - (_AXIS_TITLE if self.x.title else 0)

    def across(self, value: float) -> float:
        return round(_LEFT + (self.right - _LEFT) * self.x.position(value), 1)

    def down(self, value: float) -> float:
        return round(self.bottom - (self.bottom - _TOP) * self.y.position(value), 1)


def line_chart(
    x: Axis,
    y: Axis,
    lines: Sequence[ChartLine],
    *,
    bands: Sequence[Band] = (),
    wide: bool = False,
    title: str | None = None,
) -> Markup:
    """Draws lines, with a heading above them; `legend_of_lines` says which is which.

    Args:
      bands: stretches of the horizontal axis to shade.
      wide: as wide as a page, not as one of a few charts beside each other.
      title: the heading; that of the vertical axis unless given.
    """
    width, height = _WIDE_SIZE if wide else _SIZE
    area = _Area(x=x, y=y, width=width, height=height)
    heading = y.title if title is None else title
    return filled(
        '<figure class="{}"><figcaption>{}</figcaption>\n<svg viewBox="0 0 {} {}" role="img">\n<title>{}</title>\n'
        "{}{}{}</svg></figure>",
        "chart wide" if wide else "chart",
        heading,
        width,
        height,
        f"{heading}, by {x.title}" if x.title else heading,
        _bands(area, bands),
        _axes(area),
        joined(_line(area, line) for line in lines),
    )


def legend_of_lines(lines: Iterable[ChartLine]) -> Markup:
    """Returns a piece of each line beside its label, each label once."""
    keys = (
        filled(
            '<span><svg class="key" viewBox="0 0 26 12"><line class="{}" x1="0" x2="26" y1="6" y2="6"></line>{}</svg>'
            "{}</span>",
            line.classes,
            _shape(line, 13, 6, "") if any(point is not None and point.text for point in line.points) else "",
            line.label,
        )
        for line in {line.label: line for line in lines}.values()
    )
    return filled('<p class="legend">{}</p>', joined(keys))


def filled(pattern: str, *values: object) -> Markup:
    """Returns the pattern with escaped values in it; characters that are not text become escapes of Python."""
    return Markup(pattern).format(*(printable(value) if type(value) is str else value for value in values))


def joined(parts: Iterable[Markup]) -> Markup:
    return Markup("\n").join(parts)


def _text(kind: str, x: float, y: float, text: str) -> Markup:
    return filled('<text class="{}" x="{}" y="{}">{}</text>\n', kind, round(x, 1), round(y, 1), text)


def _straight(kind: str, x1: float, x2: float, y1: float, y2: float) -> Markup:
    return filled('<line class="{}" x1="{}" x2="{}" y1="{}" y2="{}"></line>\n', kind, x1, x2, y1, y2)


def _axes(area: _Area) -> Markup:
    parts = []
    for value, label in area.y.labels:
        at = area.down(value)
        parts += [_straight("grid", _LEFT, area.right, at, at), _text("level", _LEFT - 6, at + 4, label)]
    for value, label in area.x.labels:
        at = area.across(value)
        parts += [_straight("tick", at, at, area.bottom, area.bottom + 4), _text("value", at, area.bottom + 17, label)]
    if area.x.title:
        parts.append(_text("value", (_LEFT + area.right) / 2, area.bottom + 36, area.x.title))
    return Markup("").join(parts)


def _bands(area: _Area, bands: Sequence[Band]) -> Markup:
    """Draws the bands with their texts: shortened to their last words, or none, where they would not fit."""
    widths = [area.across(band.end) - area.across(band.begin) for band in bands]
    texts = [band.text for band in bands]
    if not all(_fits(text, width) for text, width in zip(texts, widths, strict=True)):
        texts = [text.rpartition(" ")[2] for text in texts]  # "round 12" becomes "12"
    parts = []
    for number, (band, text, width) in enumerate(zip(bands, texts, widths, strict=True)):
        left = area.across(band.begin)
        parts.append(
            filled(
                '<rect class="band{}" x="{}" y="6" width="{}" height="{}"><title>{}</title></rect>\n{}',
                " odd" if number % 2 else "",
                left,
                round(max(width, 0), 1),
                area.bottom - 6,
                band.text,
                _text("value", left + width / 2, _TOP - 4, text if _fits(text, width) else ""),
            )
        )
    return Markup("").join(parts)


def _fits(text: str, width: float) -> bool:
    return (len(text) + 1) * _LETTER_PX <= width


def _line(area: _Area, line: ChartLine) -> Markup:
    """Draws a line in as many pieces as there are between the points that are missing, and its shapes on top."""
    pieces: list[list[str]] = [[]]
    marks = []
    for point in line.points:
        if point is None:
            pieces.append([])
            continue
        across, down = area.across(point.x), area.down(point.y)
        pieces[-1].append(f"{across},{down}")
        if point.low is not None and point.high is not None:
            ends = area.down(point.low), area.down(point.high)
            marks.append(_straight(f"range {line.classes}", across, across, *ends))
        if point.text:
            marks.append(_shape(line, across, down, point.text))
        if point.ring:
            marks.append(filled('<circle class="{}" cx="{}" cy="{}" r="8"></circle>\n', point.ring, across, down))
    polylines = (
        filled('<polyline class="{}" points="{}"></polyline>\n', line.classes, " ".join(piece))
        for piece in pieces
        if piece
    )
    return Markup("").join((*polylines, *marks))


def _shape(line: ChartLine, x: float, y: float, text: str) -> Markup:
    return filled(
        '<path class="shape line{}" d="{}" transform="translate({} {})"><title>{}</title></path>\n',
        line.style % COLOURS,
        _SHAPES[line.style % len(_SHAPES)],
        x,
        y,
        text or line.label,
    )
