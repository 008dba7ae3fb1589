"""What a worker says of itself. No TensorFlow here: whoever prints a run reads this, too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """A worker, as it describes itself at its start.

    Attributes:
      worker: host and process.
      cores: CPUs that it may use.
      images, batches: of an epoch of its pipeline; 0 where it does not know.
      functions: the names of the pipeline's Python functions, each with a digest.
      parts: of our own pipelines, what the batches depend on, by name.
      costs_us: microseconds of one core that an image takes, by stage, as the worker measured it at its start.
    """

    worker: str
    cores: int
    images: int
    batches: int
    functions: tuple[str, ...]
    parts: Mapping[str, str] = field(default_factory=dict)
    costs_us: Mapping[str, float] = field(default_factory=dict)

    def text(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def read_facts(text: bytes) -> WorkerFacts:
    """Reads what `WorkerFacts.text` returns."""
    values: dict[str, Any] = json.loads(text)
    return WorkerFacts(**{**values, "functions": tuple(values["functions"])})
