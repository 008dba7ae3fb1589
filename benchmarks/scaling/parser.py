"""The command line of `unstall scaling`."""

from __future__ import annotations

import argparse

from unstall.benchmarks.lab.options import DATA, add_result_options
from unstall.needs import PHOTOS
from unstall.parser import ArgumentParser
from unstall.pipeline.commands import add_skip_list_option

# What one value of each axis counts, in the plural.

_LEAST_FILES, _MOST_FILES = 1_000, 100_000

AXES = {
    "files": "files",
    "cores": "cores",
    "batch-size": "images a batch",
    "image-size": "pixels a side",
}
# A variant of each kind: Python threads, OpenCV in Keras' workers, tf.data, and tf.data with less to decode.
_VARIANTS = ("generator", "py-dataset", "tf-data-autotune", "tf-data-scaled-decode")
_ROUNDS = 3
_EPILOG = "Each point is measured by a process of its own in some ten seconds. All points take about half an hour."


def parser() -> argparse.ArgumentParser:
    arguments = ArgumentParser(
        prog="unstall scaling",
        needs=PHOTOS,
        description="How loading grows with the number of files, the cores, the batch size and the image size.",
        epilog=_EPILOG,
    )
    add = arguments.add_argument
    add("--data", default=DATA, metavar="DIR|tfds:NAME|generated:N", help=f"photos to take (default: {DATA})")
    add_skip_list_option(arguments)
    add("--variants", default=",".join(_VARIANTS), metavar="NAME,...", help=f"(default: {', '.join(_VARIANTS)})")
    add("--axes", default=",".join(AXES), metavar="NAME,...", help=f"any of {', '.join(AXES)} (default: all)")
    add("--rounds", type=int, default=_ROUNDS, metavar="N", help=f"measurements of a point (default: {_ROUNDS})")
    add(
        "--most-files",
        type=int,
        default=_MOST_FILES,
        metavar="N",
        help=f"the longest list: {_LEAST_FILES:,}, ten times that, and so on up to N (default: {_MOST_FILES:,})",
    )
    add_result_options(arguments)
    return arguments
