"""The command line of `unstall train`."""

from __future__ import annotations

import argparse
from pathlib import Path

from unstall.benchmarks.lab.options import MODEL
from unstall.needs import PHOTOS
from unstall.parser import ArgumentParser
from unstall.pipeline.commands import add_skip_list_option

# The fastest variant that needs no prepared files. It augments photos as the published tutorial does.
_VARIANT = "tf-data-composed"
# The 25 published epochs had 8,000 steps of 32 photos each: together 800 passes over the 8,000 photos.
_EPOCHS_HELP = "passes over the photos (default: 25 passes, or the network's own; published: 800 passes' worth)"


def parser() -> argparse.ArgumentParser:
    arguments = ArgumentParser(
        prog="unstall train",
        needs=PHOTOS,
        description="Trains a model on photos and writes it to a file with its preprocessing and its classes, for "
        "unstall predict.",
        epilog="Tested with: the folder test beside train, where DIR is or holds train; else a fifth of each class, "
        "drawn by the seed and not trained on.",
    )
    add = arguments.add_argument
    add("--model", default=MODEL, metavar="NAME", help=f"a name, module:function or .keras file (default: {MODEL})")
    add("--data", required=True, metavar="DIR|tfds:NAME|generated:N", help="a folder with a folder of photos a class")
    add_skip_list_option(arguments)
    add("--out", required=True, type=Path, metavar="FILE.keras", help="where the model goes")
    add("--config", type=Path, metavar="FILE.toml", help=f"of benchmarks.tune, or your own (default: {_VARIANT})")
    add("--epochs", type=int, metavar="N", help=_EPOCHS_HELP)
    add("--batch-size", type=int, metavar="N", help="photos a step (default: as published, or the pipeline's)")
    add("--seed", type=int, default=0, metavar="N", help="of weights, order, draws and held-out photos (default: 0)")
    add("--overwrite", action="store_true", help="replaces FILE.keras, when training has ended")
    return arguments
