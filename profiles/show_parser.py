"""The command line of `unstall show` and `unstall compare`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn

from unstall.commands import typed
from unstall.parser import ArgumentParser
from unstall.text import printable

# The forms of `--as`: those of `profiles.report.figures`, and the one that shows a run over time.
FORMS = ("junit", "github-action-benchmark", "bencher")
TRACE = "perfetto"


class _ShowParser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        prog = typed(self.prog)
        self.exit(2, f"{prog}: {printable(message)}. See {prog} --help.\n")


def parser() -> argparse.ArgumentParser:
    words = _ShowParser(prog="unstall", allow_abbrev=False)
    verbs = words.add_subparsers(dest="verb", required=True)
    show = verbs.add_parser("show", help="prints what a run printed, from its results file", allow_abbrev=False)
    show.add_argument("file", type=Path, metavar="FILE", help="results.json, or the folder that holds it")
    form = show.add_mutually_exclusive_group()
    form.add_argument("--details", action="store_true", help="prints all tables and sentences")
    form.add_argument("--html", type=Path, metavar="OUT", help="writes the report there instead")
    form.add_argument("--svg", type=Path, metavar="OUT", help="writes the first screen there as a picture")
    form.add_argument(
        "--json", action="store_true", help="prints results, verdicts and the answer, no samples, as JSON"
    )
    form.add_argument("--csv", action="store_true", help="prints a row for each result")
    form.add_argument(
        "--as", dest="form", choices=(*FORMS, TRACE), help="prints the run for another tool: of CI, or Perfetto"
    )
    compared = verbs.add_parser("compare", help="two runs beside each other", allow_abbrev=False)
    compared.add_argument("before", type=Path, metavar="A", help="results.json, or the folder that holds it")
    compared.add_argument("after", type=Path, metavar="B", help="the same, of a later run")
    return words
