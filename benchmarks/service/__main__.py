"""Runs tf.data service: its dispatcher, its workers; measures whether a local one pays.

unstall service dispatcher --port 5050
unstall service worker --dispatcher HOST:5050 --data photos/train --config tuned.toml
unstall service local --data photos/train --workers 1,2
unstall service plan --data photos/train --worker-cores 4 --worker-price 0.2 --trainer-price 3 --network 10gbit
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import unstall
from unstall.benchmarks.lab.command import Command, exit_code_of, new_folder, run_plan
from unstall.benchmarks.service.parser import parser
from unstall.benchmarks.service.plan import read_plan, read_server
from unstall.benchmarks.service.planning.plan import read_plan as read_prediction
from unstall.profiles.devices import NO_GPU
from unstall.profiles.text import Terminal

LOCAL = Command(
    parser=parser,
    plan=read_plan,
    lab="benchmarks.service.measure:open_run",
    kind="benchmarks.service.report:KIND",
)
PLAN = Command(
    parser=parser,
    plan=read_prediction,
    lab="benchmarks.service.planning.measure:open_run",
    kind="benchmarks.service.planning.report:KIND",
)
_MEASURE = {"local": LOCAL, "plan": PLAN}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns 0; 2 for bad input, 3 if nothing could be measured or a server cannot start, 128 + signal if stopped.
    """
    arguments = parser().parse_args(argv)
    console, errors = Terminal(), Terminal(stderr=True)
    out = getattr(arguments, "out", None) or new_folder()

    def run() -> int:
        if arguments.verb not in _MEASURE:
            # TensorFlow's servers print all their settings; and the GPU is the model's.
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
            os.environ.update(NO_GPU)
            plan = read_server(arguments)
            return int(unstall.of_ours("benchmarks.service.servers:serve")(plan, console, errors))
        command = _MEASURE[arguments.verb]
        return run_plan(command, command.plan(arguments, out), console, errors, as_json=arguments.json)

    return exit_code_of(run, errors, out)


if __name__ == "__main__":
    sys.exit(main())
