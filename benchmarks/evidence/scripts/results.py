"""Derives from the runs of each script what an expert's edit gains, and what part of that the tool's own edit gains."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from unstall.benchmarks.evidence.scripts.plan import Asked, Script
from unstall.benchmarks.evidence.scripts.samples import Advice, Samples, ScriptSamples
from unstall.profiles.report import Document
from unstall.profiles.statistics import Interval, median, ratio_interval

ScriptsDocument = Document[Asked, Samples]
# From this gain of the expert's on, the part of it that the tool gains is what counts; below, the time it comes to.
CLEAR_GAIN, NEAR_RATIO = 1.3, 0.05
# An edit makes a script slower where the interval of its gain lies wholly below this.
SLOWER = 0.97
# A gain is known where its interval reaches no further from it than this.
KNOWN_RATIO = 0.05
# Times that frameworks and scripts print: "12ms/step", "3.4 sec", "0:00:12", "elapsed time: 3.2".
_TIMES = re.compile(
    r"\d+(?::\d\d)+(?:\.\d+)?|\b\d+(?:\.\d+)?(?:e[-+]\d+)? ?(?:us|µs|ms|s|sec|secs|seconds)\b(?:/\w+)?"
    r"|(?<=time)\W+\d+(?:\.\d+)?|(?<=took)\W+\d+(?:\.\d+)?",
    re.IGNORECASE,
)
_COLOURS, _TRAIN_LINE, _BAR = re.compile(r"\x1b\[[0-9;]*m"), re.compile(r"TRAIN_S "), re.compile(r"\d+/\S+ ")

Gain = tuple[float, Interval | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What follows from the runs of a script.

    Attributes:
      train_s: median time of its training.
      expert: how many times as fast it trains with the expert's edit, with its 95 % interval; None without one.
      tool: the same with the tool's edit; None where nothing was written.
      differences: by how it ran, the first line that it printed otherwise, as (unmodified, then).
      repeats: whether the runs as it is printed the same; if not, a difference says nothing.
      broken: whether the script failed with the tool's edit.
    """

    script: Script
    advice: Advice | None
    train_s: float
    expert: Gain | None
    tool: Gain | None
    differences: dict[str, tuple[str, str]]
    repeats: bool
    broken: bool

    @property
    def gained(self) -> float:
        """How many times as fast the script trains for whoever follows the tool: 1 where it writes nothing."""
        return 1.0 if self.tool is None else self.tool[0]

    @property
    def part(self) -> float | None:
        """The part of the expert's gain that the tool's edit gains, by their logarithms; None where that is no gain."""
        if self.expert is None or self.expert[0] < CLEAR_GAIN or self.advice is None:
            return None
        return math.log(self.gained) / math.log(self.expert[0])

    @property
    def is_near(self) -> bool | None:
        """Whether the tool comes near to the expert's time where that gains little; None where it gains more."""
        if self.expert is None or self.expert[0] >= CLEAR_GAIN or self.advice is None:
            return None
        return self.expert[0] / self.gained <= 1 + NEAR_RATIO

    @property
    def is_slower(self) -> bool:
        """Whether the tool's edit makes the script slower."""
        return self.tool is not None and self.tool[1] is not None and self.tool[1][1] < SLOWER

    @property
    def promise_off(self) -> float | None:
        """How far the promised gain is off what was gained, as a part of the latter."""
        promise = None if self.advice is None else self.advice.promise
        return None if promise is None or self.tool is None else promise.ratio / self.tool[0] - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What follows from all scripts."""

    scripts: tuple[Result, ...]

    @property
    def conclusions(self) -> tuple[str, ...]:
        """What part of the experts' gains is gained, whether an edit made a script slower, how far promises are off."""
        sentences = []
        parts = [result.part for result in self.scripts if result.part is not None]
        if parts:
            sentences.append(
                f"An expert's edit makes {len(parts)} scripts at least {CLEAR_GAIN} times as fast. Of these gains the "
                f"tool's edits have, by their logarithms, {median(parts):.2f} (median), {np.percentile(parts, 10):.2f} "
                "(tenth percentile)."
            )
        near = [result.is_near for result in self.scripts if result.is_near is not None]
        if near:
            sentences.append(
                f"Of {len(near)} scripts in which an expert gains less, {sum(near)} come within {NEAR_RATIO:.0%} of "
                "the expert's time."
            )
        slower = ", ".join(result.script.name for result in self.scripts if result.is_slower)
        broken = ", ".join(result.script.name for result in self.scripts if result.broken)
        sentences.append(f"Slower with the tool's edit: {slower or 'none'}; broken by it: {broken or 'none'}.")
        off = [abs(result.promise_off) for result in self.scripts if result.promise_off is not None]
        if off:
            within = sum(one <= 0.1 for one in off)
            sentences.append(
                f"{len(off)} promised gains are off what was gained by {median(off):.0%} (median); {within} by at most "
                "10%."
            )
        return tuple(sentences)


def derive(document: ScriptsDocument) -> Results:
    """Returns what follows for each script that ran."""
    scripts = {script.name: script for script in document.plan.scripts}
    known = (samples for samples in document.samples.scripts if samples.name in scripts and samples.pairs)
    return Results(scripts=tuple(_result(scripts[samples.name], samples) for samples in known))


def gain_of(samples: ScriptSamples, edit: Literal["expert", "tool"]) -> Gain | None:
    """Returns how many times as fast a script trains with an edit, and its interval; None without such pairs."""
    pairs = [pair for pair in samples.pairs if pair.edit == edit]
    if not pairs:
        return None
    return ratio_interval([1 / pair.edited.took_s for pair in pairs], [1 / pair.unmodified.took_s for pair in pairs])


def is_known(gain: Gain | None) -> bool:
    """Whether the interval of a gain is narrow."""
    ratio, interval = gain or (1.0, None)
    if interval is None:
        return False
    low, high = interval
    return max(high / ratio, ratio / low) - 1 <= KNOWN_RATIO


def without_times(printed: str) -> str:
    """Returns what a script printed as a reader sees it, without what differs from run to run: times.

    Of a line that was written over, such as a progress bar, the last text counts. How many bars are printed depends on
    the time: of an epoch's bars, in lines of their own, only the last is kept.
    """
    lines = (re.split(r"\r|\x08+", line.rstrip("\r\x08"))[-1] for line in _COLOURS.sub("", printed).split("\n"))
    kept: list[str] = []
    for line in lines:
        text = _TIMES.sub("_", line).strip()
        if not text or _TRAIN_LINE.match(text):
            continue
        if kept and _BAR.match(text) and _BAR.match(kept[-1]):
            kept.pop()
        kept.append(text)
    return "\n".join(kept)


def _result(script: Script, samples: ScriptSamples) -> Result:
    plain = [pair.unmodified for pair in samples.pairs]
    texts = [without_times(run.printed) for run in plain]
    others: list[tuple[str, str]] = [(pair.edit, pair.edited.printed) for pair in samples.pairs]
    if samples.profiled is not None:
        others.append(("profiled", samples.profiled.printed))
    compared = ((how, _difference(texts[0], without_times(printed))) for how, printed in others)
    differences: dict[str, tuple[str, str]] = {}
    for how, difference in compared:
        if difference is not None:
            differences.setdefault(how, difference)
    return Result(
        script=script,
        advice=samples.advice,
        train_s=median([run.took_s for run in plain]),
        expert=gain_of(samples, "expert"),
        tool=gain_of(samples, "tool"),
        differences=differences,
        repeats=len(set(texts)) == 1,
        broken=samples.broken is not None,
    )


def _difference(plain: str, other: str) -> tuple[str, str] | None:
    """Returns the first lines in which two texts differ; None where they are the same."""
    lines, others = plain.split("\n"), other.split("\n")
    return next((pair for pair in _beside(lines, others) if pair[0] != pair[1]), None)


def _beside(lines: Sequence[str], others: Sequence[str]) -> list[tuple[str, str]]:
    longest = max(len(lines), len(others))
    return [(lines[at] if at < len(lines) else "", others[at] if at < len(others) else "") for at in range(longest)]
