"""What an inconclusive comparison lacks, by its evidence: more rounds, another recording, a quiet machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from unstall.profiles.gate.decision import (
    ANCHORS,
    NEAR,
    NOISE,
    PAIRS,
    RECORDING,
    ROUNDS,
    Claims,
    Decision,
    Lack,
    Look,
    combine,
    plan,
    share_out,
)
from unstall.profiles.gate.log_ratios import LogRatios, Paired, Unpaired
from unstall.profiles.gate.verdicts import INCONCLUSIVE
from unstall.profiles.results.rules import OTHERS_MATTER

# A floor is far from what is this much above it: the loss that counts against a recorded baseline.
_FAR_RATIO = 0.1


def with_lack(
    decision: Decision | None,
    evidence: Mapping[str, LogRatios],
    ask: Callable[[LogRatios, Look], Claims],
    *,
    least_ratio: float | None = None,
) -> Decision | None:
    """Returns the decision, and with "inconclusive" what it would take to decide.

    Args:
      evidence: of each figure.
      ask: `change` with its threshold, or `floor` with its ratio.
      least_ratio: the ratio of `floor`; None for `change`.
    """
    if decision is None or decision.verdict != INCONCLUSIVE:
        return decision
    deciding = evidence[decision.figure]
    held_against = deciding if isinstance(deciding, Unpaired) else None
    lack = Lack(cause=NOISE, spread=deciding.spread)
    if held_against is not None:
        lack = replace(lack, recorded_spread=held_against.recorded_spread)
    if decision.reason:
        return replace(decision, lack=replace(lack, cause=ANCHORS))
    more = [count for count in PAIRS if count > decision.pairs]
    for count in more:
        if _decides({name: of_figure.with_more(count) for name, of_figure in evidence.items()}, count, ask):
            return replace(decision, lack=replace(lack, cause=ROUNDS, rounds=count))
    far = 0.0 if least_ratio is None else math.log(least_ratio * (1 + _FAR_RATIO))
    most = more[-1] if more else decision.pairs
    moved = {
        name: of_figure.with_more(most).moved(far - float(of_figure.median)) for name, of_figure in evidence.items()
    }
    if _decides(moved, most, ask):
        lack = replace(lack, cause=NEAR)
    elif held_against is not None and held_against.recording_limits(most):
        lack = replace(lack, cause=RECORDING)
    return replace(decision, lack=lack)


def _decides(evidence: Mapping[str, LogRatios], count: int, ask: Callable[[LogRatios, Look], Claims]) -> bool:
    """Says whether a look after `count` pairs would decide upon this evidence, in a comparison that may go on."""
    look = share_out(next(look for look in plan(Paired.least_p, PAIRS) if look.pairs == count), len(evidence))
    return combine([ask(of_figure, look) for of_figure in evidence.values()]).verdict() is not None


def text_of(lack: Lack, pairs: int, *, unit: str, option: str, again: str) -> str:
    """Says what it would take to decide, in the words of the person who asked.

    Args:
      pairs: how many were measured.
      unit: what these are called: "rounds", "processes" or "pairs".
      option: what to give for as many as the lack says.
      again: the command that records the baseline again; empty where there is none.
    """
    if lack.cause == ROUNDS:
        assert lack.rounds is not None
        seconds = "" if lack.round_s is None else f", {(lack.rounds - pairs) * lack.round_s:.0f} s"
        text = f"about {lack.rounds - pairs} more {unit}{seconds}: {option}"
    elif lack.cause == RECORDING:
        text = f"a baseline with less noise: recorded {unit} vary by {lack.recorded_spread:.0%}. When quiet: {again}"
    elif lack.cause == ANCHORS:
        text = f"a machine as it was at the recording: when quiet, the same again; or record it here: {again}"
    elif lack.cause == NEAR:
        text = "another threshold or a quieter machine: so near to what is allowed, more time may not tell"
    elif lack.cause == NOISE:
        text = f"a quiet machine: one measurement varies by {lack.spread:.0%}"
    else:
        return f"record it again here: {again}"
    if lack.others_ratio is not None and lack.others_ratio >= OTHERS_MATTER:
        text += f"; other programs took {lack.others_ratio:.0%} of the cores"
    return f"to decide: {text}"
