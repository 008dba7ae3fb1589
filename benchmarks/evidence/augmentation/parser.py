"""The command line of `unstall augmentation`."""

from __future__ import annotations

import argparse

from unstall.benchmarks.evidence.augmentation.operations import OPERATIONS
from unstall.benchmarks.lab.options import add_result_options
from unstall.needs import PHOTOS
from unstall.parser import ArgumentParser
from unstall.pipeline.commands import add_skip_list_option

_ROUNDS, _IMAGE_SIZE, _BATCH_SIZE = 5, 64, 32

_DATA = "generated:64"


def parser() -> argparse.ArgumentParser:
    arguments = ArgumentParser(
        prog="unstall augmentation",
        needs=PHOTOS,
        description="What each augmentation costs, by library and by where it is done, and a picture that all do the "
        "same.",
        epilog=f"operations: {', '.join(OPERATIONS)}; "
        "libraries: keras_generator, keras_layers, tf_ops, albumentations, opencv",
    )
    add = arguments.add_argument
    add("--data", default=_DATA, metavar="DIR", help=f"a folder of class folders, or generated:N (default: {_DATA})")
    add_skip_list_option(arguments)
    add("--image-size", type=int, default=_IMAGE_SIZE, metavar="N", help=f"pixels a side (default: {_IMAGE_SIZE})")
    add("--batch-size", type=int, default=_BATCH_SIZE, metavar="N", help=f"images a batch (default: {_BATCH_SIZE})")
    add("--operations", metavar="NAME,...", help="which operations (default: all)")
    add("--libraries", metavar="NAME,...", help="which libraries (default: all)")
    add("--rounds", type=int, default=_ROUNDS, metavar="N", help=f"windows of each row (default: {_ROUNDS})")
    add_result_options(arguments)
    return arguments
