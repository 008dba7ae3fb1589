"""Derives from the runs of each script what watching changed and cost, and whether advice gains what was measured."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from unstall.benchmarks.evidence.scripts.plan import Asked, Script
from unstall.benchmarks.evidence.scripts.samples import Advice, How, Samples, ScriptRun, ScriptSamples, Tried
from unstall.profiles.report import Document
from unstall.profiles.statistics import Interval, by_shared_rounds, geometric_mean, median, ratio_interval

ScriptsDocument = Document[Asked, Samples]
# Times that frameworks and scripts print: "12ms/step", "3.4 sec", "0:00:12", "elapsed time: 3.2".
_TIMES = re.compile(
    r"\d+(?::\d\d)+(?:\.\d+)?|\b\d+(?:\.\d+)?(?:e[-+]\d+)? ?(?:us|µs|ms|s|sec|secs|seconds)\b(?:/\w+)?"
    r"|(?<=time)\W+\d+(?:\.\d+)?|(?<=took)\W+\d+(?:\.\d+)?",
    re.IGNORECASE,
)
_COLOURS, _EPOCH_LINE, _BAR = re.compile(r"\x1b\[[0-9;]*m"), re.compile(r"EPOCH_S "), re.compile(r"\d+/\S+ ")
# An epoch that takes so many times as long as the median is left out.
_LONGEST_RATIO = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What follows from the runs of a script.

    Attributes:
      difference: the first line that the watched run printed otherwise, as (plain, watched); None where there is none.
      repeats: whether the plain runs printed the same; None for a single one. If not, a difference says nothing.
      epoch_s: mean time of an epoch as written, without the first; of the whole run where no epochs are printed.
      apart: how much longer the epochs of the slowest plain run are than those of the fastest; None for a single run.
      watching: how many times as long an epoch of the watched run takes.
      by_hand: times as fast as edited by hand, with its 95 % interval; None without such runs.
      held: the same with data that cost nothing.
      measured: what the trial measured of the same remedies; None where they were not tried.
    """

    script: Script
    advice: Advice | None
    difference: tuple[str, str] | None
    repeats: bool | None
    epoch_s: float
    apart: float | None
    watching: float | None
    by_hand: tuple[float, Interval | None] | None
    held: tuple[float, Interval | None] | None
    measured: Tried | None

    @property
    def off(self) -> float | None:
        """How far the measured gain is off what was gained by hand, as a part of the latter."""
        if self.by_hand is None or self.measured is None:
            return None
        return self.measured.ratio / self.by_hand[0] - 1

    @property
    def predicted(self) -> float | None:
        """How many times as fast the script would be if loading cost nothing, as the watched run said."""
        if self.advice is None or self.advice.loading_ratio >= 1:
            return None
        return 1 / (1 - self.advice.loading_ratio)

    @property
    def is_least(self) -> bool:
        """Whether `predicted` is only the least."""
        return self.advice is not None and self.advice.is_least

    @property
    def predicted_most(self) -> float | None:
        """The most that `predicted` can be where it is the least; None where that is unknown."""
        if self.advice is None or not self.is_least or self.advice.most_taken_ratio is None:
            return None
        most = self.advice.loading_ratio + self.advice.most_taken_ratio
        return 1 / (1 - most) if most < 1 else None

    @property
    def outside(self) -> float | None:
        """How far what was measured lies outside of a predicted range, as a part of the nearer end; 0 within it."""
        if self.held is None or self.predicted is None or not self.is_least:
            return None
        most = self.predicted_most
        return max(self.predicted / self.held[0] - 1, 0.0 if most is None else self.held[0] / most - 1, 0.0)

    @property
    def prediction_off(self) -> float | None:
        """How far that is off what was measured with data that cost nothing, as a part of the latter.

        None where only the least was predicted.
        """
        if self.held is None or self.predicted is None or self.is_least:
            return None
        return self.predicted / self.held[0] - 1

    @property
    def follows_advice(self) -> bool:
        """Whether the edit by hand is the one that was advised."""
        return self.measured is not None and self.advice is not None and self.measured.name == self.advice.chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What follows from all scripts."""

    scripts: tuple[Result, ...]

    @property
    def conclusions(self) -> tuple[str, ...]:
        """How far off measured gains are, and whether advice made a script slower; a sentence each."""
        off = [abs(result.off) for result in self.scripts if result.off is not None]
        advised = [result for result in self.scripts if result.follows_advice and result.by_hand is not None]
        slower = [result.script.name for result in advised if result.by_hand is not None and result.by_hand[0] < 1]
        sentences = []
        if off:
            sentences.append(
                f"{len(off)} gains were measured and followed by hand: the median error is {median(off):.0%}, the "
                f"largest {max(off):.0%}."
            )
        if advised:
            which = ", ".join(slower) if slower else "none"
            sentences.append(f"{len(advised)} of them were advised; slower by hand: {which}.")
        predictions = [abs(result.prediction_off) for result in self.scripts if result.prediction_off is not None]
        if predictions:
            sentences.append(
                f"{len(predictions)} scripts ran with data that cost nothing: what was predicted for that is off by "
                f"{median(predictions):.0%} (median), at most by {max(predictions):.0%}."
            )
        outside = [result.outside for result in self.scripts if result.outside is not None]
        if outside:
            sentences.append(
                f"For {len(outside)} more a range was predicted: {outside.count(0.0)} gained what lies in it, the "
                f"others are outside of it by {max(outside):.0%} at most."
            )
        apart = [result.apart for result in self.scripts if result.apart is not None]
        if apart:
            sentences.append(
                f"Plain runs of one script differ by {median(apart):.0%} (median of {len(apart)} scripts), at most by "
                f"{max(apart):.0%}: no gain by hand is known more precisely."
            )
        watched = [result.watching for result in self.scripts if result.watching is not None]
        if watched:
            sentences.append(
                f"A watched epoch took {geometric_mean(watched):.2f} times as long as a plain one "
                f"(geometric mean of {len(watched)} scripts)."
            )
        return tuple(sentences)


def without_times(printed: str) -> str:
    """Returns what a script printed as a reader sees it, without what differs from run to run: times.

    Of a line that was written over, such as a progress bar, the last text counts. How many bars are printed depends on
    the time: of an epoch's bars, in lines of their own, only the last is kept.
    """
    lines = (re.split(r"\r|\x08+", line.rstrip("\r\x08"))[-1] for line in _COLOURS.sub("", printed).split("\n"))
    kept: list[str] = []
    for line in lines:
        text = _TIMES.sub("_", line).strip()
        if not text or _EPOCH_LINE.match(text):
            continue
        if kept and _BAR.match(text) and _BAR.match(kept[-1]):
            kept.pop()
        kept.append(text)
    return "\n".join(kept)


def derive(document: ScriptsDocument) -> Results:
    """Returns what follows for each script that ran as written."""
    scripts = {script.name: script for script in document.plan.scripts}
    known = (samples for samples in document.samples.scripts if samples.name in scripts)
    results = (_result(scripts[samples.name], samples) for samples in known)
    return Results(scripts=tuple(result for result in results if result is not None))


def _result(script: Script, samples: ScriptSamples) -> Result | None:
    plain, by_hand, held, watched = (_runs(samples, how) for how in ("as written", "by hand", "held", "watched"))
    if not plain:
        return None
    plain_s = _seconds(plain)
    as_written = _rates(plain)
    return Result(
        script=script,
        advice=samples.advice,
        difference=_difference(plain[0], watched[0]) if watched else None,
        repeats=len({without_times(script_run.printed) for script_run in plain}) == 1 if len(plain) > 1 else None,
        epoch_s=plain_s,
        apart=max(as_written.values()) / min(as_written.values()) - 1 if len(as_written) > 1 else None,
        # The watched process goes on after the script: only the epochs can be compared.
        watching=_seconds(watched) / plain_s if watched and watched[0].epochs_s and plain[0].epochs_s else None,
        by_hand=_ratio(_rates(by_hand), as_written),
        held=_ratio(_rates(held), as_written),
        measured=_measured(script, samples.advice),
    )


def _runs(samples: ScriptSamples, how: How) -> list[ScriptRun]:
    return [script_run for script_run in samples.runs if script_run.how == how and script_run.exit_code == 0]


def _rates(runs: Iterable[ScriptRun]) -> dict[int, float]:
    return {script_run.round: 1 / _seconds([script_run]) for script_run in runs}


def _ratio(rates: dict[int, float], as_written: dict[int, float]) -> tuple[float, Interval | None] | None:
    return ratio_interval(*by_shared_rounds(rates, as_written)) if rates.keys() & as_written.keys() else None


def _seconds(runs: Iterable[ScriptRun]) -> float:
    """Returns the mean time of an epoch but the first, in which frameworks trace; of a run if none was printed.

    Not the median: tf.data's tuner takes some epochs up to twice as long, and the others nothing. Epochs that take
    longer than that are those during which another program ran.
    """
    runs = list(runs)
    epochs_s = [seconds for script_run in runs for seconds in _steady(script_run.epochs_s)]
    all_s = epochs_s or [script_run.wall_s for script_run in runs]
    longest_s = _LONGEST_RATIO * median(all_s)
    kept_s = [seconds for seconds in all_s if seconds <= longest_s]
    return sum(kept_s) / len(kept_s)


def _steady(epochs_s: Sequence[float]) -> Sequence[float]:
    return epochs_s[1:] if len(epochs_s) > 1 else epochs_s


def _difference(plain: ScriptRun, watched: ScriptRun) -> tuple[str, str] | None:
    lines, others = (without_times(script_run.printed).split("\n") for script_run in (plain, watched))
    for line, other in zip(lines, others, strict=False):
        if line != other:
            return line, other
    longest = max(lines, others, key=len)
    if len(lines) == len(others):
        return None
    more = longest[min(len(lines), len(others))]
    return (more, "") if longest is lines else ("", more)


def _measured(script: Script, advice: Advice | None) -> Tried | None:
    if advice is None or not script.follows:
        return None
    return next((tried for tried in advice.tried if set(tried.remedies) == set(script.follows)), None)
