"""Trains a model on a folder of photos, and saves in one file the model and all else that prediction needs.

unstall train --model cats-dogs-64 --data photos --out cats-dogs.keras

The result of this command is a model, not a measurement: the command writes no document, and
`benchmarks.lab.command.run` does not run it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import unstall
from unstall.benchmarks.lab.command import exit_code_of, progress_bar
from unstall.benchmarks.lab.photos import open_splits
from unstall.benchmarks.train.parser import parser
from unstall.benchmarks.train.plan import read_plan
from unstall.profiles.text import Terminal


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      0; 2 for bad input; 3 if the loss becomes infinite or NaN, or the file cannot be written; 128 + signal if stopped.
    """
    arguments = parser().parse_args(argv)
    console, errors = Terminal(), Terminal(stderr=True)
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"

    def run() -> int:
        from unstall.models.predict import import_keras

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
