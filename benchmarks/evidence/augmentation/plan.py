"""The command line, and the plan of a run read from it: which operations in which libraries, for how many rounds."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from unstall.benchmarks.evidence.augmentation.libraries import LIBRARIES, Subject, subjects_of
from unstall.benchmarks.evidence.augmentation.operations import LEAST_IMAGE_SIZE, OPERATIONS
from unstall.benchmarks.evidence.run import add_out
from unstall.benchmarks.lab.options import UserError, check_least, known_names
from unstall.needs import PHOTOS
from unstall.parser import ArgumentParser
from unstall.pipeline.commands import add_skip_list_option
from unstall.profiles.provenance import usable_threads, without_folder

_DATA, _ROUNDS, _IMAGE_SIZE, _BATCH_SIZE = "generated:64", 5, 64, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user asked to measure; kept in the document of a run.

    Attributes:
      operations, libraries: keys of `OPERATIONS` and `LIBRARIES`.
      image_size: the side of the square images, in pixels.
      batch_size: number of images in a batch.
      rounds: number of windows of each subject on one core, and as many on all cores.
      cores: number of all cores: each subject is measured with one call on one core, and with this many parallel calls.
      data: the user's name for the photos, without the folders before it.
    """

    operations: tuple[str, ...]
    libraries: tuple[str, ...]
    image_size: int
    batch_size: int
    rounds: int
    cores: int
    data: str

    @property
    def subjects(self) -> tuple[Subject, ...]:
        return subjects_of(self.operations, self.libraries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run: what was asked, which photos are used, and where the files of the run go."""

    asked: Asked
    data: str
    out: Path
    skip_list: Path | None = None


def parser() -> argparse.ArgumentParser:
    arguments = ArgumentParser(
        prog="python -m benchmarks.evidence.augmentation",
        needs=PHOTOS,
        description="What each augmentation costs, by library and by where it is done.",
        epilog=f"operations: {', '.join(OPERATIONS)}; libraries: {', '.join(LIBRARIES)}",
    )
    add = arguments.add_argument
    add("--data", default=_DATA, metavar="DIR", help=f"a folder of class folders, or generated:N (default: {_DATA})")
    add_skip_list_option(arguments)
    add("--image-size", type=int, default=_IMAGE_SIZE, metavar="N", help=f"pixels a side (default: {_IMAGE_SIZE})")
    add("--batch-size", type=int, default=_BATCH_SIZE, metavar="N", help=f"images a batch (default: {_BATCH_SIZE})")
    add("--operations", metavar="NAME,...", help="which operations (default: all)")
    add("--libraries", metavar="NAME,...", help="which libraries (default: all)")
    add("--rounds", type=int, default=_ROUNDS, metavar="N", help=f"windows of each row (default: {_ROUNDS})")
    add_out(arguments)
    return arguments


def read_plan(arguments: argparse.Namespace, out: Path) -> Plan:
    """Makes a plan of the arguments, and checks all that can be checked before anything is opened.

    Raises:
      UserError: if an argument is wrong; the message is one line, with the nearest known name where there is one.
    """
    check_least(1, rounds=arguments.rounds, batch_size=arguments.batch_size)
    check_least(LEAST_IMAGE_SIZE, image_size=arguments.image_size)
    asked = Asked(
        operations=tuple(OPERATIONS)
        if arguments.operations is None
        else known_names(arguments.operations, "--operations", OPERATIONS),
        libraries=tuple(LIBRARIES)
        if arguments.libraries is None
        else known_names(arguments.libraries, "--libraries", LIBRARIES),
        image_size=arguments.image_size,
        batch_size=arguments.batch_size,
        rounds=arguments.rounds,
        cores=usable_threads(),
        data=without_folder(arguments.data),
    )
    if not asked.subjects:
        names = ", ".join(asked.libraries), ", ".join(asked.operations)
        raise UserError(f"No library of {names[0]} has {names[1]}. Choose another.")
    return Plan(asked=asked, data=arguments.data, out=out, skip_list=arguments.skip_list)
