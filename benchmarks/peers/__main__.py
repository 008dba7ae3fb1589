"""The same work done by other libraries' loaders, each in its own process, measured in turns in one run.

python -m benchmarks.peers --data photos/train
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.lab.command import check_out, exit_code_of, new_folder, progress_bar, read_source, remove_if_empty
from benchmarks.lab.options import UserError, known_names
from benchmarks.peers.loaders.work import WORKS
from benchmarks.peers.measure import Launcher, LeftOut, Material, PeerResult, PeerRun, make_material, result_to_json
from benchmarks.peers.plan import PARTS, PEERS, Peer, our_peers
from benchmarks.peers.processes import PeerFailed, link_packages
from benchmarks.peers.report import ours_of, print_left_out, print_results, ratio_to
from pipeline import ImageSource
from pipeline.cache import remove_scratch, scratch_folder
from pipeline.commands import ArgumentParser
from pipeline.sources import add_skip_list_option
from pipeline.text import did_you_mean
from profiles.provenance import machine, usable_threads
from profiles.report import to_json, write_atomically
from profiles.statistics import geometric_mean
from profiles.text import Terminal, print_files

DATA = "generated:2000"
ROUNDS = 5
# An epoch of a prepared file is over in a moment; of fewer images its edges would be most of it.
PREPARED_IMAGES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says, checked.

    Attributes:
      works: in the order in which they are measured.
      peers: all, in the order of the catalogue; each does some of the works.
      workers: numbers to try; empty for each peer's own.
      pythons: another interpreter, by peer.
      prepared_images: that a prepared file holds at least.
    """

    data: str
    works: tuple[str, ...]
    peers: tuple[Peer, ...]
    rounds: int
    workers: tuple[int, ...]
    pythons: dict[str, str]
    prepared_images: int
    out: Path
    skip_list: Path | None = None


@dataclass(slots=True)
class Measurements:
    """What was measured so far."""

    results: list[PeerResult] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    images: dict[str, int] = field(default_factory=dict)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0, or 2 for bad input, 3 if nothing could be measured, 128 + signal if stopped."""
    console, errors = Terminal(), Terminal(stderr=True)
    arguments = _parser().parse_args(argv)
    if arguments.list:
        _list(console)
        return 0
    out = arguments.out or new_folder()

    def run() -> int:
        options = read_options(arguments, out)
        try:
            check_out(out, "peers.json")
            return _run(options, console, errors)
        finally:
            remove_if_empty(out)

    return exit_code_of(run, errors, out)


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="python -m benchmarks.peers", description="Measures other libraries' loaders at the same work as ours."
    )
    add = parser.add_argument
    add("--data", default=DATA, metavar="DIR|generated:N", help=f"images to load (default: {DATA})")
    add_skip_list_option(parser)
    add("--work", default=",".join(WORKS), metavar="NAME,...", help=f"any of {', '.join(WORKS)} (default: all)")
    add(
        "--peers",
        default="",
        metavar="NAME,...",
        help="names from --list, ours, or parts: decoding, reading and warping alone (default: all)",
    )
    add("--rounds", type=int, default=ROUNDS, metavar="N", help=f"windows a peer (default: {ROUNDS})")
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
        default=PREPARED_IMAGES,
        metavar="N",
        help=f"images in a prepared file, the photos again and again (default: {PREPARED_IMAGES:,})",
    )
    add("--out", type=Path, metavar="DIR", help="where peers.json goes (default: runs/TIME)")
    add("--list", action="store_true", help="lists the peers, and ends")
    return parser


def read_options(arguments: argparse.Namespace, out: Path) -> Options:
    """Checks what can be checked before anything is opened.

    Raises:
      UserError: in one line, with the nearest known name where there is one.
    """
    for option, least in (("rounds", 1), ("prepared_images", 64)):
        if (value := getattr(arguments, option)) < least:
            raise UserError(f"--{option.replace('_', '-')} must be at least {least}. Received: {value}.")
    works = known_names(arguments.work, "--work", WORKS)
    catalogue = our_peers() | PEERS | PARTS
    groups = {"ours": tuple(our_peers()), "parts": tuple(PARTS)}
    names = known_names(arguments.peers, "--peers", [*catalogue, *groups]) if arguments.peers else tuple(catalogue)
    chosen = dict.fromkeys(member for name in names for member in groups.get(name, (name,)))
    peers = tuple(peer for name, peer in catalogue.items() if name in chosen)
    if not any(work in peer.functions for peer in peers for work in works):
        raise UserError(f"--peers: none of {', '.join(chosen)} does the work {', '.join(works)}.")
    return Options(
        data=arguments.data,
        skip_list=arguments.skip_list,
        works=works,
        peers=peers,
        rounds=arguments.rounds,
        workers=_numbers(arguments.workers),
        pythons=_pythons(arguments.python),
        prepared_images=arguments.prepared_images,
        out=out,
    )


def _numbers(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not all(word.isdecimal() and int(word) <= 1024 for word in words):
        raise UserError(f"--workers needs numbers from 0 to 1024, such as 1,2,4. Received: {text!r}.")
    return tuple(dict.fromkeys(map(int, words)))


def _pythons(pairs: Sequence[str]) -> dict[str, str]:
    pythons = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not equals or name not in PEERS:
            hint = did_you_mean(name, PEERS) if name not in PEERS else ""
            raise UserError(f"--python needs PEER=PATH.{hint} Received: {pair!r}.")
        program = shutil.which(path)
        if program is None:
            raise UserError(f"--python {name}: {path} is not an interpreter that can be run.")
        # Not resolved: the link of a virtual environment is what makes it one.
        pythons[name] = str(Path(program).absolute())
    return pythons


def _run(options: Options, console: Console, errors: Console) -> int:
    measurements = Measurements()
    with progress_bar(errors) as progress:
        scratch = scratch_folder(options.out.resolve())  # children have folders of their own to work in
        launcher = Launcher(scratch, link_packages(scratch / "modules"), options.pythons, sys.executable)
        source: ImageSource | None = None
        try:
            source = read_source(options.data, progress, errors, "peers.json", options.skip_list)
            _measure(options, source, launcher, scratch, measurements, progress)
            _write(options, source, measurements, complete=True)
        except BaseException:
            if source is not None and any(result.samples for result in measurements.results):
                _write(options, source, measurements, complete=False)
                errors.print(f"stopped: what was measured so far is in {options.out}", highlight=False, markup=False)
            raise
        finally:
            try:
                launcher.end()
            finally:
                remove_scratch(scratch)
            with contextlib.suppress(OSError):
                options.out.rmdir()  # only where nothing was written
    if not any(result.samples for result in measurements.results):
        reasons = "; ".join(f"{peer.name}: {peer.reason}" for peer in measurements.left_out) or "all did other work"
        raise UserError(f"nothing could be measured. {reasons}", exit_code=3)
    _print(options, measurements, console)
    return 0


def _measure(
    options: Options,
    source: ImageSource,
    launcher: Launcher,
    scratch: Path,
    measurements: Measurements,
    progress: Progress,
) -> None:
    task = progress.add_task("decoding", total=None)
    progress.refresh()
    try:
        material = make_material(source, launcher, scratch, works=options.works, least=options.prepared_images)
    except PeerFailed as error:
        raise UserError(f"the images cannot be decoded: {error}", exit_code=3) from error
    progress.remove_task(task)
    for work in options.works:
        peers = [peer for peer in options.peers if work in peer.functions]
        if peers:
            _measure_work(options, work, peers, material, launcher, measurements, progress)


def _measure_work(
    options: Options,
    work: str,
    peers: Sequence[Peer],
    material: Material,
    launcher: Launcher,
    measurements: Measurements,
    progress: Progress,
) -> None:
    task = progress.add_task(work, total=len(peers) * (1 + options.rounds))

    def tell(text: str) -> None:
        progress.update(task, description=f"{work}: {text}"[:40], refresh=True)

    def done(_: str) -> None:
        progress.update(task, advance=1, refresh=True)

    run = PeerRun(work, peers, material, launcher, cores=usable_threads(), workers=options.workers, tell=tell)
    try:
        run.prepare(done)
        measurements.results += run.results
        measurements.images[work] = material.job(work, Path()).images
        for number in range(options.rounds):
            run.measure(number, done)
    finally:
        gone = {peer.name for peer in run.left_out}
        measurements.results[:] = [
            result for result in measurements.results if result.work != work or result.peer.name not in gone
        ]
        measurements.left_out += run.left_out
    run.end()
    progress.remove_task(task)


def _write(options: Options, source: ImageSource, measurements: Measurements, *, complete: bool) -> None:
    written = []
    for work in options.works:
        results = [result for result in measurements.results if result.work == work]
        ours = ours_of(results)
        for result in results:
            ratio = ratio_to(result, ours)
            written.append(
                result_to_json(result)
                | {
                    "images_per_sec": geometric_mean(result.rates) if result.samples else None,
                    "ratio_to_ours": ratio[0] if ratio else None,
                    "ratio_ci95": list(ratio[1]) if ratio and ratio[1] else None,
                    "ours": ours.peer.name if ours else None,
                }
            )
    document: dict[str, Any] = {
        "schema_version": 1,
        "complete": complete,
        "provenance": machine(),
        "dataset": source.to_dict(),
        "works": {work: {"does": WORKS[work], "images": measurements.images.get(work)} for work in options.works},
        "rounds": options.rounds,
        "results": written,
        "left_out": [{"work": peer.work, "peer": peer.name, "reason": peer.reason} for peer in measurements.left_out],
    }
    write_atomically(options.out / "peers.json", to_json(document))


def _print(options: Options, measurements: Measurements, console: Console) -> None:
    for work in options.works:
        results = [result for result in measurements.results if result.work == work]
        if results:
            print_results(console, work, measurements.images[work], results)
    print_left_out(console, measurements.left_out)
    if all(result.peer.ours or result.peer.part for result in measurements.results):
        console.print("\nNo peer is here: no other library was measured.", highlight=False)
    print_files(console, "results", options.out / "peers.json")


def _list(console: Console) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("peer", "work", "note"):
        table.add_column(column)
    for name, peer in (our_peers() | PEERS | PARTS).items():
        table.add_row(name, ", ".join(peer.functions), peer.note)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
