"""Comparisons and checks on figures that are made up: what is measured in which order, and what it comes to."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import pytest

from unstall.benchmarks.gate.measure import compare, run_check
from unstall.benchmarks.gate.plan import AskedCheck, Question
from unstall.benchmarks.gate.processes import MeasureError, Subject
from unstall.benchmarks.gate.results import Check, Comparison, baseline_of
from unstall.benchmarks.gate.samples import INSPECTED, Process
from unstall.profiles.gate.baseline import MOST_PROCESSES, RECORDED
from unstall.profiles.gate.decision import MOST_PAIRS, pairs_to
from unstall.profiles.gate.invariants import Invariants

A, B = (Subject(label=name, kind="variant", text=name) for name in ("a", "b"))
ASKED = Question(a="a", b="b", threshold=0.05)
INVARIANTS = Invariants(images=768, stages=("range", "map load, 2 calls"), decodes_per_image=1.0, bytes_per_image=4.0)
PROVENANCE = {
    "cpu": "a CPU",
    "usable_cores": 2.0,
    "memory_bytes": 8 * 2**30,
    "platform": "Linux x86_64",
    "python": "3.11.7",
    "packages": dict.fromkeys(
        ("tensorflow", "keras", "numpy", "opencv-python-headless", "pillow", "albumentations"), "1"
    ),
}
BENCHMARK = {"subject": "tf-data", "measure": "loader"}
WHERE = {"provenance": PROVENANCE, "dataset": {"images": 2000, "content": "0123"}}


class Machine:
    """Serves made-up rates: those of a subject, times what the machine does at that moment."""

    def __init__(self, rates, *, spread=0.01, invariants=None, anchors=None, fails_at=None, seed=7):
        self.rates, self.anchors, self.invariants, self.fails_at = rates, anchors or {}, invariants or {}, fails_at
        self.noise = random.Random(seed)
        self.spread = spread
        self.asked = []

    def __call__(self, subject, inspect):
        if len(self.asked) == self.fails_at:
            raise MeasureError(f"{subject.label}: it died")
        self.asked.append((subject.label, inspect))
        rate = self.rates[subject.label]
        rates = rate if isinstance(rate, dict) else {"epoch": rate}
        hour = math.exp(self.noise.gauss(0, self.spread))
        return Process(
            rates={name: (rate * hour,) for name, rate in rates.items()},
            anchors={name: (value,) for name, value in self.anchors.items()},
            invariants=self.invariants.get(subject.label, INVARIANTS) if inspect else None,
            backend="tensorflow",
        )


def ask(question=ASKED, coin=None, **how):
    machine = Machine(**how)
    return compare(Comparison(question=question), {"A": A, "B": B}, machine, coin or random.Random(0)), machine


@pytest.mark.parametrize(
    ("b", "verdict", "pairs"), [(80.0, "regression", 10), (125.0, "improved", 10), (100.0, "same", 6)]
)
def test_a_clear_change_is_found_at_the_first_look_that_may_say_so(b, verdict, pairs):
    comparison, machine = ask(rates={"a": 100.0, "b": b})
    assert (comparison.decide().verdict, comparison.decide().pairs) == (verdict, pairs)
    assert len(machine.asked) == 2 * pairs == 2 * len(comparison.orders)


def test_a_noisy_machine_is_inconclusive_after_the_last_look():
    comparison, machine = ask(rates={"a": 100.0, "b": 98.0}, spread=0.3)
    assert (comparison.decide().verdict, comparison.decide().exit_code) == ("inconclusive", 4)
    assert len(machine.asked) == 2 * MOST_PAIRS
    assert comparison.spread("epoch") == pytest.approx(0.3, rel=0.5)


def test_each_pair_is_a_and_b_in_the_order_of_a_coin():
    comparison, machine = ask(rates={"a": 100.0, "b": 100.0}, spread=0.3)
    labels = [label for label, _ in machine.asked]
    pairs = list(zip(labels[::2], labels[1::2], strict=True))
    assert [f"{first}{second}".upper() for first, second in pairs] == list(comparison.orders)
    assert set(comparison.orders) == {"AB", "BA"}
    again, _ = ask(rates={"a": 100.0, "b": 100.0}, spread=0.3)
    other, _ = ask(rates={"a": 100.0, "b": 100.0}, spread=0.3, coin=random.Random(1))
    assert comparison.orders == again.orders != other.orders


def test_what_has_no_noise_is_looked_at_twice_a_side():
    _, machine = ask(rates={"a": 100.0, "b": 100.0})
    assert sorted(label for label, inspect in machine.asked if inspect) == ["a", "a", "b", "b"]


@pytest.mark.parametrize("fails_at", [0, 1, 5, 13])
def test_a_process_that_dies_is_a_failure_and_never_a_regression(fails_at):
    comparison, _ = ask(rates={"a": 100.0, "b": 50.0}, fails_at=fails_at)
    assert (comparison.decide().verdict, comparison.decide().exit_code) == ("failed", 3)
    assert comparison.decide().reason.endswith(": it died")
    assert comparison.decide().pairs == fails_at // 2
    assert comparison.to_dict(comparison.decide())["decision"]["verdict"] == "failed"


@pytest.mark.parametrize("rates", [(math.nan,), (0.0,), (-1.0,), (math.inf,), ()])
def test_a_rate_that_is_none_is_refused_before_it_can_be_judged(rates):
    with pytest.raises(ValueError, match="A rate must be a number above 0|at least one window"):
        Process(rates={"epoch": rates})
    with pytest.raises(ValueError, match="A rate must be a number above 0|at least one window"):
        Process(rates={"epoch": (1.0,)}, anchors={"decode": rates})


def test_a_floor_is_asked_for_in_the_place_of_a_change():
    asked = replace(ASKED, at_least=3.0)
    held, _ = ask(asked, rates={"a": 100.0, "b": 700.0})
    broken, _ = ask(asked, rates={"a": 100.0, "b": 200.0})
    assert (held.decide().verdict, held.decide().pairs) == ("same", 6)
    assert (broken.decide().verdict, broken.decide().pairs) == ("regression", 10)


TWO = {"steady": 100.0, "epoch": 100.0}


@pytest.mark.parametrize(("figure", "other"), [("steady", "epoch"), ("epoch", "steady")])
def test_a_regression_of_either_figure_is_one(figure, other):
    comparison, machine = ask(rates={"a": TWO, "b": {**TWO, figure: 80.0}})
    decision = comparison.decide()
    assert (decision.verdict, decision.figure, decision.figures[other].verdict) == ("regression", figure, "same")
    assert len(machine.asked) == 20
    values = comparison.to_dict(comparison.decide())
    assert set(values["ratios"]) == set(values["decision"]["figures"]) == {"steady", "epoch"}


def test_a_floor_must_be_held_by_both_figures():
    asked = replace(ASKED, at_least=0.9)
    held, _ = ask(asked, rates={"a": TWO, "b": TWO})
    broken, _ = ask(asked, rates={"a": TWO, "b": {**TWO, "epoch": 70.0}})
    assert held.decide().verdict == "same"
    assert (broken.decide().verdict, broken.decide().figure) == ("regression", "epoch")


def test_a_rate_without_steady_steps_stands_for_both_beside_another_with_them():
    comparison, _ = ask(rates={"a": 100.0, "b": {"steady": 100.0, "epoch": 70.0}})
    assert (comparison.decide().verdict, comparison.decide().figure) == ("regression", "epoch")
    assert comparison.ratios("steady")[0] == pytest.approx(1.0, abs=0.1)
    alone, _ = ask(rates={"a": 100.0, "b": 70.0})
    assert list(alone.decide().figures) == ["epoch"]


def test_fewer_looks_end_sooner_and_still_keep_their_error():
    asked = replace(ASKED, pairs=pairs_to(10))
    assert [look.alarm_share for look in asked.looks] == [0.0, pytest.approx(0.01)]
    comparison, _ = ask(asked, rates={"a": 100.0, "b": 100.0}, spread=0.3)
    assert (comparison.decide().verdict, comparison.decide().pairs) == ("inconclusive", 10)


def test_more_work_for_the_same_images_is_a_regression_after_two_pairs():
    worse = replace(INVARIANTS, decodes_per_image=2.0)
    asked = replace(ASKED, same_work=True)
    comparison, machine = ask(asked, rates={"a": 100.0, "b": 130.0}, invariants={"b": worse})
    assert comparison.decide().verdict == "regression"
    assert comparison.decide().reason == "decodes per image: 1.0 -> 2.0"
    assert len(machine.asked) == 4
    other_work, _ = ask(rates={"a": 100.0, "b": 130.0}, invariants={"b": worse})
    assert other_work.decide().verdict == "improved"


def test_the_results_hold_every_figure_and_order():
    comparison, _ = ask(rates={"a": 100.0, "b": 80.0})
    values = comparison.to_dict(comparison.decide())
    assert len(comparison.measurements) == 2 * len(values["ratios"]["epoch"]) == 20
    assert values["orders"] == list(comparison.orders)
    assert values["invariants"] == {"a": INVARIANTS.to_dict(), "b": INVARIANTS.to_dict()}
    assert [look["pairs"] for look in values["looks"]] == list(pairs_to(MOST_PAIRS))


def test_nothing_measured_has_no_spread():
    assert Comparison(question=ASKED).spread("epoch") is None


ANCHORS = {"decode": 2000.0, "copy": 100.0, "resident": 500.0}


def a_machine(factor=1.0, *, epochs=None, hour=1.0, anchors=(), **how):
    """A machine whose code serves `factor` of what it did, in an hour in which everything runs at `hour`.

    Args:
      epochs: of what it served in whole epochs; the code has steady steps as well where this is given.
    """
    rates = {name: hour * rate for name, rate in ANCHORS.items()} | dict(anchors)
    rate = 1000.0 * hour * factor
    served = rate if epochs is None else {"steady": rate, "epoch": 1000.0 * hour * epochs}
    return Machine({"b": served}, anchors=rates, **how)


def a_baseline(**how):
    machine = a_machine(**how)
    return recorded(lambda inspect: machine(B, inspect))


def recorded(measure):
    return baseline_of([measure(number < INSPECTED) for number in range(RECORDED)], **BENCHMARK, **WHERE)


def checked(baseline, machine, process_of=None, **changes):
    defaults = {**BENCHMARK, "most_processes": MOST_PROCESSES}
    asked = {name: changes.pop(name, default) for name, default in defaults.items()}
    asked = AskedCheck(name="loader", data="photos", threshold=0.1, baseline=baseline, again="gate record", **asked)
    return run_check(Check(asked=asked, **(WHERE | changes)), process_of or (lambda inspect: machine(B, inspect)))


def test_a_baseline_holds_ratios_to_each_anchor_and_a_floor():
    baseline = a_baseline()
    (figure,) = baseline.figures.values()
    assert {len(ratios) for ratios in figure.ratios.values()} == {RECORDED}
    assert figure.ratios["decode"][0] == pytest.approx(0.5, rel=0.05)
    assert figure.floor_images_per_sec == pytest.approx(0.4 * figure.images_per_sec)
    assert baseline.invariants == INVARIANTS


def test_the_anchor_whose_ratio_varied_least_judges():
    shakes = itertools.cycle([0.5, 2.0])
    machine = a_machine(spread=0.0)
    steady = machine.anchors["copy"]

    def measure(inspect):
        process = machine(B, inspect)
        return replace(process, anchors={"decode": (2000.0 * next(shakes),), "copy": (steady,)})

    assert recorded(measure).figures["epoch"].judge == "copy"


@pytest.mark.parametrize(
    ("factor", "verdict", "pairs"), [(0.7, "regression", 10), (1.0, "same", 6), (1.4, "improved", 10)]
)
def test_a_check_finds_what_changed_in_ten_processes_and_what_did_not_in_six(factor, verdict, pairs):
    decision = checked(a_baseline(), a_machine(factor)).decide()
    assert (decision.verdict, decision.pairs) == (verdict, pairs)


@pytest.mark.parametrize(
    ("factor", "epochs", "verdict", "figure"),
    [
        (1.0, 0.7, "regression", "epoch"),
        (0.7, 1.0, "regression", "steady"),
        (1.0, 1.0, "same", None),
        (1.4, 0.7, "regression", "epoch"),
        (1.4, 1.0, "improved", "steady"),
        (1.0, 0.3, "regression", "epoch"),
    ],
)
def test_a_check_judges_both_figures(factor, epochs, verdict, figure):
    check = checked(a_baseline(epochs=1.0), a_machine(factor, epochs=epochs))
    assert check.decide().verdict == verdict
    assert figure in (None, check.decide().figure)
    assert ("the floor" in check.decide().reason) == (epochs == 0.3)
    assert set(check.decide().figures) == {"steady", "epoch"}


@pytest.mark.parametrize("hour", [0.3, 0.5, 0.8, 1.5])
def test_a_slower_hour_of_the_same_machine_does_not_fire(hour):
    assert checked(a_baseline(), a_machine(hour=hour)).decide().verdict == "same"


def test_an_anchor_that_moved_alone_is_no_regression():
    """Recorded beside a neighbour that took a core from the anchors that use all, checked without it."""
    decision = checked(a_baseline(), a_machine(anchors={"decode": 4000.0, "resident": 1000.0})).decide()
    assert decision.verdict in ("inconclusive", "same")
    assert "the anchors disagree" in decision.reason or decision.verdict == "same"


def test_anchors_that_disagree_are_named():
    baseline = a_baseline()
    baseline = replace(baseline, figures={"epoch": replace(baseline.figures["epoch"], judge="decode")})
    decision = checked(baseline, a_machine(anchors={"decode": 4000.0})).decide()
    assert decision.verdict == "inconclusive"
    assert decision.reason.startswith("the anchors disagree: 0.50 against decode, 1.0")
    assert (decision.lack.cause, decision.lack.rounds) == ("anchors", None)


def test_below_the_floor_no_noise_excuses_it():
    decision = checked(a_baseline(spread=0.5), a_machine(0.2, spread=0.5)).decide()
    assert decision.verdict == "regression"
    assert "the floor" in decision.reason


def test_a_slow_machine_below_the_floor_is_not_the_codes_doing():
    assert checked(a_baseline(), a_machine(hour=0.2)).decide().verdict == "same"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"subject": "mine:feed"}, "subject: tf-data -> mine:feed"),
        ({"measure": "train cats-dogs-64 on cpu"}, "measure: loader -> train cats-dogs-64 on cpu"),
        ({"dataset": {"images": 2000, "content": "4567"}}, "dataset content: 0123 -> 4567"),
        ({"dataset": None}, "dataset images: 2000 -> unknown; dataset content: 0123 -> unknown"),
        ({"provenance": {**PROVENANCE, "cpu": "another CPU"}}, "cpu: a CPU -> another CPU"),
        ({"provenance": {**PROVENANCE, "usable_cores": 4.0}}, "usable_cores: 2.0 -> 4.0"),
        ({"provenance": {**PROVENANCE, "python": "3.12.0"}}, "python: 3.11.7 -> 3.12.0"),
    ],
)
def test_another_machine_version_or_data_set_is_not_comparable_and_nothing_is_measured(change, reason):
    check = checked(a_baseline(), a_machine(0.1), **change)
    assert (check.decide().verdict, check.decide().exit_code) == ("not comparable", 3)
    assert check.decide().reason == reason
    assert check.processes == ()


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"gpus": ("a GPU",)}, "gpus: [] -> ['a GPU']"), ({"backend": "jax"}, "keras_backend: tensorflow -> jax")],
)
def test_another_gpu_or_backend_is_seen_by_the_first_process(change, reason):
    machine = a_machine(0.1)
    check = checked(a_baseline(), machine, lambda inspect: replace(machine(B, inspect), **change))
    assert check.decide().verdict == "not comparable"
    assert check.decide().reason.startswith(reason)
    assert len(check.processes) == 1


def test_what_has_no_noise_is_gated_after_two_processes():
    fewer = replace(INVARIANTS, images=700)
    check = checked(a_baseline(), a_machine(invariants={"b": fewer}))
    assert (check.decide().verdict, check.decide().reason) == ("regression", "images served: 768 -> 700")
    assert len(check.processes) == 2


def test_what_differs_between_two_processes_of_the_same_is_noise():
    machine = a_machine()
    sizes = itertools.count(9)

    def measure(inspect):
        process = machine(B, inspect)
        if not inspect:
            return process
        return replace(process, invariants=replace(INVARIANTS, bytes_per_image=float(next(sizes))))

    check = checked(a_baseline(), machine, measure)
    assert check.decide().verdict == "same"


def test_a_check_whose_process_dies_could_not_measure():
    check = checked(a_baseline(), a_machine(0.1, fails_at=2))
    assert (check.decide().verdict, check.decide().exit_code) == ("failed", 3)
    assert check.decide().reason == "b: it died"


def test_a_noisy_check_is_inconclusive():
    check = checked(a_baseline(spread=0.3), a_machine(0.95, spread=0.3))
    assert check.decide().verdict == "inconclusive"
    assert check.decide().pairs == MOST_PROCESSES


def test_a_noisy_check_with_more_processes_finds_what_fewer_left_open():
    baseline = a_baseline(spread=0.02)
    few = checked(baseline, a_machine(spread=0.1, seed=0), most_processes=10).decide()
    assert (few.verdict, few.pairs, few.lack.cause) == ("inconclusive", 10, "rounds")
    more = checked(baseline, a_machine(spread=0.1, seed=0)).decide()
    assert more.verdict == "same" and 10 < more.pairs <= MOST_PROCESSES


def test_what_other_programs_took_is_in_what_a_noisy_check_lacks():
    machine = a_machine(0.95, spread=0.3)
    check = checked(a_baseline(spread=0.3), machine, lambda inspect: replace(machine(B, inspect), others_ratio=0.5))
    assert check.decide().lack.others_ratio == 0.5


def test_a_noisy_comparison_lacks_pairs_or_a_quiet_machine():
    some, _ = ask(rates={"a": 100.0, "b": 100.0}, spread=0.03)
    assert some.decide().verdict == "same" and some.decide().lack is None
    noisy, _ = ask(replace(ASKED, pairs=pairs_to(10)), rates={"a": 100.0, "b": 100.0}, spread=0.04, seed=0)
    assert (noisy.decide().verdict, noisy.decide().lack.cause) == ("inconclusive", "rounds")
    wild, _ = ask(rates={"a": 100.0, "b": 98.0}, spread=0.6)
    assert (wild.decide().lack.cause, wild.decide().lack.rounds) == ("noise", None)
    assert wild.decide().to_dict()["lack"]["spread"] == pytest.approx(0.6, rel=0.5)
