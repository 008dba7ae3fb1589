"""What the runs of labs share: the document of what was measured so far; and the child process that some ask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from rich.progress import Progress

from unstall.benchmarks.lab.child import Child
from unstall.benchmarks.lab.command import new_log
from unstall.profiles import Device
from unstall.profiles.provenance import machine
from unstall.profiles.report import Document, LeftOut, now

P = TypeVar("P")
S = TypeVar("S")


class LabRun(ABC, Generic[P, S]):
    """Measures what was asked for, and makes the document of what was measured so far.

    Args:
      asked: kept in the document.
      dataset: what the document says of the images; None if none of the user's are used.
    Attributes:
      command: the command's name in the document.
    """

    command: str

    def __init__(self, asked: P, progress: Progress, dataset: Mapping[str, Any] | None) -> None:
        self._asked, self._progress, self._dataset = asked, progress, dataset
        self._created, self._provenance = now(), machine()
        self._left_out: list[LeftOut] = []

    @abstractmethod
    def measure(self, after_round: Callable[[], object]) -> None:
        """Measures everything; calls `after_round` whenever there are new results to write."""

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
        """Ends the child processes. Does nothing in a lab whose children end within `measure`."""

    def kill(self) -> None:
        """Ends the child processes at once."""
        self.close()


class ChildRun(LabRun[P, S]):
    """A run that asks one child process."""

    _child: Child

    def __init__(self, asked: P, progress: Progress, dataset: Mapping[str, Any] | None, out: Path) -> None:
        super().__init__(asked, progress, dataset)
        self._log = new_log(out / "child.log")

    def _start(self, session: str, device: Device, *arguments: Any) -> None:
        """Starts the child; the arguments are those of `Child`."""
        self._child = Child(session, device, self._log, *arguments)

    def close(self) -> None:
        self._child.close()

    def kill(self) -> None:
        self._child.kill()
