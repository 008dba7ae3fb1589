"""What is asked of `truth`: some groups of planted loads, or one of the parts that have options of their own."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lab.options import MODEL, UserError
from benchmarks.truth.promises import FAULTS, GATE_PARTS, LEAST_REPEATS, PLANTED, SIMULATION, TRANSFER
from models import MODELS
from pipeline.commands import ArgumentParser
from pipeline.sources import add_skip_list_option
from profiles.provenance import without_folder

# The part without a name: loads of known cost, measured as a user would measure them.
PLANTED_PART = "planted"
# Parts with options of their own, and what each shows.
PARTS = {
    "watching": "What watching costs: the same training with and without `profiles.StallMonitor`, in pairs of epochs.",
    "photos": "Compares generated photos with real ones: bytes, bits per pixel, and the rates at which they decode.",
    "gate": "What the gate does to what is known: the same against itself, planted losses, a burned core, simulated "
    "noise, faults.",
    "intervals": "Do intervals hold what they say? In simulated noise of five kinds, and in the main job between a "
    "variant and itself.",
    "verdicts": "What `python -m profiles` says of one script, again and again, on a quiet machine and beside a "
    "neighbour.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is measured; the document of a run keeps it.

    Attributes:
      part: `PLANTED_PART`, or one of `PARTS`.
      groups: those of the part's groups that are measured.
      options: what the part's own options were set to, by name; a folder without those that it lies in.
    """

    part: str
    groups: tuple[str, ...]
    options: Mapping[str, str | int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run: what is measured, and where its files go.

    Attributes:
      against: real photos, which generated ones are compared with; "" for the other parts.
    """

    asked: Asked
    out: Path
    against: str = ""
    skip_list: Path | None = None

    def number(self, option: str) -> int:
        """Returns what an option of the part was set to."""
        return int(self.asked.options[option])


def part_of(words: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the part that the first words name, and the words behind its name."""
    first = words[0].split("=", 1) if words and words[0].startswith("--only=") else list(words[:1])
    rest = [*first, *words[1:]]
    if rest[:1] == ["--only"] and rest[1:2] and rest[1] in PARTS:
        return rest[1], rest[2:]
    return PLANTED_PART, list(words)


def _parser(prog: str, text: str, epilog: str | None = None) -> argparse.ArgumentParser:
    arguments = ArgumentParser(prog=prog, description=text, epilog=epilog)
    arguments.add_argument(
        "--out", type=Path, metavar="DIR", help="where results.json and report.html go (default: runs/TIME)"
    )
    return arguments


def _parser_of(part: str, epilog: str | None = None) -> argparse.ArgumentParser:
    return _parser(f"python -m benchmarks.truth --only {part}", PARTS[part], epilog)


def _check_least(arguments: argparse.Namespace, **least: int) -> None:
    for name, number in least.items():
        value = getattr(arguments, name)
        if value < number:
            raise UserError(f"--{name} must be at least {number}. Received: {value}.")


# Planted loads


def planted_parser() -> argparse.ArgumentParser:
    arguments = _parser(
        "python -m benchmarks.truth",
        "How far our own figures are off: loaders, models, edges and stages of known cost, found again.",
        "Exit codes: 0 where every figure is as near to the truth as promised, 1 where one is not.",
    )
    arguments.add_argument(
        "--only",
        choices=(*PLANTED, *PARTS),
        action="append",
        metavar="PART",
        help=f"check this alone; may be given several times: {', '.join(PLANTED)} ({TRANSFER}: alone, and on a GPU). "
        f"Given first, and with options of their own (--only PART --help): {', '.join(PARTS)}",
    )
    arguments.add_argument(
        "--repeats",
        type=int,
        default=1,
        metavar="N",
        help="measure one case of each part N times; from "
        f"{LEAST_REPEATS} on, test the mean of the signed errors against zero (default: each case once)",
    )
    return arguments


def read_planted(arguments: argparse.Namespace, out: Path) -> Plan:
    """Returns the plan of planted loads.

    Raises:
      UserError: in one line.
    """
    _check_least(arguments, repeats=1)
    groups = tuple(dict.fromkeys(arguments.only or (name for name in PLANTED if name != TRANSFER)))
    if parts := [name for name in groups if name in PARTS]:
        raise UserError(f"--only {parts[0]} has options of its own, and is given first and alone.")
    if TRANSFER in groups and len(groups) > 1:
        raise UserError(f"--only {TRANSFER} needs a GPU, which the other parts must not see: give this part alone.")
    return Plan(asked=Asked(part=PLANTED_PART, groups=groups, options={"repeats": arguments.repeats}), out=out)


# The monitor


def watching_parser() -> argparse.ArgumentParser:
    arguments = _parser_of(
        "watching",
        "Exit codes: 0 where the ratio is shown to be within 1 % of 1, 1 where beyond, 4 where neither is shown.",
    )
    arguments.add_argument(
        "--model", default=MODEL, choices=tuple(MODELS), metavar="NAME", help=f"a known name (default: {MODEL})"
    )
    arguments.add_argument("--pairs", type=int, default=160, metavar="N", help="pairs of epochs (default: 160)")
    return arguments


def read_watching(arguments: argparse.Namespace, out: Path) -> Plan:
    """Returns the plan of the monitor's cost.

    Raises:
      UserError: in one line.
    """
    _check_least(arguments, pairs=3)
    options = {"model": arguments.model, "pairs": arguments.pairs}
    return Plan(asked=Asked(part="watching", groups=("watching",), options=options), out=out)


# Generated photos


def photos_parser() -> argparse.ArgumentParser:
    arguments = _parser_of("photos", "Exit codes: 0 if all ratios lie within 10 % of 1, 1 if not.")
    arguments.add_argument("--against", required=True, metavar="DIR", help="a folder of class folders of real photos")
    add_skip_list_option(arguments)
    arguments.add_argument("--rounds", type=int, default=7, metavar="N", help="times that all are decoded (default: 7)")
    return arguments


def read_photos(arguments: argparse.Namespace, out: Path) -> Plan:
    """Returns the plan of a comparison of photos.

    Raises:
      UserError: in one line.
    """
    _check_least(arguments, rounds=1)
    options = {"against": without_folder(arguments.against), "rounds": arguments.rounds}
    asked = Asked(part="photos", groups=("photos",), options=options)
    return Plan(asked=asked, out=out, against=arguments.against, skip_list=arguments.skip_list)


# The gate


def gate_parser() -> argparse.ArgumentParser:
    arguments = _parser_of(
        "gate",
        "Takes hours in all. The results are written after each try; called again with the same --out, the command "
        "goes on where it was stopped. Exit codes: 0 where all tries hold what is promised, 1 where not.",
    )
    arguments.add_argument("--tries", type=int, default=20, metavar="N", help="of each part (default: 20)")
    arguments.add_argument("--only", choices=(*GATE_PARTS, SIMULATION, FAULTS), action="append", help="this part alone")
    return arguments


def read_gate(arguments: argparse.Namespace, out: Path) -> Plan:
    """Returns the plan of tries of the gate.

    Raises:
      UserError: in one line.
    """
    _check_least(arguments, tries=1)
    groups = tuple(dict.fromkeys(arguments.only or (*GATE_PARTS, SIMULATION, FAULTS)))
    return Plan(asked=Asked(part="gate", groups=groups, options={"tries": arguments.tries}), out=out)


# Intervals


def intervals_parser() -> argparse.ArgumentParser:
    arguments = _parser_of("intervals", "Exit codes: 0 where all coverage is as promised, 1 where not.")
    add = arguments.add_argument
    add("--simulations", type=int, default=20_000, metavar="N", help="of each number (default: 20000)")
    add(
        "--real",
        type=int,
        default=100,
        metavar="N",
        help="intervals of the main job between a variant and itself (default: 100; 0: none)",
    )
    return arguments


def read_intervals(arguments: argparse.Namespace, out: Path) -> Plan:
    """Returns the plan of simulated and real intervals.

    Raises:
      UserError: in one line.
    """
    _check_least(arguments, simulations=100, real=0)
    groups = ("simulated", "real") if arguments.real else ("simulated",)
    options = {"simulations": arguments.simulations, "real": arguments.real}
    return Plan(asked=Asked(part="intervals", groups=groups, options=options), out=out)


# Verdicts


def verdicts_parser() -> argparse.ArgumentParser:
    arguments = _parser_of("verdicts", "Exit codes: 0 where verdicts are right as often as promised, 1 where not.")
    arguments.add_argument("--runs", type=int, default=40, metavar="N", help="quiet, and as many beside (default: 40)")
    return arguments


def read_verdicts(arguments: argparse.Namespace, out: Path) -> Plan:
    """Returns the plan of runs of a script.

    Raises:
      UserError: in one line.
    """
    _check_least(arguments, runs=1)
    return Plan(asked=Asked(part="verdicts", groups=("verdicts",), options={"runs": arguments.runs}), out=out)
