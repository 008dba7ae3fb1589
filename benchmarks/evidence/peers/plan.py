"""The command line, and the plan of a run read from it: which peers at which works, for how many rounds."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from unstall.benchmarks.evidence.peers.catalogue import PARTS, PEERS, Peer, all_peers, our_peers
from unstall.benchmarks.evidence.peers.loaders.work import WORKS
from unstall.benchmarks.evidence.run import add_out
from unstall.benchmarks.lab.options import DATA, UserError, check_least, known_names
from unstall.needs import PHOTOS
from unstall.parser import ArgumentParser
from unstall.pipeline.commands import add_skip_list_option
from unstall.profiles.provenance import usable_threads, without_folder
from unstall.text import did_you_mean

_ROUNDS = 5
# With fewer images, an epoch of a prepared file would be so short that its start and its end took most of its time.
_PREPARED_IMAGES, _LEAST_PREPARED_IMAGES = 10_000, 64
_MOST_WORKERS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user asked to measure; kept in the document of a run.

    Attributes:
      works: names in `WORKS`, in the order in which they are measured.
      peers: the peers, in the order of the catalogue; not every peer does every work.
      rounds: number of windows of each peer at each work.
      workers: numbers of workers to try; empty for the usual numbers of each peer.
      cores: number of cores that this process may use.
      prepared_images: least number of images in a prepared file.
      other_pythons: names of the peers that run under another interpreter.
      data: the user's name for the photos, without the folders before it.
    """

    works: tuple[str, ...]
    peers: tuple[Peer, ...]
    rounds: int
    workers: tuple[int, ...]
    cores: int
    prepared_images: int
    other_pythons: tuple[str, ...]
    data: str

    def peers_of(self, work: str) -> tuple[Peer, ...]:
        """Returns the peers that do a work."""
        return tuple(peer for peer in self.peers if work in peer.functions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run: what was asked, which photos and interpreters are used, and where the files of the run go.

    Attributes:
      pythons: for each peer that runs under another interpreter, the path of that interpreter.
    """

    asked: Asked
    data: str
    pythons: Mapping[str, str]
    out: Path
    skip_list: Path | None = None


def parser() -> argparse.ArgumentParser:
    arguments = ArgumentParser(
        prog="python -m benchmarks.evidence.peers",
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
    add_out(arguments)
    return arguments


def read_plan(arguments: argparse.Namespace, out: Path) -> Plan:
    """Makes a plan of the arguments, and checks all that can be checked before anything is opened.

    Raises:
      UserError: if an argument is wrong; the message is one line, with the nearest known name where there is one.
    """
    check_least(1, rounds=arguments.rounds)
    check_least(_LEAST_PREPARED_IMAGES, prepared_images=arguments.prepared_images)
    works = known_names(arguments.work, "--work", WORKS)
    peers = _peers(arguments.peers)
    if not any(work in peer.functions for peer in peers for work in works):
        names = ", ".join(peer.name for peer in peers)
        raise UserError(f"--peers: none of {names} does the work {', '.join(works)}.")
    workers = _numbers(arguments.workers)
    pythons = _pythons(arguments.python)
    asked = Asked(
        works=works,
        peers=peers,
        rounds=arguments.rounds,
        workers=workers,
        cores=usable_threads(),
        prepared_images=arguments.prepared_images,
        other_pythons=tuple(pythons),
        data=without_folder(arguments.data),
    )
    return Plan(asked=asked, data=arguments.data, pythons=pythons, out=out, skip_list=arguments.skip_list)


def _peers(text: str) -> tuple[Peer, ...]:
    """Returns the peers that a comma-separated list names, or all for an empty list, in the catalogue's order."""
    catalogue = all_peers()
    groups = {"ours": tuple(our_peers()), "parts": tuple(PARTS)}
    names = known_names(text, "--peers", [*catalogue, *groups]) if text else tuple(catalogue)
    chosen = {member for name in names for member in groups.get(name, (name,))}
    return tuple(peer for name, peer in catalogue.items() if name in chosen)


def _numbers(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not all(word.isdecimal() and int(word) <= _MOST_WORKERS for word in words):
        raise UserError(f"--workers needs numbers from 0 to {_MOST_WORKERS}, such as 1,2,4. Received: {text!r}.")
    return tuple(dict.fromkeys(map(int, words)))


def _pythons(pairs: Sequence[str]) -> dict[str, str]:
    """Returns the interpreter's path of each PEER=PATH, by peer."""
    pythons = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not equals or name not in PEERS:
            hint = did_you_mean(name, PEERS) if name not in PEERS else ""
            raise UserError(f"--python needs PEER=PATH.{hint} Received: {pair!r}.")
        program = shutil.which(path)
        if program is None:
            raise UserError(f"--python {name}: {path} is not an interpreter that can be run.")
        # Links stay unresolved: Python finds its virtual environment by the path that started the interpreter.
        pythons[name] = str(Path(program).absolute())
    return pythons
