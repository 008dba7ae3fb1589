"""The command line of `unstall trainers`."""

from __future__ import annotations

import argparse
from pathlib import Path

from unstall.benchmarks.lab.options import MODEL, add_result_options
from unstall.benchmarks.trainers.subjects import SUBJECTS
from unstall.needs import PHOTOS
from unstall.parser import ArgumentParser
from unstall.pipeline.commands import add_skip_list_option

VARIANT = "tf-data-autotune"
_DATA, _ROUNDS, _PROCESSES = "generated:640", 5, 2


def parser() -> argparse.ArgumentParser:
    arguments = ArgumentParser(
        prog="unstall trainers",
        needs=PHOTOS,
        description="Trains one model with several trainers, on logical devices and in processes of this host's CPU: "
        "what they gain over one, how many images are decoded in vain, who waits for whom.",
        epilog=f"Subjects: {', '.join(SUBJECTS)}.",
    )
    add = arguments.add_argument
    add("--data", default=_DATA, metavar="DIR|generated:N", help=f"a folder of photos (default: {_DATA})")
    add_skip_list_option(arguments)
    add("--model", default=MODEL, metavar="NAME", help=f"a name, module:function or .keras file (default: {MODEL})")
    add("--config", type=Path, metavar="FILE.toml", help=f"the tuner's pipeline, or your own (default: {VARIANT})")
    add("--set", action="append", default=[], metavar="FIELD=VALUE", help="changes the pipeline; may be repeated")
    add("--processes", type=int, default=_PROCESSES, metavar="N", help=f"how many trainers (default: {_PROCESSES})")
    add("--batch-size", type=int, metavar="N", help="images a step of each trainer (default: the pipeline's)")
    add("--rounds", type=int, default=_ROUNDS, metavar="N", help=f"epochs of each subject (default: {_ROUNDS})")
    add("--only", metavar="NAME,...", help="these subjects only (default: all)")
    add_result_options(arguments)
    return arguments
