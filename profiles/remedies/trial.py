"""What a trial of remedies measured, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from unstall.profiles.remedies.remedy import TUNER, Edit, Remedy, Untried
from unstall.profiles.samples import Sample
from unstall.profiles.stages.places import Place
from unstall.profiles.statistics import LEAST_ROUNDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """The data with some remedies, and the windows that were measured of them.

    Attributes:
      name: of its remedies, joined by " + "; `AS_WRITTEN` for none.
      remedies: names of its remedies.
      first: its first epoch, in which a cache fills; None where it was not measured.
      firsts: further first epochs, each of data that were built again; empty where there are none.
      samples: of the rounds before the choice.
      again: of rounds after the choice; empty where it was not measured again.
      difference: the largest difference of a value to the data as written, where the claim is "close".
      code: the user's statements with all of its remedies, each whole, below comments that name their lines; None where
        they are too involved for an edit by machine.
    """

    name: str
    remedies: tuple[str, ...]
    first: Sample | None = None
    firsts: tuple[Sample, ...] = ()
    samples: tuple[Sample, ...] = ()
    again: tuple[Sample, ...] = ()
    difference: float | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What was measured so far of the remedies for the data of one `fit` or loop.

    Attributes:
      remedies: that can be tried, and keep what they claim of the data.
      untried: those that are not tried, or were thrown out, and why.
      contenders: the data as written first.
      in_memory: of rounds on batches that lie in memory, as a loader that costs nothing gives them; empty where the
        script's own epochs tell well enough what loading costs.
      applied: the remedies that the script ran with.
      chosen_first: the contender that was measured again beside the data as written; None where none was.
      stages: names of the stages of the data, where these are known.
      epoch_images: images of an epoch in real use; None where it never ends, or its end was not reached.
      scaled: whether a measured epoch is the real one at a smaller scale, its edges included.
      batches, epoch_batches: of a measured epoch, and of one in real use; None where that is not known.
      script_edges_s: seconds per image that the script's own epochs lost at their edges; None unless measured epochs
        show too little of that.
      script_epochs: of how many epochs of the script that is the mean.
      script_s: seconds per image of the script's own whole epochs; None where that is not known.
      edges_by: what takes that time, and is not in measured epochs; None where nothing does.
      epochs: how many the script trained for; None where that is not known.
      notes: what a reader of the rates must know.
      digests: of the texts that the edits belong to: of the script, and of each file to edit, by its name in `Place`;
        without those that have changed. Empty where there is no script.
      seconds: how long the trial took.
      ended: whether it came to its end.
      stopped: whether Ctrl-C ended it before.
    """

    remedies: tuple[Remedy, ...] = ()
    untried: tuple[Untried, ...] = ()
    contenders: tuple[Contender, ...] = ()
    in_memory: tuple[Sample, ...] = ()
    applied: tuple[str, ...] = ()
    chosen_first: str | None = None
    stages: tuple[str, ...] = ()
    epoch_images: float | None = None
    scaled: bool = False
    batches: int | None = None
    epoch_batches: float | None = None
    script_edges_s: float | None = None
    script_epochs: int | None = None
    script_s: float | None = None
    edges_by: str | None = None
    epochs: int | None = None
    notes: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    ended: bool = False
    stopped: bool = False

    @property
    def left(self) -> tuple[str, ...]:
        """The remedies that were neither measured in a round nor thrown out, where the trial was stopped."""
        measured = {name for one in self.contenders if one.samples for name in one.remedies}
        named = measured | {one.name for one in self.untried}
        return tuple(remedy.name for remedy in self.remedies if remedy.name not in named)

    @property
    def edges_are_doubtful(self) -> bool:
        """Whether few epochs showed what tf.data's tuner takes, which is much in some and nothing in others."""
        return self.edges_by == TUNER and self.script_epochs is not None and self.script_epochs < LEAST_ROUNDS

    def in_words(self, contender: Contender) -> str:
        """Returns what a contender's remedies change, and what to write, where the user's statements are not known."""
        remedies = [self.remedy(name) for name in contender.remedies]
        return "; ".join(
            f"{remedy.text}, by `{'`, `'.join(remedy.code.splitlines())}`{f' ({remedy.place})' if remedy.place else ''}"
            for remedy in remedies
        )

    def edits_of(self, contender: Contender) -> tuple[Edit, ...]:
        """Returns the edits of a contender's remedies; none where a remedy has none, or they are of several files."""
        remedies = [self.remedy(name) for name in contender.remedies]
        edits = tuple(edit for remedy in remedies for edit in remedy.edits)
        in_one_file = len({edit.place.file for edit in edits}) == 1
        return edits if in_one_file and all(remedy.edits for remedy in remedies) else ()

    def remedy(self, name: str) -> Remedy:
        """Returns the remedy of this name."""
        return next(remedy for remedy in self.remedies if remedy.name == name)

    def with_names(self, name_of: Callable[[str], str], digests: Mapping[str, str]) -> Trial:
        """Returns the trial as its file holds it: the user's files have other names, and these the digests."""

        def named(place: Place) -> Place:
            return replace(place, file=name_of(place.file))

        def renamed(edit: Edit) -> Edit:
            return replace(edit, place=named(edit.place), other=edit.other and named(edit.other))

        remedies = tuple(replace(remedy, edits=tuple(map(renamed, remedy.edits))) for remedy in self.remedies)
        return replace(self, remedies=remedies, digests=digests)

    @property
    def without_folders(self) -> Trial:
        """The trial with the user's files named without their folders."""
        return self.with_names(lambda file: Path(file).name, {})
