"""The command line of `unstall service`."""

from __future__ import annotations

import argparse
from pathlib import Path

from unstall.benchmarks.lab.options import DATA, MODEL, add_result_options
from unstall.needs import PHOTOS
from unstall.parser import ArgumentParser
from unstall.pipeline.commands import add_skip_list_option

VARIANT = "tf-data-composed"
ROUNDS = 5
# Of `plan`: a pipeline that can be cut, and what is assumed of the training.
CUT_VARIANT = "tf-data-autotune"
DEVICE, GOAL, PER_HOST, EPOCHS = "emulated:5000", 0.9, 8, 90


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

    _add_plan(verbs.add_parser("plan", help="predicts whether workers on other hosts pay, how many, and what limits"))

    return arguments


def _add_plan(plan: argparse.ArgumentParser) -> None:
    add = plan.add_argument
    add("--data", default=DATA, metavar="DIR", help=f"photos like yours, to measure costs on (default: {DATA})")
    add_skip_list_option(plan)
    add("--model", default=MODEL, metavar="NAME", help=f"a name, module:function or .keras file (default: {MODEL})")
    add("--device", default=DEVICE, metavar="DEV", help=f"cpu, gpu, or emulated:RATE (default: {DEVICE})")
    add("--image-size", type=int, metavar="N", help="in pixels a side (default: the device's, or the model's)")
    add("--config", type=Path, metavar="FILE.toml", help=f"of unstall tune, or your own (default: {CUT_VARIANT})")
    add("--set", action="append", default=[], metavar="FIELD=VALUE", help="changes one of its settings")
    add("--goal", type=float, default=GOAL, metavar="R", help=f"how far the device is to be used (default: {GOAL})")
    hosts = plan.add_argument_group("the hosts")
    add = hosts.add_argument
    add("--worker-cores", type=float, metavar="N", help="of each worker's host (default: as many as here)")
    add("--trainer-cores", type=float, metavar="N", help="of each trainer's host (default: as many as here)")
    add("--worker-price", type=float, metavar="P", help="of a worker's host for an hour, in any currency")
    add("--trainer-price", type=float, metavar="P", help="of a trainer's host for an hour")
    add("--network", metavar="RATE", help="of each host's link, such as 10gbit (default: no limit)")
    add("--delay", type=float, default=0.0, metavar="MS", help="that bytes take from worker to trainer (default: 0)")
    add("--storage", metavar="RATE", help="that all hosts together read at, such as 20gbit (default: no limit)")
    add("--memory", metavar="SIZE", help="of a worker's host for files that were read, such as 64GB (default: none)")
    fleet = plan.add_argument_group("many accelerators, and the whole training")
    add = fleet.add_argument
    add("--accelerators", type=int, default=1, metavar="N", help="in all (default: 1)")
    add("--per-host", type=int, default=PER_HOST, metavar="N", help=f"of each trainer's host (default: {PER_HOST})")
    add("--images", type=float, metavar="N", help="of an epoch, such as 1.3e6 (default: no whole training is planned)")
    add("--epochs", type=int, metavar="N", help=f"of the training (default: {EPOCHS})")
    add_result_options(plan)


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
