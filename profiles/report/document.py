"""Documents: what a run was asked and what it measured, as files, from which its report can be made again."""

from __future__ import annotations

import datetime
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from rich.console import Console

from unstall.profiles.machine.telemetry import Trace
from unstall.profiles.provenance import version_of
from unstall.profiles.report.codec import DecodeError, decode, encode
from unstall.profiles.report.figures import Figure
from unstall.profiles.report.html import with_answer
from unstall.profiles.report.screen import Screen, print_screen
from unstall.profiles.report.writing_files import to_json, write_atomically

SCHEMA_VERSION = 4

# The two files of a run, in its folder.
RESULTS, REPORT = "results.json", "report.html"

P = TypeVar("P")
S = TypeVar("S")
D = TypeVar("D")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A subject that has no result.

    Attributes:
      who: the subject, in words.
      reason: why.
    """

    who: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(Generic[P, S]):
    """All that a run leaves behind. Results, verdicts and reports are derived from it.

    Attributes:
      command: that wrote it, such as "pipeline".
      created: when the run began.
      complete: whether the run came to its end.
      provenance: the machine and the versions of packages.
      plan: what was asked.
      dataset: the data that was loaded; None where none was.
      samples: what was measured, raw.
      left_out: the subjects that could not be measured.
      telemetry: the machine during the run; None where it was not recorded.
      typed: what the user typed, as a shell reads it, by the name that the document has for it: "my photos/train" by
        "train", and a script by its file's name, with its arguments. The commands that come next repeat it.
    """

    command: str
    created: str
    complete: bool
    provenance: Mapping[str, Any]
    plan: P
    dataset: Mapping[str, Any] | None
    samples: S
    left_out: tuple[LeftOut, ...] = ()
    telemetry: Trace | None = None
    typed: Mapping[str, str] = field(default_factory=dict)

    def as_typed(self, name: str) -> str:
        """Returns what the user typed for a name of the document, as a shell reads it; else the name."""
        return self.typed.get(name, shlex.quote(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[P, S, D]):
    """How the documents of a command are read and shown.

    Attributes:
      plan, samples: types of these fields of the document.
      derive: returns the results of a document; the functions below take what it returns.
      copies: returns results and verdicts for other tools that read the file, as JSON or as dataclasses. They are
        written, and never read back.
      report: the page without its answer, as HTML.
      print: prints all tables and sentences.
      screens: returns the first screens; None for a command whose tables are its first screen.
      rows: a flat row for each result, for tables of other programs.
      is_empty: whether a run that was stopped has measured nothing that is worth keeping; None for a command of which
        that is whatever has no row.
      figures: the figures that tools of continuous integration follow; None for a command without such figures.
      trace: the run over time, in the JSON form of Chrome's traces; None for a command whose steps are not kept.
    """

    plan: type[P]
    samples: type[S]
    derive: Callable[[Document[P, S]], D]
    copies: Callable[[Document[P, S], D], Mapping[str, Any]]
    report: Callable[[Document[P, S], D], str]
    print: Callable[[Console, Document[P, S], D], None]
    rows: Callable[[D], Sequence[Mapping[str, Any]]]
    screens: Callable[[Document[P, S], D], Sequence[Screen]] | None = None
    is_empty: Callable[[Document[P, S], D], bool] | None = None
    figures: Callable[[D], Sequence[Figure]] | None = None
    trace: Callable[[Document[P, S], D], Mapping[str, Any]] | None = None

    def holds(self, document: Document[P, S], derived: D) -> bool:
        """Whether a document holds anything that was measured."""
        return bool(self.rows(derived)) if self.is_empty is None else not self.is_empty(document, derived)

    def page(self, document: Document[P, S], derived: D) -> str:
        """Returns the report as HTML: what the first screens say stands on top."""
        return with_answer(self.report(document, derived), self.screens(document, derived) if self.screens else ())


class DocumentError(Exception):
    """A file that is no document of ours, or one that this version cannot read; the message says which."""


def now() -> str:
    """Returns this moment as a document's `created` holds it."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def print_document(
    console: Console,
    document: Document[P, S],
    kind: Kind[P, S, D],
    derived: D,
    *,
    details: bool = False,
) -> None:
    """Prints the first screens of a run, or all tables and sentences."""
    if kind.screens is None or details:
        kind.print(console, document, derived)
        return
    for screen in kind.screens(document, derived):
        print_screen(console, screen)


def content_of(document: Document[P, S], kind: Kind[P, S, D], derived: D) -> dict[str, Any]:
    """Returns what the results file holds: the document, and copies of what follows from it."""
    fields = encode(document)
    samples = fields.pop("samples")
    return {"schema_version": SCHEMA_VERSION, **fields, **encode(kind.copies(document, derived)), "samples": samples}


def write(folder: Path, document: Document[P, S], kind: Kind[P, S, D], derived: D) -> None:
    """Writes both files of a run, each whole or not at all."""
    write_results(folder, document, kind, derived)
    write_atomically(folder / REPORT, kind.page(document, derived))


def write_results(folder: Path, document: Document[P, S], kind: Kind[P, S, D], derived: D) -> None:
    """Writes the results file alone: the report can be made from it."""
    write_atomically(folder / RESULTS, to_json(content_of(document, kind, derived)))


def load(path: Path, kinds: Mapping[str, Kind[Any, Any, Any]]) -> tuple[Document[Any, Any], Kind[Any, Any, Any]]:
    """Reads what `write` wrote.

    Args:
      path: a results file, or the folder that holds one.
      kinds: those that can be shown, by command.
    Returns:
      The document, and its kind.
    Raises:
      DocumentError: if the file cannot be read, is no results file, or is one of another version or command.
    """
    if path.is_dir():
        path = path / RESULTS
    try:
        values = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except OSError as error:
        raise DocumentError(f"{path}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"{path} is no results file: {error}.") from error
    if not isinstance(values, dict) or "schema_version" not in values:
        raise DocumentError(f"{path} is no results file: it has no schema_version.")
    version, command = values["schema_version"], str(values.get("command"))
    if version != SCHEMA_VERSION:
        raise DocumentError(
            f"{path} has schema_version {version!r}, and this version reads {SCHEMA_VERSION}. "
            "Read the file with the version that wrote it, or measure again."
        )
    if command not in kinds:
        raise DocumentError(f"{path} is of the command {command!r}. Known here: {', '.join(sorted(kinds))}.")
    kind = kinds[command]
    try:
        return _document(values, kind), kind
    except DecodeError as error:
        raise DocumentError(f"{path}: {error}") from error


def _document(values: Mapping[str, Any], kind: Kind[Any, Any, Any]) -> Document[Any, Any]:
    try:
        return Document(
            command=decode(str, values["command"], "command"),
            created=decode(str, values["created"], "created"),
            complete=decode(bool, values["complete"], "complete"),
            provenance=decode(Mapping[str, Any], values["provenance"], "provenance"),  # type: ignore[type-abstract]
            plan=decode(kind.plan, values["plan"], "plan"),
            dataset=values["dataset"] and decode(Mapping[str, Any], values["dataset"], "dataset"),  # type: ignore[type-abstract]
            samples=decode(kind.samples, values["samples"], "samples"),
            left_out=decode(tuple[LeftOut, ...], values["left_out"], "left_out"),
            telemetry=values["telemetry"] and decode(Trace, values["telemetry"], "telemetry"),
            typed=decode(Mapping[str, str], values.get("typed", {}), "typed"),  # type: ignore[type-abstract]
        )
    except KeyError as error:
        raise DecodeError(f"the file has no field {error}") from error


def judged_by(document: Document[Any, Any]) -> str | None:
    """Says that another version derives results anew; None where the version is the one that wrote the file."""
    written_by = document.provenance.get("packages", {}).get("unstall", "unknown")
    here = version_of("unstall")
    return None if here == written_by else f"judged by version {here}, written by version {written_by}"


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")
