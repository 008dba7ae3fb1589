"""The changes that a pipeline can be given."""

from __future__ import annotations

from dataclasses import dataclass

AS_WRITTEN = "as written"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of a pipeline.

    Attributes:
      name: what the change is called, `AS_WRITTEN` for none.
      code: what to write in the pipeline's code to make the change.
      memory_bytes: memory that the change needs.
    """

    name: str
    code: str
    memory_bytes: int = 0
