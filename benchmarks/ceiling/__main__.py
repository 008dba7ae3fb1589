"""How near loaders come to the decode ceiling: all cores doing nothing but decoding the same JPEG files.

python -m benchmarks.ceiling --data photos/train
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.ceiling.plan import CEILING, MEASURED, PYTHON, ROUNDS, read_configs
from benchmarks.lab.command import exit_code_of, say_left_out, say_noise
from benchmarks.lab.options import DATA, UserError
from pipeline import ImageSource, open_source, read_skip_list
from pipeline.cache import cache_root
from pipeline.commands import ArgumentParser, decoders_unheard
from pipeline.sources import add_skip_list_option
from profiles.provenance import usable_cores
from profiles.statistics import geometric_mean, ratio_interval
from profiles.text import Terminal


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0, or 2 for bad input, 128 + signal if stopped."""
    parser = ArgumentParser(prog="python -m benchmarks.ceiling", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default=DATA, metavar="DIR|generated:N", help=f"JPEG photos (default: {DATA})")
    add_skip_list_option(parser)
    known = f"of the main job's, or {PYTHON}"
    parser.add_argument("--variants", default=",".join((*MEASURED, PYTHON)), metavar="NAME,...", help=known)
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"of all in turn (default: {ROUNDS})")
    arguments = parser.parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    errors = Terminal(stderr=True)
    # Files of its own it has in the cache alone.
    return exit_code_of(lambda: _run(arguments, errors), errors, cache_root())


def _run(arguments: argparse.Namespace, errors: Console) -> int:
    configs = read_configs(arguments)
    source = open_source(arguments.data, skip_list=read_skip_list(arguments.skip_list))
    say_left_out(errors, source)
    if source.formats != ("JPEG",):
        raise UserError(f"--data {arguments.data} must hold JPEG files only. Received: {', '.join(source.formats)}.")
    from benchmarks.ceiling.measure import measure  # TensorFlow

    with decoders_unheard() as noise:
        rates = measure(configs, source, arguments.rounds)
    say_noise(errors, noise)
    _print(rates, source, arguments.rounds)
    return 0


def _print(rates: dict[str, list[float]], source: ImageSource, rounds: int) -> None:
    title = f"loading {source.images:,} JPEG photos on {usable_cores():g} cores, {rounds} rounds"
    table = Table(box=None, title=title, title_justify="left", title_style="bold")
    table.add_column("")
    for column in ("img/s", "of the ceiling", "95 % interval"):
        table.add_column(column, justify="right")
    for name, measured in rates.items():
        row = [name, f"{geometric_mean(measured):,.0f}"]
        if name != CEILING:
            ratio, interval = ratio_interval(measured, rates[CEILING])
            row += [f"{ratio:.0%}", "-" if interval is None else f"{interval[0]:.0%} to {interval[1]:.0%}"]
        table.add_row(*row)
    Terminal().print(table)


if __name__ == "__main__":
    sys.exit(main())
