"""The parser of the gate's command line."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from unstall.benchmarks.lab.options import DATA, MODEL, add_result_options
from unstall.commands import shell_words
from unstall.parser import ArgumentParser
from unstall.pipeline.commands import add_skip_list_option

SUBJECT = "tf-data-composed"
_BASELINES = Path("benchmarks_baseline")
# The choices of `--most-pairs` and `--most-processes`, which are those of `gate.PAIRS` that can show a regression; and
# the defaults, `gate.MOST_PAIRS` and `gate.MOST_PROCESSES`. A parser imports no NumPy.
_MOST = (10, 16, 24, 38, 60, 96)
_MOST_PAIRS, _MOST_PROCESSES = 24, 60
_EPILOG = """Exit codes: 0 same or improved, 1 regression, 2 bad input,
3 could not measure or not comparable, 4 too noisy."""


def record_again(arguments: argparse.Namespace) -> str:
    """Returns the command that records the baseline of a check again, with the options that the check was given."""
    usual = vars(parser().parse_args(["record", arguments.name]))
    shared = vars(arguments).keys() & usual.keys() - {"verb", "name", "out"}
    given = {name: value for name, value in vars(arguments).items() if name in shared and value != usual[name]}
    # The document names no folder of the user's: a path is told from the folder of the command.
    words = {name: os.path.relpath(value) if os.path.isabs(str(value)) else str(value) for name, value in given.items()}
    options = [word for name, value in words.items() for word in (f"--{name.replace('_', '-')}", value)]
    return f"unstall gate record {shell_words(arguments.name, '--overwrite', *options)}"


def parser() -> argparse.ArgumentParser:
    arguments = ArgumentParser(
        prog="unstall gate",
        description='Images/sec in CI: compares what can be compared, and says "inconclusive" when it cannot tell.',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = arguments.add_subparsers(dest="verb", required=True, metavar="VERB")
    compare = verbs.add_parser("compare", help="B against A, in pairs of fresh processes", epilog=_EPILOG)
    compare.add_argument("a", metavar="A", help="a variant, FILE.toml or module:function; with --rev a git revision")
    compare.add_argument("b", metavar="B", nargs="?", help="the same")
    what = "A and B are git revisions of the repository here, of which --subject is measured"
    compare.add_argument("--rev", action="store_true", help=what)
    compare.add_argument(
        "--python",
        nargs=2,
        metavar=("PYTHON_A", "PYTHON_B"),
        help="the interpreters of two environments, in which one module:function is run; they need nothing of unstall",
    )
    compare.add_argument("--at-least", type=float, metavar="R", help="asks whether B serves R times what A does")
    compare.add_argument(
        "--threshold", type=float, default=0.05, metavar="T", help="the loss that counts (default: 0.05)"
    )
    compare.add_argument("--seed", type=int, metavar="N", help="of the coins that order each pair (default: by chance)")
    compare.add_argument(
        "--most-pairs",
        type=int,
        choices=_MOST,
        default=_MOST_PAIRS,
        help=f"where it ends undecided (default: {_MOST_PAIRS})",
    )
    for verb, does in (
        ("record", "stores a benchmark's ratios to anchors"),
        ("check", "holds it against what is stored"),
    ):
        of_baseline = verbs.add_parser(verb, help=does, epilog=_EPILOG)
        of_baseline.add_argument("name", metavar="NAME", help="of the benchmark, and of its file")
        of_baseline.add_argument(
            "--baselines", type=Path, default=_BASELINES, metavar="DIR", help=f"their folder (default: {_BASELINES})"
        )
        if verb == "record":
            of_baseline.add_argument("--overwrite", action="store_true", help="replaces a baseline that is there")
        else:
            of_baseline.add_argument(
                "--threshold", type=float, default=0.10, metavar="T", help="the loss that counts (default: 0.10)"
            )
            of_baseline.add_argument(
                "--most-processes",
                type=int,
                choices=_MOST,
                default=_MOST_PROCESSES,
                help=f"where it ends undecided (default: {_MOST_PROCESSES})",
            )
    for verb, words in verbs.choices.items():
        if verb == "record":
            what = "where the log of a failure goes (default: runs/TIME)"
            words.add_argument("--out", type=Path, metavar="DIR", help=what)
        else:
            add_result_options(words)
        of_revisions = "with --rev: the module:function that is measured of each revision"
        of_baselines = f"what is measured: a variant, FILE.toml or module:function (default: {SUBJECT})"
        what = of_revisions if verb == "compare" else of_baselines
        words.add_argument("--subject", metavar="WHAT", help=what)
        words.add_argument(
            "--data", default=DATA, metavar="DIR|tfds:NAME|generated:N", help=f"images (default: {DATA})"
        )
        add_skip_list_option(words)
        words.add_argument("--measure", choices=("loader", "train"), default="loader", help="(default: loader)")
        words.add_argument("--model", default=MODEL, metavar="NAME", help=f"for train (default: {MODEL})")
        words.add_argument("--device", default="cpu", metavar="DEV", help="for train: cpu, gpu, emulated:RATE")
        words.add_argument("--timeout", type=float, default=600.0, metavar="S", help="for one process (default: 600)")
    # The main `--help` shows the usage of every verb too, for readers who look for an option there.
    arguments.epilog = "\n".join([*(words.format_usage() for words in verbs.choices.values()), _EPILOG])
    return arguments
