"""Trains a model on a folder of photos and keeps it in one file, with all that predicting needs.

python -m benchmarks.train --model cats-dogs-64 --data photos --out cats-dogs.keras

This command leaves a model and measures nothing that is compared: it keeps no document, and is not run by
`benchmarks.lab.command.run`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import unstall
from benchmarks.lab.command import exit_code_of, progress_bar
from benchmarks.lab.photos import open_splits
from benchmarks.train.plan import parser, read_plan
from models.predict import import_keras
from profiles.text import Terminal


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      0; 2 for bad input; 3 if the loss is no number any more, or the file could not be written; 128 + signal if
      stopped.
    """
    arguments = parser().parse_args(argv)
    console, errors = Terminal(), Terminal(stderr=True)
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"

    def run() -> int:
        plan = read_plan(arguments)
        with progress_bar(errors) as progress:
            splits = open_splits(
                plan.data, seed=plan.config.seed, progress=progress, errors=errors, skip_list=plan.skip_list
            )
            import_keras()  # hides what TensorFlow writes to stderr when it is loaded
            session = unstall.of_ours("benchmarks.train.session:train_and_keep")
            return int(session(plan, splits, progress, console, errors))

    return exit_code_of(run, errors, arguments.out, f"stopped: {arguments.out} was not written")


if __name__ == "__main__":
    sys.exit(main())
