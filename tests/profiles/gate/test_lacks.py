"""What an inconclusive comparison lacks, and longer comparisons of unchanged code on a busy machine."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from unstall.profiles.gate.baseline import RECORDED, looks
from unstall.profiles.gate.decision import PAIRS, Lack, change, combine, floor, judge, pairs_to, plan, share_out
from unstall.profiles.gate.lacks import text_of, with_lack
from unstall.profiles.gate.log_ratios import Paired, Unpaired
from unstall.profiles.gate.verdicts import ALARM_ERROR

ASK = partial(change, threshold=0.1)


def gaussian(rng, shape):
    return rng.normal(size=shape)


def heavy_tailed(rng, shape):
    return rng.standard_t(3, size=shape) / np.sqrt(3)


def in_half_of_the_rounds(rng, shape):
    """Another program slows half of the rounds."""
    return np.where(rng.random(shape) < 0.5, -1.0, 1.0) + 0.5 * rng.normal(size=shape)


def checks(noise, rng, count, *, recorded, now):
    """Log-ratios of two figures, which share half of their noise: recorded (count, 10), and now (count, 96)."""
    shared, *own = (noise(rng, (count, RECORDED + PAIRS[-1])) for _ in range(3))
    both = [np.sqrt(0.5) * (shared + one) for one in own]
    return [(recorded * one[:, :RECORDED], now * one[:, RECORDED:]) for one in both]


def judged(figures, planned):
    """Judges checks, at each look those that are still open. Returns their verdicts; "" where they stay open."""
    verdicts = np.full(len(figures[0][0]), "", dtype=object)
    for look in planned:
        waiting = np.flatnonzero(verdicts == "")
        own = share_out(look, len(figures))
        claims = combine([ASK(Unpaired(now[waiting, : look.pairs], then[waiting]), own) for then, now in figures])
        for verdict in ("regression", "improved", "same"):
            verdicts[waiting[getattr(claims, verdict)]] = verdict
    return verdicts


def alarms(figures, planned):
    """Returns how often any look at any figure says "regression", with no verdict that would end a check sooner.

    The interval, which is slow to compute, is asked only where the test says so.
    """
    fired = np.zeros(len(figures[0][0]), bool)
    for look in planned:
        own = share_out(replace(look, same_share=0.0), len(figures))
        for then, now in figures:
            near = np.flatnonzero(Unpaired(now[:, : look.pairs], then).p_below(0.0) <= own.alarm_share)
            if len(near):
                fired[near] |= ASK(Unpaired(now[near, : look.pairs], then[near]), own).regression
    return fired.mean()


@pytest.mark.long
@pytest.mark.parametrize("noise", [gaussian, heavy_tailed, in_half_of_the_rounds])
@pytest.mark.parametrize("now", [0.03, 0.15, 0.3])
def test_unchanged_code_under_load_is_no_regression_however_long_it_is_measured(noise, now):
    """Recorded on a quiet machine, checked on a busy one: whichever look is the last for want of time."""
    figures = checks(noise, np.random.default_rng(21), 2000, recorded=0.03, now=now)
    assert alarms(figures, looks(PAIRS[-1])) <= ALARM_ERROR
    assert alarms(figures, looks(60)) <= ALARM_ERROR


def test_a_first_look_on_a_busy_machine_raises_no_alarm():
    """Six of six rounds lie below a quiet recording in one of 64 checks, whatever their ranks say."""
    planned = looks(PAIRS[-1])
    assert planned[0].alarm_share == 0 < planned[0].same_share
    for most in PAIRS[1:]:
        for look in looks(most):
            assert look.alarm_share == 0 or share_out(look, 2).alarm_share >= 2.0**-look.pairs


@pytest.mark.long
def test_unchanged_code_under_load_that_16_rounds_leave_open_is_the_same_after_60():
    figures = checks(gaussian, np.random.default_rng(22), 100, recorded=0.03, now=0.12)
    assert (judged(figures, looks(16)) == "").mean() > 0.5
    assert (judged(figures, looks(60)) == "same").mean() > 0.8


@pytest.mark.parametrize("most", PAIRS[1:])
def test_a_longer_plan_splits_the_same_error_so_that_any_look_may_be_the_last(most):
    for planned in (looks(most), plan(Paired.least_p, pairs_to(most))):
        assert planned[-1].pairs == most
        assert sum(look.alarm_share for look in planned) == pytest.approx(ALARM_ERROR)


def ended(now, then, most=16):
    evidence = {"epoch": Unpaired(now, then)}
    return with_lack(judge(evidence, looks(most)[-1], ASK, last=True), evidence, ASK)


@pytest.mark.long
def test_the_rounds_that_are_said_decide_most_checks():
    rng = np.random.default_rng(23)
    decided = []
    for _ in range(60):
        then, now = 0.03 * rng.normal(size=RECORDED), 0.13 * rng.normal(size=PAIRS[-1])
        made = ended(now[:16], then)
        if made.lack is not None and made.lack.cause == "rounds":
            assert made.lack.rounds > made.pairs
            decided.append(ended(now[: made.lack.rounds], then, made.lack.rounds).verdict != "inconclusive")
    assert len(decided) > 8 and np.mean(decided) > 0.6


NOISE = np.random.default_rng(24).normal(size=16)
THEN = np.random.default_rng(25).normal(size=RECORDED)


@pytest.mark.parametrize(
    ("now", "then", "cause"),
    [
        (0.03 * NOISE, 0.4 * THEN, "recording"),
        (0.8 * NOISE, 0.03 * THEN, "noise"),
        (np.log(0.902) + 0.02 * (NOISE - np.median(NOISE)), 0.02 * THEN - np.median(0.02 * THEN), "near"),
    ],
)
def test_what_no_number_of_rounds_decides_has_another_cause(now, then, cause):
    made = ended(now, then)
    assert (made.verdict, made.lack.cause, made.lack.rounds) == ("inconclusive", cause, None)


def test_what_is_decided_lacks_nothing():
    assert ended(0.01 * NOISE, 0.01 * THEN).lack is None


def test_a_floor_says_how_many_rounds_it_lacks():
    evidence, ask = {"epoch": Paired(np.log(0.52) + 0.1 * NOISE)}, partial(floor, least_ratio=0.5)
    made = judge(evidence, plan(Paired.least_p, pairs_to(16))[-1], ask, last=True)
    lack = with_lack(made, evidence, ask, least_ratio=0.5).lack
    assert lack.cause == "rounds" and lack.rounds in PAIRS[3:]
    at_the_floor = {"epoch": Paired(np.log(0.5) + 0.02 * (NOISE - np.median(NOISE)))}
    made = judge(at_the_floor, plan(Paired.least_p, pairs_to(16))[-1], ask, last=True)
    assert with_lack(made, at_the_floor, ask, least_ratio=0.5).lack.cause == "near"


@pytest.mark.parametrize(
    ("lack", "text"),
    [
        (Lack(cause="rounds", rounds=38, spread=0.1, round_s=2.0), "to decide: about 22 more rounds, 44 s: MORE"),
        (Lack(cause="rounds", rounds=38, spread=0.1), "to decide: about 22 more rounds: MORE"),
        (Lack(cause="elsewhere"), "record it again here: AGAIN"),
        (
            Lack(cause="noise", spread=0.3, others_ratio=0.5),
            "to decide: a quiet machine: one measurement varies by 30%; other programs took 50% of the cores",
        ),
        (
            Lack(cause="noise", spread=0.3, others_ratio=0.01),
            "to decide: a quiet machine: one measurement varies by 30%",
        ),
    ],
)
def test_a_lack_is_said_in_the_words_of_who_asked(lack, text):
    assert text_of(lack, 16, unit="rounds", option="MORE", again="AGAIN") == text
