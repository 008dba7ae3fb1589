"""Prints a stage table."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from profiles.stages import Stage, StageTable

# Below this the table drops to what answers the question.
_FULL_WIDTH = 100


def print_stages(console: Console, name: str, table: StageTable) -> None:
    """Prints where a loader's time goes, stage by stage, or why it cannot be said.

    Args:
      console: where to; its width decides the columns.
      name: of the loader.
      table: what was measured.
    """
    console.print()
    if table.reason is not None:
        console.print(Text(f"{name}: no stages: {table.reason}."))
        return
    console.print(_table(name, table, full=console.width >= _FULL_WIDTH))
    for line in _lines(table):
        console.print(Text(line, style="dim"))


def _table(name: str, table: StageTable, *, full: bool) -> Table:
    title = Text(f"stages of {name}", style="bold")
    shown = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    shown.add_column("stage", overflow="fold", ratio=1 if not full else None)
    if full:
        shown.add_column("where", overflow="fold")
    for column in ("CPU us", "wait us", "share"):
        shown.add_column(column, justify="right", no_wrap=True)
    if full:
        shown.add_column("bytes", justify="right", no_wrap=True)
    for column in ("img/s", "calls", "buffer"):
        shown.add_column(column, justify="right", no_wrap=True)
    for stage in table.stages:
        cells = [Text(stage.name)]
        if full:
            cells.append(Text(stage.location or stage.kind))
        cells += [
            Text(f"{stage.cpu_us_per_image:,.0f}"),
            Text("-" if stage.wait_us_per_image is None else f"{stage.wait_us_per_image:,.0f}"),
            Text(f"{table.share(stage):.0%}"),
        ]
        if full:
            cells.append(Text("-" if stage.bytes_per_element is None else _bytes(stage.bytes_per_element)))
        rate = stage.images_per_sec(table.cores)
        cells += [
            Text("-" if rate is None else f"{rate:,.0f}"),
            Text(_chosen(stage, stage.parallelism)),
            Text(_buffer(stage)),
        ]
        shown.add_row(*cells)
    return shown


def _chosen(stage: Stage, value: int | None) -> str:
    if value is None:
        return "auto" if stage.autotuned and stage.kind in ("map", "interleave") else "-"
    return f"{value} (auto)" if stage.autotuned else str(value)


def _buffer(stage: Stage) -> str:
    if stage.buffer_size is None:
        return "-"
    full = "" if stage.buffer_fill_ratio is None else f", {stage.buffer_fill_ratio:.0%} full"
    return _chosen(stage, stage.buffer_size) + full


def _bytes(count: int) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000 or unit == "MB":
            return f"{count:,.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count //= 1000
    raise AssertionError


def _lines(table: StageTable) -> list[str]:
    lines = [f"us: microseconds per image, one thing at a time; img/s: what {table.cores:g} cores could give a stage."]
    loader_us = table.loader_cpu_us_per_image
    if loader_us is not None and table.effective_parallelism is not None:
        workers = "" if table.workers is None else f", {table.workers} workers asked for, {table.workers_seen} seen"
        lines.append(
            f"The loader as it runs: {loader_us:,.0f} us of CPU per image (the stages sum to "
            f"{table.cpu_us_per_image:,.0f}), {table.effective_parallelism:.1f} cores busy{workers}."
        )
    if table.tail is not None:
        slow = ", ".join(f"{one.name} ({one.us / 1e3:,.1f} ms)" for one in table.tail.slowest[:3])
        lines.append(
            f"An image takes {table.tail.p50_us / 1e3:,.2f} ms (median), {table.tail.p99_us / 1e3:,.2f} ms (p99); "
            f"slowest: {slow}."
        )
    return [*lines, *table.flags]
