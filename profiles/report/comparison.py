"""Compares the documents of two measurements of training: what changed, and by how much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unstall.profiles.report.measurements import MeasurementDocument, derive
from unstall.profiles.results.result import Result
from unstall.profiles.statistics import Interval, median, range_text, unpaired_ratio_interval
from unstall.profiles.unit import Unit, common_unit

# Runs whose provenance differs in any of these fields were made on different machines.
_MACHINE = ("cpu", "usable_cores", "keras_backend", "gpus")
# Two runs on one machine whose canary loops differ by more than this were not made under the same conditions: unchanged
# code varies by some 5 % between runs on a shared machine.
_CANARY_RATIO = 1.10


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectChange:
    """How one subject's rate and settings changed from the first document to the second.

    Attributes:
      name: of the subject.
      before, after: its results.
      not_comparable: reasons why the two rates are of different work; empty where they are of the same work.
      changed: settings that differ, as "prefetch: 2, 4".
      ratio: images/sec of whole epochs, after over before.
      interval: of the ratio; None if the rounds are too few for one.
    """

    name: str
    before: Result
    after: Result
    not_comparable: tuple[str, ...]
    changed: tuple[str, ...]
    ratio: float
    interval: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two documents beside each other.

    Attributes:
      not_comparable: reasons why nothing in them can be compared; empty where something can.
      doubts: reasons why the ratios may not be those of the code.
      changed: versions that differ.
      changes: one for each subject that both documents have.
      only_before, only_after: names of the subjects of one document.
    """

    not_comparable: tuple[str, ...]
    doubts: tuple[str, ...]
    changed: tuple[str, ...]
    changes: tuple[SubjectChange, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]

    @property
    def compared(self) -> tuple[SubjectChange, ...]:
        """The changes whose two rates are of the same work on the same machine."""
        return () if self.not_comparable else tuple(change for change in self.changes if not change.not_comparable)


def compare(before: MeasurementDocument, after: MeasurementDocument) -> Comparison:
    """Compares two documents, subject by subject, by the images/sec of whole epochs."""
    old, new = ({_name(verdict.result): verdict.result for verdict in derive(document)} for document in (before, after))
    machines = [{key: document.provenance.get(key) for key in _MACHINE} for document in (before, after)]
    packages = [document.provenance.get("packages", {}) for document in (before, after)]
    return Comparison(
        not_comparable=tuple(f"another machine: {difference}" for difference in _differences(*machines)),
        doubts=_doubts(before, after),
        changed=tuple(_differences(*packages)),
        changes=tuple(_change(name, old[name], new[name], before, after) for name in old if name in new),
        only_before=tuple(name for name in old if name not in new),
        only_after=tuple(name for name in new if name not in old),
    )


def _change(
    name: str, old: Result, new: Result, before: MeasurementDocument, after: MeasurementDocument
) -> SubjectChange:
    unit = common_unit((old.subject.unit, new.subject.unit))  # files of before there were units say "image"
    work = [_work(result, document, unit) for result, document in ((old, before), (new, after))]
    settings = [_settings(result) for result in (old, new)]
    ratio, interval = unpaired_ratio_interval(list(new.by_round().values()), list(old.by_round().values()))
    return SubjectChange(
        name=name,
        before=old,
        after=new,
        not_comparable=tuple(_differences(*work)),
        changed=tuple(difference for difference in _differences(*settings)),
        ratio=ratio,
        interval=interval,
    )


def _settings(result: Result) -> dict[str, Any]:
    """Returns what is told where it differs. Data of another kind have other words, so that the words do."""
    facts = asdict(result.subject.facts)
    del facts["kind"]
    return {**result.subject.config, **facts}


def _work(result: Result, document: MeasurementDocument, unit: Unit) -> dict[str, Any]:
    """Returns what must be equal for two rates to be of the same work."""
    subject, dataset = result.subject, document.dataset or {}
    return {
        unit.plural: dataset.get("images"),
        "fingerprint of the data": dataset.get("fingerprint"),
        "batch size": subject.batch_size,
        "parameters": subject.facts.parameters,
        f"work per {unit.noun}": ", ".join(subject.work) or "full decode, bilinear, augmented",
    }


def _name(result: Result) -> str:
    """Returns what a result has in common with that of another run, whose script may have other line numbers."""
    subject = result.subject
    return f"{subject.label_without_place} ({subject.model}, {subject.device.name})"


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Returns what differs, as "name: before, after"."""
    keys = dict.fromkeys((*before, *after))
    return [f"{key}: {before.get(key)}, {after.get(key)}" for key in keys if before.get(key) != after.get(key)]


def _doubts(before: MeasurementDocument, after: MeasurementDocument) -> tuple[str, ...]:
    doubts = []
    canaries_ns = _canary_ns(before), _canary_ns(after)
    if canaries_ns[0] and canaries_ns[1]:
        slower = canaries_ns[1] / canaries_ns[0]
        if not 1 / _CANARY_RATIO <= slower <= _CANARY_RATIO:
            doubts.append(
                f"a fixed loop, timed in every run, took {slower:.2f} times as long in the second run: "
                "the ratios may be the machine's"
            )
    for which, document in (("first", before), ("second", after)):
        if not document.complete:
            doubts.append(f"the {which} run was stopped before its end")
    return tuple(doubts)


def _canary_ns(document: MeasurementDocument) -> float | None:
    canaries = [sample.canary_ns for samples in document.samples.windows.values() for sample in samples]
    return median(canaries) if canaries else None


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Prints a row for each subject, then what differs between the two runs."""
    if comparison.compared:
        table = Table(box=None, padding=(0, 1, 0, 0))
        table.add_column("subject", overflow="fold")
        for column in ("before", "after", "times", "95 %", "load% before", "after"):
            table.add_column(column, justify="right", no_wrap=True)
        for change in comparison.compared:
            table.add_row(
                Text(change.name),
                f"{change.before.epoch_images_per_sec:,.0f}",
                f"{change.after.epoch_images_per_sec:,.0f}",
                f"{change.ratio:.2f}",
                range_text(change.interval),
                *(f"{max(result.attribution.loading_ratio, 0):.0%}" for result in (change.before, change.after)),
            )
        console.print(table)
        unit = common_unit(
            result.subject.unit for change in comparison.compared for result in (change.before, change.after)
        )
        console.print(
            Text(
                f"before, after: {unit.plural}/sec of whole epochs. The intervals hold what varied within each run, "
                "not what changed on the machine between them: unstall gate compare measures side by side.",
                style="dim",
            )
        )
    for reason in comparison.not_comparable:
        console.print(Text(f"not comparable: {reason}"))
    for change in comparison.changes:
        for reason in change.not_comparable:
            console.print(Text(f"not comparable: {change.name}: {reason}"))
        for difference in change.changed:
            console.print(Text(f"changed: {change.name}: {difference}"))
    for difference in comparison.changed:
        console.print(Text(f"changed: version of {difference}"))
    for which, names in (("first", comparison.only_before), ("second", comparison.only_after)):
        for name in names:
            console.print(Text(f"only in the {which}: {name}"))
    for doubt in comparison.doubts:
        console.print(Text(f"doubtful: {doubt}", style="yellow"))
