"""The command line of `unstall truth`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from unstall.benchmarks.lab.options import MODEL, add_result_options
from unstall.benchmarks.truth.promises import FAULTS, GATE_PARTS, LEAST_REPEATS, LOOPS, ON_GPU, PLANTED, SIMULATION
from unstall.models import MODELS
from unstall.needs import PHOTOS
from unstall.parser import ArgumentParser
from unstall.pipeline.commands import add_skip_list_option


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


def parser(part: str = PLANTED_PART) -> argparse.ArgumentParser:
    """Returns the parser of a part's command line."""
    asked = PARTS[part]
    arguments = ArgumentParser(
        prog="unstall truth" + (f" --only {part}" if part in NAMED else ""),
        needs=PHOTOS,
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
    add_result_options(arguments)
    return arguments
