"""What is said of a measurement, and when.

Long because each sentence of a verdict has its case, and all share the variants that are made here.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import a_cold_result, a_result, an_attribution, rounds_of, with_subject
from unstall.profiles.machine.page_cache import StorageRates
from unstall.profiles.results.evidence import Advice
from unstall.profiles.results.facts import Facts
from unstall.profiles.results.result import Result
from unstall.profiles.results.rules import findings
from unstall.profiles.results.verdict import Verdict, evidence_of, judge, speed_up, what_the_cache_hides
from unstall.profiles.stage_table import StageTable


def a_variant(name: str, *step_ms: float, first_round: int = 0, **settings: Any) -> Result:
    """Returns a result whose steps are 4 ms longer than what they wait."""
    train = [
        one
        for number, ms in enumerate(step_ms)
        for one in rounds_of("train", ms, wait_ms=max(ms - 4, 0), round=first_round + number)
    ]
    return a_result(name, train=train, loader_ms=None, **settings)


def with_loading(loading: float, **parts: float) -> Verdict:
    attribution = an_attribution(loading, parts=parts or None)
    return judged(replace(a_result("tf-data"), attribution=attribution))


def judged(result: Result, *advice: Advice) -> Verdict:
    found = findings(replace(evidence_of(result), advice=advice))
    return Verdict(result=result, advice=advice, findings=found, rivals=1)


def an_advice(change: str, ratio: float, *, work: tuple[str, ...] = ("nearest",)) -> Advice:
    """Returns advice to those whose work is `nearest`."""
    same_work = work == ("nearest",)
    return Advice(
        change=change,
        measured_ratio=ratio,
        ci95=(ratio - 0.1, ratio + 0.1),
        work=work,
        same_work=same_work,
        rounds=5,
    )


# Speed-ups


def test_a_speed_up_is_taken_round_by_round() -> None:
    slow, fast = a_variant("slow", 10, 20, 40), a_variant("fast", 5, 10, 20)
    ratio, interval = speed_up(fast, slow)
    assert (ratio, *interval) == pytest.approx((2, 2, 2))
    ratio, interval = speed_up(slow, fast)
    assert (ratio, *interval) == pytest.approx((0.5, 0.5, 0.5))


def test_a_speed_up_is_of_whole_epochs() -> None:
    """Steps of 10 and 5 ms; an epoch of ten of them loses 100 ms at its edges, and one in use has 20."""
    slow = a_result("slow", train=rounds_of("train", 10, 10, 10, edge_ms=100), images=200)
    fast = a_result("fast", train=rounds_of("train", 5, 5, 5, edge_ms=100), images=200)
    assert slow.epoch_images_per_sec == pytest.approx(200 / 0.3)
    assert speed_up(fast, slow)[0] == pytest.approx(300 / 200)
    assert speed_up(fast, slow)[0] == pytest.approx(fast.epoch_images_per_sec / slow.epoch_images_per_sec)


def test_a_speed_up_agrees_with_the_rates_beside_it() -> None:
    """Rounds whose median ratio is 2 and whose medians of rates are 1.5 apart: the row has one estimator."""
    slow, fast = a_variant("slow", 10, 30, 12), a_variant("fast", 5, 15, 11)
    assert speed_up(fast, slow)[0] == pytest.approx(fast.epoch_images_per_sec / slow.epoch_images_per_sec)


def test_only_shared_rounds_count_for_a_speed_up() -> None:
    slow = a_variant("slow", 10, 20, 40)
    fast = a_variant("fast", 10, 20, 99, first_round=1)  # rounds 1 and 2 are shared
    assert speed_up(fast, slow)[0] == pytest.approx(2)


def test_speed_ups_without_a_shared_round_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Received: 0 and 0"):
        speed_up(a_variant("a", 10), a_variant("b", 5, first_round=7))


# Judging


def test_significantly_faster_variants_are_advised_best_first() -> None:
    slow, better, best = a_variant("slow", 10, 10, 10), a_variant("better", 8, 8, 8), a_variant("best", 5, 5, 5)
    of_slow, of_better, of_best = judge([slow, better, best])
    assert [one.change for one in of_slow.advice] == ["best", "better"]
    assert [one.measured_ratio for one in of_slow.advice] == pytest.approx([2, 1.25])
    assert [one.change for one in of_better.advice] == ["best"]
    assert of_best.advice == ()
    assert [one.result for one in (of_slow, of_better, of_best)] == [slow, better, best]


def test_a_variant_that_may_be_no_faster_is_not_advised() -> None:
    # Faster by median, slower in one round of three.
    of_slow, _ = judge([a_variant("slow", 10, 10, 10), a_variant("perhaps", 8, 8, 11)])
    assert of_slow.advice == ()


def test_the_more_rivals_the_more_a_gain_must_show() -> None:
    slow, perhaps = a_variant("slow", 10, 10, 10), a_variant("perhaps", 9, 8, 8.5)
    of_slow, _ = judge([slow, perhaps])
    assert [one.change for one in of_slow.advice] == ["perhaps"]
    same = [a_variant(f"same {n}", 10, 10.1, 9.9) for n in range(9)]
    assert judge([slow, perhaps, *same])[0].advice == ()


def again(result: Result, *step_ms: float) -> Result:
    samples = [one for number, ms in enumerate(step_ms) for one in rounds_of("again", ms, round=3 + number)]
    return replace(result, samples=(*result.samples, *samples))


def test_the_gain_of_what_was_measured_again_is_told_by_those_rounds() -> None:
    slow, lucky = a_variant("slow", 10, 10, 10), a_variant("lucky", 5, 5, 5)
    (advice,) = judge([again(slow, 10, 10, 10), again(lucky, 8, 8, 8)])[0].advice
    assert (advice.again, advice.rounds) == (True, 3)
    assert advice.measured_ratio == pytest.approx(1.25)
    assert advice.range_text == "1.25 to 1.25; measured again in 3 rounds"
    assert lucky.epoch_images_per_sec == pytest.approx(2000)  # the row is of the rounds that all have


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_run_that_was_stopped_when_measuring_again_keeps_its_advice(rounds: int) -> None:
    slow, fast = a_variant("slow", 10, 10, 10), a_variant("fast", 5, 5, 5)
    (advice,) = judge([again(slow, *[10] * rounds), again(fast, *[5] * rounds)])[0].advice
    assert (advice.again, advice.rounds, advice.measured_ratio) == (False, 3, pytest.approx(2))


def test_where_the_fastest_is_not_confirmed_the_next_is_not_told_by_the_rounds_that_chose_it() -> None:
    of_slow, *_ = judge(
        [
            again(a_variant("slow", 10, 10, 10, work=("nearest",)), 10, 10, 10),
            again(a_variant("lucky", 4, 4, 4), 10, 9, 11),
            a_variant("next", 5, 5, 5),
            again(a_variant("same", 8, 8, 8, work=("nearest",)), 8, 8, 8),
        ]
    )
    assert [one.change for one in of_slow.advice] == ["next", "same"]
    assert [one.change for one in of_slow.printed_advice] == ["same"]


def test_the_fastest_is_the_one_that_was_faster_when_measured_again() -> None:
    of_slow, *_ = judge(
        [
            again(a_variant("slow", 10, 10, 10, work=("nearest",)), 10, 10, 10),
            again(a_variant("other work", 4, 4, 4), 6, 6, 6),
            again(a_variant("same work", 5, 5, 5, work=("nearest",)), 5, 5, 5),
        ]
    )
    assert [one.change for one in of_slow.printed_advice] == ["same work"]
    assert [one.change for one in of_slow.advice] == ["same work", "other work"]


def test_a_gain_that_is_not_there_when_it_is_measured_again_is_no_advice() -> None:
    slow, lucky = a_variant("slow", 10, 10, 10), a_variant("lucky", 5, 5, 5)
    assert judge([again(slow, 10, 10, 10), again(lucky, 10, 9, 11)])[0].advice == ()


@pytest.mark.parametrize("other", [{"model": "cats-dogs-128"}, {"device": "emulated:5000"}], ids=["model", "device"])
def test_other_models_and_devices_are_no_rivals(other: dict[str, Any]) -> None:
    of_slow, _ = judge([a_variant("slow", 10, 10), a_variant("fast", 5, 5, **other)])
    assert of_slow.advice == ()


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [((), (), True), ((), ("no augmentation",), False), (("nearest",), ("nearest",), True), (("nearest",), (), False)],
)
def test_advice_says_whether_the_work_is_the_same(ours: tuple[str, ...], theirs: tuple[str, ...], same: bool) -> None:
    of_slow, _ = judge([a_variant("slow", 10, 10, 10, work=ours), a_variant("fast", 5, 5, 5, work=theirs)])
    (advice,) = of_slow.advice
    assert advice.same_work is same


def test_variants_without_a_shared_round_are_not_compared() -> None:
    alone, fast, other = (
        a_variant("alone", *[10] * 3, first_round=7),
        a_variant("fast", 5, 5, 5),
        a_variant("other", *[10] * 3),
    )
    of_alone, of_fast, of_other = judge([alone, fast, other])
    assert of_alone.advice == ()
    assert of_fast.advice == ()
    assert [one.change for one in of_other.advice] == ["fast"]


def test_nothing_is_judged_of_nothing() -> None:
    assert judge([]) == []


def test_cold_rows_are_compared_with_cold_rows_only() -> None:
    slow, fast = a_cold_result("slow", 20, 20, 20), a_cold_result("fast")
    verdicts = judge([slow, fast, a_variant("slow", 10, 10, 10), a_variant("fast", 5, 5, 5)])
    assert [[(one.change, round(one.measured_ratio, 3)) for one in verdict.advice] for verdict in verdicts] == [
        [("fast", 1.222)],
        [],
        [("fast", 2)],
        [],
    ]
    assert [verdict.to_dict()["page_cache"] for verdict in verdicts] == ["cold", "cold", "warm", "warm"]


def test_a_verdict_on_a_cold_row_says_so() -> None:
    (verdict,) = judge([a_cold_result("tf-data")])
    assert verdict.text().startswith("tf-data, cold, on cats-dogs-64, emulated:2500, is ")


@pytest.mark.parametrize(
    ("cold", "text"),
    [
        (
            a_cold_result(),
            "generator: cold 556 img/s, warm 833: the page cache hides 33%; storage gave 210 MB/s, the loader asked "
            "for 17 MB/s at most.",
        ),
        (
            replace(
                a_cold_result(),
                subject=replace(
                    a_cold_result().subject,
                    storage=StorageRates(cold_bytes_per_sec=9.94e6, warm_bytes_per_sec=3e9, bytes_per_file=200),
                ),
            ),
            "generator: cold 556 img/s, warm 833: the page cache hides 33%; storage gave 9.9 MB/s, the loader asked "
            "for 0.2 MB/s at most.",
        ),
        (
            replace(a_cold_result(), subject=replace(a_cold_result().subject, storage=None)),
            "generator: cold 556 img/s, warm 833: the page cache hides 33%.",
        ),
        (
            a_cold_result("tf-data", 16, 16),
            "tf-data: cold 556 img/s, warm 833: too few rounds to tell what the page cache hides (2); storage gave 210 "
            "MB/s, the loader asked for 17 MB/s at most.",
        ),
        # Slower by the mean, and faster in one round of three.
        (
            a_cold_result("tf-data", 16, 16, 9),
            "tf-data: cold 655 img/s, warm 833: the page cache hides nothing beyond the spread; storage gave 210 "
            "MB/s, the loader asked for 17 MB/s at most.",
        ),
    ],
    ids=["fast storage", "slow storage", "storage not measured", "two rounds", "no difference"],
)
def test_what_the_page_cache_hides_is_said_in_a_sentence(cold: Result, text: str) -> None:
    assert what_the_cache_hides(cold) == text


def test_nothing_is_said_of_cold_and_warm_rounds_that_were_not_measured_side_by_side() -> None:
    train = [*rounds_of("train", 10, 10), *rounds_of("cold", 16, round=5)]
    with pytest.raises(ValueError, match="Received: 0 and 0"):
        what_the_cache_hides(a_result(train=train, page_cache="cold"))


def test_a_verdict_is_strict_json_with_the_keys_of_the_design() -> None:
    of_slow, _ = judge([a_variant("slow", 10, 10, 10), a_variant("fast", 5, 5, 5, work=("nearest",))])
    document = json.loads(json.dumps(of_slow.to_dict(), allow_nan=False))
    assert set(document) >= {"model", "device", "variant", "bound", "loading_ratio", "culprit", "advice"}
    assert document["bound"] == "input"
    assert document["culprit"] == "prep_stall"
    assert document["loading_ratio"] == pytest.approx(0.6)
    (advice,) = document["advice"]
    assert advice == {
        "change": "fast",
        "predicted_ratio": None,
        "measured_ratio": pytest.approx(2),
        "ci95": pytest.approx([2, 2]),
        "measured_again": False,
        "same_work": False,
    }


# Findings


def test_every_verdict_has_its_findings_and_its_advice_is_evidence() -> None:
    slow = a_variant("slow", 10, 10, 10, facts=Facts(workers_asked=4, workers_effective=1))
    of_slow, of_fast = judge(
        [with_big_photos(one) for one in (slow, a_variant("fast", *[4.7] * 3, work=("scaled decode",)))]
    )
    assert [one.rule for one in of_slow.findings] == ["input-bound", "oversized decode", "workers not effective"]
    assert of_slow.findings[1].gain is not None and of_slow.findings[1].gain.kind == "measured"
    assert [one.rule for one in of_fast.findings] == ["balanced", "oversized decode"]
    assert of_fast.findings[1].hypothesis
    assert [one["rule"] for one in of_slow.to_dict()["findings"]] == [one.rule for one in of_slow.findings]


def with_big_photos(result: Result) -> Result:
    return with_subject(result, decoded_pixels=400 * 400, wanted_pixels=64 * 64)


@pytest.mark.parametrize(("asked", "known"), [(4, 4), ("auto", None), (None, None)])
def test_workers_that_a_result_names_are_evidence(asked: Any, known: int | None) -> None:
    evidence = evidence_of(a_result(facts=Facts(workers_asked=asked, workers_effective=2)))
    assert (evidence.workers_asked, evidence.workers_seen) == (known, 2)


def test_the_stages_of_a_result_are_evidence() -> None:
    table = StageTable(cores=3, reason="it can be read once")
    evidence = evidence_of(replace(a_result(), stages=table))
    assert (evidence.stages, evidence.cores) == (table, 3)
    assert evidence_of(a_result()).cores is None


def test_the_text_says_the_pace_and_the_two_that_cost_most() -> None:
    train = rounds_of("train", 10, 10, 10, wait_ms=2, edge_ms=30)
    result = a_result(device="cpu", train=train, facts=Facts(workers_asked=4, workers_effective=1))
    verdict = judged(result)
    assert [one.rule for one in verdict.findings] == [
        "input-bound",
        "interference",
        "epoch edges",
        "workers not effective",
    ]
    assert verdict.text() == (
        "generator on cats-dogs-64, cpu, is input-bound: 69% of an epoch is loading, the largest part of it the loader "
        "taking cores from the model (31%). If loading cost nothing, 3.25 times as fast (predicted). "
        "Beside the loader, which takes 0.20 ms of CPU per image, a training step takes 2.00 times as long as alone. "
        "Do less per image (a cache, a prepared format); more workers shorten the waiting, not this: "
        "if the loader took no core from the model, 1.44 times as fast (predicted). "
        "Each epoch loses 30.0 ms at its boundary: 2.0 ms until its first batch, 28.0 ms after its last step. "
        "Make fewer, longer epochs (repeat the data and set `steps_per_epoch`): "
        "if the epoch edges were gone, 1.30 times as fast (predicted). "
        "No other variant that was measured is significantly faster."
    )


# Sentences


NOBODY = "No other variant that was measured is significantly faster."


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (
            with_loading(0.75, prep_stall=0.5, epoch_overhead=0.25),
            "input-bound: 75% of an epoch is loading, most of it waiting for batches (50%). "
            "If loading cost nothing, 4.00 times as fast (predicted). ",
        ),
        (
            with_loading(0.2, interference=0.2),
            "input-bound: 20% of an epoch is loading, most of it the loader taking cores from the model (20%). "
            "If loading cost nothing, 1.25 times as fast (predicted). ",
        ),
        (
            with_loading(0.1, epoch_overhead=0.1),
            "balanced: 10% of an epoch is loading, most of it epoch edges (10%). "
            "If loading cost nothing, 1.11 times as fast (predicted). ",
        ),
        (with_loading(0.04), "compute-bound: 4% of an epoch is loading. "),
        (with_loading(-0.02), "compute-bound: 0% of an epoch is loading. "),
    ],
    ids=["input", "just input", "just balanced", "compute", "negative"],
)
def test_a_verdict_reads_as_a_sentence(verdict: Verdict, text: str) -> None:
    assert verdict.text() == f"tf-data on cats-dogs-64, emulated:2500, is {text}{NOBODY}"


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("device_augment", "augmentation on the device"),
        ("transfer", "transfer to the device"),
        ("fetch_stall", "waiting for storage"),
        ("prep_stall", "waiting for batches"),
        ("interference", "the loader taking cores from the model"),
        ("epoch_overhead", "epoch edges"),
    ],
)
def test_every_culprit_has_a_name(part: str, name: str) -> None:
    assert f"most of it {name} (50%)" in with_loading(0.5, **{part: 0.5}).text()


def test_most_of_it_is_said_only_of_more_than_half() -> None:
    parts = {"prep_stall": 0.12, "interference": 0.1, "epoch_overhead": 0.08}
    text = with_loading(math.fsum(parts.values()), **parts).text()
    assert "waiting for batches (12%)" in text
    assert "most of it" not in text


@pytest.mark.parametrize(
    ("advice", "text"),
    [
        (
            [an_advice("tf-data-cache", 2.5), an_advice("tf-data-prefetch", 2)],
            "Fastest at the same work: tf-data-cache, 2.50 times as fast (2.40 to 2.60).",
        ),
        (
            [an_advice("tf-data-no-augment", 3, work=("no augmentation",)), an_advice("tf-data-cache", 2.5)],
            "Fastest at the same work: tf-data-cache, 2.50 times as fast (2.40 to 2.60). Fastest of all, at other work "
            "per image (no augmentation; here: nearest): tf-data-no-augment, 3.00 times as fast (2.90 to 3.10).",
        ),
        (
            [an_advice("tf-data-no-augment", 3, work=("no augmentation",))],
            "Fastest of all, at other work per image (no augmentation; here: nearest): tf-data-no-augment, 3.00 "
            "times as fast (2.90 to 3.10).",
        ),
    ],
    ids=["same", "both", "other"],
)
def test_advice_says_the_same_work_before_other_work(advice: list[Advice], text: str) -> None:
    train = rounds_of("train", 4.2, 4.2, 4.2, wait_ms=0.2)
    said = judged(a_result(work=("nearest",), train=train, loader_ms=2), *advice).text()
    assert said == f"generator on cats-dogs-64, emulated:2500, is compute-bound: 5% of an epoch is loading. {text}"


@pytest.mark.parametrize(("rounds", "advised"), [(1, []), (2, []), (3, ["fast"])])
def test_few_shared_rounds_are_no_ground_for_advice(rounds: int, advised: list[str]) -> None:
    of_slow, _ = judge([a_variant("slow", *[10] * rounds), a_variant("fast", *[5] * rounds)])
    assert [one.change for one in of_slow.advice] == advised
