"""Prints results to the terminal: tables of results, verdicts, and tables of stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unstall.profiles.results.result import Result
from unstall.profiles.results.verdict import Verdict, speed_up, what_the_cache_hides
from unstall.profiles.stage_table import Stage, StageTable
from unstall.profiles.unit import Unit, common_unit

# On a narrower terminal, tables have only the most important columns; below the second width, fewer still.
_FULL_WIDTH, _NARROW_WIDTH = 100, 72
# Transfer and device augmentation have a column if their share is this large somewhere. They count in load% anyway.
_LEAST_SHARE = 0.015
# No table of stages is printed if each takes less, in microseconds per image: all figures would round to 0.
_LEAST_US = 0.5
# Buffers that hold less than this are not worth a line.
_LARGE_BUFFERS = 100_000_000


def print_stages(console: Console, name: str, table: StageTable, unit: Unit) -> None:
    """Prints the costs of a loader's stages, or why they are unknown.

    Args:
      console: to print to; its width decides the columns.
      name: of the loader.
      table: the stages that were measured.
      unit: what the loader's batches hold.
    """
    console.print()
    if table.reason is not None:
        console.print(Text(f"{name}: no stages: {table.reason}."))
        return
    if table.stages and all(
        max(stage.cpu_us_per_image, abs(stage.wait_us_per_image or 0)) < _LEAST_US for stage in table.stages
    ):
        console.print(Text(f"stages of {name}: none takes {_LEAST_US:g} us of {unit.article} {unit.noun}."))
        return
    console.print(_stage_table(name, table, unit, console.width))
    for line in _lines(table, unit, rates=console.width >= _NARROW_WIDTH):
        console.print(Text(line, style="dim"))


def _stage_table(name: str, table: StageTable, unit: Unit, width: int) -> Table:
    """Returns the table of stages. However narrow the terminal is, it says where the user's functions stand."""
    full, narrow = width >= _FULL_WIDTH, width < _NARROW_WIDTH
    title = Text(f"stages of {name}", style="bold")
    printed = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for column in ("stage", "where") if full else ("stage, where",):
        printed.add_column(column, overflow="fold")
    for column in ("CPU us", "wait us", "share"):
        printed.add_column(column, justify="right", no_wrap=True)
    if full:
        printed.add_column("bytes", justify="right", no_wrap=True)
    if not narrow:
        printed.add_column(unit.rate, justify="right", no_wrap=True)
    printed.add_column("calls", justify="right", no_wrap=True)
    if not narrow:
        printed.add_column("buffer", justify="right", no_wrap=True)
    for stage in table.stages:
        place = [stage.name, stage.location or stage.kind]
        rate = stage.images_per_sec(table.cores)
        cells = place if full else [" ".join([stage.name] if stage.location is None else place)]
        cells += [
            f"{stage.cpu_us_per_image:,.0f}",
            "-" if stage.wait_us_per_image is None else f"{stage.wait_us_per_image:,.0f}",
            f"{table.share(stage):.0%}",
        ]
        if full:
            cells.append("-" if stage.bytes_per_element is None else _bytes(stage.bytes_per_element))
        if not narrow:
            cells.append("-" if rate is None else f"{rate:,.0f}")
        cells.append(_setting(stage, stage.parallelism))
        if not narrow:
            cells.append(_buffer(stage) if full else _buffer(stage).replace(", ", ",\n"))
        printed.add_row(*map(Text, cells))
    return printed


def _setting(stage: Stage, value: int | None) -> str:
    """Returns a parallelism or a buffer size as a cell, marked where AUTOTUNE chose it."""
    if value is None:
        return "auto" if stage.autotuned and stage.kind in ("map", "interleave") else "-"
    return f"{value} (auto)" if stage.autotuned else str(value)


def _buffer(stage: Stage) -> str:
    if stage.buffer_size is None:
        return "-"
    full = "" if stage.buffer_fill_ratio is None else f", {stage.buffer_fill_ratio:.0%} full"
    return _setting(stage, stage.buffer_size) + full


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000 or unit == "MB":
            return f"{count:,.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def _lines(table: StageTable, unit: Unit, *, rates: bool) -> list[str]:
    """Returns the lines below a table of stages; `rates` says whether the table has the column of rates."""
    rate = f"; {unit.rate}: what {table.cores:g} cores could give a stage" if rates else ""
    lines = [f"us: microseconds per {unit.with_files}, one thing at a time{rate}."]
    loader_us = table.loader_cpu_us_per_image
    if loader_us is not None and table.effective_parallelism is not None:
        workers = "" if table.workers is None else f", {table.workers} workers asked for, {table.workers_seen} seen"
        lines.append(
            f"The loader as it runs: {loader_us:,.0f} us of CPU per {unit.noun} (the stages sum to "
            f"{table.cpu_us_per_image:,.0f}), {table.effective_parallelism:.1f} cores busy{workers}."
        )
    if table.storage is not None:
        lines.append(f"Its files lie on {table.storage.text}.")
    total = sum(stage.buffer_bytes for stage in table.stages)
    if total >= _LARGE_BUFFERS:
        largest = max(table.stages, key=lambda stage: stage.buffer_bytes)
        most = _bytes(largest.buffer_bytes)
        lines.append(f"Full buffers hold {_bytes(total)} of memory, that of {largest.name} {most}.")
    if table.tail is not None:
        slowest = ", ".join(f"{image.name} ({image.us / 1e3:,.1f} ms)" for image in table.tail.slowest[:3])
        lines.append(
            f"{unit.article.title()} {unit.with_files} takes {table.tail.p50_us / 1e3:,.2f} ms (median), "
            f"{table.tail.p99_us / 1e3:,.2f} ms (p99); slowest: {slowest}."
        )
    return [*lines, *table.remarks(unit)]


def print_results(
    console: Console,
    verdicts: Sequence[Verdict],
    *,
    baseline: str | None,
    left_out: Sequence[tuple[str, str]] = (),
) -> None:
    """Prints one table for each model and device, then the verdicts on the most important results.

    Args:
      console: to print to; its width decides the columns.
      verdicts: one for each result.
      baseline: the variant that speed-ups are relative to; None for no such column.
      left_out: (who, why) of the subjects without a result.
    """
    groups = by_device(verdicts)
    for (model, device), group in groups.items():
        results = [verdict.result for verdict in group]
        over = {result.subject.page_cache: result for result in results if result.subject.variant == baseline}
        console.print()
        console.print(_table(results, over, f"{model} on {device}", console.width))
        for line in _footnotes(results):
            console.print(Text(line, style="dim"))
    for who, why in left_out:
        console.print(Text.assemble(("left out", "yellow"), f" {who}: {why}"))
    for group in groups.values():
        console.print()
        for line in verdict_lines(group, baseline):
            console.print(Text(line))


def by_device(verdicts: Sequence[Verdict]) -> dict[tuple[str, str], list[Verdict]]:
    """Returns the verdicts by the model and the name of the device: each group has a table of its own."""
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        subject = verdict.result.subject
        groups.setdefault((subject.model, subject.device.name), []).append(verdict)
    return groups


def verdict_lines(group: Sequence[Verdict], baseline: str | None) -> list[str]:
    """Returns the texts of the verdicts on the results that `described_results` chooses.

    For the variants of these results, what their storage costs follows, where it was measured.

    Args:
      group: verdicts on the results of one model and device.
      baseline: the variant that comes first; None or a variant without a result for the slowest.
    """
    by_result = {id(verdict.result): verdict for verdict in group}
    results = [verdict.result for verdict in group]
    described = described_results(results, baseline)
    return [by_result[id(result)].text() for result in described] + cold_sentences(results, described)


def cold_sentences(results: Sequence[Result], described: Sequence[Result]) -> list[str]:
    """Returns what the page cache hides, for the variants of described results that were also measured cold.

    Args:
      results: of one model and device.
      described: some of them.
    """
    cold = {result.subject.variant: result for result in results if result.subject.page_cache == "cold"}
    names = [result.subject.variant for result in described]
    return [what_the_cache_hides(cold[name]) for name in names if name in cold and cold[name].by_round("train")]


def described_results(results: Sequence[Result], baseline: str | None) -> list[Result]:
    """Returns, for each model and device, the baseline (or the slowest) and the fastest, whatever work they do.

    Cold results are chosen only where there is no warm one.
    """
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.subject.model, result.subject.device.name), []).append(result)
    chosen = []
    for group in groups.values():
        warm = [result for result in group if result.subject.page_cache == "warm"] or group
        slowest = min(warm, key=lambda result: result.epoch_images_per_sec)
        first = next((result for result in warm if result.subject.variant == baseline), slowest)
        fastest = max(warm, key=lambda result: result.epoch_images_per_sec)
        chosen += [first] if fastest is first else [first, fastest]
    return chosen


def _table(results: Sequence[Result], over: Mapping[str, Result], title: str, width: int) -> Table:
    """Returns the table of results; `over` holds the result that speed-ups are relative to, by page cache."""
    table = Table(title=Text(title, style="bold"), title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column("variant", overflow="fold", min_width=9 if width < _FULL_WIDTH else None)
    rate = common_unit(result.subject.unit for result in results).rate
    columns = [rate, "±", "loader", "model", "load%", "comp%", "stall", "interf", "edges", "1st s"]
    if width < _FULL_WIDTH:
        columns = [rate, "±", "loader", "model", "load%", "stall", "interf", "edges"]
    if width < _NARROW_WIDTH:
        columns = [rate, "load%", "stall", "interf", "edges"]
    if any(abs(_device_share(result)) >= _LEAST_SHARE for result in results):
        columns.insert(columns.index("edges"), "device")
    if any(result.subject.page_cache == "cold" for result in results):
        at = columns.index("stall")
        columns[at : at + 1] = ["fetch", "prep"]
    if over:
        columns.append("speed-up")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for result in results:
        cells = _cells(result) | {rate: f"{result.epoch_images_per_sec:,.0f}"}
        if over:
            cells["speed-up"] = _speed_up(result, over.get(result.subject.page_cache))
        table.add_row(Text(_name(result, results)), *(cells[name] for name in columns))
    return table


def _device_share(result: Result) -> float:
    shares = result.attribution.shares
    return (shares.device_augment or 0.0) + (shares.transfer or 0.0)


def _speed_up(result: Result, over: Result | None) -> str:
    if over is None:
        return "-"
    try:
        return f"{speed_up(result, over)[0]:.2f}x"
    except ValueError:  # they share no round: one of them failed early
        return "-"


def _cells(result: Result) -> dict[str, str]:
    attribution = result.attribution
    shares = attribution.shares
    loading_ratio = max(attribution.loading_ratio, 0.0)  # below 0 by noise; the verdict prints 0 as well
    stall = (shares.fetch_stall or 0.0) + (shares.prep_stall or 0.0)
    return {
        "±": "-" if result.spread_ratio is None else f"{result.spread_ratio:.0%}",
        "loader": "-" if result.loader_images_per_sec is None else f"{result.loader_images_per_sec:,.0f}",
        "model": "-" if result.model_images_per_sec is None else f"{result.model_images_per_sec:,.0f}",
        "load%": f"{loading_ratio:.0%}",
        "comp%": f"{1 - loading_ratio:.0%}",
        "stall": f"{stall:.0%}",
        "fetch": "-" if shares["fetch_stall"] is None else f"{shares['fetch_stall']:.0%}",
        "prep": f"{shares['prep_stall'] or 0:.0%}",
        "interf": "-" if shares["interference"] is None else f"{shares['interference']:.0%}",
        "device": f"{_device_share(result):.0%}",
        "edges": "-" if shares["epoch_overhead"] is None else f"{shares['epoch_overhead']:.0%}",
        "1st s": f"{result.first_batch_s:.2f}",
    }


def _marks(results: Sequence[Result]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the letter of each kind of other work, and the number of each note or flag, in order of appearance."""
    works: dict[str, str] = {}
    remarks: dict[str, str] = {}
    for result in results:
        for work in result.subject.work:
            works.setdefault(work, chr(ord("a") + len(works)))
        for remark in result.remarks:
            remarks.setdefault(remark, str(len(remarks) + 1))
    return works, remarks


def _name(result: Result, results: Sequence[Result]) -> str:
    works, remarks = _marks(results)
    letters = [works[work] for work in result.subject.work]
    digits = [remarks[remark] for remark in result.remarks]
    marks = ",".join(letters + digits)
    return f"{result.subject.label} ({marks})" if marks else result.subject.label


def _footnotes(results: Sequence[Result]) -> list[str]:
    works, remarks = _marks(results)
    unit = common_unit(result.subject.unit for result in results)
    lines = [f"({letter}) other work per {unit.noun}: {work}" for work, letter in works.items()]
    return lines + [f"({digit}) {remark}" for remark, digit in remarks.items()]
