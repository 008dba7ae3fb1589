"""Renders a results document as one HTML file: no scripts, no network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from profiles.machine.telemetry import Trace
from profiles.report.plots import FRAME, graphs_of
from profiles.text import printable

# Loading from the darkest to the lightest; compute stands apart in hue. Readable by people with red-green blindness.
PART_COLOURS = {
    "compute": ("compute", "#4c78a8"),
    "prep_stall": ("waiting for batches", "#b3380b"),
    "fetch_stall": ("waiting for storage", "#7a1f00"),
    "interference": ("interference", "#e6742e"),
    "device_augment": ("device augmentation", "#f2a65a"),
    "transfer": ("transfer", "#f7c98b"),
    "epoch_overhead": ("epoch edges", "#d9c5a0"),
}
# A line of source that takes up to this part of its function's time has this ground; black text can be read on each.
_HEAT = ((0.0, "#ffffff"), (0.05, "#fff6ec"), (0.15, "#fde6cc"), (0.3, "#fbcf9f"), (0.5, "#f5ad6a"), (1.0, "#ec8a45"))
# So many stage tables stand open; more are opened one by one.
_OPEN_TABLES = 3
# By path and not by package: a profiled script may have a package of its own that is called `profiles`.
_TEMPLATES = Path(__file__).parent / "templates"


def environment(*templates: Path) -> jinja2.Environment:
    """Returns what renders the templates of some folders and of this one: all escaped, nothing missing passed over.

    Characters that are no text, such as those that turn the direction of what follows, are shown as escapes.
    """
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([*templates, _TEMPLATES]),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,  # markup of our own is no plain `str`
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def heat(ratio: float) -> str:
    """Returns the ground of a line that takes this part of its function's time."""
    return next((colour for most, colour in _HEAT if ratio <= most), _HEAT[-1][1])


def render(
    document: Mapping[str, Any], verdict_texts: Mapping[tuple[str, str], list[str]], telemetry: Trace | None = None
) -> str:
    """Renders the results file's content.

    Args:
      document: as `results.json` holds it.
      verdict_texts: sentences for each (model, device name).
      telemetry: the machine during the run, for graphs.
    """
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for result in document["results"]:
        groups.setdefault((result["model"], result["device"]["name"]), []).append(result)
    slowest_s = {
        key: max(sum(s for s in one["seconds_per_image"].values() if s and s > 0) for one in group)
        for key, group in groups.items()
    }
    remarks = {
        key: list(dict.fromkeys(remark for one in group for remark in (*one["notes"], *one["flags"])))
        for key, group in groups.items()
    }
    staged = {
        key: [one for one in group if one.get("stages") or one.get("stage_table") or one.get("lines")]
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
