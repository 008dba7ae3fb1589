"""Judges results, and states in sentences what limits the speed of each. All functions here are pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from unstall.profiles.results.evidence import Advice, Evidence, Finding
from unstall.profiles.results.result import Result
from unstall.profiles.results.rules import findings
from unstall.profiles.statistics import (
    LEAST_ROUNDS,
    Interval,
    by_shared_rounds,
    geometric_mean,
    ratio_interval,
    significantly_above,
)

# How many findings are printed; the files contain all of them.
_PRINTED_FINDINGS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What limits the speed of one variant on one model and device.

    Attributes:
      result: the result that is judged.
      advice: variants that were measured in the same rounds and are significantly faster, the fastest first.
      findings: of the rules: first whether loading or compute sets the pace, then the others, the most costly first.
      rivals: how many other results of the same model, device and page cache it was compared with.
    """

    result: Result
    advice: tuple[Advice, ...]
    findings: tuple[Finding, ...]
    rivals: int

    def to_dict(self) -> dict[str, Any]:
        """Returns the verdict as `results.json` holds it."""
        subject, attribution = self.result.subject, self.result.attribution
        return {
            "model": subject.model,
            "device": {"kind": subject.device.kind, "name": subject.device.name},
            "variant": subject.variant,
            "page_cache": subject.page_cache,
            "bound": attribution.bound,
            "loading_ratio": attribution.loading_ratio,
            "culprit": self.result.culprit,
            "advice": [
                {
                    "change": advice.change,
                    "predicted_ratio": None,  # no model of the costs predicts what advice gains
                    "measured_ratio": advice.measured_ratio,
                    "ci95": advice.ci95 and list(advice.ci95),
                    "measured_again": advice.again,
                    "same_work": advice.same_work,
                }
                for advice in self.advice
            ],
            "findings": [asdict(finding) for finding in self.findings],
        }

    def text(self) -> str:
        """Returns a few sentences: what sets the pace, what costs most, which variant was measured to be faster."""
        subject = self.result.subject
        who = f"{subject.label}," if subject.page_cache == "cold" else subject.label
        first, *others = self.findings[:_PRINTED_FINDINGS]
        sentences = [f"{who} on {subject.model}, {subject.device.name}, is {first.sentences()}"]
        sentences += [finding.sentences() for finding in others]
        sentences += [f"{sentence}." for sentence in self._advice()]
        return " ".join(sentences)

    @property
    def printed_advice(self) -> tuple[Advice, ...]:
        """The advice that the text gives: the fastest at the same work, and the fastest of all if that is another.

        Where variants were measured again, only these are considered: the rounds that chose the fastest exaggerate how
        fast it is.
        """
        candidates = [advice for advice in self.advice if advice.again] or self.advice
        same = [advice for advice in candidates if advice.same_work][:1]
        return tuple(dict.fromkeys((*same, *candidates[:1])))

    def _advice(self) -> list[str]:
        if not self.rivals:
            return []
        if not self.advice:
            return ["No other variant that was measured is significantly faster"]
        sentences = []
        for advice in self.printed_advice:
            works = f"{_work(advice.work)}; here: {_work(self.result.subject.work)}"
            where = (
                "at the same work"
                if advice.same_work
                else f"of all, at other work per {self.result.subject.unit.noun} ({works})"
            )
            sentences.append(f"Fastest {where}: {_gain(advice)}")
        return sentences


def _work(marks: tuple[str, ...]) -> str:
    return ", ".join(marks) or "full decode, bilinear, augmented"


def _gain(advice: Advice) -> str:
    return f"{advice.change}, {advice.measured_ratio:.2f} times as fast ({advice.range_text})"


def speed_up(result: Result, over: Result) -> tuple[float, Interval | None]:
    """Returns (ratio, its 95 % interval) of images/sec over whole epochs of `result` to those of `over`.

    Only rounds that both were measured in count.

    Raises:
      ValueError: if there is no such round.
    """
    return ratio_interval(*by_shared_rounds(result.by_round(), over.by_round()))


def what_the_cache_hides(result: Result) -> str:
    """Returns a sentence: how much slower cold epochs are than warm ones, and the rate of the storage where known.

    Args:
      result: of a cold row.
    Raises:
      ValueError: if cold and warm share no round.
    """
    warm, cold = by_shared_rounds(result.by_round("train"), result.by_round())
    _, interval = ratio_interval(warm, cold)
    cold_rate, warm_rate = geometric_mean(cold), geometric_mean(warm)
    hidden = "the page cache hides nothing beyond the spread"
    if interval is None:
        hidden = f"too few rounds to tell what the page cache hides ({len(cold)})"
    elif interval[0] > 1:
        hidden = f"the page cache hides {1 - cold_rate / warm_rate:.0%}"
    sentence = (
        f"{result.subject.variant}: cold {cold_rate:,.0f} {result.subject.unit.rate}, warm {warm_rate:,.0f}: {hidden}"
    )
    storage = result.subject.storage
    if storage is not None:
        most = _rate(max(cold_rate, warm_rate) * storage.bytes_per_file)
        sentence += f"; storage gave {_rate(storage.cold_bytes_per_sec)}, the loader asked for {most} at most"
    return f"{sentence}."


def _rate(bytes_per_sec: float) -> str:
    return f"{bytes_per_sec / 1e6:,.{0 if bytes_per_sec >= 10e6 else 1}f} MB/s"


def evidence_of(result: Result, throttled_ratio: float | None = None) -> Evidence:
    """Returns the evidence in a result by itself, without comparing it with others.

    Args:
      result: to be judged.
      throttled_ratio: part of the scheduler's periods in which the CPU quota stopped the run; None if unknown.
    """
    subject, stages = result.subject, result.stages
    decoded, wanted = result.pixels
    asked, seen = subject.facts.workers_asked, subject.facts.workers_effective
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
        decoded_pixels=decoded,
        wanted_pixels=wanted,
    )


def judge(results: Sequence[Result], *, throttled_ratio: float | None = None) -> list[Verdict]:
    """Judges every result, also in comparison with the others of its model, device and page cache.

    Args:
      results: of one run.
      throttled_ratio: part of the scheduler's periods in which the CPU quota stopped the run; None if unknown.
    Returns:
      A verdict for each result, in the same order.
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
        advice = _significant(result, rivals)
        evidence = replace(evidence_of(result, throttled_ratio), advice=advice)
        verdicts.append(Verdict(result=result, advice=advice, findings=findings(evidence), rivals=len(rivals)))
    return verdicts


def _significant(result: Result, rivals: Sequence[Result]) -> tuple[Advice, ...]:
    """Returns advice for the rivals that are significantly faster, given how many were compared, the fastest first.

    Where both were measured again, after the fastest had been chosen, the ratio is that of those rounds.
    """
    pairs = [by_shared_rounds(rival.by_round(), result.by_round()) for rival in rivals]
    advice = [
        _advice(rival, result, rival_rates, rates)
        for rival, (rival_rates, rates), faster in zip(rivals, pairs, significantly_above(pairs), strict=True)
        if faster
    ]
    above = (one for one in advice if one.ci95 is not None and one.ci95[0] > 1)
    return tuple(sorted(above, key=lambda one: -one.measured_ratio))


def _advice(rival: Result, result: Result, rival_rates: Sequence[float], rates: Sequence[float]) -> Advice:
    again = by_shared_rounds(rival.by_round("again"), result.by_round("again"))
    is_again = len(again[0]) >= LEAST_ROUNDS  # fewer, if the run was stopped while it measured again
    ratio, interval = ratio_interval(*(again if is_again else (rival_rates, rates)))
    return Advice(
        change=rival.subject.variant,
        measured_ratio=ratio,
        ci95=interval,
        work=rival.subject.work,
        rounds=len(again[0] if is_again else rates),
        again=is_again,
        same_work=rival.subject.work == result.subject.work,
    )
