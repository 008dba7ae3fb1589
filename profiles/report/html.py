"""Renders results as one HTML file that needs no scripts and no network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from profiles.machine.telemetry import Trace
from profiles.report.plots import FRAME, graphs_of
from profiles.text import printable

# Label and colour of each part: the parts of loading in shades of one hue, compute in another. People with red-green
# blindness can tell them apart.
PART_COLOURS = {
    "compute": ("compute", "#4c78a8"),
    "prep_stall": ("waiting for batches", "#b3380b"),
    "fetch_stall": ("waiting for storage", "#7a1f00"),
    "interference": ("interference", "#e6742e"),
    "device_augment": ("device augmentation", "#f2a65a"),
    "transfer": ("transfer", "#f7c98b"),
    "epoch_overhead": ("epoch edges", "#d9c5a0"),
}
# (largest part of its function's time, background colour) of a line of source. Black text is readable on all of them.
_HEAT = ((0.0, "#ffffff"), (0.05, "#fff6ec"), (0.15, "#fde6cc"), (0.3, "#fbcf9f"), (0.5, "#f5ad6a"), (1.0, "#ec8a45"))
# How many stage tables are unfolded at first.
_OPEN_TABLES = 3
# By path, not by the name of the package: a profiled script may have a package `profiles` of its own.
_TEMPLATES = Path(__file__).parent / "templates"


def environment(*templates: Path) -> jinja2.Environment:
    """Returns the environment for the templates in some folders and in this package's.

    All values are escaped; a missing value is an error. Characters that are not text, such as those that reverse the
    direction of what follows, are shown as escapes.
    """
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([*templates, _TEMPLATES]),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,  # our own markup is of another type
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def heat(ratio: float) -> str:
    """Returns the background colour of a line of source that takes this part of its function's time."""
    return next((colour for most, colour in _HEAT if ratio <= most), _HEAT[-1][1])


def render(
    document: Mapping[str, Any], verdict_texts: Mapping[tuple[str, str], list[str]], telemetry: Trace | None = None
) -> str:
    """Renders a document as an HTML page.

    Args:
      document: the content of `results.json`.
      verdict_texts: sentences for each (model, device name).
      telemetry: the machine during the run, for graphs; None for none.
    """
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for result in document["results"]:
        groups.setdefault((result["model"], result["device"]["name"]), []).append(result)
    slowest_s = {
        key: max(sum(s for s in result["seconds_per_image"].values() if s and s > 0) for result in group)
        for key, group in groups.items()
    }
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
            heat=heat,
            drawn=graphs_of(telemetry) if telemetry else None,
            frame=FRAME,
            groups=groups,
            slowest_s=slowest_s,
            remarks=remarks,
            parts=PART_COLOURS,
            verdicts=verdict_texts,
        )
    )
