"""Prints where the wall time of a `fit` went."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unstall.profiles.results.account import PART_TEXTS, UNEXPLAINED_RATIO, Account
from unstall.profiles.results.evidence import Finding

# Parts that take less have no row: they stand together in "what is left".
_LEAST_RATIO = 0.001


def account_rows(account: Account) -> list[tuple[str, str, str]]:
    """Returns (part, time, share of the wall time) of each part that takes any, of the rest, and of the whole."""
    parts = {name: ns for name, ns in account.parts.items() if ns >= _LEAST_RATIO * account.wall_ns}
    rows = [(_text(name, account), ns) for name, ns in parts.items()]
    rows.append(("what is left", account.wall_ns - sum(parts.values())))
    cells = [(text, _seconds(ns), f"{ns / account.wall_ns:.1%}") for text, ns in rows]
    return [*cells, ("fit, from call to return", _seconds(account.wall_ns), "100.0%")]


def account_lines(account: Account) -> list[str]:
    """Returns what the rows do not say: epochs, traces, and whether the parts fail to sum to the wall time."""
    counts = [f"{account.epochs} epochs", f"{account.validations} validations" if account.validations else ""]
    traces = [
        f"traced or compiled in {count} step{'s' if count > 1 else ''} ({cause})"
        for cause, count in account.traces.items()
    ]
    lines = ["; ".join(text for text in (*counts, *traces) if text)]
    if account.watch_ns >= _LEAST_RATIO * account.wall_ns:
        lines.append(f"the profiler's own readings took {_seconds(account.watch_ns)} beside the times above")
    if account.unexplained:
        lines.append(
            f"not trustworthy: {account.rest_ns / account.wall_ns:.1%} of the wall time is in no part, or in two; at "
            f"most {UNEXPLAINED_RATIO:.0%} is right"
        )
    return lines


def print_account(console: Console, name: str, account: Account, findings: Sequence[Finding]) -> None:
    """Prints the parts of the wall time of a `fit`, and what follows from them."""
    table = Table(title=Text(f"account of {name}", style="bold"), title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column("part")
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    for row in account_rows(account):
        table.add_row(*row)
    console.print()
    console.print(table)
    for line in account_lines(account):
        console.print(Text(line, style="dim"))
    for finding in findings:
        console.print(Text(finding.sentences()))


def _text(name: str, account: Account) -> str:
    if name == "compute_ns" and account.waiting_ns is None:
        return "training: steps, waiting and compute"
    if name == "validation_compute_ns" and account.validation_waiting_ns is None:
        return "validation: steps, waiting and compute"
    return PART_TEXTS[name]


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:,.2f} s" if ns >= 10**8 else f"{ns / 1e6:.0f} ms"
