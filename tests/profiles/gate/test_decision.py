"""The gate's statistics: exact where they can be, and no more false alarms than promised in any kind of noise."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from scipy import stats

from benchmarks.truth.gate import NOISE, judge, simulate
from profiles.gate.decision import (
    ALARM_ERROR,
    EXIT_CODES,
    PAIRS,
    SAME_ERROR,
    Decision,
    Look,
    Paired,
    Unpaired,
    change,
    decision_at,
    floor,
    log_ratios,
    paired,
    plan,
)
from tests import PROJECT_ROOT

COMPARISONS = 4000


def test_the_error_is_split_over_the_looks_and_never_overspent():
    looks = plan(Paired.least_p)
    assert [look.pairs for look in looks] == list(PAIRS)
    assert sum(look.alarm_share for look in looks) == pytest.approx(ALARM_ERROR)
    assert sum(look.same_share for look in looks) == pytest.approx(SAME_ERROR)
    assert [round(look.alarm_share, 5) for look in looks] == [0, 0.0054, 0.00223, 0.00237]
    assert [round(look.same_share, 5) for look in looks] == [0.01787, 0.00913, 0.01117, 0.01183]


def test_six_pairs_can_say_same_but_never_regression():
    """Six sign flips give 1/64 at the least: more than an alarm may cost there, less than "same" may."""
    first, second, *_ = plan(Paired.least_p)
    assert Paired.least_p(6) > ALARM_ERROR > first.alarm_share == 0 < first.same_share > Paired.least_p(6)
    halved = paired([50.0 + number for number in range(6)], [100.0] * 6)
    assert change(halved, first, 0.05).verdict() is None
    halved = paired([50.0 + number for number in range(10)], [100.0] * 10)
    assert change(halved, second, 0.05).verdict() == "regression"


def test_what_a_look_cannot_spend_goes_to_the_next():
    never_early = plan(lambda pairs: 0.0 if pairs == PAIRS[-1] else 1.0)
    assert [look.alarm_share for look in never_early] == [0, 0, 0, pytest.approx(ALARM_ERROR)]


@pytest.mark.parametrize("pairs", [6, 10, 12])
def test_the_sign_flip_test_is_that_of_all_sign_flips(pairs):
    logs = np.random.default_rng(pairs).normal(-0.3, 1, pairs)
    ranks = stats.rankdata(np.abs(logs))
    seen = ranks[logs > 0].sum()
    flips = np.array(list(itertools.product([0, 1], repeat=pairs)))
    exact = (flips @ ranks <= seen).mean()
    assert Paired(logs).p_below(0.0) == pytest.approx(exact, abs=1e-12)
    assert Paired(logs).p_below(0.0) == pytest.approx(stats.wilcoxon(logs, alternative="less", method="exact").pvalue)
    assert Paired(logs).p_above(0.0) == pytest.approx(
        stats.wilcoxon(logs, alternative="greater", method="exact").pvalue
    )


def test_of_ties_the_worst_is_supposed():
    assert Paired(np.zeros(6)).p_below(0.0) == Paired(np.zeros(6)).p_above(0.0) == 1.0
    assert Paired(np.full(6, -0.1)).p_below(0.0) == pytest.approx(1 / 64)


@pytest.mark.parametrize("share", [0.0054, 0.05])
def test_the_interval_is_what_the_bootstrap_converges_to(share):
    logs = np.random.default_rng(1).normal(size=10)
    drawn = stats.bootstrap(
        [logs],
        np.median,
        method="percentile",
        confidence_level=1 - 2 * share,
        n_resamples=200_000,
        rng=np.random.default_rng(2),
    ).confidence_interval
    assert Paired(logs).interval(share) == pytest.approx((drawn.low, drawn.high), abs=0.02)


def test_the_interval_of_two_samples_is_what_the_bootstrap_converges_to():
    rng = np.random.default_rng(3)
    now, then = rng.normal(size=6), rng.normal(1, 1, size=10)
    drawn = stats.bootstrap(
        [now, then],
        lambda x, y, axis: np.median(x, axis=axis) - np.median(y, axis=axis),
        method="percentile",
        confidence_level=0.9,
        n_resamples=100_000,
        rng=np.random.default_rng(4),
    ).confidence_interval
    assert Unpaired(now, then).interval(0.05) == pytest.approx((drawn.low, drawn.high), abs=0.02)
    assert Unpaired(now, then).median == np.median(now) - np.median(then)


def test_ranks_of_two_samples_reach_the_smallest_p_that_is_said():
    now, then = np.arange(6.0), np.arange(10.0, 20.0)
    assert Unpaired(now, then).p_below(0.0) == pytest.approx(Unpaired.least_p(6, 10)) == 1 / math.comb(16, 6)
    assert Unpaired(now, then).p_above(-30.0) == pytest.approx(Unpaired.least_p(6, 10))


@pytest.mark.parametrize(
    ("logs", "received"), [([], "0"), ([1.0], "1"), ([1.0] * 7, "7"), ([1.0, math.nan], "2, not all finite")]
)
def test_what_is_no_even_number_of_finite_log_ratios_is_refused(logs, received):
    with pytest.raises(ValueError, match=rf"`logs` must be an even number .* Received: {received}\."):
        Paired(np.array(logs))
    with pytest.raises(ValueError, match="`now` must be"):
        Unpaired(np.array(logs), np.zeros(6))
    with pytest.raises(ValueError, match="`then` must be"):
        Unpaired(np.zeros(6), np.array(logs))


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_that_is_no_rate_is_refused(rate):
    with pytest.raises(ValueError, match="A rate must be a number above 0"):
        log_ratios([1.0, rate], [1.0, 1.0])
    with pytest.raises(ValueError, match="A rate must be a number above 0"):
        paired([1.0, 1.0], [rate, 1.0])


@pytest.mark.parametrize("kind", NOISE)
@pytest.mark.parametrize("spread", [0.03, pytest.param(0.1, marks=pytest.mark.slow), 0.3])
def test_the_same_against_itself_is_no_regression_and_no_improvement_in_any_noise(kind, spread):
    rng = np.random.default_rng(5)
    outcomes = simulate(spread * NOISE[kind](rng, COMPARISONS), loss=0.0, threshold=0.05, rng=rng)
    assert outcomes.ratio("regression") <= ALARM_ERROR
    assert outcomes.ratio("improved") <= ALARM_ERROR


def test_without_a_coin_a_neighbour_with_a_rhythm_fires():
    """Why the order of each pair is drawn, and not A B B A throughout: this very check fails without it."""
    rng = np.random.default_rng(6)
    noise = 0.3 * NOISE["rhythmic"](rng, COMPARISONS)
    fixed = simulate(noise, loss=0.0, threshold=0.05, rng=rng, fixed_order="ABBA")
    assert fixed.ratio("regression") > 2 * ALARM_ERROR


@pytest.mark.parametrize("kind", NOISE)
def test_a_loss_of_the_threshold_is_seldom_called_same_and_never_improved(kind):
    rng = np.random.default_rng(7)
    for spread in (0.01, 0.03, 0.1):
        outcomes = simulate(spread * NOISE[kind](rng, COMPARISONS), loss=0.05, threshold=0.05, rng=rng)
        assert outcomes.ratio("same") <= SAME_ERROR
        assert outcomes.ratio("improved") < 0.002


def test_stopping_early_for_same_costs_no_power_worth_naming():
    rng = np.random.default_rng(9)
    noise = 0.05 * NOISE["gaussian"](rng, COMPARISONS)
    outcomes = simulate(noise, loss=0.10, threshold=0.05, rng=rng)
    assert outcomes.ratio("same") < 0.001


def test_a_comparison_stops_at_the_look_that_decides_it():
    steady = judge(np.full((1, 24), -0.2) + np.linspace(0, 0.01, 24), threshold=0.05)
    assert (steady.verdicts[0], steady.pairs[0]) == ("regression", 10)
    alike = judge(np.linspace(-0.01, 0.01, 24)[None, :], threshold=0.05)
    assert (alike.verdicts[0], alike.pairs[0]) == ("same", 6)
    wild = judge(np.tile([0.3, -0.3], 12)[None, :], threshold=0.05)
    assert (wild.verdicts[0], wild.pairs[0]) == ("inconclusive", 24)


def test_improvement_is_the_mirror_of_regression():
    rng = np.random.default_rng(10)
    logs = rng.normal(-0.06, 0.05, size=(500, 24))
    there, back = judge(logs, threshold=0.05), judge(-logs, threshold=0.05)
    assert (there.verdicts == "regression").sum() == (back.verdicts == "improved").sum() > 50


def test_a_loss_below_the_threshold_is_no_regression_however_certain():
    look = plan(Paired.least_p)[-1]
    logs = np.log(0.96) + np.linspace(-0.001, 0.001, 24)
    assert change(Paired(logs), look, 0.05).verdict() == "same"
    assert change(Paired(logs), look, 0.03).verdict() == "regression"


def test_a_floor_is_held_broken_or_open():
    look = plan(Paired.least_p)[1]
    above, below = np.log(0.35) + np.linspace(0, 0.01, 10), np.log(0.25) + np.linspace(0, 0.01, 10)
    assert floor(Paired(above), look, 0.3).verdict() == "same"
    assert floor(Paired(below), look, 0.3).verdict() == "regression"
    assert floor(Paired(np.concatenate([above[:5], below[:5]])), look, 0.3).verdict() is None
    nothing = Look(pairs=10, alarm_share=0.0, same_share=0.0)
    assert floor(Paired(above), nothing, 0.3).verdict() is None
    assert change(Paired(above), nothing, 0.05).verdict() is None


def test_a_decision_says_the_ratio_its_interval_and_at_what_error():
    look = plan(Paired.least_p)[1]
    evidence = paired([50.0 + number for number in range(10)], [100.0] * 10)
    made = decision_at(evidence, look, change(evidence, look, 0.05), last=False)
    assert made == Decision(
        verdict="regression",
        ratio=pytest.approx(math.sqrt(0.54 * 0.55)),
        interval=(pytest.approx(0.505, abs=0.01), pytest.approx(0.585, abs=0.01)),
        share=look.alarm_share,
        pairs=10,
    )
    assert made.to_dict()["exit_code"] == made.exit_code == 1


def test_a_comparison_that_is_open_goes_on_and_ends_inconclusive():
    look = plan(Paired.least_p)[-1]
    wild = Paired(np.tile([0.3, -0.31], 12))
    claims = change(wild, look, 0.05)
    assert decision_at(wild, look, claims, last=False) is None
    ended = decision_at(wild, look, claims, last=True)
    assert ended.verdict == "inconclusive" and ended.exit_code == 4


def test_exit_codes_are_those_of_all_commands():
    assert EXIT_CODES == {
        "improved": 0,
        "same": 0,
        "regression": 1,
        "not comparable": 3,
        "failed": 3,
        "inconclusive": 4,
    }


@pytest.mark.parametrize("kind", ["gaussian", pytest.param("heavy-tailed", marks=pytest.mark.slow)])
def test_a_check_against_what_was_recorded_keeps_its_error_too(kind):
    """Ten runs then, six to sixteen now, nothing changed; a threshold so small that the tests alone must hold."""
    rng = np.random.default_rng(11)
    comparisons = 1000
    noise = 0.3 * NOISE[kind](rng, comparisons)
    then, now = noise[:, :10], noise[:, 10:26]
    fired = np.zeros(comparisons, bool)
    for look in plan(lambda count: Unpaired.least_p(count, 10), PAIRS[:-1]):
        fired |= change(Unpaired(now[:, : look.pairs], then), look, 0.01).regression
    assert fired.mean() <= ALARM_ERROR


DOCS = PROJECT_ROOT / "docs" / "gate.md"


def test_the_docs_say_the_power_that_there_is():
    """The table of docs/gate.md, row by row: spread, then the part of losses caught, and the pairs that it took."""
    rows = re.findall(r"^\| (\d+) % \| (.*) \|$", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(rows) == 4
    rng = np.random.default_rng(8)
    for spread, cells in rows:
        *caught, same = (float(re.match(r"([\d.]+) %", cell.strip())[1]) / 100 for cell in cells.split("|"))
        for loss, promised in zip((0.05, 0.10, 0.20, 0.50), caught, strict=True):
            noise = int(spread) / 100 * NOISE["gaussian"](rng, 2000)
            outcomes = simulate(noise, loss=loss, threshold=0.05, rng=rng)
            print(f"spread {spread} %, loss {loss:.0%}: caught {outcomes.ratio('regression'):.1%}")
            assert outcomes.ratio("regression") == pytest.approx(promised, abs=0.04)
        noise = int(spread) / 100 * NOISE["gaussian"](rng, 2000)
        alike = simulate(noise, loss=0.0, threshold=0.05, rng=rng)
        assert alike.ratio("same") == pytest.approx(same, abs=0.04)
