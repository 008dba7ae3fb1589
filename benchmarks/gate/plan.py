"""Reads what the gate is asked: to compare subjects, or to record or check a benchmark."""

from __future__ import annotations

import argparse
import math
import os
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from unstall.benchmarks.gate.parser import SUBJECT, record_again
from unstall.benchmarks.gate.processes import Setting, Subject
from unstall.benchmarks.gate.worktrees import check_folder, commit_of, folder_within, holds_unstall
from unstall.benchmarks.lab.options import (
    UserError,
    check_model,
    check_packages,
    config_from_file,
    device_of,
    packages_of,
)
from unstall.needs import PHOTOS
from unstall.pipeline import VARIANTS
from unstall.profiles.gate import (
    MOST_PAIRS,
    Baseline,
    BaselineError,
    Claims,
    LogRatios,
    Look,
    Paired,
    change,
    check_writable,
    floor,
    pairs_to,
    path_of,
    plan,
    read,
)
from unstall.profiles.provenance import without_folder
from unstall.text import did_you_mean

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The question about two subjects, A and B.

    Attributes:
      a, b: the labels of the subjects; B is judged against A.
      threshold: the smallest loss of images/sec that counts, as a fraction.
      at_least: where given, the question is whether B serves at least this many times the images/sec of A, and not
        whether B is as fast as A.
      pairs: number of pairs measured at each look.
      same_work: whether A and B should do the same work; if so, more work in B is a regression whatever the rate.
    """

    a: str
    b: str
    threshold: float
    at_least: float | None = None
    pairs: tuple[int, ...] = pairs_to(MOST_PAIRS)
    same_work: bool = False

    @property
    def looks(self) -> tuple[Look, ...]:
        return plan(Paired.least_p, self.pairs)

    def claims(self, evidence: LogRatios, look: Look) -> Claims:
        """Returns what the evidence shows about the question at a look."""
        if self.at_least is not None:
            return floor(evidence, look, self.at_least)
        return change(evidence, look, self.threshold)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedComparisons:
    """The comparisons to make, and how their subjects are measured; kept in the document of a run.

    Attributes:
      questions: by the name of the comparison.
      seed: of the coin that orders the sides of each pair.
      measure: "loader", or "train NETWORK on DEVICE".
      data: the user's name for the photos, without the folders before it; None where the subjects load their own data.
      commits: with `--rev` those of A and B, each of which is measured in a worktree of its own; else None.
    """

    questions: Mapping[str, Question]
    seed: int
    measure: str
    data: str | None
    commits: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCheck:
    """A benchmark, and the baseline with which the benchmark is compared; kept in the document of a run.

    Attributes:
      name: of the benchmark, and of the baseline's file.
      subject: the user's name for what is measured.
      measure, data: as in `AskedComparisons`.
      threshold: the smallest loss of images/sec that counts, as a fraction.
      baseline: what was recorded.
      most_processes: after how many the check ends undecided.
      again: the command that records the baseline again.
    """

    name: str
    subject: str
    measure: str
    data: str | None
    threshold: float
    baseline: Baseline
    most_processes: int
    again: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonsPlan:
    """A run of `compare`.

    Attributes:
      sides: A and B of each comparison, by the comparison's name.
    """

    asked: AskedComparisons
    sides: Mapping[str, tuple[Subject, Subject]]
    setting: Setting
    out: Path

    @property
    def reads_photos(self) -> bool:
        """Whether all subjects load the photos; false if one is a user's function, which loads its own data."""
        return not any(subject.kind == "function" for sides in self.sides.values() for subject in sides)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPlan:
    """A run of `check`."""

    asked: AskedCheck
    subject: Subject
    setting: Setting
    out: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPlan:
    """A run of `record`.

    Attributes:
      measure: "loader", or "train NETWORK on DEVICE".
      path: the file to which the baseline is written.
      overwrite: whether the file may replace another baseline.
    """

    subject: Subject
    measure: str
    setting: Setting
    path: Path
    overwrite: bool
    out: Path


def read_plan(arguments: argparse.Namespace, out: Path) -> ComparisonsPlan | CheckPlan | RecordPlan:
    """Makes a plan of the arguments, and checks all that can be checked before anything is opened or measured.

    Raises:
      UserError: if an argument is wrong, in one line; with exit code 3 if the baseline's file cannot be used.
    """
    if not 0 < arguments.timeout < math.inf:
        raise UserError(f"--timeout must be above 0 seconds, and finite. Received: {arguments.timeout}.")
    read_verb: Mapping[str, Callable[[argparse.Namespace, Path], ComparisonsPlan | CheckPlan | RecordPlan]] = {
        "compare": _compare,
        "check": _check,
        "record": _record,
    }
    try:
        return read_verb[arguments.verb](arguments, out)
    except BaselineError as error:
        raise UserError(str(error), exit_code=error.exit_code) from error


def _compare(arguments: argparse.Namespace, out: Path) -> ComparisonsPlan:
    if arguments.subject is not None and not arguments.rev:
        raise UserError(
            "--subject is what --rev measures of each revision. Without --rev, A and B say what is measured."
        )
    _check_ratio("--threshold", arguments.threshold, below=1.0)
    if arguments.at_least is not None:
        _check_ratio("--at-least", arguments.at_least, below=1e6)
    setting, commits = _setting(arguments), None
    if arguments.python is not None:
        a, b = _environments(arguments)
    elif arguments.b is None:
        raise UserError("compare needs B as well. With --python PYTHON_A PYTHON_B one module:function is compared.")
    elif not arguments.rev:
        a, b = _subject(arguments.a, "A"), _subject(arguments.b, "B")
    else:
        if arguments.subject is None or not _FUNCTION.fullmatch(arguments.subject):
            raise UserError(
                "--rev measures a function of the repository here: give --subject module:function. "
                f"Received: {arguments.subject or 'no --subject'}."
            )
        commits = _commits(arguments)
        subject = _subject(arguments.subject, "--subject")
        a, b = (
            replace(subject, label=f"{subject.label} at {revision}", revision=True)
            for revision in (arguments.a, arguments.b)
        )
    question = Question(
        a=a.label,
        b=b.label,
        threshold=arguments.threshold,
        at_least=arguments.at_least,
        pairs=pairs_to(arguments.most_pairs),
        same_work=arguments.rev,
    )
    name = f"{b.label}\nagainst {a.label}"
    asked = AskedComparisons(
        questions={name: question},
        seed=secrets.randbits(32) if arguments.seed is None else arguments.seed,
        measure=_measure_of(setting),
        data=_data_of(setting, a, b),
        commits=commits,
    )
    return ComparisonsPlan(asked=asked, sides={name: (a, b)}, setting=setting, out=out)


def _commits(arguments: argparse.Namespace) -> tuple[str, str]:
    here = Path.cwd()
    a, b = (commit_of(revision, here) for revision in (arguments.a, arguments.b))
    folder = folder_within(here)
    for commit, revision in ((a, arguments.a), (b, arguments.b)):
        check_folder(folder, commit, revision, here)
        if holds_unstall(folder, commit, here):
            raise UserError(
                f"--rev: {revision} holds unstall itself, which would be measured as it is installed here, not as it "
                "was then. Install both revisions, each into an environment: gate compare mymodule:epoch --python "
                "OLD/bin/python NEW/bin/python"
            )
    return a, b


def _check(arguments: argparse.Namespace, out: Path) -> CheckPlan:
    _check_ratio("--threshold", arguments.threshold, below=1.0)
    baseline = read(path_of(arguments.baselines, arguments.name))
    subject, setting = _subject(arguments.subject or SUBJECT, "--subject"), _setting(arguments)
    asked = AskedCheck(
        name=arguments.name,
        subject=subject.label,
        measure=_measure_of(setting),
        data=_data_of(setting, subject),
        threshold=arguments.threshold,
        baseline=baseline,
        most_processes=arguments.most_processes,
        again=record_again(arguments),
    )
    return CheckPlan(asked=asked, subject=subject, setting=setting, out=out)


def _record(arguments: argparse.Namespace, out: Path) -> RecordPlan:
    path = path_of(arguments.baselines, arguments.name)
    check_writable(path, overwrite=arguments.overwrite)
    setting = _setting(arguments)
    return RecordPlan(
        subject=_subject(arguments.subject or SUBJECT, "--subject"),
        measure=_measure_of(setting),
        setting=setting,
        path=path,
        overwrite=arguments.overwrite,
        out=out,
    )


def _environments(arguments: argparse.Namespace) -> tuple[Subject, Subject]:
    """Returns one function in two environments."""
    if arguments.b is not None or arguments.rev or not _FUNCTION.fullmatch(arguments.a):
        raise UserError(
            "--python PYTHON_A PYTHON_B compares one module:function in two environments. "
            f"Received: {' '.join(filter(None, (arguments.a, arguments.b)))}{' --rev' if arguments.rev else ''}."
        )
    if arguments.measure != "loader":
        raise UserError("--python measures what the function does: leave out --measure.")
    for python in arguments.python:
        if not (Path(python).is_file() and os.access(python, os.X_OK)):
            raise UserError(f"--python {python} is no interpreter. Give the path of one, such as venv/bin/python.")
    a, b = (
        Subject(
            label=f"{arguments.a}, {name}",
            kind="function",
            text=arguments.a,
            root=Path.cwd(),
            python=os.path.abspath(python),  # not resolved: a link of an environment is what makes it one
        )
        for python, name in zip(arguments.python, ("A", "B"), strict=True)
    )
    return a, b


def _subject(text: str, option: str) -> Subject:
    """Reads what is to be measured."""
    if text.endswith(".toml"):
        check_packages(f"the pipeline {text}", *PHOTOS)
        config_from_file(Path(text), option)
        return Subject(label=Path(text).stem, kind="toml", text=Path(text).read_text(encoding="utf-8"))
    if _FUNCTION.fullmatch(text):
        return Subject(label=text, kind="function", text=text, root=Path.cwd())
    if text not in VARIANTS:
        raise UserError(
            f"{option} {text!r} is no variant, no FILE.toml and no module:function.{did_you_mean(text, VARIANTS)}"
        )
    check_packages(f"the variant {text}", *PHOTOS, *packages_of(VARIANTS[text]))
    return Subject(label=text, kind="variant", text=text)


def _setting(arguments: argparse.Namespace) -> Setting:
    if arguments.measure == "train":
        check_packages("--measure train", "keras")
    check_model(arguments.model)
    device = device_of(arguments.device)
    # The child processes run in other working folders: they find files and folders by absolute paths.
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


def _measure_of(setting: Setting) -> str:
    """Returns in words what is measured of a subject; a check and its baseline must agree in these words."""
    if setting.measure == "loader":
        return setting.measure
    return f"{setting.measure} {without_folder(setting.model)} on {setting.device.name}"


def _data_of(setting: Setting, *subjects: Subject) -> str | None:
    """Returns the photos' name; None where every subject is a user's function, which loads its own data."""
    return None if all(subject.kind == "function" for subject in subjects) else without_folder(setting.data)


def _check_ratio(option: str, value: float, *, below: float) -> None:
    if not 0 < value < below:
        raise UserError(f"{option} must be above 0 and below {below:g}. Received: {value}.")
