"""The check of the tuner: its choice beside the best there is, from planted rates."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests.builders import CHECKED_COSTS, a_check_document, a_measured_pipeline, a_search_document, samples_at
from tests.checks import assert_follows_from_its_file
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.tune.__main__ import CHECK
from unstall.benchmarks.tune.check import measure
from unstall.benchmarks.tune.check.report import KIND
from unstall.benchmarks.tune.check.results import Checked, Rate, Results, derive
from unstall.benchmarks.tune.parser import parser
from unstall.benchmarks.tune.plan import TARGETS, CheckPlan, Target, read_check
from unstall.pipeline import from_folder
from unstall.pipeline.cost_model import Consumer, StageCost
from unstall.profiles.devices import CPU

RATE = Rate(whole=90.0, steady=100.0, predicted=111.0, off=(1.11, None))
CHOSEN, BEST = "full, tf_ops a element, 2 calls, prefetch 2", "scaled, composed, 2 calls, prefetch 2"


def printed(document):
    console = Console(width=80, file=io.StringIO())
    KIND.print(console, document, derive(document))
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("against", "expected"),
    [((1.0, None), 0), ((0.98, (0.9, 1.05)), 0), ((0.96, (0.93, 0.98)), 4), ((0.9, (0.88, 0.92)), 1), (None, 4)],
)
def test_a_check_passes_at_97_per_cent_of_the_best(against, expected):
    target = Target(model="m", device=CPU)
    checked = Checked(target=target, chosen="a", best="b", rates={"a": RATE, "b": RATE}, against=against)
    results = Results(targets=(checked,))
    assert CHECK.exit_code(None, results) == expected
    console = Console(width=80, file=io.StringIO())
    KIND.print(console, a_check_document(), results)
    assert f"{int(expected == 0)} of {int(against is not None)} choices reach 97%" in console.file.getvalue()


def test_a_choice_is_held_against_the_best_in_rounds_of_their_own():
    document = a_check_document(duel={CHOSEN: (90.0, 90.0, 90.0), BEST: (100.0, 100.0, 100.0)})
    [checked] = derive(document).targets
    assert (checked.chosen, checked.best, checked.exit_code) == (CHOSEN, BEST, 1)
    assert (checked.against[0], *checked.against[1]) == pytest.approx((0.9, 0.9, 0.9))
    assert {name: rate.whole for name, rate in checked.rates.items()} == pytest.approx({CHOSEN: 1500.0, BEST: 1600.0})
    assert [line.rstrip() for line in printed(document).splitlines()] == [
        "cats-dogs-64 on cpu",
        "pipeline                                   img/s steady predicted  off      95 %",
        "full, tf_ops a element, 2 calls, prefetch  1,500  1,500     1,250 0.83 0.83-0.83",
        "2 (chosen)",
        "scaled, composed, 2 calls, prefetch 2      1,600  1,600     2,000 1.25 1.25-1.25",
        "(best)",
        "chosen: full, tf_ops a element, 2 calls, prefetch 2: 0.900 (0.900 to 0.900)",
        "",
        "0 of 1 choices reach 97% of the best.",
        "0 of 2 predictions are within 10% of the steady rate, the rate inside an epoch:",
        "0.83 to 1.25 of it.",
    ]


def test_a_machine_that_gets_slower_from_round_to_round_changes_no_prediction():
    """Costs are measured before each round and after it, so that a drift is in both, and in the round as well."""
    slower = [costs_of(CHECKED_COSTS, factor) for factor in (1.0, 1.0, 4.0, 4.0)]
    steady = {name: tuple(1500.0 / factor for factor in (1.0, 2.0, 4.0)) for name in (CHOSEN, BEST)}
    at_once = derive(a_check_document(everything=dict.fromkeys(steady, (1500.0,) * 3))).targets[0].rates
    [checked] = derive(a_check_document(everything=steady, costs=slower)).targets
    for name, rate in checked.rates.items():
        assert (rate.off_ratio, *rate.off[1]) == pytest.approx((at_once[name].off_ratio,) * 3)
        assert rate.predicted == pytest.approx(at_once[name].predicted / 2)


@pytest.mark.parametrize("measured", [1, 2, 3])
def test_where_costs_are_missing_behind_the_last_round_those_before_it_count(measured):
    """As in a check that was stopped, and in files of earlier versions."""
    whole = derive(a_check_document()).targets[0].rates
    [checked] = derive(a_check_document(costs=(CHECKED_COSTS,) * measured)).targets
    for name, rate in checked.rates.items():
        assert rate.off[1] is not None and rate.off_ratio == pytest.approx(whole[name].off_ratio)


@pytest.mark.parametrize(
    ("off", "near", "may_be"),
    [
        ((1.09, None), True, True),
        ((1.11, None), False, False),
        ((1.11, (1.09, 1.13)), False, True),
        ((0.89, (0.85, 0.90)), False, False),
        ((0.89, (0.85, 0.93)), False, True),
    ],
)
def test_a_prediction_is_near_within_a_tenth_and_may_be_if_its_interval_is(off, near, may_be):
    rate = replace(RATE, off=off)
    assert (rate.near, rate.may_be_near) == (near, may_be)
    checked = Checked(target=Target(model="m", device=CPU), chosen="a", best="a", rates={"a": rate}, against=(1, None))
    console = Console(width=200, file=io.StringIO())
    KIND.print(console, a_check_document(), Results(targets=(checked,)))
    text = console.file.getvalue()
    assert f"{int(near)} of 1 predictions are within 10%" in text
    assert ("1 more may be, by its interval" in text) == (may_be and not near)


def costs_of(costs, factor):
    """The costs of a machine that takes so many times as long."""
    consumer = replace(
        costs.consumer,
        us_per_image=costs.consumer.us_per_image * factor,
        cpu_us_per_image=costs.consumer.cpu_us_per_image * factor,
        crowded_us_per_image=costs.consumer.crowded_us_per_image * factor,
        crowd_us_per_image=costs.consumer.crowd_us_per_image * factor,
    )
    stages = tuple(
        replace(stage, cost=replace(stage.cost, us_per_image=stage.cost.us_per_image * factor))
        for stage in costs.stages
    )
    return replace(costs, stages=stages, consumer=consumer)


def test_a_choice_that_is_the_best_needs_no_more_rounds():
    document = a_check_document(everything={CHOSEN: (1500.0,) * 3, BEST: (1400.0,) * 3})
    [checked] = derive(document).targets
    assert (checked.best, checked.against, checked.exit_code) == (CHOSEN, (1.0, None), 0)
    assert "chosen: the best of all\n" in printed(document)


def test_a_check_that_was_stopped_says_nothing_of_its_last_target():
    document = a_check_document(everything={CHOSEN: (1500.0,), BEST: (1400.0,)}, complete=False)
    assert "chosen: the best of all so far\n\n0 of 0 choices reach 97% of the best." in printed(document)
    [checked] = derive(document).targets
    assert (checked.against, checked.exit_code) == (None, 4)
    two = replace(document.samples, targets=document.samples.targets * 2)
    results = derive(replace(document, samples=two))
    assert [checked.exit_code for checked in results.targets] == [0, 4] and results.exit_code == 4
    missed = replace(results.targets[0], against=(0.9, (0.85, 0.95)))
    assert (missed.exit_code, replace(results, targets=(missed, results.targets[1])).exit_code) == (1, 1)
    assert derive(a_check_document(everything={}, complete=False)).targets == ()


def test_all_that_follows_from_a_check_follows_from_its_file(tmp_path):
    duel = {CHOSEN: (90.0, 91.0, 90.0), BEST: (100.0, 99.0, 100.0)}
    assert_follows_from_its_file(KIND, a_check_document(duel=duel), tmp_path)


class FoundAlready:
    """A tuner that has found what it will."""

    def __init__(self, *_) -> None:
        self.samples = a_search_document(a_measured_pipeline(CHOSEN, 1500.0)).samples

    def search(self, after_round) -> None:
        after_round()

    def close(self) -> None:
        pass

    kill = close


class FakeGroup:
    """Measures nothing: each round gives every pipeline its planted rate."""

    def __init__(self, device, source, jobs, log, images, session) -> None:
        self.jobs, self.left_out = jobs, []
        self.measured = {job: SimpleNamespace(samples=samples_at(1000.0)) for job in jobs}

    def open(self) -> None:
        pass

    def prepare(self, job) -> None:
        pass

    close = kill = open

    def ask(self, method, keys, base, model, images):
        assert (method, model) == ("stage_costs", "cats-dogs-64")
        return {key: StageCost(us_per_image=1.0) for key in keys}, Consumer(us_per_image=1.0, cpu_us_per_image=0.0)

    def turns(self, **_):
        return []


def test_every_target_is_searched_and_measured_and_kept_after_each_round(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "Tuner", FoundAlready)
    monkeypatch.setattr(measure, "Group", FakeGroup)
    target = Target(model="cats-dogs-64", device=CPU)
    asked = replace(a_check_document().plan, targets=(target,))
    said, kept = [], []
    monkeypatch.setattr(measure, "say_beside", lambda progress: said.append)
    run = measure.Run(CheckPlan(asked=asked, data="photos", out=tmp_path), from_folder(photos), None)
    run.measure(lambda: kept.append(run.document(complete=False).samples.targets[-1]))
    assert [len(measured.everything) for measured in kept[:8]] == [0, 0, *[10] * 6]
    assert [measured.searched for measured in kept[:3]] == [False, True, True]
    assert [len(measured.costs) for measured in kept[:8]] == [0, 0, 1, 2, 3, 4, 5, 6]
    assert len(kept) == 18 and len(kept[-1].duel) == 2
    assert said[0] == "cats-dogs-64 on cpu: exhaustive search"


def test_a_model_or_a_device_that_is_named_is_the_one_target(tmp_path, monkeypatch):
    def targets(*words):
        return read_check(parser().parse_args(["--check", "--data", "generated:8", *words]), tmp_path).asked.targets

    assert targets() == TARGETS
    [target] = targets("--device", "emulated:500")
    assert (target.model, target.device.name) == ("cats-dogs-64", "emulated:500")
    [target] = targets("--model", "cats-dogs-128")
    assert (target.model, target.device.name) == ("cats-dogs-128", "cpu")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "net.keras").touch()
    with pytest.raises(UserError, match=r"^--check --model needs a name without a folder. Received: mine/net.keras.$"):
        targets("--model", "mine/net.keras")
