"""Tests images/sec in CI: compares what can be compared, and says "inconclusive" when the noise hides the answer.

unstall gate compare tf-data-autotune tf-data-composed
unstall gate compare main HEAD --rev --subject mymodule:make_dataset
unstall gate record loader --subject mymodule:make_dataset
unstall gate check loader --subject mymodule:make_dataset
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import unstall
from unstall.benchmarks.gate.parser import parser
from unstall.benchmarks.gate.plan import RecordPlan, read_plan
from unstall.benchmarks.gate.results import exit_code
from unstall.benchmarks.lab.command import Command, exit_code_of, new_folder, run_plan
from unstall.profiles.text import Terminal

COMPARE = Command(
    parser=parser,
    plan=read_plan,
    lab="benchmarks.gate.measure:open_comparisons",
    kind="benchmarks.gate.report:COMPARISONS",
    exit_code=lambda document, results: exit_code(*(result.decision for result in results)),
)
CHECK = Command(
    parser=parser,
    plan=read_plan,
    lab="benchmarks.gate.measure:open_check",
    kind="benchmarks.gate.report:CHECK",
    exit_code=lambda document, result: exit_code(result.decision),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the verdict's exit code, 2 for bad input, 128 + signal if stopped."""
    arguments = parser().parse_args(argv)
    out = arguments.out or new_folder()
    console, errors = Terminal(), Terminal(stderr=True)

    def run() -> int:
        plan = read_plan(arguments, out)
        if isinstance(plan, RecordPlan):  # `record` writes a baseline, and no document
            return int(unstall.of_ours("benchmarks.gate.measure:record")(plan, console, errors))
        command = CHECK if arguments.verb == "check" else COMPARE
        return run_plan(command, plan, console, errors, as_json=arguments.json)

    return exit_code_of(run, errors, out, "stopped: nothing was decided")


if __name__ == "__main__":
    sys.exit(main())
