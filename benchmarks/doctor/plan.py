"""Reads the doctor's arguments: lists the folder to examine, and refuses to write results into it."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from unstall.benchmarks.doctor.folder import Folder, list_folder
from unstall.benchmarks.lab.options import UserError
from unstall.profiles.provenance import without_folder

# The name of the file with the list that `--skip-list` of other commands reads.
SKIP_LIST = "skip.jsonl"


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
