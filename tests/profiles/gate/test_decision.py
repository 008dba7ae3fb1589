"""The gate's statistics: exact where they can be, and no more false alarms than promised in any kind of noise."""

from __future__ import annotations

import itertools
import math
import re
from functools import partial

import numpy as np
import pytest
from scipy import stats

from tests import PROJECT_ROOT
from tests.truth import simulated
from tests.truth.simulated import NOISE, PAIRS, simulate
from unstall.profiles.gate import baseline as baselines
from unstall.profiles.gate.baseline import RECORDED, MeasuredRates, check, looks, new_baseline
from unstall.profiles.gate.decision import PAIRS as ALL_PAIRS
from unstall.profiles.gate.decision import (
    SAME_ERROR,
    Claims,
    Decision,
    JudgedFigure,
    Look,
    change,
    combine,
    floor,
    judge,
    paired,
    pairs_to,
    plan,
    share_out,
)
from unstall.profiles.gate.invariants import Invariants
from unstall.profiles.gate.log_ratios import Paired, Unpaired, log_ratios
from unstall.profiles.gate.verdicts import ALARM_ERROR, EXIT_CODES

COMPARISONS = 4000


def test_the_error_is_split_over_the_looks_and_never_overspent():
    looks = plan(Paired.least_p, PAIRS)
    assert [look.pairs for look in looks] == list(PAIRS)
    assert sum(look.alarm_share for look in looks) == pytest.approx(ALARM_ERROR)
    assert sum(look.same_share for look in looks) == pytest.approx(SAME_ERROR)
    assert [round(look.alarm_share, 5) for look in looks] == [0, 0.0054, 0.00223, 0.00237]
    assert [round(look.same_share, 5) for look in looks] == [0.01787, 0.00913, 0.01117, 0.01183]


def test_six_pairs_can_say_same_but_never_regression():
    """Six sign flips give 1/64 at the least: more than an alarm may cost there, less than "same" may."""
    first, second, *_ = plan(Paired.least_p, PAIRS)
    assert Paired.least_p(6) > ALARM_ERROR > first.alarm_share == 0 < first.same_share > Paired.least_p(6)
    halved = Paired(np.log([0.50 + number / 100 for number in range(6)]))
    assert change(halved, first, 0.05).verdict() is None
    halved = Paired(np.log([0.50 + number / 100 for number in range(10)]))
    assert change(halved, second, 0.05).verdict() == "regression"


def test_what_a_look_cannot_spend_goes_to_the_next():
    never_early = plan(lambda pairs: 0.0 if pairs == PAIRS[-1] else 1.0, PAIRS)
    assert [look.same_share for look in never_early] == [0, 0, 0, pytest.approx(SAME_ERROR)]


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
        paired([{"epoch": 1.0}] * 2, [{"epoch": rate}, {"epoch": 1.0}])


@pytest.mark.long
@pytest.mark.parametrize(
    "own_ratio",
    [0.0, pytest.param(0.5, marks=pytest.mark.claims), 1.0],
    ids=["shared noise", "half of it", "noise of their own"],
)
@pytest.mark.parametrize("kind", NOISE)
@pytest.mark.parametrize("spread", [0.03, pytest.param(0.1, marks=pytest.mark.claims), 0.3])
def test_the_same_against_itself_is_no_regression_and_no_improvement_in_any_noise(kind, spread, own_ratio):
    rng = np.random.default_rng(5)
    noise = [spread * one for one in simulated.figures(kind, rng, COMPARISONS, own_ratio=own_ratio)]
    outcomes = simulate(noise, losses=[0.0, 0.0], threshold=0.05, rng=rng)
    assert outcomes.ratio("regression") <= ALARM_ERROR
    assert outcomes.ratio("improved") <= ALARM_ERROR


@pytest.mark.parametrize("kind", NOISE)
def test_a_figure_that_is_the_only_one_has_the_whole_error(kind):
    rng = np.random.default_rng(5)
    outcomes = simulate([0.3 * NOISE[kind](rng, COMPARISONS)], losses=[0.0], threshold=0.05, rng=rng)
    assert outcomes.ratio("regression") <= ALARM_ERROR
    assert outcomes.ratio("improved") <= ALARM_ERROR


@pytest.mark.parametrize("losses", [(0.0, 0.2), (0.2, 0.0)])
def test_a_loss_of_one_figure_is_found_beside_another_that_is_the_same(losses):
    rng = np.random.default_rng(12)
    noise = [0.05 * one for one in simulated.figures("gaussian", rng, 1000)]
    outcomes = simulate(noise, losses=losses, threshold=0.05, rng=rng)
    assert outcomes.ratio("regression") > 0.99


def test_without_a_coin_a_neighbour_with_a_rhythm_fires():
    """Why the order of each pair is drawn, and not A B B A throughout: this very check fails without it."""
    rng = np.random.default_rng(6)
    noise = 0.3 * NOISE["rhythmic"](rng, COMPARISONS)
    signs = np.tile([1, -1], PAIRS[-1] // 2)  # B comes first in every second pair
    fixed = simulated.judge([signs * (noise[:, 1::2] - noise[:, 0::2])], threshold=0.05)
    assert fixed.ratio("regression") > 2 * ALARM_ERROR


@pytest.mark.long
@pytest.mark.parametrize("kind", NOISE)
def test_a_loss_of_the_threshold_is_seldom_called_same_and_never_improved(kind):
    rng = np.random.default_rng(7)
    for spread in (0.01, 0.1):
        noise = [spread * one for one in simulated.figures(kind, rng, COMPARISONS)]
        outcomes = simulate(noise, losses=[0.05, 0.05], threshold=0.05, rng=rng)
        assert outcomes.ratio("same") <= SAME_ERROR
        assert outcomes.ratio("improved") < 0.002


def test_stopping_early_for_same_costs_no_power_worth_naming():
    rng = np.random.default_rng(9)
    noise = [0.05 * one for one in simulated.figures("gaussian", rng, COMPARISONS)]
    outcomes = simulate(noise, losses=[0.10, 0.10], threshold=0.05, rng=rng)
    assert outcomes.ratio("same") < 0.001


def test_a_comparison_stops_at_the_look_that_decides_it():
    steady = simulated.judge([np.full((1, 24), -0.2) + np.linspace(0, 0.01, 24)], threshold=0.05)
    assert (steady.verdicts[0], steady.pairs[0]) == ("regression", 10)
    alike = simulated.judge([np.linspace(-0.01, 0.01, 24)[None, :]], threshold=0.05)
    assert (alike.verdicts[0], alike.pairs[0]) == ("same", 6)
    wild = simulated.judge([np.tile([0.3, -0.3], 12)[None, :]], threshold=0.05)
    assert (wild.verdicts[0], wild.pairs[0]) == ("inconclusive", 24)


def test_improvement_is_the_mirror_of_regression():
    rng = np.random.default_rng(10)
    logs = rng.normal(-0.06, 0.05, size=(1, 500, 24))
    there, back = simulated.judge(logs, threshold=0.05), simulated.judge([-one for one in logs], threshold=0.05)
    assert (there.verdicts == "regression").sum() == (back.verdicts == "improved").sum() > 50


def test_a_loss_below_the_threshold_is_no_regression_however_certain():
    look = plan(Paired.least_p, PAIRS)[-1]
    logs = np.log(0.96) + np.linspace(-0.001, 0.001, 24)
    assert change(Paired(logs), look, 0.05).verdict() == "same"
    assert change(Paired(logs), look, 0.03).verdict() == "regression"


def test_a_floor_is_held_broken_or_open():
    look = plan(Paired.least_p, PAIRS)[1]
    above, below = np.log(0.35) + np.linspace(0, 0.01, 10), np.log(0.25) + np.linspace(0, 0.01, 10)
    assert floor(Paired(above), look, 0.3).verdict() == "same"
    assert floor(Paired(below), look, 0.3).verdict() == "regression"
    assert floor(Paired(np.concatenate([above[:5], below[:5]])), look, 0.3).verdict() is None
    nothing = Look(pairs=10, alarm_share=0.0, same_share=0.0)
    assert floor(Paired(above), nothing, 0.3).verdict() is None
    assert change(Paired(above), nothing, 0.05).verdict() is None


def rates(ratio, pairs=10):
    """Rates of B against 100 of A, whose ratio is about this."""
    return [100.0 * ratio + number / 10 for number in range(pairs)]


def judged(steady, epoch, pairs=10):
    b = [{"steady": one, "epoch": other} for one, other in zip(rates(steady, pairs), rates(epoch, pairs), strict=True)]
    (look,) = (look for look in plan(Paired.least_p, PAIRS) if look.pairs == pairs)
    return judge(paired(b, [{"epoch": 100.0}] * pairs), look, partial(change, threshold=0.05), last=False)


def test_a_decision_says_each_figures_ratio_its_interval_and_at_what_error():
    look = share_out(plan(Paired.least_p, PAIRS)[1], 2)
    made = judged(1.0, 0.6)
    assert made == Decision(
        verdict="regression",
        figures={
            "steady": JudgedFigure(
                verdict="same",
                ratio=pytest.approx(1.0045, abs=1e-3),
                interval=(pytest.approx(1.001, abs=2e-3), pytest.approx(1.008, abs=2e-3)),
                share=look.same_share,
            ),
            "epoch": JudgedFigure(
                verdict="regression",
                ratio=pytest.approx(0.6045, abs=1e-3),
                interval=(pytest.approx(0.6, abs=2e-3), pytest.approx(0.609, abs=2e-3)),
                share=look.alarm_share,
            ),
        },
        figure="epoch",
        pairs=10,
    )
    assert made.words == "images/sec with epoch edges"
    assert made.to_dict()["exit_code"] == made.exit_code == 1
    assert made.to_dict()["figures"]["epoch"]["ratio"] == made.judged.ratio


@pytest.mark.parametrize(
    ("steady", "epoch", "verdict", "figure"),
    [
        (0.6, 1.0, "regression", "steady"),
        (1.0, 0.6, "regression", "epoch"),
        (1.5, 0.6, "regression", "epoch"),
        (0.5, 0.6, "regression", "steady"),
        (1.0, 1.0, "same", "steady"),
        (1.0, 1.5, "improved", "epoch"),
        (1.5, 1.4, "improved", "epoch"),
    ],
)
def test_a_regression_of_either_figure_is_one_and_same_is_what_both_are(steady, epoch, verdict, figure):
    made = judged(steady, epoch)
    assert (made.verdict, made.figure) == (verdict, figure)


def test_what_is_open_in_one_figure_goes_on_and_ends_inconclusive():
    look = plan(Paired.least_p, PAIRS)[-1]
    open_ = Paired(np.tile([0.3, -0.31], 12))
    for logs in (0.0, 0.5):
        evidence = {"steady": Paired(np.linspace(logs, logs + 0.01, 24)), "epoch": open_}
        assert judge(evidence, look, partial(change, threshold=0.05), last=False) is None
        ended = judge(evidence, look, partial(change, threshold=0.05), last=True)
        assert (ended.verdict, ended.exit_code, ended.figure) == ("inconclusive", 4, "epoch")


def test_a_floor_must_be_held_by_both_figures():
    look = plan(Paired.least_p, PAIRS)[1]
    above, below = Paired(np.linspace(-0.1, 0, 10)), Paired(np.linspace(-2, -1, 10))
    for figure in ("steady", "epoch"):
        evidence = {"steady": above, "epoch": above, figure: below}
        made = judge(evidence, look, partial(floor, least_ratio=0.5), last=False)
        assert (made.verdict, made.figure) == ("regression", figure)
    held = judge({"steady": above, "epoch": above}, look, partial(floor, least_ratio=0.5), last=False)
    assert held.verdict == "same"


def test_what_has_no_steady_steps_is_judged_by_the_whole_alone():
    """At the whole error: a share that would not do for one of two does."""
    look = Look(pairs=10, alarm_share=1.5 * Paired.least_p(10), same_share=0.0)
    halved = [{"epoch": rate} for rate in rates(0.5)]
    alone = judge(paired(halved, [{"epoch": 100.0}] * 10), look, partial(change, threshold=0.05), last=True)
    assert (alone.verdict, list(alone.figures), alone.words) == ("regression", ["epoch"], "images/sec")
    twice = [{"steady": one["epoch"], **one} for one in halved]
    both = judge(paired(twice, [{"epoch": 100.0}] * 10), look, partial(change, threshold=0.05), last=True)
    assert both.verdict == "inconclusive"


def test_two_figures_share_the_error_of_an_alarm_and_can_still_reach_it():
    for pairs in map(pairs_to, ALL_PAIRS):
        for look in plan(Paired.least_p, pairs):
            own = share_out(look, 2)
            assert (2 * own.alarm_share, own.same_share) == (look.alarm_share, look.same_share)
            assert own.alarm_share == 0 or own.alarm_share >= Paired.least_p(look.pairs)
    for most in ALL_PAIRS:
        for look in looks(most):
            own = share_out(look, 2)
            assert own.alarm_share == 0 or own.alarm_share >= Unpaired.least_p(look.pairs, RECORDED)


def test_figures_together_are_exclusive():
    """Whatever two figures show, at most one verdict comes of it."""
    each = [(bits == 1, bits == 2, bits == 3) for bits in range(4)]
    for first, second in itertools.product(each, repeat=2):
        claims = [
            Claims(**dict(zip(("regression", "improved", "same"), map(np.asarray, one), strict=True)))
            for one in (first, second)
        ]
        both = combine(claims)
        assert sum(map(bool, (both.regression, both.improved, both.same))) <= 1
        assert bool(both.regression) == (first[0] or second[0])
        assert bool(both.same) == (first[2] and second[2])


def test_exit_codes_are_those_of_all_commands():
    assert EXIT_CODES == {
        "improved": 0,
        "same": 0,
        "regression": 1,
        "not comparable": 3,
        "failed": 3,
        "inconclusive": 4,
    }


@pytest.mark.parametrize("kind", ["gaussian", pytest.param("heavy-tailed", marks=pytest.mark.claims)])
def test_a_check_against_what_was_recorded_keeps_its_error_too(kind):
    """Ten runs then, six to sixteen now, nothing changed; a threshold so small that the tests alone must hold."""
    rng = np.random.default_rng(11)
    comparisons = 1000
    noise = 0.3 * NOISE[kind](rng, comparisons)
    then, now = noise[:, :10], noise[:, 10:26]
    fired = np.zeros(comparisons, bool)
    for look in looks(16):
        fired |= change(Unpaired(now[:, : look.pairs], then), look, 0.01).regression
    assert fired.mean() <= ALARM_ERROR


@pytest.mark.long
def test_a_check_against_copies_alone_keeps_its_error_too(monkeypatch):
    """Without OpenCV and Keras no second anchor confirms a change: whole checks of two figures, nothing changed."""
    monkeypatch.setattr(
        baselines, "with_lack", lambda decision, *_: decision
    )  # takes most of the time, decides nothing
    rng = np.random.default_rng(12)
    checks = 400
    # What the machine does to both rates, and what each does by itself: one measurement varies by 6 %.
    machine, own = rng.normal(0, 0.1, (checks, RECORDED + 16)), 0.06 * NOISE["gaussian"](rng, checks)
    regressions = 0
    for together, alone in zip(machine, own, strict=True):
        measured = [
            MeasuredRates(
                images_per_sec={"steady": 100 * math.exp(both + apart), "epoch": 90 * math.exp(both + apart)},
                anchors={"copy": 500 * math.exp(both)},
            )
            for both, apart in zip(together, alone, strict=False)
        ]
        baseline = new_baseline(
            measured[:RECORDED],
            subject="a",
            measure="loader",
            reading="loop",
            invariants=Invariants(images=1),
            machine={},
            dataset=None,
        )
        now, planned = measured[RECORDED:], looks(16)
        decisions = (
            check(baseline, now[: look.pairs], look, threshold=0.02, last=look == planned[-1]) for look in planned
        )
        decision = next(filter(None, decisions))
        regressions += decision.verdict == "regression"
    assert regressions <= ALARM_ERROR * checks


DOCS = PROJECT_ROOT / "docs" / "gate.md"


@pytest.mark.long
def test_the_docs_say_the_power_that_there_is():
    """The table that docs/gate.md shows, by row: spread, then the part of losses caught, and the pairs taken."""
    rows = re.findall(r"^\| (\d+)% \|((?: [\d.]+% \(\d+\) \|)+)$", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert [int(spread) / 100 for spread, _ in rows] == list(simulated.SPREADS)
    rng = np.random.default_rng(8)
    for spread, cells in rows:
        for losses, (printed, pairs) in zip(
            simulated.POWER.values(), re.findall(r"([\d.]+)% \((\d+)\)", cells), strict=True
        ):
            outcomes = simulated.comparisons("gaussian", int(spread) / 100, losses, rng, 1000)
            verdict = "regression" if any(losses) else "same"
            assert outcomes.ratio(verdict) == pytest.approx(float(printed) / 100, abs=0.05)
            assert outcomes.pairs.mean() == pytest.approx(int(pairs), abs=1)
