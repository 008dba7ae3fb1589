"""What the ceiling is asked: which loaders stand beside it."""

from __future__ import annotations

import argparse
from dataclasses import replace

from benchmarks.lab.options import MODEL, UserError
from models import MODELS
from pipeline import VARIANTS, PipelineConfig

IMAGE_SIZE = MODELS[MODEL].image_size
ROUNDS = 9
# Those that are the tutorial's work, one after the other nearer to the ceiling.
MEASURED = (
    "generator",
    "py-dataset",
    "py-dataset-composed",
    "tf-data-autotune",
    "tf-data-scaled-decode",
    "tf-data-composed",
)
# The last one without tf.data: by processes, in a loop in Python.
PYTHON = "python-composed"
CEILING = "decode only"


def read_configs(arguments: argparse.Namespace) -> dict[str, PipelineConfig]:
    """Returns what is to be measured, by name.

    Raises:
      UserError: for a name that is not known, or too few rounds.
    """
    if arguments.rounds < 2:
        raise UserError(f"--rounds must be at least 2. Received: {arguments.rounds}.")
    chosen = {}
    known = {name: config for name, config in VARIANTS.items() if not config.use_multiprocessing}
    known[PYTHON] = VARIANTS["tf-data-composed"]
    for name in arguments.variants.split(","):
        if name not in known:
            raise UserError(f"--variants: {name!r} is no variant without worker processes. Known: {', '.join(known)}.")
        chosen[name] = replace(known[name], image_size=IMAGE_SIZE)
    return chosen
