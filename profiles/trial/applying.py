"""Puts remedies in place of what a script gives to `fit` or loops over, without touching its files."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unstall.profiles.code_line import CodeLine
from unstall.profiles.data import DataKind, Use, adapter
from unstall.profiles.data.arrays import parts_of
from unstall.profiles.measure.batches import FitData
from unstall.profiles.random_states import random_states_put_back
from unstall.profiles.remedies import NEEDS, Remedy, gains_of
from unstall.profiles.remedies.data import Failed
from unstall.profiles.report.document import RESULTS, DocumentError, load
from unstall.profiles.report.measurements import KINDS, SCRIPT, derive
from unstall.profiles.stages.places import Place, note_as

# The attribute of data that holds what takes their place.
_HELD = "_unstall_made"


class _Held(list[Any]):
    """What takes the place of data, held by these. A copy of the data, also one for another process, holds nothing."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return list, ()


class ApplyError(ValueError):
    """`--apply` names nothing that can be applied; the message says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Remedies to put in place.

    Attributes:
      names: of the remedies.
      place: the line of the `fit` or loop that they are for; None for all.
      remedies: as an earlier run has measured them; empty where only names are given.
      digests: of the texts of the script and the files to edit in the earlier run; see `Trial`.
      rates: of its whole epochs as written; empty where only names are given.
    """

    names: tuple[str, ...]
    place: CodeLine | None = None
    remedies: tuple[Remedy, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    rates: tuple[float, ...] = ()


def wanted(text: str, script: str) -> tuple[Wanted, ...]:
    """Reads what `--apply` was given: names, or the results of an earlier run.

    Args:
      text: "NAME,..." or the path of a results file or its folder.
      script: file name of the script.
    Raises:
      ApplyError: if the file cannot be read, is of another script, or no remedy has helped in it.
    """
    if not text.strip(", "):
        raise ApplyError(
            "--apply needs names of remedies, or the results of an earlier run. Measure first, without it."
        )
    path = results_in(text)
    if path is None:
        return (Wanted(names=tuple(name.strip() for name in text.split(",") if name.strip())),)
    try:
        document, _ = load(path, KINDS)
    except DocumentError as error:
        raise ApplyError(f"--apply {error}") from error
    if document.command != SCRIPT:
        raise ApplyError(
            f"--apply {text} is of {document.command}: only a script's remedies can be put in place. Edit the lines "
            "that the run named."
        )
    if document.plan.data != script:
        raise ApplyError(f"--apply {text} is of {document.plan.data}, and the script is {script}.")
    results = {verdict.result.subject.variant: verdict.result for verdict in derive(document)}
    found = []
    for name, trial in document.samples.trials.items():
        chosen = gains_of(trial).chosen
        if chosen is not None:
            names, result = chosen.contender.remedies, results.get(name)
            found.append(
                Wanted(
                    names=names,
                    place=None if result is None else result.subject.place,
                    remedies=tuple(trial.remedy(one) for one in names),
                    digests=trial.digests,
                    rates=() if result is None else tuple(result.by_round().values()),
                )
            )
    if not found:
        raise ApplyError(
            f"--apply {text}: no remedy that was tried there is significantly faster. Measure first, without it."
        )
    return tuple(found)


def results_in(text: str) -> Path | None:
    """Returns the path of the results that `--apply` was given; None if it was given names, such as "cache"."""
    path = Path(text)
    return path if text.endswith(".json") or "/" in text or (path / RESULTS).is_file() else None


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class _Made:
    """What takes the place of data.

    Attributes:
      new: the arguments of `fit` that differ, or what a loop reads; empty or None where no remedy can be put in place.
      beside: what else `fit` was given: held here, so that no other object gets its id.
    """

    new: Any
    beside: tuple[Any, ...] = ()


class Applied:
    """Builds the data with remedies, once for each object that a script gives; of arrays, at each `fit`.

    Args:
      wanted: the remedies.

    Attributes:
      done: the names of the remedies, joined by ", ", for each line where they are in place.
      failed: the reason, for each line where they could not be put in place.
    """

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        self._wanted = wanted
        # By what was given, which holds it: an entry is there as long as these data are.
        self._made: weakref.WeakValueDictionary[Hashable, _Made] = weakref.WeakValueDictionary()
        # By the `id` of what took the place of a loop's data: references to both.
        self._given: dict[int, tuple[weakref.ref[Any], weakref.ref[Any]]] = {}
        self.done: dict[CodeLine, str] = {}
        self.failed: dict[CodeLine, str] = {}

    def as_given(self, data: Any) -> Any:
        """Returns the data that the script gave, of what took their place; of other data, the same."""
        reference = self._given.get(id(data))
        made, given = (None, None) if reference is None else (reference[0](), reference[1]())
        return given if made is data and given is not None else data

    def only(self, place: CodeLine) -> tuple[str, ...]:
        """Returns the remedies in place at the line of a `fit` or loop."""
        return self._names(place) if place in self.done else ()

    def _names(self, place: CodeLine) -> tuple[str, ...]:
        return next((one.names for one in self._wanted if one.place is None or one.place.is_at(place)), ())

    def to_fit(self, place: CodeLine, call: Place | None, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of a `fit` that differ with the remedies; none where they cannot be put in place.

        Args:
          place: the line where `fit` was called.
          call: of `fit` in the user's code; None where it is not known.
          arguments: of `fit`, by name.
        """
        names = self._names(place)
        if not names:
            return {}
        given = tuple(arguments.get(name) for name in ("x", "y", "sample_weight"))
        settings = ("batch_size", "shuffle", "steps_per_epoch", "validation_split")
        key = (*map(id, given), *map(arguments.get, settings), arguments.get("validation_data") is None, names)
        made = self._made.get(key)
        if made is None:
            made = _Made(new=self._new_for_fit(place, call, arguments, names), beside=given[1:])
            if (
                adapter(given[0]).kind(given[0]) is not DataKind.ARRAYS
            ):  # the script may change arrays in place, and a dataset of them is a copy
                self._keep_while_there(key, given[0], made)
        if made.new:
            self.done[place] = ", ".join(names)
        return made.new

    def _new_for_fit(
        self, place: CodeLine, call: Place | None, arguments: Mapping[str, Any], names: Sequence[str]
    ) -> dict[str, Any]:
        """Builds the arguments of a `fit` that differ with the remedies; none where they cannot be put in place."""
        given = arguments.get("x")
        try:
            with random_states_put_back():
                new = _whole(given, Use(arguments=arguments, place=call), names)
        except Exception as error:  # the user's code can raise anything: the script goes on as it is
            self.failed[place] = str(error)
            return {}
        changed = dict(new.arguments) if isinstance(new, FitData) else {"x": new}
        kind = adapter(given).kind(given)
        if "y" in arguments and kind is DataKind.ARRAYS:  # which are one dataset now
            changed |= {"y": None, "sample_weight": None}
            _, held_out = parts_of(arguments)
            if held_out is not None:
                changed |= {"validation_split": 0.0, "validation_data": held_out}
        return changed

    def to_loop(self, place: CodeLine, loader: Any) -> Any:
        """Returns what a loop reads with the remedies; the same where they cannot be put in place."""
        names = self._names(place)
        key = (id(loader), names)
        if not names:
            return loader
        made = self._made.get(key)
        if made is None:
            made = _Made(new=self._new_for_loop(place, loader, names))
            self._keep_while_there(key, loader, made)
        if made.new is None:
            return loader
        self.done[place] = ", ".join(names)
        return made.new

    def _new_for_loop(self, place: CodeLine, loader: Any, names: Sequence[str]) -> Any:
        """Builds what a loop reads with the remedies; None where they cannot be put in place."""
        try:
            with random_states_put_back():
                new = _whole(loader, Use(), names)
            note_as(new, loader)
            self._given[id(new)] = weakref.ref(new), weakref.ref(loader)
        except Exception as error:  # as in `_new_for_fit`
            self.failed[place] = str(error)
            return None
        return new

    def _keep_while_there(self, key: Hashable, data: Any, made: _Made) -> None:
        """Keeps what takes the place of data until the script drops the data. With a loader its workers end.

        The data hold it, because it may hold them: so both are garbage at the same time.
        """
        with suppress(TypeError):  # data without attributes: all is built anew at the next call
            vars(data).setdefault(_HELD, _Held()).append(made)
            self._made[key] = made


def _whole(given: Any, use: Use, names: Sequence[str]) -> Any:
    """Returns the data of whole epochs with these remedies.

    Raises:
      Failed: if the data have no remedy of such a name, or cannot be built with it.
    """
    library = adapter(given)
    data = library.rebuilt(given, use, NEEDS, only=names)
    unknown = set(names) - {remedy.name for remedy in data.remedies}
    for name in names:
        if name in unknown:
            why = next((one.reason for one in data.untried if one.name == name), None)
            known = ", ".join(remedy.name for remedy in library.rebuilt(given, use, NEEDS).remedies) or "none"
            raise Failed(why or f"there is no remedy {name} for these data. Known: {known}")
    return data.whole(names)
