"""Prints and renders what several trainers gain over one, what they decode in vain, and who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from unstall.benchmarks.lab.tables import Table, page, print_end, print_table
from unstall.benchmarks.trainers.plan import Asked
from unstall.benchmarks.trainers.results import CAUSES, Results, TrainersDocument, TrainersResult, derive
from unstall.benchmarks.trainers.samples import Measurements
from unstall.benchmarks.trainers.subjects import BY_FILES, BY_KERAS, SUBJECTS
from unstall.profiles.report import Kind
from unstall.profiles.statistics import range_cell

COLUMNS = ("subject", "trainers", "img/s", "x one", "95 %", "decoded", "loading", "straggler")
PROCESS_COLUMNS = ("process", "decoded", "loading", "for others")
# Fewer images than this share in vain are the beginning of the next epoch, which was read ahead.
_IN_VAIN_RATIO = 1.05
_LEGEND = (
    "mirrored: MirroredStrategy, and jax-devices: DataParallel, in one process. jax-processes: DataParallel, whose "
    "dataset Keras divides; sharded: each with its own part of the files. img/s: of all trainers together. x one: over "
    "one trainer on the same backend, round by round. decoded: images decoded for each that was trained on. loading: "
    "share of the epoch in which a process waited for its batch. for others: share in which it waited for whose batch "
    "came later. All share the cores of this host's CPU."
)


def cells(result: TrainersResult) -> tuple[str, ...]:
    """Returns a row's cells, for the terminal and for the page; `-` stands for a missing value."""
    return (
        result.subject,
        str(result.trainers),
        f"{result.images_per_sec:,.0f}",
        "-" if result.ratio is None else f"{result.ratio:.2f}",
        range_cell(result.interval) if result.ratio is not None else "-",
        f"{result.decoded_ratio:.1f}x",
        _loading_cell([process.loading_ratio for process in result.processes]),
        "-" if result.straggler is None else f"process {result.straggler.process}",
    )


def _loading_cell(ratios: Sequence[float]) -> str:
    """Returns the ratio of each process; of more than two, whose table follows, the lowest and the highest."""
    if len(ratios) > 2:
        return f"{min(ratios):.0%}-{max(ratios):.0%}"
    return "/".join(f"{ratio:.0%}" for ratio in ratios)


def _tables(results: Results) -> list[Table]:
    """Returns the table of all subjects, and that of the processes of those that have several."""
    rows = [cells(result) for result in results.subjects]
    of_processes = [
        (
            f"{result.subject} {process.process}",
            f"{process.decoded_ratio:.1f}x",
            f"{process.loading_ratio:.0%}",
            f"{process.others_ratio:.0%}",
        )
        for result in results.subjects
        for process in result.processes
        if len(result.processes) > 1
    ]
    tables = [Table(columns=COLUMNS, rows=rows, words=("straggler",))]
    return [*tables, Table(columns=PROCESS_COLUMNS, rows=of_processes)] if of_processes else tables


def sentences(results: Results) -> list[str]:
    """Returns the answer: what was decoded in vain, who is waited for, and what the remedy gains."""
    return [line for result in results.subjects for line in _of_subject(result)] + [*_remedy(results)]


def _of_subject(result: TrainersResult) -> Iterator[str]:
    if result.decoded_ratio >= _IN_VAIN_RATIO:
        vain = 1 - 1 / result.decoded_ratio
        why = "each process decodes all images and drops those of the others"
        reason = f": {why}" if SUBJECTS[result.subject].sharded_by == BY_KERAS else ""
        yield (
            f"{result.subject}: {result.decoded_ratio:.1f} images were decoded for each that was trained on, "
            f"{vain:.0%} in vain{reason}."
        )
    if result.straggler is not None:
        slow = result.straggler
        yield (
            f"{result.subject}: all others wait for process {slow.process}: {CAUSES[slow.cause]} {slow.longer_ms:,.0f} "
            f"ms longer each step, {slow.step_ratio:.0%} of a step."
        )


def _remedy(results: Results) -> Iterator[str]:
    """Says what dividing the list of files gains over dividing the dataset."""
    if results.remedy_ratio is None:
        return
    decoded = {SUBJECTS[result.subject].sharded_by: result.decoded_ratio for result in results.subjects}
    range_ = "" if results.remedy_interval is None else f" ({range_cell(results.remedy_interval)})"
    yield (
        f"Each process with its own part of the files (source.shard): {results.remedy_ratio:.2f}{range_} times the "
        f"images/sec, {decoded[BY_FILES]:.1f} images decoded for each instead of {decoded[BY_KERAS]:.1f}."
    )


def _title(document: TrainersDocument) -> str:
    asked, images = document.plan, (document.dataset or {}).get("images", 0)
    return f"{asked.model}, {asked.config.batch_size} images a step of each trainer, {images:,} an epoch"


def _print(console: Console, document: TrainersDocument, results: Results) -> None:
    console.print(Text(_title(document), style="bold"))
    for table in _tables(results):
        print_table(console, table)
        console.print()
    print_end(console, document, sentences=sentences(results), legend=[_LEGEND])


def _page(document: TrainersDocument, results: Results) -> str:
    return page(
        "Several trainers",
        document,
        about=_title(document),
        tables=_tables(results),
        sentences=sentences(results),
        legend=[_LEGEND],
        facts={
            "rounds": f"{document.plan.rounds}; in each of them one epoch of each subject, in an order of its own",
            "samples": "results.json holds every step of every process",
            "photos": document.plan.data,
        },
    )


KIND = Kind(
    plan=Asked,
    samples=Measurements,
    derive=derive,
    copies=lambda document, results: {"results": results.subjects},
    report=_page,
    print=_print,
    rows=lambda results: [asdict(result) for result in results.subjects],
)
