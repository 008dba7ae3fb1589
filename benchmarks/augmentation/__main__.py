"""What each augmentation costs, by library and by where it is done, and a picture that all do the same.

python -m benchmarks.augmentation --operations shear,zoom --libraries keras_layers,opencv
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from benchmarks.augmentation.libraries import LIBRARIES, rows
from benchmarks.augmentation.operations import LEAST_IMAGE_SIZE, OPERATIONS
from benchmarks.lab.command import check_out, exit_code_of, new_folder, progress_bar, read_source, remove_if_empty
from benchmarks.lab.options import UserError, known_names
from pipeline import ImageSource, SourceError
from pipeline.commands import ArgumentParser
from pipeline.sources import add_skip_list_option
from profiles.text import Terminal, print_files

if TYPE_CHECKING:
    import numpy as np

ROUNDS, IMAGE_SIZE, BATCH_SIZE = 5, 64, 32
DATA = "generated:64"
_RESULTS, _REPORT = "augmentation.json", "augmentation.html"
# As many photos are served in turn: more would only fill the CPU's cache with what is not measured.
_MOST_PHOTOS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for, checked. Lengths in pixels."""

    data: str
    image_size: int
    batch_size: int
    operations: tuple[str, ...]
    libraries: tuple[str, ...]
    rounds: int
    out: Path
    skip_list: Path | None = None


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      0; 1 if a row does not do the same as the others; 2 for bad input; 3 if nothing could be measured; 128 + signal if
      stopped.
    """
    arguments = _parser().parse_args(argv)
    errors = Terminal(stderr=True)
    out = arguments.out or new_folder()

    def run() -> int:
        request = _read(arguments, out)
        try:
            check_out(out, _RESULTS, _REPORT)
            return _run(request, Terminal(), errors)
        finally:
            remove_if_empty(out)

    return exit_code_of(run, errors, out, "stopped: nothing was kept")


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="python -m benchmarks.augmentation",
        description=(__doc__ or "").splitlines()[0],
        epilog=f"operations: {', '.join(OPERATIONS)}; libraries: {', '.join(LIBRARIES)}",
    )
    add = parser.add_argument
    add("--data", default=DATA, metavar="DIR", help=f"a folder of class folders, or generated:N (default: {DATA})")
    add_skip_list_option(parser)
    add("--image-size", type=int, default=IMAGE_SIZE, metavar="N", help=f"pixels a side (default: {IMAGE_SIZE})")
    add("--batch-size", type=int, default=BATCH_SIZE, metavar="N", help=f"images a batch (default: {BATCH_SIZE})")
    add("--operations", default=",".join(OPERATIONS), metavar="NAME,...", help="which operations (default: all)")
    add("--libraries", default=",".join(LIBRARIES), metavar="NAME,...", help="which libraries (default: all)")
    add("--rounds", type=int, default=ROUNDS, metavar="N", help=f"windows of each row (default: {ROUNDS})")
    add("--out", type=Path, metavar="DIR", help="where augmentation.json and .html go (default: runs/TIME)")
    return parser


def _read(arguments: argparse.Namespace, out: Path) -> Request:
    for name, least in (("rounds", 1), ("batch_size", 1), ("image_size", LEAST_IMAGE_SIZE)):
        value = getattr(arguments, name)
        if value < least:
            raise UserError(f"--{name.replace('_', '-')} must be at least {least}. Received: {value}.")
    return Request(
        data=arguments.data,
        skip_list=arguments.skip_list,
        image_size=arguments.image_size,
        batch_size=arguments.batch_size,
        operations=known_names(arguments.operations, "--operations", OPERATIONS),
        libraries=known_names(arguments.libraries, "--libraries", LIBRARIES),
        rounds=arguments.rounds,
        out=out,
    )


def _run(request: Request, console: Console, errors: Console) -> int:
    chosen = rows(request.operations, request.libraries)
    if not chosen:
        raise UserError(
            f"No library of {', '.join(request.libraries)} has {', '.join(request.operations)}. Choose another."
        )
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"

    from benchmarks.augmentation.measure import run
    from benchmarks.augmentation.report import cautions, legend, render, summarise, table, too_different
    from profiles.provenance import machine, usable_threads
    from profiles.report import to_json, write_atomically

    cores = usable_threads()
    with progress_bar(errors) as progress:
        source = read_source(request.data, progress, errors, _RESULTS, request.skip_list).take(_MOST_PHOTOS)
        images = _photos(source, request.image_size)
        task = progress.add_task("", total=len(chosen) * (request.rounds + 1))
        measured = run(
            chosen,
            images,
            batch_size=request.batch_size,
            cores=cores,
            rounds=request.rounds,
            step=lambda label: progress.update(task, description=label, advance=1, refresh=True),
        )
    results = [summarise(one) for one in measured]
    document = {
        "schema_version": 2,
        "created": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "provenance": machine(),
        "dataset": source.to_dict(),
        "settings": {
            "image_size": request.image_size,
            "batch_size": request.batch_size,
            "rounds": request.rounds,
            "cores": cores,
            "libraries": list(request.libraries),
        },
        "results": results,
    }
    write_atomically(request.out / _RESULTS, to_json(document))
    write_atomically(request.out / _REPORT, render(document, measured, images[0]))
    console.print(table(results))
    for line in legend(document):
        console.print(line, style="dim", markup=False, highlight=False)
    for line in cautions(document):
        console.print(line, style="yellow", markup=False, highlight=False)
    print_files(console, "results and pictures", request.out / _RESULTS, request.out / _REPORT)
    if all(one.failed for one in measured):
        return 3
    return 1 if too_different(results) else 0


def _photos(source: ImageSource, image_size: int) -> np.ndarray:
    """Returns the middle square of each photo, (images, image_size, image_size, 3) uint8."""
    import numpy as np
    from PIL import Image, ImageOps

    made = []
    for path in source.paths:
        try:
            with Image.open(path) as image:
                made.append(np.asarray(ImageOps.fit(image.convert("RGB"), (image_size, image_size))))
        except OSError as error:
            raise SourceError(f"{Path(path).name} cannot be decoded: {error}. Remove it.") from error
    return np.stack(made)


if __name__ == "__main__":
    sys.exit(main())
