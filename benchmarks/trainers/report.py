"""Prints and renders what several trainers gain over one, what they decode in vain, and who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from unstall.benchmarks.lab.tables import Table, page, print_end, print_table
from unstall.benchmarks.trainers.plan import Asked
from unstall.benchmarks.trainers.results import (
    CAUSES,
    ProcessResult,
    ReplicaResult,
    Results,
    TrainersDocument,
    TrainersResult,
    derive,
)
from unstall.benchmarks.trainers.samples import AutoShard, Measurements
from unstall.benchmarks.trainers.subjects import BY_FILES, BY_KERAS, SUBJECTS
from unstall.profiles.cluster import several_hosts
from unstall.profiles.report import Kind
from unstall.profiles.statistics import range_cell

COLUMNS = ("subject", "trainers", "img/s", "x one", "95 %", "decoded", "loading", "straggler")
PROCESS_COLUMNS = ("process", "img/s", "decoded", "loading", "for others", "step", "between", "own ms")
REPLICA_COLUMNS = ("replica", "loading", "compute", "for others", "exchange", "between")
# Fewer images than this share in vain are the beginning of the next epoch, which was read ahead.
_IN_VAIN_RATIO = 1.05


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


def process_cells(process: ProcessResult) -> tuple[str, ...]:
    """Returns a row's cells of the processes' table."""
    return (
        str(process.process),
        f"{process.images_per_sec:,.0f}",
        f"{process.decoded_ratio:.1f}x",
        f"{process.loading_ratio:.0%}",
        f"{process.others_ratio:.0%}",
        f"{process.step_ratio:.0%}",
        f"{process.between_ratio:.0%}",
        "-" if process.own_ms is None else f"{process.own_ms:,.0f}",
    )


def replica_cells(replica: ReplicaResult) -> tuple[str, ...]:
    """Returns a row's cells of the replicas' table."""
    ratios = (
        replica.loading_ratio,
        replica.compute_ratio,
        replica.others_ratio,
        replica.exchange_ratio,
        replica.between_ratio,
    )
    return (str(replica.replica), *(f"{ratio:.0%}" for ratio in ratios))


def _tables(results: Results) -> list[Table]:
    """Returns the table of all subjects, and of each those of its processes, if there are several, and replicas."""
    rows = [cells(result) for result in results.subjects]
    tables = [Table(columns=COLUMNS, rows=rows, words=("straggler",))]
    for result in results.subjects:
        if len(result.processes) > 1:
            rows = [process_cells(process) for process in result.processes]
            tables.append(Table(title=result.subject, columns=PROCESS_COLUMNS, rows=rows))
        if result.replicas:
            rows = [replica_cells(replica) for replica in result.replicas]
            tables.append(Table(title=result.subject, columns=REPLICA_COLUMNS, rows=rows))
    return tables


def sentences(document: TrainersDocument, results: Results) -> list[str]:
    """Returns the answer: what was decoded in vain and what the remedy gains, who is waited for, what is sharded."""
    lines = [line for result in results.subjects for line in _of_subject(result, document.plan)]
    lines += _remedy(results)
    if document.plan.hosts > 1:
        lines.append(several_hosts(document.plan.hosts))
    return lines


def _of_subject(result: TrainersResult, asked: Asked) -> Iterator[str]:
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
    if result.auto_shard is not None:
        batch_size = asked.config.batch_size
        yield (
            f"{result.subject}: on one host TensorFlow shards nothing; it splits each batch of "
            f"{result.trainers * batch_size} into {result.trainers} of {batch_size}. All replicas wait for the same "
            "iterator."
        )
        yield f"{result.subject}: {_policy(result.auto_shard)}"


def _policy(facts: AutoShard) -> str:
    """Says what TensorFlow would do with the dataset on several hosts."""
    price = (
        f"asked for the part of one of {facts.hosts}, it decoded {facts.decoded:,} images for {facts.served:,} to "
        "train on"
    )
    if facts.policy == "OFF":
        return "auto-shard policy OFF: on several hosts each would train on all images."
    if facts.policy == "AUTO" and not facts.by_files:
        return (
            "auto-shard policy AUTO: on several hosts TensorFlow would divide the list of files (FILE), finds no "
            "reader of files in this graph, and falls back to DATA: each host does all the work of the epoch; "
            f"{price}."
        )
    if facts.policy in ("AUTO", "FILE"):
        found = "divides the list of files" if facts.by_files else "fails: it finds no reader of files in this graph"
        return f"auto-shard policy {facts.policy}: on several hosts TensorFlow {found}; {price}."
    return f"auto-shard policy {facts.policy}: on several hosts each host does all the work of the epoch; {price}."


def _remedy(results: Results) -> Iterator[str]:
    """Says what dividing the list of files gains over dividing the dataset."""
    by_sharding = {SUBJECTS[result.subject].sharded_by: result for result in results.subjects}
    if BY_KERAS in by_sharding and BY_FILES in by_sharding:
        before, after = by_sharding[BY_KERAS], by_sharding[BY_FILES]
        range_ = f" ({range_cell(results.remedy_interval)})" if results.remedy_interval is not None else ""
        gain = f"{results.remedy_ratio or 0.0:.2f}{range_} times the images/sec"
        yield (
            f"Each process with its own part of the files (source.shard): {gain}, {after.decoded_ratio:.1f} images "
            f"decoded for each instead of {before.decoded_ratio:.1f}."
        )


_LEGEND = (
    "img/s: of all trainers together. x one: over one trainer on the same backend, round by round. decoded: images "
    "decoded for each that was trained on. loading: share of the epoch in which a process waited for its batch. for "
    "others: share in which it waited for whose batch came later. between: share between two steps. own: its own "
    "work each step: waiting for its batch, a step without other trainers, what lies between. exchange: share in which "
    "replicas sum their gradients and update weights. All share the cores of this host's CPU."
)


def _title(document: TrainersDocument) -> str:
    asked, images = document.plan, (document.dataset or {}).get("images", 0)
    return f"{asked.model}, {asked.config.batch_size} images a step of each trainer, {images:,} an epoch"


def _planted(asked: Asked) -> list[str]:
    if asked.planted is None:
        return []
    return [f"planted: each batch of process {asked.planted.process} is held back by {asked.planted.delay_ms} ms"]


def _print(console: Console, document: TrainersDocument, results: Results) -> None:
    console.print(Text(_title(document), style="bold"))
    for line in _planted(document.plan):
        console.print(Text(line, style="yellow"))
    first, *others = _tables(results)
    print_table(console, first)
    for table in others:
        console.print()
        print_table(console, table)
    console.print()
    print_end(console, document, sentences=sentences(document, results), legend=[_LEGEND])


def _page(document: TrainersDocument, results: Results) -> str:
    return page(
        "Several trainers",
        document,
        about=_title(document),
        tables=_tables(results),
        sentences=[*_planted(document.plan), *sentences(document, results)],
        legend=[*(f"{result.subject}: {SUBJECTS[result.subject].says}" for result in results.subjects), _LEGEND],
        facts={
            "rounds": f"{document.plan.rounds}; in each of them one epoch of each subject, in an order that is drawn "
            "anew",
            "samples": "results.json holds every step of every process",
            "photos": document.plan.data,
        },
    )


def _copies(document: TrainersDocument, results: Results) -> dict[str, Any]:
    return {"results": results.subjects}


def _rows(results: Results) -> Sequence[Mapping[str, Any]]:
    return [asdict(result) for result in results.subjects]


KIND = Kind(plan=Asked, samples=Measurements, derive=derive, copies=_copies, report=_page, print=_print, rows=_rows)
