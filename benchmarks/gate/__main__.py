"""Images/sec in CI: compares what can be compared, and says "inconclusive" when it cannot tell.

python -m benchmarks.gate compare tf-data-autotune tf-data-composed
python -m benchmarks.gate compare main HEAD --rev --subject mymodule:make_dataset
python -m benchmarks.gate record loader --subject mymodule:make_dataset
python -m benchmarks.gate check loader --subject mymodule:make_dataset
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from benchmarks.lab.command import exit_code_of, say
from benchmarks.lab.options import DATA, MODEL, UserError
from pipeline import SourceError
from pipeline.commands import ArgumentParser
from pipeline.sources import add_skip_list_option
from profiles.text import Terminal

_SUBJECT = "tf-data-composed"
_BASELINES = Path("benchmarks_baseline")
# Fewer are no choice: six pairs cannot show a regression.
_MOST_PAIRS = (10, 16, 24)
_EPILOG = """Exit codes: 0 same or improved, 1 regression, 2 bad input,
3 could not measure or not comparable, 4 too noisy."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the verdict's exit code, 2 for bad input, 128 + signal if stopped."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.verb == "compare" and arguments.subject is not None and not arguments.rev:
        parser.error("--subject is what --rev measures of each revision; without --rev, A and B say what is measured")
    if arguments.verb != "ratios" and arguments.subject is None:
        arguments.subject = _SUBJECT
    from benchmarks.gate import plan

    console, errors = Terminal(), Terminal(stderr=True)

    def run() -> int:
        try:
            return plan.run(arguments, console, errors)
        except SourceError as error:
            raise UserError(str(error), exit_code=3) from error  # there is nothing to measure

    try:
        return exit_code_of(run, errors, arguments.out or Path("runs"), "stopped: nothing was decided")
    except Exception as error:
        # Python would end with 1, which says "regression" here.
        traceback.print_exc()
        return say(errors, UserError(f"could not measure: {type(error).__name__}: {error}", exit_code=3))


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="python -m benchmarks.gate",
        description=(__doc__ or "").splitlines()[0],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    compare = verbs.add_parser("compare", help="B against A, in pairs of fresh processes", epilog=_EPILOG)
    compare.add_argument("a", metavar="A", help="a variant, FILE.toml or module:function; with --rev a git revision")
    compare.add_argument("b", metavar="B", help="the same")
    compare.add_argument("--rev", action="store_true", help="A and B are git revisions of the repository here")
    compare.add_argument("--at-least", type=float, metavar="R", help="asks whether B serves R times what A does")
    compare.add_argument(
        "--threshold", type=float, default=0.05, metavar="T", help="the loss that counts (default: 0.05)"
    )
    compare.add_argument("--seed", type=int, metavar="N", help="of the coins that order each pair (default: by chance)")
    _pairs(compare)
    for verb, does in (
        ("record", "stores a benchmark's ratios to anchors"),
        ("check", "holds it against what is stored"),
    ):
        one = verbs.add_parser(verb, help=does, epilog=_EPILOG)
        one.add_argument("name", metavar="NAME", help="of the benchmark, and of its file")
        one.add_argument(
            "--baselines", type=Path, default=_BASELINES, metavar="DIR", help=f"their folder (default: {_BASELINES})"
        )
        if verb == "record":
            one.add_argument("--overwrite", action="store_true", help="replaces a baseline that is there")
        else:
            one.add_argument(
                "--threshold", type=float, default=0.10, metavar="T", help="the loss that counts (default: 0.10)"
            )
    ratios = verbs.add_parser("ratios", help="this project's own recorded ratios", epilog=_EPILOG)
    ratios.add_argument("--only", action="append", metavar="NAME", help="this alone; may be given several times")
    _pairs(ratios)
    for name, one in verbs.choices.items():
        if name != "ratios":
            one.add_argument(
                "--subject",
                metavar="WHAT",
                help=f"what is measured: a variant, FILE.toml or module:function (default: {_SUBJECT})",
            )
            one.add_argument(
                "--data", default=DATA, metavar="DIR|tfds:NAME|generated:N", help=f"images (default: {DATA})"
            )
            add_skip_list_option(one)
            one.add_argument("--measure", choices=("loader", "train"), default="loader", help="(default: loader)")
            one.add_argument("--model", default=MODEL, metavar="NAME", help=f"for train (default: {MODEL})")
            one.add_argument("--device", default="cpu", metavar="DEV", help="for train: cpu, gpu, emulated:RATE")
        one.add_argument("--timeout", type=float, default=600.0, metavar="S", help="for one process (default: 600)")
        one.add_argument("--out", type=Path, metavar="DIR", help="where gate.json goes (default: runs/TIME)")
    # What `--help` shows of each verb, too: somebody who reads about an option looks for it here.
    parser.epilog = "\n".join([*(one.format_usage() for one in verbs.choices.values()), _EPILOG])
    return parser


def _pairs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--most-pairs", type=int, choices=_MOST_PAIRS, default=_MOST_PAIRS[-1], help="where it ends (default: 24)"
    )


if __name__ == "__main__":
    sys.exit(main())
