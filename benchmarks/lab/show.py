"""Runs `unstall show` and `unstall compare`, which take the documents of all commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import unstall
from unstall.profiles.report import Kind
from unstall.profiles.report import show as show_of_profiles
from unstall.profiles.report.measurements import KINDS

# The kinds of document that `benchmarks` defines, by the command that writes such documents.
_OURS = {
    "accuracy": "benchmarks.accuracy.report:KIND",
    "devices": "benchmarks.devices.report:KIND",
    "service local": "benchmarks.service.report:KIND",
    "service plan": "benchmarks.service.planning.report:KIND",
    "devices --inference": "benchmarks.devices.fewer_bits.report:KIND",
    "doctor": "benchmarks.doctor.report:KIND",
    "gate check": "benchmarks.gate.report:CHECK",
    "gate compare": "benchmarks.gate.report:COMPARISONS",
    "pipeline --sweep": "benchmarks.pipeline.sweep.report:KIND",
    "trainers": "benchmarks.trainers.report:KIND",
    "tune --pipeline": "benchmarks.tune.own.report:KIND",
    "tune": "benchmarks.tune.report:KIND",
}


class _Kinds(Mapping[str, Kind[Any, Any, Any]]):
    """All kinds of document, by command; a kind is imported when it is looked up."""

    def __getitem__(self, command: str) -> Kind[Any, Any, Any]:
        return KINDS[command] if command in KINDS else unstall.of_ours(_OURS[command])

    def __iter__(self) -> Iterator[str]:
        return iter([*KINDS, *_OURS])

    def __len__(self) -> int:
        return len(KINDS) + len(_OURS)


def show(words: Sequence[str]) -> int:
    """Runs `unstall show`. Returns its exit code."""
    return show_of_profiles.main(["show", *words], _Kinds())


def compare(words: Sequence[str]) -> int:
    """Runs `unstall compare`. Returns its exit code."""
    return show_of_profiles.main(["compare", *words], _Kinds())
