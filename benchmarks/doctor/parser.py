"""The command line of `unstall doctor`."""

from __future__ import annotations

import argparse
from pathlib import Path

from unstall.needs import PHOTOS
from unstall.parser import ArgumentParser

_EPILOG = (
    "Exit code 1: something would stop a training. docs/doctor.md says what each trouble means. "
    "The files to leave out are listed in skip.jsonl, for --skip-list of other commands."
)


def parser() -> argparse.ArgumentParser:
    arguments = ArgumentParser(
        prog="unstall doctor",
        needs=PHOTOS,
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
