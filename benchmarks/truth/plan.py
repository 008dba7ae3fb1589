"""What is asked of `truth`: some groups of planted loads, or one of the parts that have options of their own."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from unstall.benchmarks.lab.options import MODEL, UserError, check_least
from unstall.benchmarks.truth.promises import FAULTS, GATE_PARTS, LEAST_REPEATS, LOOPS, ON_GPU, PLANTED, SIMULATION
from unstall.models import MODELS
from unstall.parser import ArgumentParser
from unstall.pipeline.sources import add_skip_list_option
from unstall.profiles.provenance import without_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """An option that takes a number.

    Attributes:
      least: the smallest that makes sense.
      text: for --help, without the default.
    """

    default: int
    least: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the command, with options of its own.

    Attributes:
      text: what the part shows.
      epilog: of --help.
      numbers: the options that take a number, by name.
    """

    text: str
    epilog: str
    numbers: Mapping[str, Number]


# The part without a name: loads of known cost, measured as a user would measure them.
PLANTED_PART = "planted"
PARTS = {
    PLANTED_PART: Part(
        text="How far our own figures are off: loaders, models, edges and stages of known cost, found again.",
        epilog="Exit codes: 0 where every figure is as near to the truth as promised, 1 where one is not.",
        numbers={
            "repeats": Number(
                default=1,
                least=1,
                text="measure one typical case of each part N times instead of all cases once; from "
                f"{LEAST_REPEATS} on, the mean of the signed errors is tested against zero",
            )
        },
    ),
    "watching": Part(
        text="What watching costs: the same training with and without `profiles.StallMonitor`, in pairs of epochs.",
        epilog="Exit codes: 0 where the ratio is shown to be within 1 % of 1, 1 where beyond, 4 where neither is "
        "shown.",
        numbers={"pairs": Number(default=160, least=3, text="pairs of epochs")},
    ),
    "photos": Part(
        text="Compares generated photos with real ones: bytes, bits per pixel, and the rates at which they decode.",
        epilog="Exit codes: 0 if all ratios lie within 10 % of 1, 1 if not.",
        numbers={"rounds": Number(default=7, least=1, text="times that all are decoded")},
    ),
    "gate": Part(
        text="What the gate does to what is known: the same against itself, planted losses, a burned core, simulated "
        "noise, faults.",
        epilog="Takes hours in all. The results are written after each try; called again with the same --out, the "
        "command goes on where it was stopped. Exit codes: 0 where all tries hold what is promised, 1 where not.",
        numbers={"tries": Number(default=20, least=1, text="tries of each part")},
    ),
    "intervals": Part(
        text="Do intervals hold what they say? In simulated noise of five kinds, and in the main job between a variant "
        "and itself.",
        epilog="Exit codes: 0 where all coverage is as promised, 1 where not.",
        numbers={
            "simulations": Number(default=20_000, least=100, text="simulations of each number"),
            "real": Number(default=100, least=0, text="intervals of the main job between a variant and itself"),
        },
    ),
    "verdicts": Part(
        text="What `unstall profile` says of one script, again and again, on a quiet machine and beside a neighbour.",
        epilog="Exit codes: 0 where verdicts are right as often as promised, 1 where not.",
        numbers={"runs": Number(default=40, least=1, text="runs on a quiet machine, and as many beside a neighbour")},
    ),
    "attributers": Part(
        text="What we and TraceML find of the waiting of a PyTorch script, and how often TraceML's comparison of the "
        "same code is a false alarm.",
        epilog="Needs PyTorch and traceml-ai. Exit codes: 0 where our shares are as near to the truth as promised, 1 "
        "where one is not.",
        numbers={
            "rounds": Number(default=3, least=1, text="runs of each case under each tool"),
            "pairs": Number(default=20, least=1, text="pairs of runs of the same code"),
        },
    ),
}
# Parts that --only names first and alone; all but the part without a name.
NAMED = tuple(name for name in PARTS if name != PLANTED_PART)
# Groups of the part without a name that are measured where --only names none.
_BY_NAME = [name for name, library in LOOPS.items() if library != "tensorflow"]
_USUAL = tuple(name for name in PLANTED if name not in (*ON_GPU, *_BY_NAME))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is measured; the document of a run keeps it.

    Attributes:
      part: a key of `PARTS`.
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
    if rest[:1] == ["--only"] and rest[1:2] and rest[1] in NAMED:
        return rest[1], rest[2:]
    return PLANTED_PART, list(words)


def parser(part: str) -> argparse.ArgumentParser:
    """Returns the parser of a part's command line."""
    asked = PARTS[part]
    arguments = ArgumentParser(
        prog="unstall truth" + (f" --only {part}" if part in NAMED else ""),
        description=asked.text,
        epilog=asked.epilog,
    )
    add = arguments.add_argument
    for name, number in asked.numbers.items():
        text = f"{number.text} (default: {number.default})"
        add(f"--{name}", type=int, default=number.default, metavar="N", help=text)
    if part == PLANTED_PART:
        add(
            "--only",
            choices=(*PLANTED, *NAMED),
            action="append",
            metavar="PART",
            help=f"check this alone; may be given several times: {', '.join(_USUAL)}; with PyTorch or JAX installed: "
            f"{', '.join(_BY_NAME)}. On a GPU: {', '.join(ON_GPU)}. "
            f"Given first, and with options of their own (--only PART --help): {', '.join(NAMED)}",
        )
    elif part == "watching":
        add("--model", default=MODEL, choices=tuple(MODELS), metavar="NAME", help=f"a known name (default: {MODEL})")
    elif part == "photos":
        add("--data", required=True, metavar="DIR", help="a folder of class folders of real photos")
        add_skip_list_option(arguments)
    elif part == "gate":
        add("--only", choices=(*GATE_PARTS, SIMULATION, FAULTS), action="append", help="this part alone")
    return arguments


def read(part: str, arguments: argparse.Namespace, out: Path) -> Plan:
    """Returns the plan of a part.

    Raises:
      UserError: in one line.
    """
    options: dict[str, str | int] = {name: getattr(arguments, name) for name in PARTS[part].numbers}
    for name, number in PARTS[part].numbers.items():
        check_least(number.least, **{name: int(options[name])})
    groups = _groups(part, arguments)
    if part == "photos":
        options = {"against": without_folder(arguments.data), **options}
        asked = Asked(part=part, groups=groups, options=options)
        return Plan(asked=asked, out=out, against=arguments.data, skip_list=arguments.skip_list)
    if part == "watching":
        options = {"model": arguments.model, **options}
    return Plan(asked=Asked(part=part, groups=groups, options=options), out=out)


def _groups(part: str, arguments: argparse.Namespace) -> tuple[str, ...]:
    """Returns the groups of a part that are measured.

    Raises:
      UserError: if they cannot be measured together.
    """
    if part == "gate":
        return tuple(dict.fromkeys(arguments.only or (*GATE_PARTS, SIMULATION, FAULTS)))
    if part == "intervals":
        return ("simulated", "real") if arguments.real else ("simulated",)
    if part != PLANTED_PART:
        return (part,)
    groups = tuple(dict.fromkeys(arguments.only or _USUAL))
    if parts := [name for name in groups if name in NAMED]:
        raise UserError(f"--only {parts[0]} has options of its own, and is given first and alone.")
    on_gpu = [name for name in groups if name in ON_GPU]
    if on_gpu and len(on_gpu) < len(groups):
        raise UserError(
            f"--only {on_gpu[0]} needs a GPU, which the other parts must not see: name only parts of "
            f"{', '.join(ON_GPU)}."
        )
    return groups
