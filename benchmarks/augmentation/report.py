"""What the rows of the augmentation table came to, as data, as a table and as a page with the pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rich.table import Table

from benchmarks.augmentation.libraries import LIBRARIES
from benchmarks.augmentation.measure import REFERENCE_LIBRARY, Measured
from benchmarks.augmentation.operations import OPERATIONS
from benchmarks.augmentation.workers import Sample
from profiles.report import html
from profiles.statistics import median, spread_ratio

# Levels of 255. Bilinear interpolation differs by less than one between the libraries; a wrong sign, by some twenty.
DIFFERENCE_BOUND = 6.0
# Other processes took more than this of the cores: said, because it lowers what a row can get of them.
_DISTURBED_RATIO = 0.05


def effective_parallelism(samples: Sequence[Sample]) -> list[float]:
    """Returns the CPU-seconds per second of each window: how many cores were busy."""
    return [sample.cpu_ns / sample.wall_ns for sample in samples]


def summarise(one: Measured) -> dict[str, Any]:
    """Returns what the results file says of a row; a number that was not measured is None."""
    alone = [sample for sample in one.samples if sample.cores == 1]
    together = [sample for sample in one.samples if sample.cores > 1]
    measured = bool(alone) and not one.failed
    cpu_us = [sample.cpu_ns / sample.images / 1e3 for sample in alone]
    return {
        "operation": one.row.operation,
        "library": one.row.library,
        "placement": one.row.placement,
        "cpu_us_per_image": median(cpu_us) if measured else None,
        "spread_ratio": spread_ratio(cpu_us) if measured else None,
        "wall_us_per_image": median([s.wall_ns / s.images / 1e3 for s in alone]) if measured else None,
        "effective_parallelism": median(effective_parallelism(together)) if measured and together else None,
        "graph_loop": one.graph_loop,
        "peak_memory_bytes": one.peak_memory_bytes,
        "difference_levels": one.difference_levels,
        "failed": one.failed or None,
        "samples": [sample.to_dict() for sample in one.samples],
    }


def others_cores(results: Sequence[Mapping[str, Any]]) -> float:
    """Returns how many cores other processes took, on average over the windows."""
    samples = [sample for result in results for sample in result["samples"]]
    wall_ns = sum(sample["wall_ns"] for sample in samples)
    return sum(sample["others_cpu_ns"] for sample in samples) / wall_ns if wall_ns else 0.0


def too_different(results: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the rows that do not do the same as the reference."""
    return [one for one in results if (one["difference_levels"] or 0.0) >= DIFFERENCE_BOUND]


def table(results: Sequence[Mapping[str, Any]]) -> Table:
    """Returns the table for a terminal of 80 columns."""
    made = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for column in ("operation", "library", "placement"):
        made.add_column(column)
    for column in ("us", "±", "cores", "loop", "MB", "off"):
        made.add_column(column, justify="right")
    before = ""
    for one in results:
        name = "" if one["operation"] == before else f"[bold]{one['operation']}[/]"
        before = one["operation"]
        made.add_row(name, one["library"], one["placement"], *cells(one).values())
    return made


def cells(one: Mapping[str, Any]) -> dict[str, str]:
    """Returns a row's numbers as they are shown, here and on the page; `-` is what there is not."""
    us, off = one["cpu_us_per_image"], one["difference_levels"]
    return {
        "us": "failed" if one["failed"] else microseconds(us),
        "spread": _spread(one),
        "cores": _shown(one["effective_parallelism"], ".1f"),
        "loop": {None: "-", False: "no", True: "yes"}[one["graph_loop"]],
        "MB": "-" if one["peak_memory_bytes"] is None else f"{one['peak_memory_bytes'] / 1e6:.1f}",
        "off": _shown(off, ".1f"),
    }


def _spread(one: Mapping[str, Any]) -> str:
    return "-" if one["spread_ratio"] is None else f"{one['spread_ratio']:.0%}"


def microseconds(value: float | None) -> str:
    return _shown(value, ",.1f" if value is not None and value < 100 else ",.0f")


def _shown(value: float | None, pattern: str) -> str:
    return "-" if value is None else format(value, pattern)


def legend(document: Mapping[str, Any]) -> list[str]:
    """Returns what the columns of the table mean."""
    settings, cores = document["settings"], document["settings"]["cores"]
    said = [
        f"us: CPU time per image on one core, median of {settings['rounds']}, ± the standard deviation of a round; "
        f"uint8 photos in, float32 batches of {settings['batch_size']} out, {settings['image_size']} px.",
        f"cores: busy with {cores} calls in parallel (in a model: one call with {cores} threads).",
        "loop: in the graph; - has no graph, or Python's loop. MB: how far resident memory peaks above TensorFlow at "
        "rest, batches included, in a process of its own.",
        f"off: mean difference to {LIBRARIES[REFERENCE_LIBRARY].title} with the same draw, in levels of 255; below "
        f"{DIFFERENCE_BOUND:g} they do the same.",
    ]
    if any(one["operation"] == "none" for one in document["results"]):
        said.append(f"none: {OPERATIONS['none'].text}.")
    return said


def cautions(document: Mapping[str, Any]) -> list[str]:
    """Returns what speaks against the numbers, or against one of them."""
    results, cores = document["results"], document["settings"]["cores"]
    others = others_cores(results)
    said = []
    if others > _DISTURBED_RATIO * cores:
        said.append(
            f"Other processes took {others:.1f} of {cores} cores meanwhile: a row could not get those, and CPU time is "
            "longer beside them."
        )
    said += [f"{_label(one)} failed: {one['failed']}." for one in results if one["failed"]]
    said += [
        f"{_label(one)} does not do the same: {one['difference_levels']:.1f} off." for one in too_different(results)
    ]
    return said


def _label(one: Mapping[str, Any]) -> str:
    return f"{one['operation']}, {one['library']}, {one['placement']}"


def render(document: Mapping[str, Any], measured: Sequence[Measured], original: np.ndarray) -> str:
    """Renders the page: for each operation its pictures and its rows.

    Args:
      document: as the results file holds it.
      measured: the rows that `document["results"]` was made of, with their pictures.
      original: (side, side, 3) uint8.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for one in document["results"]:
        groups.setdefault(one["operation"], []).append(one)
    environment = html.environment(Path(__file__).parent)
    return environment.get_template("augmentation.html.j2").render(
        document=document,
        groups=groups,
        operations=OPERATIONS,
        libraries=LIBRARIES,
        slowest_us={name: max((one["cpu_us_per_image"] or 0.0) for one in group) for name, group in groups.items()},
        pictures={name: _pictures(name, measured) for name in groups},
        original=data_uri(original),
        cells=cells,
        microseconds=microseconds,
        bound=DIFFERENCE_BOUND,
        cautions=cautions(document),
    )


def _pictures(operation: str, measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """Returns a picture of each library, of the placement that is furthest off."""
    found: dict[str, Measured] = {}
    for one in measured:
        if one.row.operation == operation and one.image is not None:
            shown = found.setdefault(one.row.library, one)
            if (one.difference_levels or 0.0) > (shown.difference_levels or 0.0):
                found[one.row.library] = one
    return [
        {"title": LIBRARIES[name].title, "uri": data_uri(one.image), "off": one.difference_levels}
        for name, one in found.items()
        if one.image is not None
    ]


def data_uri(image: np.ndarray) -> str:
    """Returns a PNG that lies in the page itself.

    Args:
      image: (height, width, 3) uint8.
    """
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
