"""Makes the document of a measurement from the `fit` calls and loops of a script."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from unstall.profiles import provenance
from unstall.profiles.measure.epochs import KEPT_EPOCHS
from unstall.profiles.provenance import usable_cores
from unstall.profiles.report.document import Document, LeftOut, now
from unstall.profiles.report.measurements import (
    SCRIPT,
    Measurement,
    MeasurementDocument,
    Measurements,
    Plan,
    unlisted_dataset,
)
from unstall.profiles.results.account import Account
from unstall.profiles.results.flags import Flag, FlagKind
from unstall.profiles.results.subject import Subject
from unstall.profiles.samples import Sample
from unstall.profiles.script.results import UnknownError, samples_of
from unstall.profiles.stage_table import StageTable
from unstall.profiles.stages.tf_drawn import python_drawn_before_cache
from unstall.profiles.stages.tf_graph import CutError, random_before_cache, unknown_shape_in

if TYPE_CHECKING:
    from unstall.profiles.script.loops import Loops
    from unstall.profiles.script.profiler import Profiler


def report_on(
    watchers: Sequence[Profiler | Loops],
    *,
    script: str,
    broken_by: BaseException | None = None,
    files_per_sample: int = 1,
) -> MeasurementDocument:
    """Returns the document of all `fit` calls and loops that were watched. Runs no code of the script.

    Args:
      watchers: which watched the script.
      script: file name of the script.
      broken_by: the error that ended the script before its end, or Ctrl-C; None where it ran to its end.
      files_per_sample: from how many files the script makes a sample, as the user says.
    """
    subjects: list[Measurement] = []
    windows: dict[str, tuple[Sample, ...]] = {}
    accounts: dict[str, Account] = {}
    left_out: list[LeftOut] = []
    backend: dict[str, Any] = {}
    for watcher in watchers:
        fits, readable_data = watcher.fits, watcher.readable_data
        if fits:
            backend |= watcher.backend()
        for fit in fits:
            if fit.account is not None:
                accounts[fit.name] = fit.account
            fit = replace(fit, unit=fit.unit.of_files(files_per_sample))
            try:
                subject, samples = samples_of(fit)
            except UnknownError as error:
                who = f"{fit.name} on {fit.model}, {fit.device.name}, fed by {fit.facts.data}"
                left_out.append(LeftOut(who=who, reason=str(error)))
                continue
            subject = with_facts_of(replace(subject, cores=usable_cores()), readable_data.get(fit.name))
            seen = StageTable(cores=usable_cores(), reason="the data are read once", lines=fit.lines)
            subjects.append(Measurement(subject=subject, windows=(fit.name,), stages=seen if fit.lines else None))
            windows[fit.name] = tuple(samples)
    rounds = max((_train_windows(samples) for samples in windows.values()), default=0)
    images = next((measurement.subject.images for measurement in subjects if measurement.subject.images), None)
    return Document(
        command=SCRIPT,
        created=now(),
        complete=broken_by is None,
        provenance={**provenance.machine(), **backend},
        plan=Plan(rounds=rounds, data=script),
        dataset=unlisted_dataset("what the script loads", script, images),
        samples=Measurements(
            subjects=tuple(subjects),
            windows=windows,
            accounts=accounts,
            broken=None if broken_by is None else _broken(broken_by, watchers),
        ),
        left_out=tuple(left_out),
    )


def _broken(error: BaseException, watchers: Iterable[Profiler | Loops]) -> str:
    """Returns "ValueError after 37 steps": those of training that are known of all watchers."""
    fits = [fit for watcher in watchers for fit in watcher.fits if fit.trains]
    steps = sum(epoch.steps for fit in fits for epoch in fit.epochs)
    least = "at least " if any(len(fit.epochs) == KEPT_EPOCHS for fit in fits) else ""
    return f"{type(error).__name__} after {least}{steps:,} step{'' if steps == 1 else 's'}"


def with_facts_of(subject: Subject, data: Any) -> Subject:
    """Adds the random operations before a cache in a subject's data and unknown shapes, or a doubt if it cannot look.

    Args:
      subject: to add them to.
      data: of the `fit`; None where it cannot be read again.
    """
    if data is None:
        return subject
    with suppress(CutError):
        subject = replace(subject, facts=replace(subject.facts, unknown_shape=unknown_shape_in(data)))
    try:
        return replace(subject, frozen_by_cache=(*random_before_cache(data), *_python_drawn(data)))
    except CutError as error:
        return replace(subject, doubts=(*subject.doubts, Flag(kind=FlagKind.UNREAD, text=str(error))))


def _python_drawn(data: Any) -> tuple[str, ...]:
    try:
        return python_drawn_before_cache(data)
    except Exception:  # code of the user's, which shows its error where the data are read
        return ()


def _train_windows(samples: Iterable[Sample]) -> int:
    return sum(sample.window == "train" for sample in samples)
