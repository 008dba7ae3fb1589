"""Runs what `benchmarks.evidence` measures: writes the results after each round, prints tables and what they mean."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.lab.command import Plan, check_out, exit_code_of, new_folder, progress_bar, remove_if_empty
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.lab.run import LabRun
from unstall.benchmarks.lab.tables import Table, print_end, print_table
from unstall.profiles.report import RESULTS, Document, encode, to_json, write_atomically
from unstall.profiles.text import Terminal, print_files


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What follows from a document.

    Attributes:
      tables: printed one after another.
      rows: the figures, a flat row for each subject; empty where nothing was measured.
      sentences: what the figures mean.
      notes: what a reader must know of the rows and columns.
    """

    tables: Sequence[Table]
    rows: Sequence[Mapping[str, Any]]
    sentences: Sequence[str] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A measurement.

    Attributes:
      parser: returns the parser of the command line, to which `add_out` has added an option.
      plan: makes the plan from the parsed options and the folder for results; raises `UserError` for wrong options.
      lab: takes the plan, a progress bar and the console for errors; returns what measures.
      view: returns what follows from a document.
      listing: prints what the user can choose from, for `--list`; None for a measurement without this option.
    """

    parser: Callable[[], argparse.ArgumentParser]
    plan: Callable[[argparse.Namespace, Path], Plan]
    lab: Callable[[Any, Progress, Console], LabRun[Any, Any]]
    view: Callable[[Document[Any, Any]], View]
    listing: Callable[[Console], None] | None = None


def add_out(parser: argparse.ArgumentParser) -> None:
    """Adds the option for the folder of the results."""
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"folder for {RESULTS} (default: runs/TIME)")


def run(evidence: Evidence, argv: Sequence[str] | None = None) -> int:
    """Measures. Returns 0, or 2 for bad input, 3 if nothing could be measured, 128 + signal if stopped."""
    arguments = evidence.parser().parse_args(argv)
    console, errors = Terminal(), Terminal(stderr=True)
    if evidence.listing is not None and arguments.list:
        evidence.listing(console)
        return 0
    out = arguments.out or new_folder()
    return exit_code_of(lambda: run_plan(evidence, evidence.plan(arguments, out), console, errors), errors, out)


def run_plan(evidence: Evidence, plan: Plan, console: Console, errors: Console) -> int:
    """Measures a plan, writes the results after each round, and prints them at the end. Returns 0.

    Raises:
      UserError: if the results cannot be written, or nothing could be measured.
      Stopped: if a signal stops the run; the results so far are written first.
    """
    out = plan.out
    try:
        check_out(out, RESULTS)
        with progress_bar(errors) as progress:
            lab = evidence.lab(plan, progress, errors)

            def keep(*, complete: bool) -> tuple[Document[Any, Any], View]:
                """Writes the results so far, if there are any."""
                document = lab.document(complete=complete)
                view = evidence.view(document)
                if view.rows:
                    write_atomically(out / RESULTS, to_json({**encode(document), "results": encode(view.rows)}))
                return document, view

            try:
                lab.measure(lambda: keep(complete=False))
                document, view = keep(complete=True)
                lab.close()
            except BaseException as error:
                lab.kill()
                progress.stop()
                _, view = keep(complete=False)
                if view.rows:
                    errors.print(f"stopped: what was measured so far is in {out}", soft_wrap=True)
                elif not isinstance(error, UserError):
                    errors.print("stopped: nothing measured", soft_wrap=True)
                raise
        if not view.rows:
            reasons = "; ".join(f"{left_out.who}: {left_out.reason}" for left_out in document.left_out)
            raise UserError(f"nothing could be measured. {reasons}", exit_code=3)
        print_view(console, document, view)
        print_files(console, "results", out / RESULTS)
        return 0
    finally:
        remove_if_empty(out)


def print_view(console: Console, document: Document[Any, Any], view: View) -> None:
    """Prints the tables, what they mean, and what was left out."""
    for number, table in enumerate(view.tables):
        if number:
            console.print()
        print_table(console, table)
    print_end(console, document, sentences=view.sentences, legend=view.notes)
