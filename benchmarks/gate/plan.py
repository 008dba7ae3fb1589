"""What each verb of the gate does."""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

import models
from benchmarks.gate import report
from benchmarks.gate.measure import Comparison, Place, Question, compare, record, run_check
from benchmarks.gate.processes import MeasureError, Process, Setting, Subject, measure
from benchmarks.gate.ratios import RATIOS
from benchmarks.gate.worktrees import commit_of, folder_within, worktree
from benchmarks.lab.command import check_out, new_folder, new_log, progress_bar, read_source, remove_if_empty
from benchmarks.lab.options import UserError, config_from_file
from pipeline import VARIANTS
from pipeline.commands import Stopped
from pipeline.sources import content_fingerprint
from pipeline.text import did_you_mean
from profiles import provenance
from profiles.devices import parse_device
from profiles.gate import PAIRS, RECORDED, BaselineError, check_writable, path_of, read, write
from profiles.text import print_files

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_LOG = "gate.log"


def run(arguments: argparse.Namespace, console: Console, errors: Console) -> int:
    """Runs a verb. Returns the exit code.

    Raises:
      UserError: at what the user can mend.
      SourceError: where there are no images to measure with.
      Stopped: by a signal.
    """
    run_verb = {"compare": _compare, "record": _record, "check": _check, "ratios": _ratios}[arguments.verb]
    if not arguments.timeout > 0:
        raise UserError(f"--timeout must be above 0. Received: {arguments.timeout}.")
    out = arguments.out or new_folder()
    check_out(out, report.RESULTS)
    log = new_log(out / _LOG)
    try:
        with progress_bar(errors) as progress:
            code = run_verb(arguments, out, log, console, errors, progress)
        if code == 3 and log.stat().st_size:
            errors.print(f"what the processes said: {log}", highlight=False, markup=False, emoji=False, soft_wrap=True)
        else:
            log.unlink(missing_ok=True)
        return code
    except Stopped:
        log.unlink(missing_ok=True)
        raise
    except BaselineError as error:
        raise UserError(str(error), exit_code=error.exit_code) from error
    finally:
        if log.exists() and not log.stat().st_size:
            log.unlink()
        remove_if_empty(out)


def _compare(
    arguments: argparse.Namespace, out: Path, log: Path, console: Console, errors: Console, progress: Progress
) -> int:
    _check_ratio("--threshold", arguments.threshold, below=1.0)
    if arguments.at_least is not None:
        _check_ratio("--at-least", arguments.at_least, below=1e6)
    setting = _setting(arguments)
    with _sides(arguments) as (a, b):
        if "function" not in (a.kind, b.kind):
            read_source(setting.data, progress, errors, report.RESULTS, arguments.skip_list)
        seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
        question = Question(
            a=a,
            b=b,
            threshold=arguments.threshold,
            at_least=arguments.at_least,
            pairs=_looks(arguments),
            same_work=arguments.rev,
        )
        comparison = _measured(question, setting, log, progress, random.Random(seed))
    return _report({f"{b.label}\nagainst {a.label}": comparison}, arguments, seed, out, console)


def _ratios(
    arguments: argparse.Namespace, out: Path, log: Path, console: Console, errors: Console, progress: Progress
) -> int:
    for name in arguments.only or ():
        if name not in RATIOS:
            raise UserError(f"--only {name!r} is not recorded.{did_you_mean(name, RATIOS)} Known: {', '.join(RATIOS)}.")
    seed = secrets.randbits(32)
    coin = random.Random(seed)
    comparisons: dict[str, Comparison] = {}
    for name in arguments.only or RATIOS:
        ratio = RATIOS[name]
        read_source(ratio.setting.data, progress, errors, report.RESULTS)
        question = Question(a=ratio.a, b=ratio.b, threshold=0.05, at_least=ratio.at_least, pairs=_looks(arguments))
        setting = replace(ratio.setting, timeout_s=arguments.timeout)
        comparisons[name] = _measured(question, setting, log, progress, coin)
    return _report(comparisons, arguments, seed, out, console)


def _record(
    arguments: argparse.Namespace, out: Path, log: Path, console: Console, errors: Console, progress: Progress
) -> int:
    path = path_of(arguments.baselines, arguments.name)
    check_writable(path, overwrite=arguments.overwrite)
    subject, setting, place = _benchmark(arguments, errors, progress)
    task = progress.add_task(arguments.name[:40], total=RECORDED)
    try:
        baseline = record(
            lambda inspect: measure(subject, setting, log, anchors=True, inspect=inspect),
            place,
            lambda process: progress.update(task, advance=1, refresh=True),
        )
    except (MeasureError, ValueError) as error:
        raise UserError(f"could not measure: {error}. The process said more: {log}", exit_code=3) from error
    write(baseline, path, overwrite=arguments.overwrite)
    progress.stop()
    report.print_baseline(console, baseline, path)
    return 0


def _check(
    arguments: argparse.Namespace, out: Path, log: Path, console: Console, errors: Console, progress: Progress
) -> int:
    _check_ratio("--threshold", arguments.threshold, below=1.0)
    baseline = read(path_of(arguments.baselines, arguments.name))
    subject, setting, place = _benchmark(arguments, errors, progress)
    task = progress.add_task(arguments.name[:40], total=PAIRS[-2])
    check = run_check(
        baseline,
        lambda inspect: measure(subject, setting, log, anchors=True, inspect=inspect),
        place,
        threshold=arguments.threshold,
        done=lambda process: progress.update(task, advance=1, refresh=True),
    )
    progress.stop()
    report.print_check(console, arguments.name, check)
    report.write(out, {"verb": "check", "name": arguments.name, **check.to_dict(), "machine": provenance.machine()})
    print_files(console, "results", out / report.RESULTS)
    assert check.decision is not None
    return check.decision.exit_code


def _measured(question: Question, setting: Setting, log: Path, progress: Progress, coin: random.Random) -> Comparison:
    task = progress.add_task("", total=2 * question.pairs[-1])

    def one(subject: Subject, inspect: bool) -> Process:
        return measure(subject, setting, log, inspect=inspect)

    def done(text: str) -> None:
        progress.update(task, description=text[:40], advance=1, refresh=True)

    comparison = compare(question, one, coin, done)
    progress.remove_task(task)
    return comparison


def _report(
    comparisons: dict[str, Comparison], arguments: argparse.Namespace, seed: int, out: Path, console: Console
) -> int:
    report.print_comparisons(console, comparisons)
    values: dict[str, Any] = {
        "verb": arguments.verb,
        "seed": seed,
        "comparisons": {name: one.to_dict() for name, one in comparisons.items()},
        "machine": provenance.machine(),
    }
    report.write(out, values)
    print_files(console, "results", out / report.RESULTS)
    codes = [one.decision.exit_code for one in comparisons.values() if one.decision is not None]
    # What was found comes first, then what could not be measured, then what could not be told.
    return next((code for code in (1, 3, 4) if code in codes), 0)


@contextlib.contextmanager
def _sides(arguments: argparse.Namespace) -> Iterator[tuple[Subject, Subject]]:
    """Gives what is compared: with `--rev` the same subject in two worktrees, for as long as they are needed."""
    if not arguments.rev:
        yield _subject(arguments.a, "A"), _subject(arguments.b, "B")
        return
    here = Path.cwd()
    commits = [commit_of(revision, here) for revision in (arguments.a, arguments.b)]
    within = folder_within(here)
    subject = _subject(arguments.subject, "--subject", known=False)
    with contextlib.ExitStack() as stack:
        sides = []
        for revision, commit in zip((arguments.a, arguments.b), commits, strict=True):
            root = stack.enter_context(worktree(commit, here)) / within
            if not root.is_dir():
                raise UserError(f"--rev: {revision} has no folder {within!r}, in which you stand.")
            label = f"{subject.label} at {revision}"
            sides.append(Subject(label=label, kind=subject.kind, text=subject.text, root=root, revision=True))
        yield sides[0], sides[1]


def _subject(text: str, option: str, *, known: bool = True) -> Subject:
    """Reads what is to be measured.

    Args:
      known: whether a variant's name is one of this checkout's; another revision has others.
    """
    if text.endswith(".toml"):
        config_from_file(Path(text), option)
        return Subject(label=Path(text).stem, kind="toml", text=Path(text).read_text(encoding="utf-8"))
    if _FUNCTION.fullmatch(text):
        return Subject(label=text, kind="function", text=text, root=Path.cwd())
    if known and text not in VARIANTS:
        raise UserError(
            f"{option} {text!r} is no variant, no FILE.toml and no module:function.{did_you_mean(text, VARIANTS)}"
        )
    return Subject(label=text, kind="variant", text=text)


def _setting(arguments: argparse.Namespace) -> Setting:
    try:
        models.check_name(arguments.model)
        device = parse_device(arguments.device)
    except ValueError as error:
        raise UserError(str(error)) from error
    # The processes run elsewhere: a file or folder is named so that they find it.
    data = str(Path(arguments.data).resolve()) if Path(arguments.data).is_dir() else arguments.data
    model = str(Path(arguments.model).resolve()) if arguments.model.endswith(".keras") else arguments.model
    return Setting(
        data=data,
        measure=arguments.measure,
        model=model,
        device=device,
        timeout_s=arguments.timeout,
        skip_list=None if arguments.skip_list is None else str(arguments.skip_list.resolve()),
    )


def _benchmark(arguments: argparse.Namespace, errors: Console, progress: Progress) -> tuple[Subject, Setting, Place]:
    """Reads what a baseline is of, and describes where it is measured."""
    subject, setting = _subject(arguments.subject, "--subject"), _setting(arguments)
    dataset = None
    if subject.kind != "function":
        source = read_source(setting.data, progress, errors, report.RESULTS, arguments.skip_list)
        dataset = {"images": source.images, "content": content_fingerprint(source)}
    trained = f" {setting.model} on {setting.device.name}" if setting.measure == "train" else ""
    place = Place(
        subject=subject.label,
        measure=f"{setting.measure}{trained}",
        provenance=provenance.machine(),
        dataset=dataset,
    )
    return subject, setting, place


def _looks(arguments: argparse.Namespace) -> tuple[int, ...]:
    return tuple(count for count in PAIRS if count <= arguments.most_pairs)


def _check_ratio(option: str, value: float, *, below: float) -> None:
    if not 0 < value < below:
        raise UserError(f"{option} must be above 0 and below {below:g}. Received: {value}.")
