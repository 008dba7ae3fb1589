"""Charts: numbers and texts in, escaped SVG out, with classes in the place of colours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.checks import Page, assert_harmless
from unstall.profiles.report import bars, charts
from unstall.profiles.report.bars import Bar
from unstall.profiles.report.charts import Axis, Band, ChartLine, Point
from unstall.profiles.results.parts import PARTS

STYLE = (Path(charts.__file__).parent / "templates" / "style.css.j2").read_text()
SECONDS = dict.fromkeys(PARTS, 0.0)
X = charts.axis_of_names("axis", ["a", "b"])
Y = charts.axis_from_zero("quantity", 4)


def classes(markup: str) -> list[str]:
    return [name for _, attributes in Page(markup).tags for name in (attributes.get("class") or "").split()]


def tags(markup: str, tag: str) -> list[dict[str, str | None]]:
    return [attributes for name, attributes in Page(markup).tags if name == tag]


def a_line(
    *numbers: float | None, style: int = 0, text: str = "text", label: str = "line", ring: str = ""
) -> ChartLine:
    points = tuple(None if y is None else Point(x=x, y=y, text=text, ring=ring) for x, y in enumerate(numbers))
    return ChartLine(label=label, points=points, style=style)


@pytest.mark.parametrize(
    ("least", "step"),
    [(0, 1), (0.03, 0.05), (0.2, 0.2), (0.21, 0.25), (1, 1), (1.01, 2), (2.4, 2.5), (2.6, 5), (5.1, 10), (900, 1000)],
)
def test_steps_of_an_axis_are_round(least: float, step: float) -> None:
    assert charts.round_step(least) == pytest.approx(step)


def test_an_axis_from_zero_ends_at_a_round_number_in_its_unit() -> None:
    axis = charts.axis_from_zero("memory", 7e6, per_unit=1e6, unit="MB")
    assert [label for _, label in axis.labels] == ["0 MB", "2 MB", "4 MB", "6 MB", "8 MB"]
    assert (axis.low, axis.high) == (0, 8e6)
    assert axis.position(2e6) == 0.25


def test_values_on_a_logarithmic_axis_keep_their_distances() -> None:
    axis = charts.log_axis_of_values("files", (10, 100, 10_000))
    first, second, third = (axis.position(value) for value, _ in axis.labels)
    assert third - second == pytest.approx(2 * (second - first))
    assert 0 < first < 0.1 and 0.9 < third < 1
    (only,) = charts.log_axis_of_values("files", (10,)).labels
    assert charts.log_axis_of_values("files", (10,)).position(only[0]) == pytest.approx(0.5)


def test_a_chart_says_in_words_what_it_shows_and_names_both_axes() -> None:
    chart = charts.line_chart(X, Y, [a_line(1, 2)])
    (drawing,) = tags(chart, "svg")
    assert drawing["role"] == "img"
    assert "<title>quantity, by axis</title>" in chart
    assert "<figcaption>quantity</figcaption>" in chart
    assert re.findall(r'<text class="(\w+)".*?>(.*?)</text>', chart) == [
        *(("level", str(level)) for level in range(5)),
        *(("value", name) for name in ("a", "b", "axis")),
    ]


def test_a_point_lies_where_its_labels_lie() -> None:
    chart = charts.line_chart(X, Y, [a_line(0, 4)])
    (polyline,) = tags(chart, "polyline")
    ends = [tuple(map(float, pair.split(","))) for pair in (polyline["points"] or "").split()]
    grid = [float(line["y1"] or 0) for line in tags(chart, "line") if line["class"] == "grid"]
    ticks = [float(line["x1"] or 0) for line in tags(chart, "line") if line["class"] == "tick"]
    assert ends == [(ticks[0], grid[0]), (ticks[1], grid[-1])]
    assert ticks[0] < ticks[1] and grid[0] > grid[-1]


def test_a_missing_point_divides_a_line() -> None:
    chart = charts.line_chart(charts.axis_of_names("", ["a", "b", "c", "d"]), Y, [a_line(1, None, 2, 3)])
    assert [len((polyline["points"] or "").split()) for polyline in tags(chart, "polyline")] == [1, 2]


def test_lines_are_told_apart_by_shape_and_dashes_as_well_as_by_colour() -> None:
    lines = [a_line(1, 2, style=style) for style in range(16)]
    looks = set()
    for line in lines:
        chart = charts.line_chart(X, Y, [line])
        looks.add((tags(chart, "polyline")[0]["class"], tags(chart, "path")[0]["d"]))
    assert len(looks) == 16
    assert len({tags(charts.line_chart(X, Y, [line]), "path")[0]["d"] for line in lines[:4]}) == 4


def test_a_point_without_a_text_has_no_shape_and_a_ring_goes_around_its_point() -> None:
    assert tags(charts.line_chart(X, Y, [a_line(1, 2, text="")]), "path") == []
    chart = charts.line_chart(X, Y, [a_line(1, ring="wrong doubtful")])
    (ring,) = tags(chart, "circle")
    assert ring["class"] == "wrong doubtful"
    assert tags(chart, "path")[0]["transform"] == f"translate({ring['cx']} {ring['cy']})"


def test_the_legend_has_each_label_once_with_the_look_of_its_line() -> None:
    dashed = ChartLine(label="other", points=(), style=1, dashed=True)
    legend = charts.legend_of_lines([a_line(1), a_line(2), dashed])
    assert re.findall(r"</svg>(.*?)</span>", legend) == ["line", "other"]
    assert [line["class"] for line in tags(legend, "line")] == ["line0", "line1 dashed"]
    assert len(tags(legend, "path")) == 1  # the other line has no shapes


def test_where_a_band_is_too_narrow_for_its_text_all_texts_are_short_and_what_does_not_fit_is_left_out() -> None:
    x = Axis(title="", low=0, high=10, labels=())
    wide, short = (
        re.findall(r"<text.*?>(.*?)</text>", charts.line_chart(x, Y, [], bands=bands, wide=True))[:-5]
        for bands in (
            (Band(begin=0, end=5, text="round 1"), Band(begin=5, end=10, text="round 2")),
            [
                Band(begin=begin, end=end, text=f"round {number}")
                for begin, end, number in ((0, 9.6, 1), (9.6, 9.9, 2), (9.9, 10, 3))
            ],
        )
    )
    assert wide == ["round 1", "round 2"]
    assert short == ["1", "2", ""]


def test_bars_are_as_long_as_the_time_and_leave_out_parts_below_nothing() -> None:
    slow = SECONDS | {"compute": 0.3, "prep_stall": 0.5, "interference": -0.1}
    fast = SECONDS | {"compute": 0.2, "transfer": 0.2, "fetch_stall": None}
    chart = bars.bar_chart([Bar(label=label, text="t", seconds=parts) for label, parts in (("s", slow), ("f", fast))])
    drawn = [(rect["class"], rect["x"], rect["width"]) for rect in tags(chart, "rect")]
    assert drawn == [
        ("compute", "0.0", "37.5"),
        ("prep_stall", "37.5", "62.5"),
        ("compute", "0.0", "25.0"),
        ("transfer", "25.0", "25.0"),
    ]
    assert "<title>waiting for batches 500 ms</title>" in chart and "<title>s: t</title>" in chart
    assert tags(bars.bar_chart([]), "svg") == []


def test_every_part_has_a_name_and_a_place_in_the_legend() -> None:
    assert set(bars.PART_NAMES) == set(PARTS)
    assert re.findall(r"</svg>(.*?)</span>", bars.legend_of_parts()) == list(bars.PART_NAMES.values())


def test_every_class_of_a_chart_has_a_rule_in_the_style_sheet() -> None:
    lines = [a_line(1, 2, style=style, ring="wrong doubtful") for style in range(charts.COLOURS + 1)]
    dashed = ChartLine(label="dashed", points=(Point(x=0, y=1, low=0.5, high=2),), style=0, dashed=True)
    bands = (Band(begin=0, end=1, text=""), Band(begin=0, end=1, text=""))
    chart = bars.bar_chart([Bar(label="", text="", seconds=dict.fromkeys(PARTS, 1.0))])
    used = {*classes(charts.line_chart(X, Y, [*lines, dashed], bands=bands)), *classes(charts.legend_of_lines(lines))}
    used |= {*classes(chart), *classes(bars.legend_of_parts())}
    assert {name for name in used if not re.search(rf"\.{name}\b", STYLE)} == set()


@pytest.mark.parametrize("names", [PARTS, [f"line{number}" for number in range(charts.COLOURS)]])
def test_colours_differ_on_light_and_on_dark_screens_and_parts_on_paper(names: list[str]) -> None:
    light, rest = STYLE.split("@media screen", 1)
    dark, printed = rest.split("@media print", 1)
    for sheet in (light, dark, printed) if names is PARTS else (light, dark):
        colours = [re.search(rf"--{name}: (#\w+);", sheet) for name in names]
        assert len({colour[1] for colour in colours if colour}) == len(names)


@pytest.mark.parametrize("text", ["<script>x</script>", '" onload="x', "'><b>", "{0}{x}", "a\u202eb"])
def test_texts_are_escaped_wherever_they_stand(text: str) -> None:
    lines = [a_line(1, 2, text=text, label=text)]
    axis = Axis(title=text, low=0, high=1, labels=((0, text),))
    for chart in (
        charts.line_chart(axis, axis, lines, bands=[Band(begin=0, end=1, text=text)], title=text),
        charts.legend_of_lines(lines),
        bars.bar_chart([Bar(label=text, text=text, seconds=dict.fromkeys(PARTS, 1.0))]),
    ):
        seen = Page(str(chart))
        assert_harmless(seen)
        assert {tag for tag, _ in seen.tags} <= {
            *("figure", "figcaption", "svg", "title", "text", "line", "rect", "polyline", "path", "p", "span", "div")
        }
        assert text.replace("\u202e", "\\u202e") in seen.text
