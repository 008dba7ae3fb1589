"""The command line of `unstall pipeline`."""

from __future__ import annotations

import argparse
from pathlib import Path

from unstall.benchmarks.lab.options import (
    DATA,
    MODEL,
    add_result_options,
)
from unstall.benchmarks.pipeline.sweep.axes import AXES
from unstall.needs import PHOTOS
from unstall.parser import ArgumentParser
from unstall.pipeline.commands import add_skip_list_option

# Rounds with --thorough, and the most without it; there rounds end once nothing is left to decide.
ROUNDS = 5


def parser() -> argparse.ArgumentParser:
    arguments = ArgumentParser(
        prog="unstall pipeline",
        needs=PHOTOS,
        description="Measures how much of training is loading and how much compute, for many input pipelines.",
    )
    add = arguments.add_argument
    add("--data", default=DATA, metavar="DIR|tfds:NAME|generated:N", help=f"images to train on (default: {DATA})")
    add_skip_list_option(arguments)
    add("--model", default=MODEL, metavar="NAME,...", help="a known name, module:function, or FILE.keras")
    add(
        "--variants",
        metavar="NAME,...",
        help="names, or default, all, generators, all-tf-data (default: default; with --config generator)",
    )
    add("--device", default="auto", metavar="DEV,...", help="auto, cpu, gpu, emulated:RATE (images/sec or a name)")
    add("--batch-size", type=int, metavar="N", help="images a batch, for every variant")
    add(
        "--rounds",
        type=int,
        metavar="N",
        help=f"windows of training a variant (default: {ROUNDS}, or fewer if they do)",
    )
    add("--thorough", action="store_true", help=f"{ROUNDS} rounds, or those of --rounds, and two more pipelines")
    add(
        "--cold", action="store_true", help="adds a row for each variant whose photos are not in the page cache (Linux)"
    )
    add("--stages", action="store_true", help="takes every loader apart, not only the baseline")
    add("--lines", action="store_true", help="also times the lines of the loaders' Python functions")
    add("--details", action="store_true", help="prints all tables and sentences")
    add(
        "--config",
        type=Path,
        action="append",
        default=[],
        metavar="FILE.toml",
        help="a variant from a file, beside the baseline",
    )
    add("--set", action="append", default=[], metavar="FIELD=VALUE", help="changes a setting of every variant")
    add(
        "--sweep",
        action="append",
        default=[],
        metavar="AXIS=VALUE,...",
        help=f"the rate by a setting instead, next to what is expected: {', '.join(AXES)}; may be repeated",
    )
    add("--list", action="store_true", help="lists variants, models and devices, and ends")
    add_result_options(arguments)
    return arguments
