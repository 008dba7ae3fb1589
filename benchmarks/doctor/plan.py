"""Reads the doctor's arguments: lists the folder to examine, and refuses to write results into it."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from unstall.benchmarks.doctor.folder import Folder, list_folder
from unstall.benchmarks.lab.options import UserError
from unstall.parser import ArgumentParser
from unstall.profiles.provenance import without_folder

# The name of the file with the list that `--skip-list` of other commands reads.
SKIP_LIST = "skip.jsonl"
_EPILOG = (
    "Exit code 1: something would stop a training. docs/doctor.md says what each trouble means. "
    "The files to leave out are listed in skip.jsonl, for --skip-list of other commands."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is examined; the document of a run keeps it.

    Attributes:
      folder: its name, without the folders that it lies in.
      storage: whether the rate of its storage is measured.
    """

    folder: str
    storage: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run: the folder with its files, and where the results go."""

    asked: Asked
    folder: Folder
    out: Path


def parser() -> argparse.ArgumentParser:
    arguments = ArgumentParser(
        prog="unstall doctor",
        description="Finds what is wrong with a folder of images, changes nothing, and lists the files that are better "
        "left out.",
        epilog=_EPILOG,
    )
    add = arguments.add_argument
    add(
        "--data", type=Path, required=True, metavar="DIR", help="a folder of class folders, or of splits such as train/"
    )
    add("--storage", action="store_true", help="measure how fast 1, 4 and 16 readers read the files from their disk")
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="where results.json, report.html and skip.jsonl go (default: runs/TIME)",
    )
    return arguments


def read_plan(arguments: argparse.Namespace, out: Path) -> Plan:
    """Lists the folder.

    Raises:
      SourceError: if it is neither a folder of classes nor a folder of splits.
      UserError: if the results would be written into it.
    """
    root: Path = arguments.data
    folder = list_folder(root)
    if Path(os.path.realpath(out)).is_relative_to(root.resolve()):
        raise UserError(f"--out {out} would lie in the folder that is examined. Give one outside of {root}.")
    asked = Asked(folder=without_folder(str(root.resolve())), storage=arguments.storage)
    return Plan(asked=asked, folder=folder, out=out)
