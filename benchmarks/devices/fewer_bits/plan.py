"""Reads what `unstall devices --inference` is asked to do."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from unstall.benchmarks.lab.options import DATA, add_result_options, check_least, check_model
from unstall.needs import PHOTOS
from unstall.parser import ArgumentParser
from unstall.pipeline.commands import add_skip_list_option
from unstall.profiles.provenance import usable_threads, without_folder

_MODEL = "cats-dogs-64"
_PASSES, _ROUNDS, _BATCH_SIZE = 8, 5, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is measured. The document of a run keeps all of it.

    Attributes:
      model: the name of a network, a file, or module:function.
      passes: how many times the network is trained on all photos; 0 for a network that is trained already.
      rounds: how many windows of each way to predict.
      batch_size: images in a call, where rates are measured; latencies are of one image.
      threads: number of threads that compute.
      data: the name of the photos, without folders.
    """

    model: str
    passes: int
    rounds: int
    batch_size: int
    threads: int
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A comparison of ways to predict; `out` is the folder for the results, `model` the model as it was typed."""

    asked: Asked
    model: str
    data: str
    out: Path
    skip_list: Path | None = None


def parser() -> argparse.ArgumentParser:
    arguments = ArgumentParser(
        prog="unstall devices --inference",
        needs=PHOTOS,
        description="Predicts in float32, bfloat16 and int8 on the CPU, and says what fewer bits gain and cost.",
        epilog="LiteRT needs pip install 'unstall[litert]'; without it TensorFlow alone is measured.",
    )
    add = arguments.add_argument
    add(
        "--inference",
        nargs="?",
        const=_MODEL,
        default=_MODEL,
        metavar="MODEL",
        help=f"a network, a .keras file, or module:function (default: {_MODEL})",
    )
    add("--data", default=DATA, metavar="DIR|tfds:NAME|generated:N", help=f"photos to train and test (default: {DATA})")
    add_skip_list_option(arguments)
    add("--epochs", type=int, default=_PASSES, metavar="N", help=f"of training; 0 for none (default: {_PASSES})")
    add("--rounds", type=int, default=_ROUNDS, metavar="N", help=f"windows of each way (default: {_ROUNDS})")
    add("--batch-size", type=int, default=_BATCH_SIZE, metavar="N", help=f"of the rates (default: {_BATCH_SIZE})")
    add("--threads", type=int, metavar="N", help="that compute (default: as many as cores)")
    add_result_options(arguments)
    return arguments


def read_plan(arguments: argparse.Namespace, out: Path) -> Plan:
    """Checks all options that can be checked before anything is opened.

    Raises:
      UserError: if an option is wrong; the message has one line.
    """
    threads = usable_threads() if arguments.threads is None else arguments.threads
    check_least(0, epochs=arguments.epochs)
    check_least(1, rounds=arguments.rounds, batch_size=arguments.batch_size, threads=threads)
    check_model(arguments.inference, "--inference")
    asked = Asked(
        model=without_folder(arguments.inference),
        passes=arguments.epochs,
        rounds=arguments.rounds,
        batch_size=arguments.batch_size,
        threads=threads,
        data=without_folder(arguments.data),
    )
    return Plan(asked=asked, model=arguments.inference, data=arguments.data, out=out, skip_list=arguments.skip_list)
