"""What the gate is asked: to compare subjects, to hold this project's ratios, to record a benchmark, or to check it."""

from __future__ import annotations

import argparse
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import models
from benchmarks.gate.parser import SUBJECT
from benchmarks.gate.processes import Setting, Subject
from benchmarks.gate.ratios import RATIOS, SETTING
from benchmarks.gate.worktrees import check_folder, commit_of, folder_within
from benchmarks.lab.options import UserError, config_from_file
from pipeline import VARIANTS
from pipeline.text import did_you_mean
from profiles.devices import parse_device
from profiles.gate import (
    PAIRS,
    THRESHOLD_RATIO,
    Baseline,
    BaselineError,
    Claims,
    Evidence,
    Look,
    Paired,
    change,
    check_writable,
    floor,
    path_of,
    plan,
    read,
)
from profiles.provenance import without_folder

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of two subjects.

    Attributes:
      a, b: what the user called them; B is judged against A.
      threshold: the loss that counts.
      at_least: B serves so many times the images/sec of A: asked in the place of "is it the same?" where given.
      pairs: at each look.
      same_work: whether A and B are to do the same: then work that has grown is a regression whatever the rate.
    """

    a: str
    b: str
    threshold: float
    at_least: float | None = None
    pairs: tuple[int, ...] = PAIRS
    same_work: bool = False

    @property
    def looks(self) -> tuple[Look, ...]:
        return plan(Paired.least_p, self.pairs)

    def claims(self, evidence: Evidence, look: Look) -> Claims:
        """Returns what the evidence shows at a look, of what is asked."""
        if self.at_least is not None:
            return floor(evidence, look, self.at_least)
        return change(evidence, look, self.threshold)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedComparisons:
    """Comparisons, and how their subjects are measured; the document of a run keeps it.

    Attributes:
      questions: by the name of the comparison.
      seed: of the coins that order each pair.
      measure: "loader", or "train NETWORK on DEVICE".
      data: what the photos were called, without folders; None where the subjects bring their own.
    """

    questions: Mapping[str, Question]
    seed: int
    measure: str
    data: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCheck:
    """A benchmark, and the baseline that the benchmark is compared with; the document of a run keeps it.

    Attributes:
      name: of the benchmark, and of the baseline's file.
      subject: what is measured, as the user called it.
      measure, data: as in `AskedComparisons`.
      threshold: the loss that counts.
      baseline: what was recorded.
    """

    name: str
    subject: str
    measure: str
    data: str | None
    threshold: float
    baseline: Baseline


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonsPlan:
    """A run of `compare` or `ratios`.

    Attributes:
      verb: which of the two.
      sides: A and B of each comparison, by its name.
      commits: of A and B with `--rev`: each side is measured in a worktree of its commit.
    """

    verb: str
    asked: AskedComparisons
    sides: Mapping[str, tuple[Subject, Subject]]
    commits: tuple[str, str] | None
    setting: Setting
    out: Path

    @property
    def reads_photos(self) -> bool:
        """Whether both sides of all comparisons load the photos; what a user's function loads, it alone knows."""
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
      path: where the baseline goes.
      overwrite: whether it may take the place of another.
    """

    subject: Subject
    measure: str
    setting: Setting
    path: Path
    overwrite: bool
    out: Path


def read_plan(arguments: argparse.Namespace, out: Path) -> ComparisonsPlan | CheckPlan | RecordPlan:
    """Checks what can be checked before anything is opened or measured.

    Raises:
      UserError: in one line; with exit code 3 where a baseline that is there cannot be used.
    """
    if not arguments.timeout > 0:
        raise UserError(f"--timeout must be above 0. Received: {arguments.timeout}.")
    read_verb: Mapping[str, Callable[[argparse.Namespace, Path], ComparisonsPlan | CheckPlan | RecordPlan]] = {
        "compare": _compare,
        "ratios": _ratios,
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
    setting = _setting(arguments)
    commits = _commits(arguments) if arguments.rev else None
    if commits is None:
        a, b = _subject(arguments.a, "A"), _subject(arguments.b, "B")
    else:
        subject = _subject(arguments.subject or SUBJECT, "--subject", of_revision=True)
        a, b = (
            replace(subject, label=f"{subject.label} at {revision}", revision=True)
            for revision in (arguments.a, arguments.b)
        )
    question = Question(
        a=a.label,
        b=b.label,
        threshold=arguments.threshold,
        at_least=arguments.at_least,
        pairs=_looks(arguments),
        same_work=arguments.rev,
    )
    name = f"{b.label}\nagainst {a.label}"
    asked = AskedComparisons(
        questions={name: question},
        seed=secrets.randbits(32) if arguments.seed is None else arguments.seed,
        measure=_measure_of(setting),
        data=_data_of(setting, a, b),
    )
    return ComparisonsPlan(verb="compare", asked=asked, sides={name: (a, b)}, commits=commits, setting=setting, out=out)


def _commits(arguments: argparse.Namespace) -> tuple[str, str]:
    here = Path.cwd()
    a, b = (commit_of(revision, here) for revision in (arguments.a, arguments.b))
    folder = folder_within(here)
    for commit, revision in ((a, arguments.a), (b, arguments.b)):
        check_folder(folder, commit, revision, here)
    return a, b


def _ratios(arguments: argparse.Namespace, out: Path) -> ComparisonsPlan:
    for name in arguments.only or ():
        if name not in RATIOS:
            raise UserError(f"--only {name!r} is not recorded.{did_you_mean(name, RATIOS)} Known: {', '.join(RATIOS)}.")
    chosen = {name: RATIOS[name] for name in arguments.only or RATIOS}
    asked = AskedComparisons(
        questions={
            name: Question(
                a=ratio.a.label,
                b=ratio.b.label,
                threshold=THRESHOLD_RATIO,
                at_least=ratio.at_least,
                pairs=_looks(arguments),
            )
            for name, ratio in chosen.items()
        },
        seed=secrets.randbits(32),
        measure=_measure_of(SETTING),
        data=SETTING.data,
    )
    return ComparisonsPlan(
        verb="ratios",
        asked=asked,
        sides={name: (ratio.a, ratio.b) for name, ratio in chosen.items()},
        commits=None,
        setting=replace(SETTING, timeout_s=arguments.timeout),
        out=out,
    )


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


def _subject(text: str, option: str, *, of_revision: bool = False) -> Subject:
    """Reads what is to be measured.

    Args:
      of_revision: whether a variant may be one that this checkout has not: another revision has others.
    """
    if text.endswith(".toml"):
        config_from_file(Path(text), option)
        return Subject(label=Path(text).stem, kind="toml", text=Path(text).read_text(encoding="utf-8"))
    if _FUNCTION.fullmatch(text):
        return Subject(label=text, kind="function", text=text, root=Path.cwd())
    if not of_revision and text not in VARIANTS:
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


def _measure_of(setting: Setting) -> str:
    """Returns in words what is measured of a subject: what a baseline is of, and must be the same later."""
    if setting.measure == "loader":
        return setting.measure
    return f"{setting.measure} {without_folder(setting.model)} on {setting.device.name}"


def _data_of(setting: Setting, *subjects: Subject) -> str | None:
    """Returns what the photos are called; None where every subject is a user's function, which brings its own."""
    return None if all(subject.kind == "function" for subject in subjects) else without_folder(setting.data)


def _looks(arguments: argparse.Namespace) -> tuple[int, ...]:
    return tuple(count for count in PAIRS if count <= arguments.most_pairs)


def _check_ratio(option: str, value: float, *, below: float) -> None:
    if not 0 < value < below:
        raise UserError(f"{option} must be above 0 and below {below:g}. Received: {value}.")
