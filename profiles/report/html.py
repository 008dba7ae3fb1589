"""Renders results as one HTML file that needs no scripts and no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from profiles.machine.telemetry import Trace
from profiles.report.charts import Bar, bar_chart, legend_of_parts, picture_table, share_bar
from profiles.report.plots import machine_charts
from profiles.report.remedies import HEADINGS
from profiles.report.screen import TONES, Screen
from profiles.text import printable
from profiles.unit import IMAGE, Unit, common_unit

# (largest part of its function's time, class) of a line of source; the class gives the background colour.
_HEAT = ((0.0, ""), (0.05, "heat1"), (0.15, "heat2"), (0.3, "heat3"), (0.5, "heat4"))
_HOTTEST = "heat5"
# Where a page has the answer of its run. No value can be this mark, since all are escaped.
_MARK = "<!-- answer -->"
# How many stage tables are unfolded at first.
_OPEN_TABLES = 3
# By path, not by the name of the package: a profiled script may have a package `profiles` of its own.
_TEMPLATES = Path(__file__).parent / "templates"


def environment(*templates: Path) -> jinja2.Environment:
    """Returns the environment for the templates in some folders and in this package's.

    All values are escaped; a missing value is an error. Characters that are not text, such as those that reverse the
    direction of what follows, are shown as escapes.
    """
    jinja = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*templates, _TEMPLATES]),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,  # a chart is escaped markup
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.globals |= {"heat": heat, "share_bar": share_bar}
    return jinja


def with_answer(page: str, screens: Sequence[Screen]) -> str:
    """Returns a page with what the first screens of its run say at its mark, or nothing there."""
    answer = ""
    if screens:
        template = environment().get_template("answer.html.j2")
        answer = template.render(screens=screens, tone=TONES.get, picture=picture_table)
    return page.replace(_MARK, answer, 1)


def heat(ratio: float) -> str:
    """Returns the class of a line of source that takes this part of its function's time."""
    return next((name for most, name in _HEAT if ratio <= most), _HOTTEST)


def render(
    document: Mapping[str, Any],
    verdict_texts: Mapping[tuple[str, str], list[str]],
    telemetry: Trace | None = None,
    *,
    accounts: Sequence[tuple[str, Sequence[tuple[str, str, str]], Sequence[str]]] = (),
    trials: Sequence[tuple[str, Sequence[Sequence[str]], Sequence[str]]] = (),
) -> str:
    """Renders a document as an HTML page.

    Args:
      document: the content of `results.json`.
      verdict_texts: sentences for each (model, device name).
      telemetry: the machine during the run, for charts; None for none.
      accounts: (name, rows of (part, time, share), findings) of each `fit` of a script.
      trials: (name, rows of gains, sentences) of each `fit` or loop whose remedies were tried.
    """
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for result in document["results"]:
        groups.setdefault((result["model"], result["device"]["name"]), []).append(result)
    units = {key: common_unit(Unit(**result["unit"]) for result in group) for key, group in groups.items()}
    remarks = {
        key: list(dict.fromkeys(remark for result in group for remark in (*result["notes"], *result["flags"])))
        for key, group in groups.items()
    }
    staged = {
        key: [result for result in group if result.get("stages") or result.get("stage_table") or result.get("lines")]
        for key, group in groups.items()
    }
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            document=document,
            staged=staged,
            open_tables=_OPEN_TABLES,
            machine=machine_charts(telemetry) if telemetry else (),
            groups=groups,
            units=units,
            unit=common_unit(units.values()) if units else IMAGE,
            remarks=remarks,
            name=_name,
            bars={key: bar_chart([_bar(result) for result in group]) for key, group in groups.items()},
            legend_of_parts=legend_of_parts(),
            verdicts=verdict_texts,
            accounts=accounts,
            trials=trials,
            trial_headings=HEADINGS,
        )
    )


def _name(result: Mapping[str, Any]) -> str:
    return f"{result['variant']}{', cold' if result['page_cache'] == 'cold' else ''}"


def _bar(result: Mapping[str, Any]) -> Bar:
    text = f"{1000 / result['epoch_images_per_sec']:.2f} ms/{result['unit']['noun']}"
    return Bar(label=_name(result), text=text, seconds=result["seconds_per_image"])
