"""Prints and renders what each fault cost an epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from unstall.benchmarks.lab.tables import Table, page, print_end, print_table
from unstall.benchmarks.service.faults.plan import KINDS, OURS, POLICIES, FaultsAsked
from unstall.benchmarks.service.faults.results import LONGEST_WAIT_S, FaultResult, FaultsDocument, Results, derive
from unstall.benchmarks.service.faults.samples import FaultSamples
from unstall.profiles.report import Kind

COLUMNS = ("fault", "moment", "once", "more", "never", "made here", "dropped", "longest s", "end")


def cells(result: FaultResult) -> tuple[str, ...]:
    """Returns a row's cells, for the terminal and for the page."""
    return (
        result.case.kind,
        result.case.moment,
        str(result.once),
        str(result.more),
        str(result.never),
        str(result.repaired),
        str(result.dropped),
        f"{result.longest_wait_s:.1f}",
        result.end,
    )


def groups(results: Results) -> list[tuple[str, list[FaultResult]]]:
    """Returns the results by policy, each with what the policy is."""
    by_policy: dict[str, list[FaultResult]] = {}
    for result in results.cases:
        by_policy.setdefault(result.case.policy, []).append(result)
    return [(f"{policy}: {POLICIES[policy]}", of_policy) for policy, of_policy in by_policy.items()]


def sentences(results: Results) -> list[str]:
    """Returns what the policies cost, each in one sentence."""
    lines = []
    for policy, of_policy in groups(results):
        name = policy.partition(":")[0]
        never, more = sum(result.never for result in of_policy), sum(result.more for result in of_policy)
        waited = sum(result.end != "complete" for result in of_policy)
        lines.append(
            f"{name}: of {len(of_policy)} epochs {waited} did not end by themselves; {never:,} batches never came, and "
            f"{more:,} came more than once."
        )
    if ours := [result for result in results.cases if result.case.policy == OURS]:
        longest = max(result.longest_wait_s for result in ours)
        lines.append(
            f"{OURS}: the trainer waited {longest:.1f} s at most. "
            + ("Every epoch had each batch once." if not results.broken else f"BROKEN: {', '.join(results.broken)}.")
        )
    return lines


def _legend() -> list[str]:
    return [
        "once, more, never: how many of an epoch's batches the trainer got so often. made here: by the client, because "
        "no worker sent them. dropped: came once more, and the trainer did not get them. longest s: the trainer's "
        f"longest wait after the fault; {OURS} must stay below {LONGEST_WAIT_S:g}. end: waited is an epoch that was "
        "ended from outside.",
        "; ".join(f"{kind}: {what}" for kind, what in KINDS.items()) + ".",
    ]


def _tables(results: Results) -> list[Table]:
    """Returns a table for each policy."""
    return [
        Table(
            title=policy,
            columns=COLUMNS,
            rows=[cells(result) for result in of_policy],
            words=("moment", "end"),
            wrong=[number for number, result in enumerate(of_policy) if result.broken],
        )
        for policy, of_policy in groups(results)
    ]


def _print(console: Console, document: FaultsDocument, results: Results) -> None:
    for table in _tables(results):
        print_table(console, table)
    print_end(console, document, sentences=sentences(results), legend=_legend())


def _page(document: FaultsDocument, results: Results) -> str:
    return page(
        "What faults cost an epoch of a service",
        document,
        about=f"{document.plan.images} images · batches of {document.plan.batch_size}",
        tables=_tables(results),
        sentences=sentences(results),
        legend=_legend(),
        facts={
            "processes": "a dispatcher with a journal, two workers, one of them behind a relay; all real, and whole "
            "again before each case",
            "step": f"the trainer takes {document.plan.step_s} s for a batch",
            "samples": "results.json holds how often each batch came",
        },
    )


def _copies(document: FaultsDocument, results: Results) -> dict[str, Any]:
    return {"results": _rows(results)}


def _rows(results: Results) -> Sequence[Mapping[str, Any]]:
    return [result.to_dict() for result in results.cases]


KIND = Kind(
    plan=FaultsAsked, samples=FaultSamples, derive=derive, copies=_copies, report=_page, print=_print, rows=_rows
)
