"""Measures for the gate: pairs of fresh processes until a look decides, and a benchmark against its recorded ratios."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.gate.plan import AskedCheck, AskedComparisons, CheckPlan, ComparisonsPlan, RecordPlan
from unstall.benchmarks.gate.processes import MeasureError, Setting, Subject, measure
from unstall.benchmarks.gate.report import print_baseline
from unstall.benchmarks.gate.results import (
    Check,
    Comparison,
    baseline_of,
    dataset_of,
)
from unstall.benchmarks.gate.samples import INSPECTED, CheckSamples, ComparisonSamples, Measurement, Process, Side
from unstall.benchmarks.gate.worktrees import folder_within, worktree
from unstall.benchmarks.lab.command import check_out, new_log, progress_bar, read_source, remove_if_empty
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.lab.run import LabRun
from unstall.pipeline import ImageSource, SourceError
from unstall.pipeline.sources import content_fingerprint
from unstall.profiles.gate import EPOCH, RECORDED, BaselineError, write
from unstall.profiles.provenance import machine
from unstall.profiles.report import LeftOut
from unstall.profiles.text import rate_text

# Measures a subject in a fresh process; the bool says whether the process also reads the invariants.
Measure = Callable[[Subject, bool], Process]
_LOG = "gate.log"


def compare(
    comparison: Comparison,
    subjects: Mapping[Side, Subject],
    measure: Measure,
    coin: random.Random,
    after: Callable[[Comparison], object] = lambda comparison: None,
) -> Comparison:
    """Measures pairs until a look decides, or a process fails.

    Args:
      comparison: the question, without any measurements yet.
      subjects: the subject of each side.
      measure: measures a subject in a fresh process.
      coin: decides which side of a pair comes first.
      after: called with the comparison so far after each measurement.
    """
    try:
        while comparison.decide() is None:
            order: tuple[Side, Side] = coin.choice((("A", "B"), ("B", "A")))
            for side in order:
                process = measure(subjects[side], len(comparison.processes(side)) < INSPECTED)
                measurement = Measurement(side=side, process=process)
                comparison = replace(comparison, measurements=(*comparison.measurements, measurement))
                after(comparison)
    except MeasureError as error:
        comparison = replace(comparison, failure=str(error))
    return comparison


def run_check(
    check: Check, measure: Callable[[bool], Process], after: Callable[[Check], object] = lambda check: None
) -> Check:
    """Measures fresh processes until a look decides, or a process fails.

    Args:
      check: what is asked, without any processes yet.
      measure: measures the benchmark in a fresh process; the bool says whether the process also reads the invariants.
      after: called with the check so far after each process.
    """
    try:
        while check.decide() is None:
            process = measure(len(check.processes) < INSPECTED)
            check = replace(check, processes=(*check.processes, process))
            after(check)
    except MeasureError as error:
        check = replace(check, failure=str(error))
    return check


def open_comparisons(plan: ComparisonsPlan, progress: Progress, errors: Console) -> ComparisonsRun:
    """Reads the photos, where the subjects load any, and gets ready to measure."""
    source = _read_photos(plan.setting, progress, errors) if plan.reads_photos else None
    return ComparisonsRun(plan, None if source is None else source.to_dict(), progress, errors)


class ComparisonsRun(LabRun[AskedComparisons, ComparisonSamples]):
    """Measures the comparisons of a plan, one after the other.

    Args:
      dataset: the photos; None where a subject is a user's function, which loads its own data.
    """

    command = "gate compare"

    def __init__(
        self, plan: ComparisonsPlan, dataset: Mapping[str, Any] | None, progress: Progress, errors: Console
    ) -> None:
        super().__init__(plan.asked, progress, dataset)
        self._plan, self._errors = plan, errors
        self._comparisons = {name: Comparison(question=question) for name, question in plan.asked.questions.items()}

    def samples(self) -> ComparisonSamples:
        return ComparisonSamples(
            comparisons={name: comparison.measurements for name, comparison in self._comparisons.items()}
        )

    def left_out(self) -> list[LeftOut]:
        return [
            LeftOut(who=name, reason=comparison.failure)
            for name, comparison in self._comparisons.items()
            if comparison.failure is not None
        ]

    def measure(self, after_round: Callable[[], object]) -> None:
        """Measures each comparison until its pairs decide.

        Args:
          after_round: called after each pair.
        Raises:
          UserError: if git cannot make a worktree of a revision.
        """
        coin = random.Random(self._plan.asked.seed)
        with _log(self._plan.out, self._errors) as (log, failed), _roots(self._plan) as roots:
            for name, (a, b) in self._plan.sides.items():
                subjects: dict[Side, Subject] = {
                    "A": replace(a, root=roots.get("A", a.root)),
                    "B": replace(b, root=roots.get("B", b.root)),
                }
                self._compare(name, subjects, log, coin, after_round)
                if self._comparisons[name].failure is not None:
                    failed()

    def _compare(
        self,
        name: str,
        subjects: Mapping[Side, Subject],
        log: Path,
        coin: random.Random,
        after_round: Callable[[], object],
    ) -> None:
        comparison = self._comparisons[name]
        task = self._progress.add_task("", total=2 * comparison.question.pairs[-1])

        def measure_side(subject: Subject, inspect: bool) -> Process:
            return measure(subject, self._plan.setting, log, inspect=inspect)

        def keep(so_far: Comparison) -> None:
            self._comparisons[name] = so_far
            side, process = so_far.measurements[-1].side, so_far.measurements[-1].process
            text = f"{side} {subjects[side].label}: {rate_text(process.images_per_sec[EPOCH])} images/sec"
            self._progress.update(task, description=text[:40], advance=1, refresh=True)
            if len(so_far.measurements) % 2 == 0:
                after_round()

        self._comparisons[name] = compare(comparison, subjects, measure_side, coin, keep)
        self._progress.remove_task(task)


def open_check(plan: CheckPlan, progress: Progress, errors: Console) -> CheckRun:
    """Reads the photos, where the subject loads any, and gets ready to measure."""
    return CheckRun(plan, _dataset(plan.subject, plan.setting, progress, errors), progress, errors)


class CheckRun(LabRun[AskedCheck, CheckSamples]):
    """Measures a benchmark until the comparison with its baseline is decided.

    Args:
      dataset: the photos, with a fingerprint of their content; None where the subject loads its own data.
    """

    command = "gate check"

    def __init__(self, plan: CheckPlan, dataset: Mapping[str, Any] | None, progress: Progress, errors: Console) -> None:
        super().__init__(plan.asked, progress, dataset)
        self._plan, self._errors = plan, errors
        self._check = Check(asked=plan.asked, provenance=self._provenance, dataset=dataset_of(dataset))

    def samples(self) -> CheckSamples:
        return CheckSamples(processes=self._check.processes)

    def left_out(self) -> list[LeftOut]:
        failure = self._check.failure
        return [] if failure is None else [LeftOut(who=self._asked.name, reason=failure)]

    def measure(self, after_round: Callable[[], object]) -> None:
        """Measures processes until a look decides.

        Args:
          after_round: called after each process.
        """
        task = self._progress.add_task(self._plan.asked.name[:40], total=self._plan.asked.most_processes)
        with _log(self._plan.out, self._errors) as (log, failed):

            def measure_benchmark(inspect: bool) -> Process:
                return measure(self._plan.subject, self._plan.setting, log, anchors=True, inspect=inspect)

            def keep(so_far: Check) -> None:
                self._check = so_far
                self._progress.update(task, advance=1, refresh=True)
                after_round()

            self._check = run_check(self._check, measure_benchmark, keep)
            if self._check.failure is not None:
                failed()


def record(plan: RecordPlan, console: Console, errors: Console) -> int:
    """Measures a benchmark, writes its baseline and prints it. Returns 0.

    Raises:
      UserError: if it cannot be measured (exit code 3), or the baseline cannot be written.
    """
    try:
        check_out(plan.out)
        with progress_bar(errors) as progress:
            dataset = _dataset(plan.subject, plan.setting, progress, errors)
            processes = _recorded(plan, progress, errors)
        baseline = baseline_of(
            processes,
            subject=plan.subject.label,
            measure=plan.measure,
            provenance=machine(),
            dataset=dataset_of(dataset),
        )
        write(baseline, plan.path, overwrite=plan.overwrite)
    except BaselineError as error:
        raise UserError(str(error), exit_code=error.exit_code) from error
    finally:
        remove_if_empty(plan.out)
    print_baseline(console, baseline, plan.path)
    return 0


def _recorded(plan: RecordPlan, progress: Progress, errors: Console) -> list[Process]:
    processes: list[Process] = []
    task = progress.add_task(plan.path.stem[:40], total=RECORDED)
    try:
        with _log(plan.out, errors) as (log, _):
            for number in range(RECORDED):
                inspect = number < INSPECTED
                processes.append(measure(plan.subject, plan.setting, log, anchors=True, inspect=inspect))
                progress.update(task, advance=1, refresh=True)
    except MeasureError as error:
        raise UserError(f"could not measure: {error}", exit_code=3) from error
    return processes


@contextlib.contextmanager
def _log(out: Path, errors: Console) -> Iterator[tuple[Path, Callable[[], None]]]:
    """Gives a log file for the processes, and a function to call when a process has failed.

    After a failure the file is kept and its path is printed; otherwise the file is removed.
    """
    log = new_log(out / _LOG)
    failed: list[bool] = []
    try:
        yield log, lambda: failed.append(True)
    except Exception:
        failed.append(True)
        raise
    finally:
        if failed and log.stat().st_size:
            text = f"the output of the processes is in {log}"
            errors.print(text, soft_wrap=True)
        else:
            log.unlink(missing_ok=True)


@contextlib.contextmanager
def _roots(plan: ComparisonsPlan) -> Iterator[Mapping[Side, Path]]:
    """Gives for each side the folder in a worktree of the side's revision; nothing where no revisions are compared."""
    if plan.asked.commits is None:
        yield {}
        return
    here = Path.cwd()
    folder = folder_within(here)
    a, b = plan.asked.commits
    with worktree(a, here) as root_a, worktree(b, here) as root_b:
        yield {"A": root_a / folder, "B": root_b / folder}


def _dataset(subject: Subject, setting: Setting, progress: Progress, errors: Console) -> dict[str, Any] | None:
    """Returns the photos of a benchmark and a fingerprint of their content; None for a user's function."""
    if subject.kind == "function":
        return None
    source = _read_photos(setting, progress, errors)
    return {**source.to_dict(), "content": content_fingerprint(source)}


def _read_photos(setting: Setting, progress: Progress, errors: Console) -> ImageSource:
    try:
        skip_list = None if setting.skip_list is None else Path(setting.skip_list)
        return read_source(setting.data, progress, errors, skip_list=skip_list)
    except SourceError as error:
        raise UserError(str(error), exit_code=3) from error  # there is nothing to measure
