"""Draws where the time of an example goes on each device."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from unstall.benchmarks.devices.results import CaseResult
from unstall.benchmarks.devices.tables import device_text
from unstall.profiles.report import bars


def bars_of(results: Sequence[CaseResult]) -> Markup:
    """Draws a bar for each device whose time can be split into parts."""
    return bars.bar_chart([_bar(result) for result in results if result.timing is not None])


def _bar(result: CaseResult) -> bars.Bar:
    assert result.timing is not None
    seconds = result.timing.attribution.seconds_per_image
    whole_s = sum(part_s for part_s in seconds.values() if part_s is not None and part_s > 0)
    return bars.Bar(label=device_text(result), text=f"{1e3 * whole_s:.3g} ms", seconds=seconds)
