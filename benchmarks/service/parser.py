"""The command line of `unstall service`."""

from __future__ import annotations

import argparse
from pathlib import Path

from unstall.benchmarks.lab.options import DATA, add_result_options
from unstall.needs import PHOTOS
from unstall.parser import ArgumentParser
from unstall.pipeline.commands import add_skip_list_option

VARIANT = "tf-data-composed"
ROUNDS = 5


def parser() -> argparse.ArgumentParser:
    arguments = ArgumentParser(
        prog="unstall service",
        needs=PHOTOS,
        description="tf.data service: batches made by worker processes here or on other hosts, each once an epoch.",
    )
    verbs = arguments.add_subparsers(dest="verb", required=True, metavar="VERB")
    dispatcher = verbs.add_parser("dispatcher", help="hands out work to the workers; one for all trainers")
    dispatcher.add_argument("--port", type=int, default=5050, metavar="N", help="where it listens (default: 5050)")
    dispatcher.add_argument(
        "--journal", type=Path, metavar="DIR", help="keeps its state there, and goes on from it after a restart"
    )
    _add_open(dispatcher)

    worker = verbs.add_parser("worker", help="makes batches of a folder, or of your own pipeline")
    worker.add_argument("--dispatcher", required=True, metavar="HOST:PORT", help="the dispatcher to work for")
    worker.add_argument("--data", metavar="DIR", help="the folder of photos on this host")
    worker.add_argument("--pipeline", metavar="MODULE:FUNCTION", help="a function that returns your tf.data.Dataset")
    _add_config(worker)
    worker.add_argument("--host", metavar="NAME", help="how clients reach this host (default: its address on the way)")
    worker.add_argument("--port", type=int, default=0, metavar="N", help="where it listens (default: a free port)")
    _add_open(worker)

    local = verbs.add_parser("local", help="compares worker processes of this host with threads, and says what limits")
    local.add_argument(
        "--data", default=DATA, metavar="DIR", help=f"a folder of photos, or generated:N (default: {DATA})"
    )
    _add_config(local)
    local.add_argument("--workers", default="2", metavar="N,...", help="numbers of worker processes (default: 2)")
    local.add_argument("--service", metavar="HOST:PORT", help="also a service that runs already")
    local.add_argument(
        "--device", metavar="emulated:RATE", help="who consumes the batches (default: as fast as can be)"
    )
    local.add_argument("--network", metavar="RATE", help="of the link to the workers, such as 1gbit")
    local.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"of each (default: {ROUNDS})")
    add_result_options(local)

    return arguments


def _add_open(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--open",
        action="store_true",
        help="lets other hosts connect; who reaches the port can run code here, as there is no password",
    )


def _add_config(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--config", type=Path, metavar="FILE.toml", help=f"of benchmarks.tune, or your own (default: {VARIANT})")
    add("--set", action="append", default=[], metavar="FIELD=VALUE", help="changes one of its settings")
    add("--image-size", type=int, default=64, metavar="N", help="the model's, in pixels a side (default: 64)")
    add_skip_list_option(parser)
