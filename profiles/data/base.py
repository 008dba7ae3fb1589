"""What the rest of this package asks of data, whichever library reads them. A library's answers are one class.

The modules of this folder are there before the script runs: each imports what it answers with when it is asked.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from unstall.profiles.data.kinds import DataKind
from unstall.profiles.unit import SAMPLE, Unit, unit_of

if TYPE_CHECKING:
    from unstall.profiles.measure.ahead import Ahead
    from unstall.profiles.measure.steps import Steady
    from unstall.profiles.measure.windows import Windows
    from unstall.profiles.remedies.data import Data
    from unstall.profiles.remedies.remedy import Need
    from unstall.profiles.remedies.room import Room
    from unstall.profiles.script.loop_step import StepNotes
    from unstall.profiles.script.loops import Loops
    from unstall.profiles.stage_table import AnnotatedFunction, StageTable
    from unstall.profiles.stages.note import Note
    from unstall.profiles.stages.places import Place

# Why no later epoch would read a cache, which the one before has filled.
MADE_ANEW = "the script makes these data anew each time, and a cache with them: make them once, in front of all epochs"


class Copies(Protocol):
    """Looks at batches for whether each worker gives all of the data."""

    def look(self, batch: Any) -> int:
        """Returns how many times the workers give the data, from the batch on that shows it; 0 where none does."""


class StepWork(Protocol):
    """What the steps of a loop run."""

    def difference_on(self, threads: int) -> float | None:
        """Returns how far its outputs on so many threads are off, as a part of the largest; None where not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """How a script uses some data, as far as its remedies depend on it. The defaults stand for what is not known.

    Attributes:
      arguments: what `fit` was given, by name; empty for a loop.
      place: of the call of `fit`.
      name: the variable that holds the data there; found at the place unless given.
      one_length: whether the epochs of all calls of `fit` at that place have one length, which may be written there.
      images_per_batch: of a full batch.
      epoch_batches: of an epoch, where the library itself does not know it.
      on_gpu: whether the steps run on a GPU.
      anew: whether the script makes the data anew for each epoch, or for each `fit`.
      changed: an attribute of the data set that the script changes between epochs; None where it changes none.
      work: what a step of a loop runs; None where that is not known.
      left: whether the script leaves the data before their end, in every epoch.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    place: Place | None = None
    name: str | None = None
    one_length: bool = True
    images_per_batch: int | None = None
    epoch_batches: int | None = None
    on_gpu: bool = False
    anew: bool = False
    changed: str | None = None
    work: StepWork | None = None
    left: bool = False

    @property
    def unkept(self) -> str | None:
        """Why nothing of one epoch may be kept for the next; None where it may."""
        if self.changed is not None:
            return f"the script changes `{self.changed}` of the data between epochs, and its samples with it"
        return MADE_ANEW if self.anew else None

    @property
    def has_epochs(self) -> bool:
        """Whether `fit` is to train for several epochs, as far as is known."""
        arguments = self.arguments
        return bool(arguments) and arguments.get("epochs", 2) - arguments.get("initial_epoch", 0) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReading:
    """How some data are read again for a table of their stages.

    Attributes:
      windows: returns those of the model on its device. On tf.data the model takes some steps while the pipeline is
        observed; on an emulated device a sleep takes their place.
      cores: that this process may use.
      names: names of the images, where a tf.data pipeline begins with an index into them.
      files: from how many files a loader in Python makes a sample.
      note: called with the number of runs that were made, and of all.
    """

    windows: Callable[[], Windows]
    cores: float
    names: Sequence[str] | None
    files: int
    note: Note


class Adapter(ABC):
    """A kind of data.

    Attributes:
      module: of the library, with whose import its loops can be watched; None where no import tells.
      fits: whether `fit` itself reads such data again in each epoch.
      tries: whether remedies can be tried for a loop over such data.
      reads_again: whether such data can be read again once the script has ended, for a table of stages.
      traces: whether the first step of a loop compiles what later steps run.
      computed_by: the frameworks that may compute the steps of a loop over such data. TensorFlow takes the GPU's memory
        when it is asked.
      argument_positions: where arguments that remedies write stand in a call that gives them by position, by (call,
        argument).
    """

    module: ClassVar[str | None] = None
    fits: ClassVar[bool] = False
    tries: ClassVar[bool] = False
    reads_again: ClassVar[bool] = False
    traces: ClassVar[bool] = True
    computed_by: ClassVar[Sequence[str]] = ("torch", "jax", "tensorflow")
    argument_positions: ClassVar[Mapping[tuple[str, str], int]] = {}

    @abstractmethod
    def owns(self, data: Any) -> bool:
        """Whether some data are of this kind. Imports no library to find out."""

    @abstractmethod
    def kind(self, data: Any) -> DataKind:
        """Returns the kind of the data."""

    @abstractmethod
    def label(self, data: Any) -> str:
        """Returns the kind of the data in plain words: "a DataLoader (2 workers)"."""

    def identity(self, data: Any) -> Hashable:
        """Returns what two passes over the same data, on one line of the script, have in common."""
        return type(data).__name__

    def data_set(self, data: Any) -> Any:
        """Returns what the samples come from: of a loader, its data set."""
        return data

    # Reading

    def workers(self, data: Any) -> int:
        """Returns how many workers make batches at the same time in a loop over the data; 0 without workers."""
        return 0

    def workers_in_fit(self, data: Any) -> int:
        """Returns the same of `fit`."""
        return self.workers(data)

    def facts_of_workers(self, data: Any) -> Mapping[str, Any]:
        """Returns what a report on a `fit` says of the workers: `workers_asked` and the like."""
        workers = self.workers_in_fit(data)
        return {"workers_asked": workers} if workers else {}

    def source(self, data: Any) -> CodeType | None:
        """Returns the function of this process that makes the batches of data that are read once; None if unknown."""
        return None

    def check_read_again(self, data: Any) -> None:
        """Checks that the data can be read again and again, each time to its end.

        Raises:
          ValueError: if the data never ends, or can be read only once.
        """
        if isinstance(data, Iterator):
            raise ValueError(
                f"The data must be one that can be read again and again. Received: {type(data).__name__}, which can be "
                "read once. Give a function that returns it."
            )

    def by_hand(self, data: Any) -> Iterator[Any]:
        """Yields the batches of one epoch without calling `fit`, in the structure that a step of `fit` gets of them."""
        return map(as_tuple, data() if callable(data) else data)

    def ahead(self, data: Any) -> Ahead:
        """Returns how far the loader works ahead of the model.

        Raises:
          CutError: if a private name is missing that reading a pipeline needs.
        """
        from unstall.profiles.measure.ahead import Ahead

        return Ahead()

    def steady(self, data: Any, steps: int) -> Steady:
        """Returns which of so many steps of an epoch are steady."""
        from unstall.profiles.measure.steps import steady_part

        return steady_part(self.ahead(data), steps)

    # What it costs, and what can be done about it

    def stage_table(self, data: Any, reading: StageReading) -> StageTable:
        """Measures what each stage of the loader costs, by reading some of the data again.

        Returns:
          The table; without stages, and with the reason, where this kind of data cannot be taken apart.
        """
        from unstall.profiles.stage_table import StageTable

        reason = f"a {type(data).__name__} is read once, and from outside: only its waiting can be seen"
        return StageTable(cores=reading.cores, reason=reason)

    def stages_and_lines(
        self,
        data: Any,
        windows: Callable[[], Windows],
        *,
        lines: bool,
        names: Sequence[str] | None = None,
        files: int = 1,
        note: Note = lambda done, total: None,
    ) -> tuple[StageTable, tuple[AnnotatedFunction, ...]]:
        """Measures what each stage costs and, if `lines`, times the lines of the loader's slowest Python functions.

        Args:
          windows, names, files, note: of `StageReading`.
        Returns:
          (the table, the functions). There are no functions where the loader has no stages.
        """
        from unstall.profiles.provenance import usable_cores
        from unstall.profiles.stages.tf_graph import CutError

        reading = StageReading(windows=windows, cores=usable_cores(), names=names, files=files, note=note)
        table = self.stage_table(data, reading)
        if not lines or table.reason is not None:
            return table, ()
        from unstall.profiles.stages.lines import annotate

        try:
            return table, annotate(data)
        except CutError as error:
            return replace(table, unavailable=(*table.unavailable, str(error))), ()

    def wrapped(self, data: Any, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[Any]:
        """Yields an epoch of batches or samples, read in this thread, with all Python functions of the data wrapped.

        Raises:
          CutError: if a tf.data pipeline cannot be taken apart.
        """
        return iter(())

    def rebuilt(
        self, data: Any, use: Use, needs: Sequence[Need], *, room: Room | None = None, only: Sequence[str] = ()
    ) -> Data:
        """Returns the data so that they can be built again, with remedies and without.

        Args:
          use: how the script uses the data.
          needs: what the data lose, the most first, which calls for remedies.
          room: what the remedies may take; as much as this machine has unless given.
          only: the remedies that are looked for; all unless given.
        Raises:
          Failed: if the data cannot be built again; the message says why.
        """
        from unstall.profiles.remedies.data import Failed

        raise Failed(f"data of type {type(data).__name__} can be read only once, or in no other way")

    def computing_on(self, threads: int) -> Callable[[int], object]:
        """Returns what computes so many units on so many threads, with the library that reads the data."""
        raise NotImplementedError

    # Loops of a script

    def attach(self, loops: Loops) -> Callable[[], None]:
        """Tells `loops` of each pass of the script over such data. Returns what ends that."""
        return lambda: None

    def loop_kind(self) -> str:
        """Returns what kind of loop now begins: "a loop", "a loop without gradients"."""
        return "a loop"

    def copies(self, data: Any) -> Copies | None:
        """Returns what looks at a first pass for whether each worker gives all of the data; None where none can."""
        return None

    def step_notes(self) -> StepNotes | None:
        """Begins to note what a step runs, so that it can be run again; None where that cannot be noted."""
        return None

    def channels_axis(self) -> int:
        """Returns the axis of the channels in a batch of images."""
        return 1 if "torch" in sys.modules else -1

    def unit_in(self, batch: Any) -> Unit:
        """Returns what a batch holds: images or other samples."""
        try:
            first = batch[0] if isinstance(batch, tuple | list) else batch
            return unit_of(first, channels_axis=self.channels_axis())
        except Exception:  # a batch can be any object of the script, and its attributes can run any code
            return SAMPLE

    def backend(self) -> dict[str, Any]:
        """Describes the frameworks of the script, and their devices."""
        imported = {name: sys.modules.get(name) for name in ("tensorflow", "torch", "jax")}
        return {name: module.__version__ for name, module in imported.items() if module is not None}


def as_tuple(batch: Any) -> tuple[Any, ...]:
    """Returns a batch as a tuple, which Keras wants of a generator: Keras takes a list for several inputs."""
    return tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
