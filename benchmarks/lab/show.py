"""`unstall show` and `unstall compare`: the document of any command again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import unstall
from profiles.report import Kind
from profiles.report import show as profiles_show
from profiles.report.measurements import KINDS

# The kinds of document that are defined here, by the command that writes them.
_OURS = {
    "accuracy": "benchmarks.accuracy.report:KIND",
    "augmentation": "benchmarks.augmentation.report:KIND",
    "devices": "benchmarks.devices.report:KIND",
    "doctor": "benchmarks.doctor.report:KIND",
    "gate check": "benchmarks.gate.report:CHECK",
    "gate compare": "benchmarks.gate.report:COMPARISONS",
    "gate ratios": "benchmarks.gate.report:COMPARISONS",
    "peers": "benchmarks.peers.report:KIND",
    "scaling": "benchmarks.scaling.report:KIND",
    "tune --check": "benchmarks.tune.check.report:KIND",
    "tune --pipeline": "benchmarks.tune.own.report:KIND",
    "tune": "benchmarks.tune.report:KIND",
}


class _Kinds(Mapping[str, Kind[Any, Any, Any]]):
    """All kinds, each imported when it is asked for."""

    def __getitem__(self, command: str) -> Kind[Any, Any, Any]:
        return KINDS[command] if command in KINDS else unstall.of_ours(_OURS[command])

    def __iter__(self) -> Iterator[str]:
        return iter([*KINDS, *_OURS])

    def __len__(self) -> int:
        return len(KINDS) + len(_OURS)


def show(words: Sequence[str]) -> int:
    """Runs `unstall show`. Returns its exit code."""
    return profiles_show.main(["show", *words], _Kinds(), "unstall")


def compare(words: Sequence[str]) -> int:
    """Runs `unstall compare`. Returns its exit code."""
    return profiles_show.main(["compare", *words], _Kinds(), "unstall")
