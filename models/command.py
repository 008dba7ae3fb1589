"""The command that classifies pictures with a trained model.

unstall predict FILE.keras PICTURE ...
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from unstall.parser import ArgumentParser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      0; 1 if a picture could not be classified; 2 if the model cannot be used; 130 if stopped by Ctrl-C.
    """
    arguments = _parser().parse_args(argv)
    from unstall.models.predict import run

    try:
        return run(arguments)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 128 + signal.SIGINT


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="unstall predict",
        description="Says of each picture its class and how probable that is. The model's file holds how pictures are "
        "prepared: they are given as they are.",
        epilog="Exit codes: 0 all classified; 1 some were not, each with its reason on stderr; 2 the model cannot be "
        "used.",
        needs=("keras", "PIL"),
    )
    parser.add_argument("model", metavar="FILE.keras", help="what `unstall train` wrote")
    readable = "that Pillow reads, but no EPS, of 50 megapixels at most"
    parser.add_argument("pictures", nargs="+", metavar="PICTURE", help=readable)
    parser.add_argument("--json", action="store_true", help="prints a list of objects, with every class's probability")
    return parser
