"""Renders results as one HTML file that needs no network, and says the same where scripts may not run."""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jinja2
from markupsafe import Markup

from unstall import commands
from unstall.profiles.machine.telemetry import Trace
from unstall.profiles.report.bars import Bar, bar_chart, legend_of_parts, picture_table, waterfall_bar
from unstall.profiles.report.plots import machine_charts
from unstall.profiles.report.remedies import HEADINGS
from unstall.profiles.report.screen import TONES, Screen
from unstall.profiles.text import printable
from unstall.profiles.unit import IMAGE, Unit, common_unit

# (largest part of its function's time, class) of a line of source; the class gives the background colour.
_HEAT = ((0.0, ""), (0.05, "heat1"), (0.15, "heat2"), (0.3, "heat3"), (0.5, "heat4"))
_HOTTEST = "heat5"
# Where a page has the answer of its run. No value can be this mark, since all are escaped.
_MARK = "<!-- answer -->"
# By path, not by the name of the package: a profiled script may have a package `profiles` of its own.
_TEMPLATES = Path(__file__).parent / "templates"


@functools.cache
def template(path: Path) -> jinja2.Template:
    """Returns the template in a file; it may use templates beside it, and this package's.

    All values are escaped; a missing value is an error. Characters that are not text, such as those that reverse the
    direction of what follows, are shown as escapes.
    """
    jinja = jinja2.Environment(
        loader=jinja2.FileSystemLoader([path.parent, _TEMPLATES]),
        autoescape=True,
        finalize=lambda value: printable(commands.on_page(value)) if type(value) is str else value,  # a chart is markup
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = (_TEMPLATES / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    jinja.filters["moment"] = _moment
    jinja.globals |= {
        "activation": lambda: commands.activation(),  # of now
        "heat": heat,
        "waterfall_bar": waterfall_bar,
        "waterfall_of": waterfall_of,
        "script": Markup(script),
        "script_digest": f"sha256-{digest}",  # the page runs this script and no other
    }
    return jinja.get_template(path.name)


def _moment(created: str) -> str:
    """Returns a document's moment as people write it, or as it is if it is none."""
    moment = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\d(?:\.\d+)?(.*)", created)
    return f"{moment[1]} {moment[2]} {moment[3].replace('+00:00', 'UTC')}".strip() if moment else created


def with_answer(page: str, screens: Sequence[Screen]) -> str:
    """Returns a page with what the first screens of its run say at its mark, or nothing there."""
    answer = ""
    if screens:
        answer = template(_TEMPLATES / "answer.html.j2").render(screens=screens, tone=TONES.get, picture=picture_table)
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
    timelines: Mapping[tuple[str, str], Markup] = MappingProxyType({}),
    script: str | None = None,
) -> str:
    """Renders a document as an HTML page.

    Args:
      document: the content of `results.json`.
      verdict_texts: sentences for each (model, device name).
      telemetry: the machine during the run, for charts; None for none.
      accounts: (name, rows of (part, time, share), findings) of each `fit` of a script.
      trials: (name, rows of gains, sentences) of each `fit` or loop whose remedies were tried.
      timelines: the chart of steps and waits of each (model, device name).
      script: the name of the script that was profiled; None where it was no script.
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
    return template(_TEMPLATES / "report.html.j2").render(
        document=document,
        staged=staged,
        title=_title(groups, document["dataset"]["name"], script),
        timelines=timelines,
        overlaps={key: _overlaps(group) for key, group in groups.items()},
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


def _title(groups: Iterable[tuple[str, str]], data: str, script: str | None) -> str:
    """Returns what was measured: the script or the data, the models, their devices."""
    models, devices = (", ".join(dict.fromkeys(names)) for names in zip(*groups, strict=True)) if groups else ("", "")
    if not models:
        return script or data
    return f"{models} on {devices}, fed with {data}" if script is None else f"{script}: {models} on {devices}"


@dataclass(frozen=True, slots=True)
class Fall:
    """Where the bars of stages lie between 0 and 1, each behind the one before.

    Attributes:
      bars: (begin, length) of each stage.
      limit: the time that the cores have for an image at the model's own rate; None where that rate is not known.
    """

    bars: tuple[tuple[float, float], ...]
    limit: float | None


def waterfall_of(result: Mapping[str, Any]) -> Fall:
    """Returns the stages of a result as a waterfall: the time of one image, stage after stage."""
    stages, table = result.get("stages") or (), result.get("stage_table") or {}
    times_us = [max(stage["cpu_us_per_image"] + (stage["wait_us_per_image"] or 0.0), 0.0) for stage in stages]
    model = result.get("compute_images_per_sec")
    limit_us = 1e6 * table["cores"] / model if model and table.get("cores") else None
    whole_us = max(sum(times_us), limit_us or 0.0) or 1.0
    begins = itertools.accumulate([0.0, *times_us])
    bars = tuple((begin / whole_us, time / whole_us) for begin, time in zip(begins, times_us, strict=False))
    return Fall(bars, None if limit_us is None else limit_us / whole_us)


def _overlaps(results: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Returns rows: loader and model alone, what both predict in turns and at the same time, and what training gave."""
    rows = []
    for result in results:
        loader, model = result["loader_images_per_sec"], result["compute_images_per_sec"]
        if loader and model:
            alone, ideal = 1 / (1 / loader + 1 / model), min(loader, model)
            measured = result["epoch_images_per_sec"]
            rates = (loader, model, alone, ideal, measured)
            rows.append((_name(result), *(f"{rate:,.0f}" for rate in rates), f"{measured / ideal:.0%}"))
    return rows


def _name(result: Mapping[str, Any]) -> str:
    return f"{result['variant']}{', cold' if result['page_cache'] == 'cold' else ''}"


def _bar(result: Mapping[str, Any]) -> Bar:
    text = f"{1000 / result['epoch_images_per_sec']:.2f} ms/{result['unit']['noun']}"
    return Bar(label=_name(result), text=text, seconds=result["seconds_per_image"])
