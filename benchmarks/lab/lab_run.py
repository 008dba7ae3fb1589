"""What the runs of labs share: when they began, on which machine, and the document of what was measured so far."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from rich.progress import Progress

from profiles.provenance import machine
from profiles.report import Document, LeftOut, now

P = TypeVar("P")
S = TypeVar("S")


class LabRun(ABC, Generic[P, S]):
    """A run of a lab whose document needs no more than is here.

    Args:
      asked: what is measured; kept in the document.
      dataset: the data that is loaded; None where none of the user's is.
    Attributes:
      command: that is named in the document.
    """

    command: ClassVar[str]

    def __init__(self, asked: P, progress: Progress, dataset: Mapping[str, Any] | None) -> None:
        self._asked, self._progress, self._dataset = asked, progress, dataset
        self._created, self._provenance = now(), machine()
        self._left_out: list[LeftOut] = []

    @abstractmethod
    def measure(self, after_round: Callable[[], object]) -> None:
        """Measures all that is asked for; calls `after_round` whenever there are new results to write."""

    @abstractmethod
    def samples(self) -> S:
        """Returns what was measured so far."""

    def left_out(self) -> Sequence[LeftOut]:
        """Returns the subjects that could not be measured."""
        return self._left_out

    def document(self, *, complete: bool) -> Document[P, S]:
        """Returns the document of what was measured so far."""
        return Document(
            command=self.command,
            created=self._created,
            complete=complete,
            provenance=self._provenance,
            plan=self._asked,
            dataset=self._dataset,
            samples=self.samples(),
            left_out=tuple(self.left_out()),
        )

    def close(self) -> None:
        """Ends the processes of a run when everything is measured: none, where they end with what they measure."""

    def kill(self) -> None:
        """Ends the processes of a run at once."""
        self.close()
