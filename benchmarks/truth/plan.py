"""What is asked of `truth`: some groups of planted loads, or one of the parts that have options of their own."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from unstall.benchmarks.lab.options import UserError, check_least
from unstall.benchmarks.truth.parser import _USUAL, NAMED, PARTS, PLANTED_PART
from unstall.benchmarks.truth.promises import FAULTS, GATE_PARTS, ON_GPU, SIMULATION
from unstall.profiles.provenance import without_folder


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
