"""What a measurement means, in plain words: pure functions of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from profiles.results.evidence import Advice, Evidence, Finding
from profiles.results.result import Result
from profiles.results.rules import findings
from profiles.statistics import LEAST_ROUNDS, Interval, geometric_mean, ratio_interval, significantly_above

# Findings in the printed text, the first included; all are in the files.
_SHOWN_FINDINGS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What holds one variant back on one model and device.

    Attributes:
      result: what it is about.
      advice: alternatives that were measured beside it and are significantly faster, best first.
      findings: what the rules found: what sets its pace, then the most costly first.
      rivals: how many others were measured beside it.
    """

    result: Result
    advice: tuple[Advice, ...]
    findings: tuple[Finding, ...]
    rivals: int

    def to_dict(self) -> dict[str, Any]:
        one, attribution = self.result.subject, self.result.attribution
        return {
            "model": one.model,
            "device": {"kind": one.device.kind, "name": one.device.name},
            "variant": one.variant,
            "page_cache": one.page_cache,
            "bound": attribution.bound,
            "loading_ratio": attribution.loading_ratio,
            "culprit": attribution.culprit,
            "advice": [
                {
                    "change": advice.change,
                    "predicted_ratio": advice.predicted_ratio,
                    "measured_ratio": advice.measured_ratio,
                    "ci95": advice.ci95 and list(advice.ci95),
                    "measured_again": advice.again,
                    "same_work": advice.same_work,
                }
                for advice in self.advice
            ],
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def text(self) -> str:
        """Says it in a few sentences: what sets the pace, what costs most, what was measured to be faster."""
        one = self.result.subject
        who = f"{one.label}," if one.page_cache == "cold" else one.label
        first, *others = self.findings[:_SHOWN_FINDINGS]
        said = [f"{who} on {one.model}, {one.device.name}, is {first.sentences()}"]
        said += [finding.sentences() for finding in others]
        said += [f"{sentence}." for sentence in self._advice()]
        return " ".join(said)

    @property
    def told(self) -> tuple[Advice, ...]:
        """The advice that the text gives: the fastest at the same work, and the fastest at any if that is another.

        Where some was measured again, the other is not told: rounds that chose it say too much of it.
        """
        advice = [one for one in self.advice if one.again] or self.advice
        same = [one for one in advice if one.same_work][:1]
        return tuple(dict.fromkeys((*same, *advice[:1])))

    def _advice(self) -> list[str]:
        if not self.rivals:
            return []
        if not self.advice:
            return ["No other variant that was measured is significantly faster"]
        said = []
        for one in self.told:
            works = f"{_work(one.work)}; here: {_work(self.result.subject.work)}"
            where = "at the same work" if one.same_work else f"of all, at other work per image ({works})"
            said.append(f"Fastest {where}: {_gain(one)}")
        return said


def _work(marks: tuple[str, ...]) -> str:
    return ", ".join(marks) or "full decode, bilinear, augmented"


def _gain(advice: Advice) -> str:
    return f"{advice.change}, {advice.measured_ratio:.2f} times as fast ({advice.range_text})"


def speed_up(result: Result, over: Result) -> tuple[float, Interval | None]:
    """Returns images/sec of whole epochs of one over the other's, by rounds measured side by side, and its interval.

    Raises:
      ValueError: if they share no round.
    """
    return ratio_interval(*_shared(result.by_round(), over.by_round()))


def _shared(ours: Mapping[int, float], theirs: Mapping[int, float]) -> tuple[list[float], list[float]]:
    """Returns the rates of the rounds that both have."""
    shared = sorted(ours.keys() & theirs.keys())
    return [ours[number] for number in shared], [theirs[number] for number in shared]


def what_the_cache_hides(result: Result) -> str:
    """Says in a sentence how much slower a cold row is than the warm one beside it, and what its storage can give.

    Args:
      result: a cold row.
    Raises:
      ValueError: if cold and warm share no round.
    """
    warm, cold = _shared(result.by_round("train"), result.by_round())
    _, interval = ratio_interval(warm, cold)
    cold_rate, warm_rate = geometric_mean(cold), geometric_mean(warm)
    hidden = "the page cache hides nothing beyond the spread"
    if interval is None:
        hidden = f"too few rounds to tell what the page cache hides ({len(cold)})"
    elif interval[0] > 1:
        hidden = f"the page cache hides {1 - cold_rate / warm_rate:.0%}"
    said = f"{result.subject.variant}: cold {cold_rate:,.0f} img/s, warm {warm_rate:,.0f}: {hidden}"
    storage = result.subject.storage
    if storage is not None:
        asked = _rate(max(cold_rate, warm_rate) * storage.bytes_per_file)
        said += f"; storage gave {_rate(storage.cold_bytes_per_sec)}, the loader asked for {asked} at most"
    return f"{said}."


def _rate(bytes_per_sec: float) -> str:
    return f"{bytes_per_sec / 1e6:,.{0 if bytes_per_sec >= 10e6 else 1}f} MB/s"


def evidence_of(result: Result, throttled_ratio: float | None = None) -> Evidence:
    """Returns what a rule may look at of a result by itself.

    Args:
      throttled_ratio: part of the scheduler's periods in which the CPU quota stopped the run.
    """
    subject, stages = result.subject, result.stages
    asked, seen = subject.training.get("workers_asked"), subject.training.get("workers_effective")
    if seen is None and stages is not None:
        asked, seen = stages.workers, stages.workers_seen
    return Evidence(
        result=result,
        stages=stages,
        cores=stages.cores if subject.cores is None and stages is not None else subject.cores,
        workers_asked=asked if isinstance(asked, int) else None,
        workers_seen=seen,
        frozen_by_cache=subject.frozen_by_cache,
        throttled_ratio=throttled_ratio,
        decoded_pixels=subject.decoded_pixels,
        wanted_pixels=subject.wanted_pixels,
    )


def judge(results: Sequence[Result], *, throttled_ratio: float | None = None) -> list[Verdict]:
    """Judges every result against the others of its model, device and page cache.

    Args:
      results: of one run.
      throttled_ratio: part of the scheduler's periods in which the CPU quota stopped the run.
    """
    verdicts = []
    for result in results:
        rivals = [
            other
            for other in results
            if other is not result
            and other.subject.model == result.subject.model
            and other.subject.device == result.subject.device
            and other.subject.page_cache == result.subject.page_cache
            and other.by_round().keys() & result.by_round().keys()
        ]
        best_first = _significant(result, rivals)
        evidence = replace(evidence_of(result, throttled_ratio), advice=best_first)
        verdicts.append(Verdict(result=result, advice=best_first, findings=findings(evidence), rivals=len(rivals)))
    return verdicts


def _significant(result: Result, rivals: Sequence[Result]) -> tuple[Advice, ...]:
    """Returns those that are significantly faster, where as many were compared, the fastest first.

    What was measured again, in rounds that had no say in which is the fastest, is judged and told by those.
    """
    pairs = [_shared(rival.by_round(), result.by_round()) for rival in rivals]
    found = [
        (geometric_mean(ours) / geometric_mean(theirs), _advice(rival, result, ours, theirs))
        for rival, (ours, theirs), faster in zip(rivals, pairs, significantly_above(pairs), strict=True)
        if faster
    ]
    return tuple(one for _, one in sorted(found, key=lambda each: -each[0]) if one.significant)


def _advice(rival: Result, result: Result, ours: Sequence[float], theirs: Sequence[float]) -> Advice:
    again = _shared(rival.by_round("again"), result.by_round("again"))
    is_again = len(again[0]) >= LEAST_ROUNDS  # a run that was stopped there has fewer
    ratio, interval = ratio_interval(*(again if is_again else (ours, theirs)))
    return Advice(
        change=rival.subject.variant,
        measured_ratio=ratio,
        ci95=interval,
        significant=interval is not None and interval[0] > 1,
        work=rival.subject.work,
        rounds=len(again[0] if is_again else ours),
        again=is_again,
        same_work=rival.subject.work == result.subject.work,
    )
