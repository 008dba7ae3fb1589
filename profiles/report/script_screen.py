"""The first screen of a profiled script, and of `profiles.profile`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from unstall.commands import shell_words
from unstall.profiles.data.kinds import DataKind
from unstall.profiles.remedies import Trial, gains_of
from unstall.profiles.report.document import LeftOut
from unstall.profiles.report.remedies import (
    OPTION,
    brought_lines,
    budget_that_tells,
    decided_bound,
    decided_line,
    faster_line,
    longer_line,
    tried_lines,
)
from unstall.profiles.report.screen import Picture, Screen, ScreenBar, ScreenLine
from unstall.profiles.report.screen_lines import (
    SIGNS,
    by_sign,
    first_batch_line,
    is_fault,
    is_short,
    left_out_lines,
    stages_line,
    verdict_line,
    warning_of,
)
from unstall.profiles.results.account import Account
from unstall.profiles.results.evidence import Finding
from unstall.profiles.results.fit_rules import fit_findings
from unstall.profiles.results.flags import FlagKind
from unstall.profiles.results.result import Result
from unstall.profiles.results.verdict import Verdict

# Rules about a `fit` as a whole whose findings are told.
_OF_FIT = ("validation edges", "validation waits", "validation in every epoch", "retracing", "slower epochs")
# So many faults are told; the report has all.
_MOST_FAULTS = 2


def script_screen(
    verdicts: Sequence[Verdict],
    *,
    accounts: Mapping[str, Account],
    trials: Mapping[str, Trial],
    name: str,
    words: str | None,
    budget: str = OPTION,
    left_out: Sequence[LeftOut] = (),
    broken: str | None = None,
) -> Screen:
    """Returns the screen of what a script, or `profiles.profile`, trained.

    Args:
      verdicts: of each `fit` and loop.
      accounts: where the wall time of each `fit` went.
      trials: of remedies.
      name: what was run, for the heading.
      words: the script, its arguments and our options as typed, for what is to be typed next; None without a script.
      budget: what sets the budget of a trial.
      left_out: each `fit` and loop without a result.
      broken: what ended the script before its end; see `Measurements`.
    """
    ended = (
        ()
        if broken is None
        else (ScreenLine(label="ENDED", text=f"by {broken}: these figures are of what ran by then."),)
    )
    if not verdicts:
        return Screen(heading=(f"unstall: {name}",), verdict=(*left_out_lines(left_out), *ended))
    tried = [verdict for verdict in verdicts if verdict.result.subject.variant in trials]
    main = (tried or [max(verdicts, key=lambda verdict: _total_s(verdict.result))])[0]
    result, subject = main.result, main.result.subject
    cores = "" if subject.cores is None else f", {subject.cores:g} cores"
    fed = "" if subject.facts.data is None else f", fed by {subject.facts.data}"
    heading = (
        f"unstall: {name} on {subject.device.name}{cores}",
        f"{subject.label}: {subject.model}, batches of {subject.batch_size}{fed}",
    )
    trial = trials.get(subject.variant, Trial())
    decided = decided_line(trial)
    bound = decided_bound(trial) or result.attribution.bound
    lines = [first_batch_line(result) or decided or verdict_line(main, "")]
    if decided is None and result.model_images_per_sec is not None and not is_short(result):
        lines.append(
            ScreenLine(
                label="LIMIT",
                text=f"the model alone does {result.model_images_per_sec:,.0f} {subject.unit.rate}; with this loader "
                f"it does {result.epoch_images_per_sec:,.0f}.",
            )
        )
    account = accounts.get(subject.variant)
    findings = [*main.findings[1:], *(fit_findings(account, result) if account is not None else ())]
    return Screen(
        heading=heading,
        warning=warning_of([result]),
        verdict=tuple(lines),
        picture=_script_picture(verdicts),
        why=(*_causes(result, findings, bound), *left_out_lines(left_out)),
        next=(
            *(ended or _next_of_script(main, trial, words, budget)),
            *_migration(main, words, name, bound),
        ),
    )


def _script_picture(verdicts: Sequence[Verdict]) -> Picture:
    """Returns a bar for each `fit` and loop, each of which is a whole epoch."""

    def parts(result: Result) -> dict[str, float]:
        lengths = {sign: max(length, 0.0) for sign, length in by_sign(result.attribution.shares, result).items()}
        total = sum(lengths.values())
        return {sign: length / total for sign, length in lengths.items()} if total else lengths

    alone = any(verdict.result.model_images_per_sec is not None for verdict in verdicts)
    return Picture(
        columns=(verdicts[0].result.subject.unit.rate,),
        signs={**SIGNS, "#": "model" if alone else "steps"},
        bars=tuple(
            ScreenBar(
                name=verdict.result.subject.label,
                cells=(f"{verdict.result.epoch_images_per_sec:,.0f}",),
                parts=parts(verdict.result),
            )
            for verdict in verdicts
        ),
    )


def _causes(result: Result, findings: Sequence[Finding], bound: str) -> tuple[ScreenLine, ...]:
    """Returns why loading costs what it costs, and faults of their own."""
    lines = []
    shares = by_sign(result.attribution.shares, result)
    costly = bound != "compute"
    edges = next((finding for finding in findings if finding.rule == "epoch edges"), None)
    if costly and edges is not None and shares["-"] > max(shares["="], shares["+"]):
        lines.append(ScreenLine(label="WHY", text=f"{edges.text}."))
    elif costly and (stages := stages_line(result)) is not None:
        lines.append(stages)
    for fault in [finding for finding in findings if is_fault(finding) or _of_fit(finding)][:_MOST_FAULTS]:
        lines.append(ScreenLine(label="ALSO" if lines else "WHY", text=fault.sentences()))
    return tuple(lines)


def _of_fit(finding: Finding) -> bool:
    """Whether a finding is about a `fit` as a whole, such as its validation, and worth doing something about."""
    return finding.rule in _OF_FIT and finding.gain is not None


def _next_of_script(verdict: Verdict, trial: Trial, words: str | None, budget: str) -> tuple[ScreenLine, ...]:
    """Returns the remedy that helped with its code, what else was tried, and what to do next."""
    gains = gains_of(trial)
    if trial.applied:
        return brought_lines(trial, verdict.result.subject.unit) or tried_lines(trial, gains, budget)
    longer = longer_line(trial, gains, words)
    tried = (*([] if longer is None else [longer]), *tried_lines(trial, gains, budget))
    if gains.chosen is None:
        return (*tried, *_what_may_help(verdict, trial, words, budget))
    faster = faster_line(trial, gains.chosen)
    if words is None:
        return (faster, *tried)
    names = ",".join(gains.chosen.contender.remedies)
    code = f"unstall profile --apply={names} {words}"
    text = "edit these lines, or see first what they bring:" if faster.code else "see what that brings:"
    return (faster, *tried, ScreenLine(label="NEXT", text=text, code=(code,)))


def _what_may_help(verdict: Verdict, trial: Trial, words: str | None, budget: str) -> tuple[ScreenLine, ...]:
    """Returns what to do where no remedy was found."""
    result = verdict.result
    if trial.stopped:
        code = f"unstall profile {words}"
        return (
            () if words is None else (ScreenLine(label="NEXT", text="the same again, which tries them:", code=(code,)),)
        )
    budget_s = max((one.budget_s or 0 for one in trial.untried), default=0)
    text = "give the remedies that were not tried their time:"
    if helped := gains_of(trial).helped():
        budget_s = max(budget_s, budget_that_tells(trial))
        text = f"{helped[0].name} is faster by its own interval, which can be chance among several; more rounds tell:"
    if budget_s:
        if words is None:
            return (ScreenLine(label="NEXT", text=f"{text} {budget}{budget_s}."),)
        return (ScreenLine(label="NEXT", text=text, code=(f"unstall profile {budget}{budget_s} {words}",)),)
    decided = decided_bound(trial)
    bound = decided or result.attribution.bound
    if bound == "compute":
        return (
            ScreenLine(label="NEXT", text="nothing that was seen of the loader is worth a change: look at the model."),
        )
    if bound == "uncertain" or (decided is None and is_short(result)):
        quiet = any(flag.kind in (FlagKind.DISTURBED, FlagKind.DRIFT) for flag in result.flags)
        return (
            ScreenLine(
                label="NEXT", text=f"the same again {'when the machine is quiet' if quiet else 'for more epochs'}."
            ),
        )
    advice = next((finding for finding in verdict.findings if finding.advice is not None), None)
    if advice is None or advice.advice is None:
        return ()
    text = f"{advice.advice[0].upper()}{advice.advice[1:]}: {advice.gain.text() if advice.gain else ''}."
    return (ScreenLine(label="NEXT", text=text),)


def _migration(verdict: Verdict, words: str | None, name: str, bound: str) -> tuple[ScreenLine, ...]:
    """Returns the command that writes an `ImageDataGenerator` as tf.data, where such a one feeds what loading slows."""
    kind = verdict.result.subject.facts.kind
    if words is None or kind is not DataKind.IMAGE_ITERATOR or bound == "compute":
        return ()
    script = next((word for word in shlex.split(words) if Path(word).name == name), name)
    command = f"unstall migrate {shell_words(os.path.expanduser(script))}"
    return (
        ScreenLine(
            label="OR", text="the same images from tf.data, compared with yours before you decide:", code=(command,)
        ),
    )


def _total_s(result: Result) -> float:
    return sum(sample.epoch_ns for sample in result.explained) / 1e9
