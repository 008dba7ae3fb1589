"""The command line of `unstall peers`."""

from __future__ import annotations

import argparse

from unstall.benchmarks.evidence.peers.works import WORKS
from unstall.benchmarks.lab.options import DATA, add_result_options
from unstall.needs import PHOTOS
from unstall.parser import ArgumentParser
from unstall.pipeline.commands import add_skip_list_option

_ROUNDS = 5
# With fewer images, an epoch of a prepared file would be so short that its start and its end took most of its time.
_PREPARED_IMAGES = 10_000


def parser() -> argparse.ArgumentParser:
    arguments = ArgumentParser(
        prog="unstall peers",
        description="Measures other libraries' loaders at the same work as ours.",
        needs=PHOTOS,
    )
    add = arguments.add_argument
    add("--data", default=DATA, metavar="DIR|generated:N", help=f"images to load (default: {DATA})")
    add_skip_list_option(arguments)
    add("--work", default=",".join(WORKS), metavar="NAME,...", help=f"any of {', '.join(WORKS)} (default: all)")
    add(
        "--peers",
        default="",
        metavar="NAME,...",
        help="names from --list, ours, or parts: decoding, reading and warping alone (default: all)",
    )
    add("--rounds", type=int, default=_ROUNDS, metavar="N", help=f"windows a peer (default: {_ROUNDS})")
    add("--workers", default="", metavar="N,...", help="workers to try (default: none or 1, cores, twice the cores)")
    add(
        "--python",
        action="append",
        default=[],
        metavar="PEER=PATH",
        help="another interpreter for a peer; it needs NumPy, psutil and the peer's library",
    )
    add(
        "--prepared-images",
        type=int,
        default=_PREPARED_IMAGES,
        metavar="N",
        help=f"images in a prepared file, the photos again and again (default: {_PREPARED_IMAGES:,})",
    )
    add("--list", action="store_true", help="lists the peers, and ends")
    add_result_options(arguments)
    return arguments
