"""The published cat/dog accuracy ladder, and whether a fast pipeline costs accuracy.

python -m benchmarks.accuracy --data photos --seeds 3
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.accuracy.plan import RUNGS, Plan
from benchmarks.lab.command import check_out, exit_code_of, new_folder, progress_bar, remove_if_empty
from benchmarks.lab.options import UserError, config_from_file, known_names
from benchmarks.lab.photos import Splits, open_splits
from pipeline import BASELINE, VARIANTS, PipelineConfig
from pipeline.commands import ArgumentParser
from pipeline.sources import add_skip_list_option
from profiles import Device
from profiles.devices import parse_device
from profiles.text import Terminal, print_files

_TUNED = "tf-data-composed"
# As often as the tutorial says "epochs": passes, which is what that word is taken for.
_PASSES = 25
# As few as an interval needs.
_SEEDS = 3
_LOG = "children.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says, checked; None where the photos or the machine decide."""

    data: str
    rungs: tuple[str, ...]
    seeds: int
    images_seen: int | None
    tuned: PipelineConfig
    tuned_name: str
    device: Device | None
    out: Path
    skip_list: Path | None


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      0 if the tuned pipeline costs no more than 2 points; 1 if it costs accuracy; 4 if neither was shown; 2 for bad
      input; 3 if nothing could be trained; 128 + signal if stopped.
    """
    arguments = _parser().parse_args(argv)
    console, errors = Terminal(), Terminal(stderr=True)
    out = arguments.out or new_folder()
    return exit_code_of(lambda: _run(read_options(arguments, out), console, errors), errors, out)


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="python -m benchmarks.accuracy",
        description=(__doc__ or "").splitlines()[0],
        epilog="Every rung is trained with Keras' generator and with a tuned pipeline, from the same weights, in a "
        "process of its own. What has ended is written after each run. Exit codes: 0 the tuned pipeline costs no more "
        "than 2 points, 1 it costs accuracy, 4 neither was shown.",
    )
    add = parser.add_argument
    add(
        "--data",
        required=True,
        metavar="DIR|tfds:NAME|generated:N",
        help="photos of two classes, split as by python -m benchmarks.train",
    )
    add_skip_list_option(parser)
    add("--rungs", metavar="NAME,...", help=f"any of {', '.join(RUNGS)} (default: all)")
    add(
        "--seeds",
        type=int,
        default=_SEEDS,
        metavar="N",
        help=f"runs of each rung and pipeline (default: {_SEEDS}; fewer give no interval, and so no verdict)",
    )
    add("--images-seen", type=int, metavar="N", help=f"by each run; published: 6400000 (default: {_PASSES} passes)")
    add("--pipeline", type=Path, metavar="FILE.toml", help=f"of benchmarks.tune (default: the variant {_TUNED})")
    add("--device", metavar="DEV", help="cpu or gpu (default: gpu where Keras can use one)")
    add("--out", type=Path, metavar="DIR", help="where accuracy.json and accuracy.html go (default: runs/TIME)")
    return parser


def read_options(arguments: argparse.Namespace, out: Path) -> Options:
    """Checks what can be checked before anything is opened.

    Raises:
      UserError: in one line.
    """
    for name, value in (("seeds", arguments.seeds), ("images-seen", arguments.images_seen)):
        if value is not None and value < 1:
            raise UserError(f"--{name} must be at least 1. Received: {value}.")
    tuned = VARIANTS[_TUNED]
    if arguments.pipeline is not None:
        tuned = config_from_file(arguments.pipeline, "--pipeline")
        _check_same_work(tuned, arguments.pipeline)
    return Options(
        data=arguments.data,
        rungs=tuple(RUNGS) if arguments.rungs is None else known_names(arguments.rungs, "--rungs", RUNGS),
        seeds=arguments.seeds,
        images_seen=arguments.images_seen,
        tuned=tuned,
        tuned_name=_TUNED if arguments.pipeline is None else arguments.pipeline.name,
        device=None if arguments.device is None else _device(arguments.device),
        out=out,
        skip_list=arguments.skip_list,
    )


def _check_same_work(tuned: PipelineConfig, path: Path) -> None:
    """Refuses a pipeline with another batch size or other draws: those would cost or gain accuracy by themselves."""
    for name in ("batch_size", "augmentation"):
        expected, received = getattr(BASELINE, name), getattr(tuned, name)
        if received != expected:
            raise UserError(f"--pipeline {path}: `{name}` must be the generator's, {expected}. Received: {received}.")


def _device(name: str) -> Device:
    if name not in ("cpu", "gpu"):
        raise UserError(f"--device must be cpu or gpu: an emulated one learns nothing. Received: {name!r}.")
    return parse_device(name)


def _run(options: Options, console: Console, errors: Console) -> int:
    try:
        check_out(options.out, "accuracy.json", "accuracy.html")
        return _measure(options, console, errors)
    finally:
        remove_if_empty(options.out)


def _measure(options: Options, console: Console, errors: Console) -> int:
    from benchmarks.accuracy.measure import Ladder, device_here
    from benchmarks.accuracy.report import REPORT, print_ladder, render
    from benchmarks.accuracy.results import RESULTS, VERDICTS, difference_of, judge, to_document
    from profiles.report import now, to_json, write_atomically

    with progress_bar(errors) as progress:
        # The photos to test with are the same for all runs: they are not drawn by a run's seed.
        splits = open_splits(
            options.data, seed=0, progress=progress, errors=errors, results=RESULTS, skip_list=options.skip_list
        )
        if len(splits.train.class_names) != 2:
            raise UserError(f"--data must be of two classes. Received: {len(splits.train.class_names)}.")
        plan = _plan(options, splits)
        log = options.out / _LOG
        device = options.device or device_here(splits, log, errors)
        created = now()
        ladder = Ladder(plan, splits, device, log)

        def keep(*, complete: bool = False) -> None:
            document = to_document(
                plan,
                splits,
                device,
                ladder.trained,
                ladder.failures,
                data=options.data,
                created=created,
                complete=complete,
            )
            write_atomically(options.out / RESULTS, to_json(document))
            write_atomically(options.out / REPORT, render(document, plan, splits, ladder.trained))

        try:
            ladder.measure(progress, keep)
        except BaseException:
            progress.stop()
            kept = f"what was trained so far is in {options.out}" if ladder.trained else "no run has ended"
            errors.print(f"stopped: {kept}", highlight=False, markup=False, soft_wrap=True)
            raise
    if not ladder.trained:
        (options.out / RESULTS).unlink(missing_ok=True)
        (options.out / REPORT).unlink(missing_ok=True)
        raise UserError(f"nothing could be trained. {'; '.join(dict.fromkeys(ladder.failures.values()))}", exit_code=3)
    keep(complete=not ladder.failures)
    print_ladder(console, plan, splits, ladder.trained, ladder.failures)
    print_files(console, "results and report", options.out / RESULTS, options.out / REPORT)
    return VERDICTS[judge(difference_of(plan, ladder.trained))]


def _plan(options: Options, splits: Splits) -> Plan:
    return Plan(
        rungs=options.rungs,
        seeds=options.seeds,
        images_seen=options.images_seen or _PASSES * splits.train.images,
        tuned=options.tuned,
        tuned_name=options.tuned_name,
    )


if __name__ == "__main__":
    sys.exit(main())
