"""The rules of a verdict: for each a planted case that fires it, and clean cases that do not.

Long because there are eighteen rules, and none is shown without both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import MS, a_result, a_sample, an_attribution, rounds_of
from unstall import forks
from unstall.profiles.data.kinds import DataKind
from unstall.profiles.machine.mounts import Storage
from unstall.profiles.machine.strain import Strain
from unstall.profiles.results import rules
from unstall.profiles.results.attribution import loading_range
from unstall.profiles.results.evidence import Advice, Evidence, Finding
from unstall.profiles.results.facts import Facts, Retraced
from unstall.profiles.results.flags import Flag, FlagKind
from unstall.profiles.results.parts import Parts
from unstall.profiles.results.result import Result
from unstall.profiles.results.rules import RULES, findings
from unstall.profiles.stage_table import Stage, StageTable


def of(result: Result | None = None, **known: Any) -> Evidence:
    return Evidence(result=result or a_result(), **known)


def losing(_result: Result | None = None, _low: dict[str, float] | None = None, **parts: float) -> Result:
    """Returns a result that loses these shares of an epoch, its intervals as narrow as can be unless told."""
    attribution = an_attribution(sum(parts.values()), parts=parts)
    ends = {part: (share or 0.0, share or 0.0) for part, share in attribution.shares.items()}
    ends |= {part: (low, 2 * (attribution.shares[part] or 0) - low) for part, low in (_low or {}).items()}
    return replace(_result or a_result(device="cpu"), attribution=replace(attribution, shares_ci95=Parts(**ends)))


def a_table(*stages: Stage, **settings: Any) -> StageTable:
    values = {"cores": 4.0, "loader_cpu_us_per_image": sum(one.cpu_us_per_image for one in stages), **settings}
    return StageTable(stages=stages, **values)


def a_stage(name: str, cpu_us: float, wait_us: float = 0, **settings: Any) -> Stage:
    return Stage(name=name, kind="map", cpu_us_per_image=cpu_us, wait_us_per_image=wait_us, **settings)


TABLE = a_table(a_stage("decode_image", 300, location="train.py:12"), a_stage("augment", 100))


def gain_of(finding: Finding | None) -> tuple[str, float]:
    assert finding is not None and finding.gain is not None
    return finding.gain.kind, round(finding.gain.ratio, 3)


# What sets the pace


@pytest.mark.parametrize(
    ("parts", "rule", "text", "ratio"),
    [
        (
            {"prep_stall": 0.5, "epoch_overhead": 0.25},
            "input-bound",
            "input-bound: 75% of an epoch is loading, most of it waiting for batches (50%)",
            4.0,
        ),
        (
            {"interference": 0.2},
            "input-bound",
            "input-bound: 20% of an epoch is loading, most of it the loader taking cores from the model (20%)",
            1.25,
        ),
        (
            {"prep_stall": 0.05, "epoch_overhead": 0.05, "transfer": 0.05},
            "balanced",
            "balanced: 15% of an epoch is loading, the largest part of it waiting for batches (5%)",
            1.176,
        ),
    ],
)
def test_the_pace_is_set_by_the_input(parts: dict[str, float], rule: str, text: str, ratio: float) -> None:
    found = rules.bound(of(losing(**parts)))
    assert (found.rule, found.text) == (rule, text)
    assert gain_of(found) == ("predicted", ratio)
    assert found.advice is None


def test_the_pace_is_set_by_compute() -> None:
    found = rules.bound(of(losing(prep_stall=0.04)))
    assert found == Finding(rule="compute-bound", text="compute-bound: 4% of an epoch is loading", cost_ratio=0.04)


def doubtful(loading: float, interval: tuple[float, float] | None, *flags: Flag, others: float = 0.0) -> Finding:
    result = replace(losing(prep_stall=loading), flags=flags)
    between = loading_range(loading, interval, others)
    attribution = replace(result.attribution, loading_ratio_ci95=interval, loading_range=between, others_ratio=others)
    return rules.bound(of(replace(result, attribution=attribution)))


def test_an_interval_within_one_class_is_certain() -> None:
    assert doubtful(0.25, (0.21, 0.29)).text.startswith("input-bound: 25% of an epoch is loading, most of it")


@pytest.mark.parametrize(
    ("loading", "interval", "said"),
    [
        # To tell 25 % from the bound at 20 % the half width of 10 points must halve: four times the three rounds.
        (0.25, (0.15, 0.35), "between 15% and 35%: balanced or input-bound; measured 3 times, about 12 would tell"),
        (
            0.25,
            (-0.02, 0.3),
            "between 0% and 30%: compute-bound or balanced or input-bound; measured 3 times, about 31 would tell",
        ),
        (0.195, (0.15, 0.24), "balanced or input-bound; the loading lies at the bound itself, 20%: either is right"),
    ],
)
def test_an_interval_that_reaches_into_another_class_is_uncertain(
    loading: float, interval: tuple[float, float], said: str
) -> None:
    found = doubtful(loading, interval)
    assert found.rule == "uncertain"
    assert said in found.text


def test_without_an_interval_what_lies_near_a_bound_is_uncertain() -> None:
    assert doubtful(0.17, None).rule == "uncertain"
    assert doubtful(0.27, None).rule == "input-bound"
    assert doubtful(0.04, None).rule == "compute-bound"


def test_what_others_took_of_the_cores_makes_a_verdict_uncertain() -> None:
    # A fifth of the cores: what ran was slower by a quarter at most, so that compute was 60 to 94 % in the place of 75.
    found = doubtful(0.25, (0.24, 0.26), others=0.2)
    assert "uncertain: 25% of an epoch is loading (between 5% and 41%: compute-bound or balanced" in found.text
    assert "; other programs took 20% of the cores: measure again while nothing else runs)" in found.text
    assert doubtful(0.6, (0.59, 0.61), others=0.2).rule == "input-bound"


def test_what_flags_say_stands_in_the_sentence() -> None:
    disturbed = Flag(kind=FlagKind.DISTURBED, text="the machine was slow in round 2")
    short = Flag(kind=FlagKind.SHORT, text="3 steps")
    assert doubtful(0.3, (0.25, 0.35), disturbed, short).text.startswith(
        "input-bound: 30% of an epoch is loading (doubtful: disturbed), most of it"
    )
    said = doubtful(0.25, (0.15, 0.35), disturbed).text
    assert "balanced or input-bound; disturbed: measure again while nothing else runs)" in said
    assert "would tell" not in said


# The stage


def test_the_stage_that_explains_most_of_the_loss_is_named() -> None:
    found = rules.culprit_stage(of(losing(prep_stall=0.3, interference=0.1, epoch_overhead=0.02), stages=TABLE))
    assert found is not None
    assert found.text == "decode_image (train.py:12) takes 75% of the loader's time for an image, 300 us of CPU"
    assert found.cost_ratio == pytest.approx(0.3)  # 3/4 of 0.4
    assert gain_of(found) == ("predicted", 1.429)
    assert found.advice is not None and not found.hypothesis


def test_a_stage_of_a_table_that_does_not_add_up_is_a_hypothesis() -> None:
    found = rules.culprit_stage(of(losing(prep_stall=0.4), stages=replace(TABLE, loader_cpu_us_per_image=600)))
    assert found is not None and found.hypothesis


@pytest.mark.parametrize(
    ("parts", "table"),
    [
        ({"prep_stall": 0.4}, None),
        ({"prep_stall": 0.4}, a_table(a_stage("decode", 100), a_stage("augment", 100))),  # none is more than half
        ({"prep_stall": 0.2, "epoch_overhead": 0.2}, TABLE),  # 3/4 of a half of the loss
        ({"prep_stall": 0.05}, TABLE),  # nothing to explain
        ({"prep_stall": 0.4}, a_table(reason="it can be read once")),
    ],
    ids=["no table", "no such stage", "other losses", "compute-bound", "no stages"],
)
def test_no_stage_is_named(parts: dict[str, float], table: StageTable | None) -> None:
    assert rules.culprit_stage(of(losing(**parts), stages=table)) is None


# Workers

# Steps of 10 ms for 10 images, 6 of them waiting, 12 an image with the edges; the loader alone takes 0.9 ms an image.
WAITING = a_result(device="cpu", train=rounds_of("train", 10, 10, 10, wait_ms=6, edge_ms=20))


def test_workers_that_were_not_busy_are_found() -> None:
    found = rules.ineffective_workers(of(WAITING, workers_asked=4, workers_seen=1, cores=8))
    assert found is not None
    assert found.text == "4 workers were asked for, at most 1 were busy at once"
    # All four would save 3/4 of 0.9 ms; the model waits for 0.6 of the 1.2 ms of an image.
    assert gain_of(found) == ("predicted", 2.0)


def test_more_workers_than_cores_promise_no_more_than_the_cores() -> None:
    found = rules.ineffective_workers(of(WAITING, workers_asked=4, workers_seen=1, cores=2))
    # Half of 0.9 ms less, of 1.2.
    assert gain_of(found) == ("predicted", 1.6)


def test_missing_workers_without_a_core_for_them_promise_nothing() -> None:
    found = rules.ineffective_workers(of(WAITING, workers_asked=4, workers_seen=2, cores=2))
    assert found is not None and found.gain is None and found.advice is None


@pytest.mark.parametrize(
    ("asked", "seen", "result"),
    [
        (4, 4, WAITING),
        (4, None, WAITING),
        (None, 1, WAITING),
        (1, 1, WAITING),
        (4, 1, losing(WAITING, prep_stall=0.05)),  # a loader that is ahead of the model keeps few of them busy
    ],
    ids=["all busy", "unseen", "unasked", "one", "compute-bound"],
)
def test_workers_are_not_blamed(asked: int | None, seen: int | None, result: Result) -> None:
    assert rules.ineffective_workers(of(result, workers_asked=asked, workers_seen=seen)) is None


# Python's lock


def python_table(parallelism: float | None = 1.05, python_us: float = 900, other_us: float = 100) -> StageTable:
    stages = a_stage("augment", python_us, python=True), a_stage("cv2.imread", other_us)
    return a_table(*stages, effective_parallelism=parallelism)


def test_calls_that_do_next_to_nothing_are_named_with_what_one_call_a_batch_would_gain() -> None:
    """60 of 80 us of the only costly stage are the call: with 64 images a batch, 59 of them would go."""
    parse = a_stage("parse", 70, 10, location="train.py:9", call_us_per_image=60.0)
    table = a_table(parse, a_stage("norm", 0, call_us_per_image=60.0), a_stage("shuffle", 20))
    evidence = of(WAITING, stages=table)
    share = 0.8 * 60 / 80 * (1 - 1 / WAITING.subject.batch_size) * evidence.loader_ratio
    found = rules.calls_for_each_element(evidence)
    assert found is not None and found.text.startswith("parse (train.py:9) takes 80 us for an image")
    assert found.cost_ratio == pytest.approx(share) and gain_of(found) == ("predicted", round(1 / (1 - share), 3))
    twice = rules.calls_for_each_element(of(WAITING, stages=a_table(parse, parse)))
    once = rules.calls_for_each_element(of(WAITING, stages=a_table(parse)))
    assert twice is not None and once is not None and twice.cost_ratio == pytest.approx(once.cost_ratio)


@pytest.mark.parametrize(
    "stages",
    [
        a_table(a_stage("decode", 900, call_us_per_image=30.0)),  # it does something
        a_table(a_stage("augment", 900, python=True)),  # what the calls cost is not known
        None,
    ],
)
def test_calls_of_functions_that_work_are_not_named(stages: StageTable | None) -> None:
    assert rules.calls_for_each_element(of(WAITING, stages=stages)) is None


def test_threads_that_share_one_core_are_bound_by_the_lock() -> None:
    found = rules.interpreter_lock(of(WAITING, stages=python_table(), workers_asked=4, workers_seen=4, cores=4))
    assert found is not None and not found.hypothesis
    assert found.text == "4 threads of the loader use 1.05 cores together: Python's lock lets one run at a time"
    assert gain_of(found) == ("predicted", 2.0)


def test_without_a_stage_table_the_lock_is_a_hypothesis() -> None:
    loader = [one for one in WAITING.samples if one.window == "loader"]
    busy = [replace(one, cpu_ns=one.epoch_ns) for one in loader]
    others = [one for one in WAITING.samples if one.window != "loader"]
    found = rules.interpreter_lock(of(replace(WAITING, samples=(*others, *busy)), workers_asked=4, workers_seen=4))
    assert found is not None and found.hypothesis
    assert "use 1.00 cores" in found.text


@pytest.mark.parametrize(
    "changes",
    [
        {"stages": python_table(2.1)},
        {"stages": python_table(0.4)},  # they wait for something else
        {"stages": python_table(None)},  # 0.2 cores by the samples of the loader
        {"stages": python_table(python_us=100, other_us=900)},  # what runs releases the lock
        {"workers_asked": 1},
        {"workers_asked": None},
        {"workers_seen": 1},
        {"cores": 1.0},
        {"result": losing(WAITING, prep_stall=0.05)},
        {"result": a_result(device="cpu", config={"use_multiprocessing": True})},
        {"stages": None, "workers_seen": None},  # tf.data: its threads hold no lock
    ],
    ids=[
        "parallel",
        "waiting",
        "unmeasured",
        "released",
        "one asked",
        "none asked",
        "one seen",
        "one core",
        "compute-bound",
        "processes",
        "tf.data",
    ],
)
def test_the_lock_is_not_blamed(changes: dict[str, Any]) -> None:
    known = {"stages": python_table(), "workers_asked": 4, "workers_seen": 4, "cores": 4.0, "result": WAITING}
    assert rules.interpreter_lock(of(**known)) is not None
    assert rules.interpreter_lock(of(**(known | changes))) is None


# Frozen augmentation


def test_draws_that_a_cache_keeps_are_named() -> None:
    found = rules.frozen_augmentation(of(frozen_by_cache=("random_flip in augment",)))
    assert found is not None and "random_flip in augment before a cache draws once" in found.text
    many = rules.frozen_augmentation(of(frozen_by_cache=tuple("abcde")))
    assert many is not None and "a, b, c and 2 more before" in many.text


def test_no_draw_before_a_cache_is_no_finding() -> None:
    assert rules.frozen_augmentation(of(frozen_by_cache=())) is None


# Decoding

BIG = {"decoded_pixels": 404 * 361, "wanted_pixels": 64 * 64}


def scaled(*work: str) -> Advice:
    return Advice(
        change="tf-data-scaled-decode",
        measured_ratio=1.6,
        ci95=(1.5, 1.7),
        work=work,
        same_work=False,
        rounds=5,
    )


def test_a_scaled_decode_that_was_measured_gives_the_gain() -> None:
    found = rules.oversized_decode(of(losing(prep_stall=0.5), advice=(scaled("scaled decode"),), stages=TABLE, **BIG))
    assert found is not None and not found.hypothesis
    assert found.text == "Images are decoded at 36 times the pixels that the model takes"
    assert gain_of(found) == ("measured", 1.6)
    assert found.gain is not None and found.gain.ci95 == (1.5, 1.7)
    assert found.advice == "decode at a fraction of the size, as tf-data-scaled-decode does"
    assert found.cost_ratio == pytest.approx(0.375)


def test_a_gain_of_other_work_is_not_that_of_the_decode() -> None:
    both = scaled("no augmentation", "scaled decode")
    found = rules.oversized_decode(of(losing(prep_stall=0.5), advice=(both,), **BIG))
    assert found is not None and found.gain is None and found.hypothesis


def test_a_stage_that_decodes_foretells_the_gain() -> None:
    found = rules.oversized_decode(of(losing(prep_stall=0.4), stages=TABLE, **BIG))
    assert gain_of(found) == ("predicted", 1.429)  # 3/4 of 0.4
    assert found is not None and not found.hypothesis


@pytest.mark.parametrize(("times", "scale"), [(5, 2), (20, 4), (100, 8)])
def test_the_advice_to_decode_smaller_leaves_as_many_pixels_as_are_taken(times: float, scale: int) -> None:
    stages = tuple(replace(a_stage(f"cv2.{name}", 200), kind="OpenCV") for name in ("imread", "resize"))
    table = a_table(*stages, decoded_pixels=64.0 * 64 * times, wanted_pixels=64 * 64)
    big = {"decoded_pixels": table.decoded_pixels, "wanted_pixels": 64 * 64}
    found = rules.oversized_decode(of(losing(prep_stall=0.5), stages=table, **big))
    assert found is not None and f"cv2.IMREAD_REDUCED_COLOR_{scale}" in str(found.advice)
    cut_out = replace(table, stages=stages[:1])
    assert rules.oversized_decode(of(losing(prep_stall=0.5), stages=cut_out, **big)) is None


def test_a_decode_that_was_not_measured_is_a_hypothesis_without_advice() -> None:
    found = rules.oversized_decode(of(losing(prep_stall=0.4), **BIG))
    assert found is not None and found.hypothesis and found.advice is None and found.gain is None


@pytest.mark.parametrize(
    ("loading", "pixels"),
    [
        (0.4, {"decoded_pixels": 80 * 80, "wanted_pixels": 64 * 64}),
        (0.4, {"decoded_pixels": None, "wanted_pixels": 64 * 64}),
        (0.4, {"decoded_pixels": 404 * 361, "wanted_pixels": None}),
        (0.05, BIG),
    ],
    ids=["small", "decoded unknown", "wanted unknown", "compute-bound"],
)
def test_the_decode_is_not_blamed(loading: float, pixels: dict[str, Any]) -> None:
    assert rules.oversized_decode(of(losing(prep_stall=loading), stages=TABLE, **pixels)) is None


# Epoch edges


def test_costly_edges_of_an_epoch_are_found() -> None:
    # 20 ms beside ten steps of 10 ms.
    found = rules.costly_epoch_edges(of(a_result(train=rounds_of("train", 10, 10, 10, wait_ms=6, edge_ms=20))))
    assert found is not None
    assert (
        found.text
        == "Each epoch loses 20.0 ms at its boundary: 6.0 ms until its first batch, 14.0 ms after its last step"
    )
    assert gain_of(found) == ("predicted", 1.2)


def test_the_boundary_is_told_with_what_it_is_made_of() -> None:
    result = a_result(train=rounds_of("train", 10, 10, 10, wait_ms=6, edge_ms=20))
    table = replace(TABLE, workers_start_s=0.005, epoch_end_s=0.012)
    found = rules.costly_epoch_edges(of(result, stages=table))
    assert found is not None
    assert "6.0 ms until its first batch (workers start and give it: 5.0 ms)" in found.text
    assert found.text.endswith("14.0 ms after its last step (`on_epoch_end` of the data: 12.0 ms)")
    longer = rules.costly_epoch_edges(of(result, stages=replace(table, workers_start_s=0.5)))
    assert longer is not None and "(workers start and give it: 6.0 ms)" in longer.text  # no part exceeds the whole
    little = rules.costly_epoch_edges(of(result, stages=replace(table, workers_start_s=0.0004, epoch_end_s=0.001)))
    assert little is not None and "(" not in little.text


def test_no_part_of_loading_gains_more_than_all_of_it() -> None:
    """Edges of 47 % beside a transfer of -5 %: 42 % of loading."""
    result = losing(_low={"epoch_overhead": 0.4}, epoch_overhead=0.47, transfer=-0.05)
    assert result.attribution.loading_ratio == pytest.approx(0.42)
    edges, whole = gain_of(rules.costly_epoch_edges(of(result))), gain_of(rules.bound(of(result)))
    assert edges == whole == ("predicted", pytest.approx(1 / 0.58, abs=1e-3))


@pytest.mark.parametrize(
    ("described", "advice"),
    [
        ({"facts": Facts(kind=DataKind.TF_DATA)}, "switch tf.data's tuner off (`options.autotune.enabled = False`"),
        ({"config": {"loader": "tf_data", "autotune": True}}, "switch tf.data's tuner off ("),
        (
            {"facts": Facts(kind=DataKind.ARRAYS)},
            "feed the arrays by a tf.data.Dataset of your own without its tuner (",
        ),
        ({"config": {"loader": "tf_data", "autotune": False}}, "make fewer, longer epochs"),
        ({"config": {"loader": "py_dataset", "autotune": True}}, "make fewer, longer epochs"),
        ({"facts": Facts(kind=DataKind.PY_DATASET)}, "make fewer, longer epochs"),
    ],
)
def test_where_tf_data_tunes_itself_the_advice_on_edges_is_to_do_without(
    described: dict[str, Any], advice: str
) -> None:
    train = rounds_of("train", 10, 10, 10, wait_ms=6, edge_ms=20)
    found = rules.costly_epoch_edges(of(a_result(train=train, **described)))
    assert found is not None and found.advice is not None
    assert found.advice.startswith(advice)
    assert found.advice.endswith("make fewer, longer epochs (repeat the data and set `steps_per_epoch`)")


@pytest.mark.parametrize(
    ("facts", "asked", "advice"),
    [
        (Facts(kind=DataKind.DATA_LOADER, loop=True), 8, "keep its workers from epoch to epoch ("),
        (Facts(kind=DataKind.DATA_LOADER, loop=True), None, "make fewer, longer epochs (repeat the data)"),
        (Facts(worker_processes=True), 4, "start fewer worker processes, which begin anew with each epoch, or threads"),
        (
            Facts(data="data of type list", kind=DataKind.OTHER, loop=True),
            None,
            "make fewer, longer epochs (repeat the data)",
        ),
    ],
)
def test_a_loop_is_not_told_of_arguments_of_fit(facts: Facts, asked: int | None, advice: str) -> None:
    train = rounds_of("train", 10, 10, 10, wait_ms=6, edge_ms=20)
    found = rules.costly_epoch_edges(of(a_result(train=train, facts=facts), workers_asked=asked))
    assert found is not None and found.advice is not None
    assert found.advice.startswith(advice) and "steps_per_epoch" not in found.advice


def test_workers_that_are_processes_hold_no_lock_and_are_not_set_on_the_data() -> None:
    known = {"stages": python_table(), "workers_asked": 4, "workers_seen": 4, "cores": 4}
    loader = replace(WAITING, subject=replace(WAITING.subject, facts=Facts(kind=DataKind.DATA_LOADER)))
    assert rules.interpreter_lock(of(WAITING, **known)) is not None
    assert rules.interpreter_lock(of(loader, **known)) is None
    processes = replace(WAITING, subject=replace(WAITING.subject, facts=Facts(worker_processes=True)))
    assert rules.interpreter_lock(of(processes, **known)) is None
    assert rules.ineffective_workers(of(WAITING, **(known | {"workers_seen": 2}))) is not None
    assert rules.ineffective_workers(of(loader, **(known | {"workers_seen": 2}))) is None


def test_workers_that_all_give_the_whole_data_make_an_epoch_as_many_times_as_long() -> None:
    copied = replace(WAITING, subject=replace(WAITING.subject, facts=Facts(copies=3)))
    found = rules.copied_data(of(copied))
    assert found is not None and found.gain is not None and found.gain.ratio == 3.0
    assert found.cost_ratio == pytest.approx(2 / 3) and "every image 3 times" in found.text
    assert rules.copied_data(of(WAITING)) is None


def test_forked_workers_are_named_with_the_line_that_ends_their_waiting() -> None:
    forking = replace(WAITING, subject=replace(WAITING.subject, facts=Facts(forks_collect=True)))
    found = rules.forked_workers(of(forking, workers_asked=4))
    assert found is not None and forks.LINE in found.text and "its 4 worker processes" in found.text
    assert rules.forked_workers(of(WAITING)) is None


def with_memory(grows: float, epochs: int = 12, noise: float = 0.0, every: int = 1, **others: float) -> Result:
    """A result whose epochs end with more memory each, and with more of what `others` names; some may be missing."""

    def strain(number: int) -> Strain:
        grown = {name: int(1e8 + number * by) for name, by in others.items()}
        memory = 1e9 + number * grows + noise * (-1) ** number
        return Strain(**{"read_bytes": 0, "memory_bytes": int(memory), "throttled_ratio": None, **grown})

    return a_result(train=[a_sample(ms=10, round=number, strain=strain(number)) for number in range(0, epochs, every)])


def test_who_takes_more_memory_in_every_epoch_is_named_with_how_much() -> None:
    found = rules.growing_memory(of(with_memory(5e6, python_blocks=60_000)))
    assert found is not None and "this process by 5.0 MB (5.0 to 5.0), most of it Python's own small" in found.text
    found = rules.growing_memory(of(with_memory(5e6, epochs=30, every=2)))
    assert found is not None and "this process by 5.0 MB" in found.text
    found = rules.growing_memory(of(with_memory(5e6, python_blocks=10)))
    assert found is not None and "not in Python's small objects, but in arrays" in found.text
    found = rules.growing_memory(of(with_memory(0, workers_bytes=3e6)))
    assert found is not None and "every epoch: its worker processes by 3.0 MB" in found.text


@pytest.mark.parametrize(
    "result",
    [
        with_memory(5e5),  # less than 1 MB
        with_memory(5e6, epochs=10),  # too few behind the first three
        with_memory(1.5e6, noise=30e6),  # up and down
        with_memory(-5e6),
    ],
)
def test_memory_that_does_not_surely_grow_is_no_finding(result: Result) -> None:
    assert rules.growing_memory(of(result)) is None


def test_files_on_a_network_that_are_waited_for_are_named_with_what_a_local_copy_would_gain() -> None:
    waits = a_stage("read", 100, 300)
    remote, local = Storage(text="NFS (nfs4)", remote=True), Storage(text="a local disk (ext4)")
    evidence = of(WAITING, stages=a_table(waits, storage=remote))
    share = 0.75 * evidence.loader_ratio
    found = rules.remote_storage(evidence)
    assert found is not None and found.hypothesis and "lie on NFS (nfs4)" in found.text and "75%" in found.text
    assert gain_of(found) == ("predicted", round(1 / (1 - share), 3))
    assert rules.remote_storage(of(WAITING, stages=a_table(waits, storage=local))) is None
    assert rules.remote_storage(of(WAITING, stages=a_table(a_stage("decode", 400), storage=remote))) is None


def test_a_loop_that_traces_again_and_again_is_told_what_it_traces() -> None:
    traced = Retraced(function="train_step", count=240, ratio=0.6, ms=38.2)
    slow = replace(WAITING, subject=replace(WAITING.subject, facts=Facts(retraced=traced)))
    found = rules.retraced_steps(of(slow))
    assert found is not None and "traced train_step 240 times behind the first steps, 38 ms each: 60%" in found.text
    assert gain_of(found) == ("predicted", 2.5)
    rare = replace(WAITING, subject=replace(WAITING.subject, facts=Facts(retraced=replace(traced, ratio=0.05))))
    assert rules.retraced_steps(of(rare)) is None and rules.retraced_steps(of(WAITING)) is None


def test_a_shape_that_tensorflow_does_not_know_is_told_with_its_function() -> None:
    shape = "(None, 64, 64, None) from load (train.py:12) on"
    unknown = replace(WAITING, subject=replace(WAITING.subject, facts=Facts(unknown_shape=shape)))
    found = rules.unknown_shape(of(unknown))
    assert found is not None and found.hypothesis and found.advice is None
    assert shape in found.text and "channels=3" in found.text
    assert rules.unknown_shape(of(WAITING)) is None


def test_a_loop_that_waits_for_each_step_is_told_that_loading_and_compute_take_turns() -> None:
    result = losing(prep_stall=0.4)
    waits = replace(result, subject=replace(result.subject, facts=Facts(waited_for_ratio=0.97)))
    found = rules.waits_for_each_step(of(waits))
    assert found is not None and gain_of(found) == ("predicted", round(1 / 0.6, 3))
    seldom = replace(result, subject=replace(result.subject, facts=Facts(waited_for_ratio=0.5)))
    assert rules.waits_for_each_step(of(seldom)) is None and rules.waits_for_each_step(of(result)) is None


def test_edges_are_spread_over_the_images_of_an_epoch_in_use() -> None:
    train = rounds_of("train", 10, 10, 10, wait_ms=6, edge_ms=200)
    assert rules.costly_epoch_edges(of(a_result(train=train, images=100_000))) is None
    found = rules.costly_epoch_edges(of(a_result(train=train, images=1000)))
    assert found is not None and found.text.startswith("Each epoch loses 0.20 s at its boundary: ")


@pytest.mark.parametrize(
    "result",
    [
        a_result(train=rounds_of("train", 10, 10, 10, wait_ms=6, edge_ms=5)),
        losing(_low={"epoch_overhead": 0.05}, epoch_overhead=0.2),
    ],
    ids=["short", "uncertain"],
)
def test_edges_are_not_blamed(result: Result) -> None:
    assert rules.costly_epoch_edges(of(result)) is None


# Interference


def test_a_loader_that_takes_the_models_cores_is_found() -> None:
    # Alone a step takes 4 ms; beside the loader 8 of its 10 ms are no waiting.
    result = a_result(device="cpu", train=rounds_of("train", 10, 10, 10, wait_ms=2))
    found = rules.interference(of(result))
    assert found is not None
    assert found.text == (
        "Beside the loader, which takes 0.20 ms of CPU per image, a training step takes 2.00 times as long as alone"
    )
    assert gain_of(found) == ("predicted", 1.667)  # 4 of 10 ms
    assert found.advice is not None and "more workers shorten the waiting, not this" in found.advice


def test_a_transfer_to_the_model_is_no_interference() -> None:
    # Fed from memory a step takes 5 ms, beside the loader 8.
    result = a_result(device="cpu", train=[*rounds_of("train", 10, 10, 10, wait_ms=2), *rounds_of("replay", 5, 5, 5)])
    found = rules.interference(of(result))
    assert found is not None and found.text.endswith("a training step takes 1.60 times as long as alone")


@pytest.mark.parametrize(
    "result",
    [
        a_result(device="cpu", train=rounds_of("train", 10, 10, 10, wait_ms=6)),
        a_result(device="emulated:2500", train=rounds_of("train", 10, 10, 10, wait_ms=2)),
        a_result(device="gpu", train=rounds_of("train", 10, 10, 10, wait_ms=2)),
        losing(_low={"interference": 0.02}, interference=0.2),
    ],
    ids=["only waiting", "emulated", "gpu", "uncertain"],
)
def test_interference_is_not_blamed(result: Result) -> None:
    assert rules.interference(of(result)) is None


# Transfer to the device


@pytest.mark.parametrize(
    ("dtype", "gain", "advice"),
    [
        (
            "float32",
            1.176,
            'send uint8 and rescale on the device (`output_dtype = "uint8"`)',
        ),  # 3/4 of a fifth is saved
        ("uint8", 1.25, "send uint8, and have batches on the device ahead of time (tf.data: `prefetch_to_device`)"),
        (None, 1.25, "send uint8, and have batches on the device ahead of time (tf.data: `prefetch_to_device`)"),
    ],
)
def test_a_costly_transfer_has_a_remedy(dtype: str | None, gain: float, advice: str) -> None:
    result = a_result(device="gpu")
    config = {} if dtype is None else {"output_dtype": dtype}
    result = replace(result, subject=replace(result.subject, config=config))
    found = rules.costly_transfer(of(losing(result, transfer=0.2)))
    assert found is not None
    assert (found.text, found.advice) == ("20% of an epoch is batches on their way to the device", advice)
    assert gain_of(found) == ("predicted", gain)


@pytest.mark.parametrize(
    "result",
    [
        losing(a_result(device="gpu"), transfer=0.05),
        losing(a_result(device="gpu"), _low={"transfer": 0.02}, transfer=0.2),
        losing(a_result(device="gpu"), prep_stall=0.5),
    ],
    ids=["cheap", "uncertain", "something else"],
)
def test_a_transfer_that_costs_little_is_not_blamed(result: Result) -> None:
    assert rules.costly_transfer(of(result)) is None


# Cores to feed an accelerator

STARVED = a_result(device="emulated:2500")  # 0.2 ms of CPU per image of the loader; 2,500 images/sec of the model


def test_the_cores_that_an_accelerator_needs_are_told() -> None:
    found = rules.cores_to_feed(of(STARVED, cores=0.25))
    assert found is not None
    assert found.text == (
        "To keep this device busy 90% of the time, the loader needs 0.45 cores: "
        "0.20 ms of CPU per image, 2,250 images/sec; 0.25 are usable"
    )
    assert found.advice == "give it 0.45 cores, or at most 0.11 ms of work per image"
    assert gain_of(found) == ("predicted", 2.7)  # from 1/3 busy to 0.9


def test_cores_that_lie_idle_are_told() -> None:
    found = rules.cores_to_feed(of(STARVED, cores=2))
    assert found is not None and found.text.endswith("; 2 are usable, and it does not use them")
    assert found.advice is not None and found.advice.startswith("let more of them work")


def test_where_the_cores_are_unknown_their_need_is_told_without_advice() -> None:
    found = rules.cores_to_feed(of(STARVED))
    assert found is not None and found.text.endswith("2,250 images/sec")
    assert found.advice is None and found.gain is None


@pytest.mark.parametrize(
    "result",
    [
        a_result(device="cpu"),
        a_result(device="emulated:2500", loader_ms=None),
        a_result(device="emulated:2500", train=rounds_of("train", 4.2, 4.2, 4.2, wait_ms=0.2)),
    ],
    ids=["no accelerator", "unmeasured", "fed"],
)
def test_no_cores_are_asked_for(result: Result) -> None:
    assert rules.cores_to_feed(of(result, cores=2)) is None


# Throttling


def test_a_run_that_its_quota_stopped_is_found() -> None:
    found = rules.throttled(of(throttled_ratio=0.4, cores=1.5))
    assert found is not None
    assert found.text == "The CPU quota of 1.5 cores stopped the run in 40% of the scheduler's periods"


@pytest.mark.parametrize("ratio", [None, 0.0, 0.049])
def test_a_quota_that_did_not_bind_is_no_finding(ratio: float | None) -> None:
    assert rules.throttled(of(throttled_ratio=ratio)) is None


# Compiling again


def with_last_step(last_ms: float, *, jit_compile: bool = True, images: int = 95, **settings: Any) -> Result:
    """Returns a result of two epochs a window: nine steps of 10 ms for ten images, one of `last_ms` for the rest."""
    steps_ms = ([10.0] * 9 + [last_ms]) * 2
    total_ns = round(sum(steps_ms) * MS)
    train = [
        a_sample(
            "train",
            round=number,
            step_ns=tuple(round(ms * MS) for ms in steps_ms),
            epochs=2,
            images=2 * images,
            epoch_images=2 * images,
            wall_ns=total_ns,
            epoch_ns=total_ns,
            outer_ns=total_ns,
            claimed_ns=total_ns,
        )
        for number in range(3)
    ]
    values = {"device": "cpu", "resident_ms": 10, **settings}
    return a_result(train=train, facts=Facts(jit_compile=jit_compile), **values)


def test_a_short_batch_that_takes_long_in_every_epoch_is_found() -> None:
    found = rules.recompiled(of(with_last_step(510)))
    assert found is not None
    assert found.text == (
        "The short last batch of each epoch takes 0.51 s, a full one 10.0 ms: XLA compiles the model for it again"
    )
    assert gain_of(found) == ("predicted", 6.0)  # 100 instead of 600 ms an epoch


def test_a_host_that_runs_ahead_may_wait_for_all_steps_in_the_last() -> None:
    # The device has up to ten steps of 10 ms left to do.
    assert rules.recompiled(of(with_last_step(140, device="gpu"))) is None
    assert rules.recompiled(of(with_last_step(160, device="gpu"))) is not None
    assert rules.recompiled(of(with_last_step(140, device="cpu"))) is not None


def test_the_very_first_epoch_compiles_and_does_not_count() -> None:
    first, *others = with_last_step(10).of("train")
    slow = replace(first, step_ns=(*first.step_ns[:9], 510 * MS, *first.step_ns[10:]))
    others_slow = [replace(one, step_ns=(10 * MS,) * 9 + (510 * MS,) + (10 * MS,) * 9 + (510 * MS,)) for one in others]
    last_slow = replace(slow, step_ns=(*slow.step_ns[:19], 510 * MS))
    resident = rounds_of("resident", 10, 10, 10)

    def judged(*train: Any) -> Finding | None:
        result = with_last_step(510)
        return rules.recompiled(of(replace(result, samples=(*resident, *train))))

    assert judged(slow, *others) is None
    quick_first = replace(last_slow, step_ns=(10 * MS,) * 19 + (510 * MS,))
    assert judged(quick_first, *others_slow) is not None


@pytest.mark.parametrize(
    "result",
    [
        with_last_step(8),
        with_last_step(50),
        with_last_step(510, jit_compile=False),
        with_last_step(510, images=100),
        a_result(device="cpu"),
    ],
    ids=["short", "five times", "not compiled", "no short batch", "unknown"],
)
def test_nothing_is_compiled_again(result: Result) -> None:
    assert rules.recompiled(of(result)) is None


def test_epochs_that_cannot_be_told_apart_say_nothing() -> None:
    result = with_last_step(510)
    samples = tuple(replace(one, step_ns=one.step_ns[:-1]) if one.window == "train" else one for one in result.samples)
    assert rules.recompiled(of(replace(result, samples=samples))) is None


# All together


def test_the_pace_comes_first_and_then_what_costs_most() -> None:
    result = losing(prep_stall=0.3, interference=0.1, epoch_overhead=0.12)
    found = findings(of(result, stages=TABLE, throttled_ratio=0.07, frozen_by_cache=("flip in augment",), **BIG))
    assert [(one.rule, round(one.cost_ratio, 3)) for one in found] == [
        ("input-bound", 0.52),
        ("frozen augmentation", 1.0),
        ("culprit stage", 0.3),
        ("oversized decode", 0.3),
        ("epoch edges", 0.12),
        ("interference", 0.1),
        ("CPU throttled", 0.07),
    ]


def test_a_clean_run_has_but_its_pace() -> None:
    assert [one.rule for one in findings(of(losing(prep_stall=0.03)))] == ["compute-bound"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_advice_goes_without_a_number(rule: Callable[[Evidence], Finding | None]) -> None:
    """Holds of every rule on evidence that fires as many as can be."""
    fired = False
    known: dict[str, Any] = {"workers_asked": 4, "workers_seen": 2, "stages": python_table(), "cores": 4.0, **BIG}
    parts = {"prep_stall": 0.3, "interference": 0.2, "epoch_overhead": 0.2, "transfer": 0.2}
    copied = replace(
        WAITING, subject=replace(WAITING.subject, facts=Facts(copies=3, forks_collect=True, unknown_shape="x"))
    )
    for result in (with_last_step(510), WAITING, STARVED, losing(**parts), copied, with_memory(5e6)):
        found = rule(of(result, frozen_by_cache=("a",), throttled_ratio=0.5, **known))
        fired = fired or found is not None
        if found is not None and found.advice is not None:
            assert found.gain is not None and found.gain.ratio > 1
    remote = a_table(a_stage("parse", 90, 90, call_us_per_image=80.0), storage=Storage(text="NFS (nfs4)", remote=True))
    traced = Facts(retraced=Retraced(function="step", count=9, ratio=0.5, ms=3.0), waited_for_ratio=1.0)
    loop = replace(WAITING, subject=replace(WAITING.subject, facts=traced))
    for found in (rule(of(WAITING, stages=remote)), rule(of(loop))):
        fired = fired or found is not None
        assert found is None or found.advice is None or (found.gain is not None and found.gain.ratio > 1)
    assert fired
