"""The command line of `unstall scripts`."""

from __future__ import annotations

import argparse
from pathlib import Path

from unstall.benchmarks.lab.options import add_result_options
from unstall.parser import ArgumentParser

_EPILOG = (
    "Each folder of DIR that holds a train.py is a script. Beside it may stand by_hand.py, the script edited by hand, "
    "and about.toml with source, words, environment, and follows: the remedies that by_hand.py puts in place. held.py "
    "may be the script with batches that lie in memory ready: what it would be if loading cost nothing. Lines "
    "EPOCH_S SECONDS that a script prints are the times of its epochs; without them the whole run is timed. "
    "docs/scripts.md says more."
)


def parser() -> argparse.ArgumentParser:
    arguments = ArgumentParser(
        prog="unstall scripts",
        description="Runs training scripts plainly, under unstall profile, and as somebody edited them by hand: "
        "what was said of each, what watching costs, and whether following the advice gains what was measured.",
        epilog=_EPILOG,
    )
    add = arguments.add_argument
    add("folder", type=Path, metavar="DIR", help="holds a folder for each script")
    add("--only", metavar="NAME,...", help="these scripts (default: all)")
    add("--rounds", type=int, default=2, metavar="N", help="plain runs of each script (default: 2)")
    add("--budget", type=float, default=60.0, metavar="S", help="seconds for trying remedies (default: 60)")
    add("--limit", type=float, default=900.0, metavar="S", help="seconds after which a run is ended (default: 900)")
    add_result_options(arguments)
    return arguments
