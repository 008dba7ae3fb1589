"""The changes that a pipeline can be given."""

from __future__ import annotations

from dataclasses import dataclass

AS_WRITTEN = "as written"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One pipeline to measure: its name, and what to write to get it."""

    name: str
    code: str
    memory_bytes: int = 0
