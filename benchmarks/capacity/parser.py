"""The command line of `unstall capacity`."""

from __future__ import annotations

import argparse
from pathlib import Path

from unstall.benchmarks.lab.options import DATA, add_result_options
from unstall.benchmarks.scaleout.parser import GOAL, VARIANT, add_hosts
from unstall.parser import ArgumentParser
from unstall.pipeline.commands import add_skip_list_option

DEVICE, IMAGES, ACCELERATORS, PER_HOST, EPOCHS = "emulated:h100-resnet50", 1.3e6, 64, 8, 90


def parser() -> argparse.ArgumentParser:
    arguments = ArgumentParser(
        prog="unstall capacity",
        description="What would it take to feed so many accelerators? Hosts, cores, network, storage and caches, by a "
        "simulation, batch by batch.",
    )
    add = arguments.add_argument
    add("--images", type=float, default=IMAGES, metavar="N", help=f"of an epoch (default: {IMAGES:,.0f})")
    add("--device", default=DEVICE, metavar="DEV", help=f"emulated:RATE (default: {DEVICE})")
    add("--accelerators", type=int, default=ACCELERATORS, metavar="N", help=f"in all (default: {ACCELERATORS})")
    add("--per-host", type=int, default=PER_HOST, metavar="N", help=f"of a trainer's host (default: {PER_HOST})")
    add("--epochs", type=int, default=EPOCHS, metavar="N", help=f"of the training (default: {EPOCHS})")
    add("--image-size", type=int, metavar="N", help="in pixels a side (default: the device's, or 224)")
    add("--storage", metavar="RATE", help="that all hosts together read at, such as 20gbit (default: no limit)")
    add("--memory", metavar="SIZE", help="of a worker's host for files that were read, such as 64GB (default: none)")
    add_hosts(arguments)
    add("--goal", type=float, default=GOAL, metavar="R", help=f"how far the devices are to be used (default: {GOAL})")
    add("--data", default=DATA, metavar="DIR", help=f"photos like yours, to measure costs on (default: {DATA})")
    add_skip_list_option(arguments)
    add("--config", type=Path, metavar="FILE.toml", help=f"of benchmarks.tune, or your own (default: {VARIANT})")
    add("--set", action="append", default=[], metavar="FIELD=VALUE", help="changes one of its settings")
    add("--runs", type=Path, metavar="FILE", help="results.json of scaleout --check, to hold the simulation against")
    add_result_options(arguments)
    return arguments
