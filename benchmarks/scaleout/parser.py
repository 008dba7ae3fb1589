"""The command line of `unstall scaleout`."""

from __future__ import annotations

import argparse
from pathlib import Path

from unstall.benchmarks.lab.options import DATA, MODEL, add_result_options
from unstall.needs import PHOTOS
from unstall.parser import ArgumentParser
from unstall.pipeline.commands import add_skip_list_option

VARIANT = "tf-data-autotune"
DEVICE, ROUNDS, GOAL = "emulated:5000", 5, 0.9


def parser() -> argparse.ArgumentParser:
    arguments = ArgumentParser(
        prog="unstall scaleout",
        needs=PHOTOS,
        description="Would workers on other hosts pay? Predicts how many are needed, where to cut the pipeline, and "
        "what a million images cost.",
    )
    add = arguments.add_argument
    add("--data", default=DATA, metavar="DIR", help=f"a folder of photos, or generated:N (default: {DATA})")
    add_skip_list_option(arguments)
    add("--model", default=MODEL, metavar="NAME", help=f"a name, module:function or .keras file (default: {MODEL})")
    add("--device", default=DEVICE, metavar="DEV", help=f"cpu, gpu, or emulated:RATE (default: {DEVICE})")
    add("--config", type=Path, metavar="FILE.toml", help=f"of benchmarks.tune, or your own (default: {VARIANT})")
    add("--set", action="append", default=[], metavar="FIELD=VALUE", help="changes one of its settings")
    add_hosts(arguments)
    add("--goal", type=float, default=GOAL, metavar="R", help=f"how far the device is to be used (default: {GOAL})")
    add(
        "--check",
        action="store_true",
        help="holds the prediction against pools of emulated hosts on this one; needs the rights of root",
    )
    add("--only", metavar="TEXT,...", help="with --check: pools whose name holds one of these texts")
    add(
        "--loopback",
        action="store_true",
        help="with --check: hosts are cores of this one, links relays; needs no rights",
    )
    add("--rounds", type=int, metavar="N", help=f"with --check: rounds of each pool (default: {ROUNDS})")
    add_result_options(arguments)
    return arguments


def add_hosts(arguments: argparse.ArgumentParser) -> None:
    """Adds the options that describe the hosts of a pool."""
    add = arguments.add_argument
    add("--worker-cores", type=float, metavar="N", help="of each worker's host (default: as many as here)")
    add("--trainer-cores", type=float, metavar="N", help="of the trainer's host (default: as many as here)")
    add("--worker-price", type=float, metavar="P", help="of a worker's host for an hour, in any currency")
    add("--trainer-price", type=float, metavar="P", help="of the trainer's host for an hour")
    add("--delay", type=float, default=0.0, metavar="MS", help="that bytes take from worker to trainer (default: 0)")
    add("--network", metavar="RATE", help="of each host's link, such as 10gbit (default: no limit)")
