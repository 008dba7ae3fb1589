"""Options that several commands have."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_skip_list_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--skip-list`, an option of every command that reads images."""
    parser.add_argument(
        "--skip-list", type=Path, metavar="FILE", help="files to leave out, as unstall doctor lists them"
    )
