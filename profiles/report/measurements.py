"""The document of a measured training, which the main job, a profiled script and `profiles.profile` write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.text import Text

from unstall.profiles.devices import Device
from unstall.profiles.machine.telemetry import Trace, during, spans, unread_gpu
from unstall.profiles.remedies import Trial
from unstall.profiles.report import html, terminal
from unstall.profiles.report.accounts import account_rows, print_account
from unstall.profiles.report.compared_screen import compared_screens
from unstall.profiles.report.document import Document, Kind, content_of
from unstall.profiles.report.figures import Figure
from unstall.profiles.report.remedies import ARGUMENT, OPTION, gain_rows, print_trial, trial_copies, trial_sentences
from unstall.profiles.report.screen import Screen
from unstall.profiles.report.script_screen import script_screen
from unstall.profiles.report.timeline import timeline, trace_of
from unstall.profiles.results.account import Account
from unstall.profiles.results.evidence import Finding
from unstall.profiles.results.fit_rules import fit_findings
from unstall.profiles.results.result import Result, summarise
from unstall.profiles.results.subject import Subject
from unstall.profiles.results.verdict import Verdict, judge
from unstall.profiles.samples import Sample
from unstall.profiles.stage_table import AnnotatedFunction, StageTable
from unstall.profiles.statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What was asked.

    Attributes:
      rounds: windows of training of each subject.
      data: the name that the user gave to the data, without folders.
      baseline: the variant that speed-ups are over; None where subjects are not compared with each other.
    """

    rounds: int
    data: str
    baseline: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What was measured of one subject.

    Attributes:
      windows: keys of `Measurements.windows`: subjects that share a model share the windows of the model alone.
      stages: the cost of each stage of the loader; None where it was not measured.
      lines: the time of each line of the loader's Python functions; empty where it was not measured.
    """

    subject: Subject
    windows: tuple[str, ...]
    stages: StageTable | None = None
    lines: tuple[AnnotatedFunction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """All that was measured.

    Attributes:
      subjects: in the order of the report.
      windows: samples, by the name of the subject or of the model that they were taken of.
      throttled_ratio: part of the scheduler's periods in which the CPU quota stopped the run; None where unknown.
      accounts: where the wall time of each `fit` of a script went, by the name of the `fit`.
      trials: what remedies for the data gained, by the name of the `fit` or loop.
      broken: what ended a script before its end, and when: "ValueError after 37 steps"; None where nothing did.
    """

    subjects: tuple[Measurement, ...]
    windows: Mapping[str, tuple[Sample, ...]]
    throttled_ratio: float | None = None
    accounts: Mapping[str, Account] = field(default_factory=dict)
    trials: Mapping[str, Trial] = field(default_factory=dict)
    broken: str | None = None

    def __post_init__(self) -> None:
        for measurement in self.subjects:
            subject = measurement.subject
            missing = [key for key in measurement.windows if key not in self.windows]
            if missing:
                raise ValueError(f"{subject.label} has the windows {missing[0]!r}, which are not there.")
            names = {sample.window for key in measurement.windows for sample in self.windows[key]}
            if not {"train", subject.explained} <= names:
                raise ValueError(f"{subject.label} has no window {subject.explained!r}.")


MeasurementDocument = Document[Plan, Measurements]


def window_mark(window: str, variant: str, model: str, device: Device) -> str:
    """Returns how a window of a subject is marked in the recording of the machine."""
    return f"{window}: {variant}, {model}, {device.name}"


def derive(document: MeasurementDocument) -> list[Verdict]:
    """Derives results from samples, and judges each against those that were measured beside it."""
    measured = document.samples
    if not measured.subjects:
        return []
    canaries_ns = [sample.canary_ns for samples in measured.windows.values() for sample in samples]
    results = [
        summarise(
            measurement.subject,
            [sample for key in measurement.windows for sample in measured.windows[key]],
            typical_canary_ns=median(canaries_ns),
            stages=measurement.stages,
            lines=measurement.lines,
        )
        for measurement in measured.subjects
    ]
    compared = [results] if document.plan.baseline is not None else [[result] for result in results]
    return [verdict for group in compared for verdict in judge(group, throttled_ratio=measured.throttled_ratio)]


def _copies(document: MeasurementDocument, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    def copy(measurement: Measurement, result: Result) -> dict[str, Any]:
        machine = {} if document.telemetry is None else {"machine": _machine(document.telemetry, result)}
        return {**result.to_dict(), **machine, "windows": list(measurement.windows)}

    subjects = document.samples.subjects
    return {
        "results": [copy(measurement, verdict.result) for measurement, verdict in zip(subjects, verdicts, strict=True)],
        "verdicts": [verdict.to_dict() for verdict in verdicts],
        "trials": {name: trial_copies(trial) for name, trial in document.samples.trials.items()},
        "accounts": {
            name: {**account.to_dict(), "findings": findings}
            for name, account, findings in _accounts(document, verdicts)
        },
    }


def _accounts(
    document: MeasurementDocument, verdicts: Sequence[Verdict]
) -> list[tuple[str, Account, tuple[Finding, ...]]]:
    """Returns (name, account, findings) of each `fit` of a script."""
    results = {verdict.result.subject.variant: verdict.result for verdict in verdicts}
    return [
        (name, account, fit_findings(account, results.get(name))) for name, account in document.samples.accounts.items()
    ]


def _machine(trace: Trace, result: Result) -> dict[str, float | None]:
    """Returns how busy cores and GPU were in the windows that the result is about."""
    subject = result.subject
    mark = window_mark(result.explained[0].window, subject.variant, subject.model, subject.device)
    return asdict(during(trace, spans(trace, mark)))


def _groups(document: MeasurementDocument, verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """Returns the verdicts that are printed together: all, or each by itself where they are not compared."""
    return [list(verdicts)] if document.plan.baseline is not None else [[verdict] for verdict in verdicts]


def _page(document: MeasurementDocument, verdicts: Sequence[Verdict]) -> str:
    sentences: dict[tuple[str, str], list[str]] = {}
    for group in _groups(document, verdicts):
        for (model, device), of_device in terminal.by_device(group).items():
            sentences.setdefault((model, device), []).extend(terminal.verdict_lines(of_device, document.plan.baseline))
    accounts = [
        (name, account_rows(account), [finding.sentences() for finding in findings])
        for name, account, findings in _accounts(document, verdicts)
    ]
    script = _script_words(document)
    trials = [
        (name, gain_rows(trial), trial_sentences(trial, script=script, budget=_budget(document)))
        for name, trial in document.samples.trials.items()
    ]
    timelines = {
        key: chart
        for key, group in terminal.by_device(verdicts).items()
        if (chart := timeline([verdict.result for verdict in group])) is not None
    }
    content = content_of(document, KIND, list(verdicts))
    name = document.plan.data if document.command == SCRIPT else None
    return html.render(
        content, sentences, document.telemetry, accounts=accounts, trials=trials, timelines=timelines, script=name
    )


def _print(console: Console, document: MeasurementDocument, verdicts: Sequence[Verdict]) -> None:
    is_compared = document.plan.baseline is not None
    left_out = [(subject.who, subject.reason) for subject in document.left_out]
    if is_compared:
        for line in _heading(document, verdicts):
            console.print(Text(line))
    for group in _groups(document, verdicts):
        terminal.print_results(
            console, group, baseline=document.plan.baseline, left_out=left_out if is_compared else ()
        )
        if is_compared and document.telemetry is not None:
            for line in unread_gpu((verdict.result.subject.device for verdict in group), document.telemetry):
                console.print(line, style="dim")
        for result in (verdict.result for verdict in group):
            if result.stages is not None:
                subject = result.subject
                place = f" ({subject.model}, {subject.device.name})" if is_compared else ""
                terminal.print_stages(console, f"{subject.label}{place}", result.stages, subject.unit)
    if not is_compared:
        for who, why in left_out:
            console.print(Text(f"{who}: {why}"))
    for name, account, findings in _accounts(document, verdicts):
        print_account(console, name, account, findings)
    for name, trial in document.samples.trials.items():
        print_trial(console, name, trial, _script_words(document), _budget(document))


def _script_words(document: MeasurementDocument) -> str | None:
    """Returns the script and its arguments as they were typed; None if no script was run by `unstall profile`."""
    return document.typed.get(document.plan.data) if document.command == SCRIPT else None


def _budget(document: MeasurementDocument) -> str:
    """Returns what sets the budget of a trial, where the document was made."""
    return ARGUMENT if document.command == CALL else OPTION


def screens_of(document: MeasurementDocument, verdicts: Sequence[Verdict]) -> tuple[Screen, ...]:
    """Returns the first screens; see `Kind`."""
    baseline = document.plan.baseline
    if baseline is not None:
        return compared_screens(
            list(terminal.by_device(verdicts).values()),
            baseline=baseline,
            dataset=document.dataset or {},
            data=document.plan.data,
            as_typed=document.as_typed,
            left_out=document.left_out,
        )
    return (
        script_screen(
            verdicts,
            accounts=document.samples.accounts,
            trials=document.samples.trials,
            name=document.plan.data,
            words=_script_words(document),
            budget=_budget(document),
            left_out=document.left_out,
            broken=document.samples.broken,
        ),
    )


def _heading(document: MeasurementDocument, verdicts: Sequence[Verdict]) -> list[str]:
    """Returns a line for each model: its parameters and training, and the images that it is trained on."""
    dataset = document.dataset or {}
    storage = dataset.get("storage", {})
    lines = {}
    for verdict in verdicts:
        subject, facts = verdict.result.subject, verdict.result.subject.facts
        lines[subject.model] = (
            f"{subject.model}: {facts.parameters:,} parameters, {facts.optimizer}, {facts.loss}; "
            f"{dataset['images']:,} images of {len(dataset['classes'])} classes from {dataset['name']}"
            + (f", on {storage['text']}" if storage.get("remote") else "")
        )
    return list(lines.values())


def _rows(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    rows = []
    for verdict in verdicts:
        values, attribution = verdict.result.to_dict(), verdict.result.attribution
        rows.append(
            {key: values[key] for key in ("variant", "model", "page_cache", "batch_size")}
            | {"device": verdict.result.subject.device.name, "bound": attribution.bound}
            | {
                key: values[key]
                for key in (
                    "epoch_images_per_sec",
                    "spread_ratio",
                    "images_per_sec",
                    "loader_images_per_sec",
                    "compute_images_per_sec",
                    "loading_ratio",
                )
            }
            | {"loading_low": attribution.loading_range[0], "loading_high": attribution.loading_range[1]}
            | {f"{part}_ratio": share for part, share in attribution.shares.items()}
        )
    return rows


def _figures(verdicts: Sequence[Verdict]) -> tuple[Figure, ...]:
    """Returns the images/sec of each subject over whole epochs; a single rate has no interval."""
    return tuple(
        Figure(
            name=f"{result.subject.model} on {result.subject.device.name}: {result.subject.label}",
            measure=f"{result.subject.unit.plural}-per-sec",
            value=result.epoch_images_per_sec,
            text=verdict.text(),
        )
        for verdict in verdicts
        for result in (verdict.result,)
    )


def _trace(document: MeasurementDocument, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    return trace_of([verdict.result for verdict in verdicts], document.telemetry, document.plan.data)


KIND = Kind(
    plan=Plan,
    samples=Measurements,
    derive=derive,
    copies=_copies,
    report=_page,
    print=_print,
    rows=_rows,
    screens=screens_of,
    figures=_figures,
    trace=_trace,
)
# The commands that write such a document.
PIPELINE, SCRIPT, CALL = "pipeline", "profile", "profiles.profile"
KINDS: Mapping[str, Kind[Any, Any, Any]] = dict.fromkeys((PIPELINE, SCRIPT, CALL), KIND)


def unlisted_dataset(kind: str, name: str, images: int | None) -> dict[str, Any]:
    """Returns a document's `dataset` for data whose files were not listed, such as a profiled script's."""
    return {
        "kind": kind,
        "name": name,
        "images": "unknown" if images is None else images,
        "skipped": 0,
        "skipped_files": [],
        "fingerprint": "unknown",
    }
