"""The first screen: a verdict, a picture of it, why, and what to type; nothing in it contradicts another part."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import (
    STAGE_TABLE,
    a_cold_result,
    a_measurement_document,
    a_result,
    a_trial,
    rounds_of,
    samples_at,
    with_subject,
)
from tests.checks import tables_of
from unstall.profiles.data.kinds import DataKind
from unstall.profiles.remedies import AS_WRITTEN, Untried, gains_of
from unstall.profiles.report.measurements import CALL, KIND, SCRIPT, MeasurementDocument, Plan, derive, screens_of
from unstall.profiles.report.screen import Picture, Screen, ScreenBar, print_screen
from unstall.profiles.report.screen_lines import verdict_line
from unstall.profiles.results.facts import Facts
from unstall.profiles.results.flags import Flag, FlagKind
from unstall.profiles.results.verdict import judge
from unstall.profiles.text import Terminal

FACTS = Facts(parameters=813_217)
OLD_ITERATOR = Facts(data="an ImageDataGenerator iterator", kind=DataKind.IMAGE_ITERATOR)


def shown(document: MeasurementDocument, typed: str | None = None, width: int = 80) -> str:
    console = Terminal(file=io.StringIO(), width=width)
    assert KIND.screens is not None
    document = document if typed is None else replace(document, typed={document.plan.data: typed})
    for screen in KIND.screens(document, derive(document)):
        print_screen(console, screen)
    return console.file.getvalue()  # type: ignore[attr-defined]


def a_main_job(*results: Any, **changes: Any) -> MeasurementDocument:
    return a_measurement_document(*(with_subject(result, facts=FACTS) for result in results), **changes)


def a_script(result: Any, trial: Any = None) -> MeasurementDocument:
    document = a_measurement_document(result, command=SCRIPT, plan=Plan(rounds=3, data="train.py"))
    trials = {} if trial is None else {result.subject.variant: trial}
    return replace(document, samples=replace(document.samples, trials=trials))


FAST = a_result("tf-data", train=rounds_of("train", 5, 5.1, 5, wait_ms=1, edge_ms=5))


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_verdict_comes_first_then_the_fastest_and_the_limit_then_the_picture_and_what_to_type() -> None:
    text = shown(a_main_job(a_result(), FAST), "'my photos/train'")
    labels = re.findall(r"^([A-Z][A-Z-]+) {2,}", text, flags=re.MULTILINE)
    assert labels == ["INPUT-BOUND", "FASTEST", "LIMIT", "NEXT"]
    assert "of an epoch with generator is loading: " in words(text)
    assert text.splitlines()[-1].strip().endswith("--data 'my photos/train' --model cats-dogs-64")
    assert max(map(len, text.splitlines()[:-1])) <= 80


def test_the_file_of_a_model_is_named_without_its_folder_and_what_to_type_with_it() -> None:
    results = (with_subject(result, model="net.keras", facts=FACTS) for result in (a_result(), FAST))
    document = replace(a_measurement_document(*results), typed={"net.keras": "'my models/net.keras'"})
    assert "net.keras (" in shown(document).splitlines()[2]
    assert shown(document).splitlines()[-1].strip().endswith("--model 'my models/net.keras'")


def test_times_are_the_ratio_of_the_rates_that_are_shown() -> None:
    text = shown(a_main_job(a_result(), FAST))
    rows = re.findall(r"^(\S+)(?: \(baseline\))? +([\d,]+) +(\d\.\d\d)x", text, flags=re.MULTILINE)
    (fast, fast_rate, times), (baseline, rate, one) = rows
    assert (fast, baseline, one) == ("tf-data", "generator", "1.00")
    assert float(times) == pytest.approx(int(fast_rate.replace(",", "")) / int(rate.replace(",", "")), abs=0.01)


def test_the_fastest_has_the_same_figures_in_its_line_and_in_the_picture() -> None:
    """Measured again, it is 1.5 times as fast; the rounds that chose it said 2.2."""
    slow, fast = (
        a_result(
            name,
            train=[
                *rounds_of("train", ms, ms * 1.01, ms, wait_ms=1, edge_ms=5),
                *rounds_of("again", *again_ms, wait_ms=1, edge_ms=5),
            ],
        )
        for name, ms, again_ms in (("generator", 11, (9.0, 9.1, 9.0)), ("tf-data", 5, (6.0, 6.0, 6.1)))
    )
    text = shown(a_main_job(slow, fast))
    [(times, rate)] = re.findall(r"tf-data, (\d\.\d\d)x \([^)]*\), ([\d,]+) ", words(text.replace("(\n", "(")))
    assert re.search(rf"^tf-data +{rate} +{times}x", text, flags=re.MULTILINE), text
    assert 1.3 < float(times) < 1.7


@pytest.mark.parametrize(("again_ms", "above"), [(6.0, False), (2.0, True)])
def test_a_rate_above_that_of_the_model_is_of_other_rounds_and_the_limit_says_so(again_ms: float, above: bool) -> None:
    """Measured again, the fastest is 1.5 or 4.5 times as fast as the baseline; a step alone takes 4 ms."""
    slow, fast = (
        a_result(
            name,
            train=[
                *rounds_of("train", ms, ms * 1.01, ms, wait_ms=1, edge_ms=5),
                *rounds_of("again", again, again * 1.01, again, wait_ms=1, edge_ms=5),
            ],
        )
        for name, ms, again in (("generator", 11, 9.0), ("tf-data", 5, again_ms))
    )
    document = a_main_job(slow, fast)
    text = words(shown(document))
    [shown_rate] = re.findall(r"tf-data, [\d.]+x \([^)]*\), ([\d,]+) ", text)
    [limit] = re.findall(r"LIMIT the model alone (?:does|did) ([\d,]+) ", text)
    assert (int(shown_rate.replace(",", "")) > int(limit.replace(",", ""))) is above
    plain = f"LIMIT the model alone does {limit} img/s: no loader can give more."
    of_rounds = f"did {limit} img/s in the rounds in which tf-data had {fast.epoch_images_per_sec:,.0f}: no loader can"
    assert (plain in text, of_rounds in text) == (not above, above)


def test_one_that_stands_above_the_fastest_was_not_measured_again_and_is_said_to_be_perhaps_as_fast() -> None:
    document = a_main_job(
        *(
            a_result(
                name,
                train=[
                    *rounds_of("train", ms, ms * 1.01, ms, wait_ms=1, edge_ms=5),
                    *(
                        rounds_of("again", again_ms, again_ms * 1.01, again_ms, wait_ms=1, edge_ms=5)
                        if again_ms
                        else ()
                    ),
                ],
            )
            for name, ms, again_ms in (("generator", 11, 9), ("tf-data", 5, 6), ("tf-data-cache", 5.3, None))
        )
    )
    text = shown(document)
    assert "FASTEST        tf-data, 1." in text
    assert re.search(r"tf-data-cache may be as fast: \d\.\d\dx in the rounds before\.", words(text)), text
    assert "may be as fast" not in shown(a_main_job(a_result(), FAST))


def test_too_few_rounds_do_not_say_that_nothing_is_faster() -> None:
    """Ended after two rounds, the main job said so of a pipeline that was 29 times as fast."""
    slow, fast = (
        a_result(name, train=rounds_of("train", ms, ms * 1.01, wait_ms=1, edge_ms=5))
        for name, ms in (("generator", 11), ("tf-data", 5))
    )
    text = words(shown(a_main_job(slow, fast)))
    assert re.search(r"FASTEST tf-data may be 2\.\d\d times as fast as generator: too few rounds to be sure\.", text), (
        text
    )
    text = words(shown(a_main_job(*(a_result(name) for name in ("generator", "tf-data")))))
    assert "FASTEST no other pipeline is surely faster than" in text


@pytest.mark.parametrize(
    ("loader_us", "clause"), [(None, "is not known."), (4_000.0, "is at most 40% of an epoch."), (1.0, "is nothing.")]
)
def test_of_a_loop_on_a_cpu_loading_is_the_least_and_the_loaders_cpu_time_the_most_beside_it(
    loader_us: float | None, clause: str
) -> None:
    train = rounds_of("train", 100, 100, 100, wait_ms=5)
    result = a_result(train=train, device="cpu", resident_ms=95)
    alone = tuple(sample for sample in result.samples if sample.window != "resident")
    result = replace(result, samples=alone, stages=replace(STAGE_TABLE, loader_cpu_us_per_image=loader_us))
    assert result.is_least
    [verdict] = judge([result])
    assert words(verdict_line(verdict, " with train.py").text).endswith(
        f"What the loader takes from the cores of the steps {clause}"
    )


def test_a_loader_that_holds_up_the_thread_that_starts_the_steps_can_take_as_much_of_them() -> None:
    train = rounds_of("train", 100, 100, 100, wait_ms=5)
    result = a_result(train=train, device="cpu", resident_ms=95)
    subject = replace(result.subject, facts=Facts(fetching_ratio=0.45))
    alone = tuple(sample for sample in result.samples if sample.window != "resident")
    stages = replace(STAGE_TABLE, loader_cpu_us_per_image=1.0)
    result = replace(result, subject=subject, samples=alone, stages=stages)
    assert result.most_taken_ratio == pytest.approx(0.40)
    [verdict] = judge([result])
    assert words(verdict_line(verdict, " with train.py").text).endswith(
        "takes from the cores of the steps or of the thread that starts them is at most 40% of an epoch."
    )


def test_a_bar_is_as_long_as_an_image_takes_and_divided_as_the_verdict_says() -> None:
    lines = shown(a_main_job(a_result(), FAST)).splitlines()
    fast, slow = (re.search(r"[#=+~-]+$", line) for line in lines if re.search(r"x  #", line))
    assert fast is not None and slow is not None
    # 12 ms an epoch's image, of which the model takes 4 ms; and 5.5 ms.
    assert len(fast[0]) / len(slow[0]) == pytest.approx(5.5 / 12, abs=0.05)
    assert slow[0].count("#") / len(slow[0]) == pytest.approx(4 / 12, abs=0.05)
    assert slow[0].count("#") == pytest.approx(fast[0].count("#"), abs=1)


def test_the_way_to_a_cpu_is_noise_and_is_never_blamed() -> None:
    """Batches from memory take 4 ms longer a step than one that lies there: on a CPU that is chance."""
    samples = (*a_result(device="cpu").samples, *rounds_of("replay", 8, 8, 8))
    from unstall.profiles.results import summarise

    noisy = summarise(a_result(device="cpu").subject, list(samples), typical_canary_ns=5e6)
    text = shown(a_main_job(noisy))
    assert "device" not in text and "~" not in text
    [verdict] = derive(a_main_job(noisy))
    assert "transfer" not in verdict.text()


@pytest.mark.parametrize(
    ("flag", "label"),
    [
        (rounds_of("train", *(4.2,) * 3, wait_ms=0.1), "COMPUTE-BOUND"),
        (rounds_of("train", 10, 10, 10, wait_ms=6, edge_ms=20), "INPUT-BOUND"),
        ([replace(one, step_ns=one.step_ns[:3]) for one in rounds_of("train", 10, 10, 10, wait_ms=6)], "NO VERDICT"),
    ],
)
def test_labels_say_what_is_known(flag: list[Any], label: str) -> None:
    text = shown(a_main_job(a_result(train=flag)))
    assert f"\n{label}  " in text


def test_what_the_page_cache_hides_is_said_of_the_pipelines_that_the_screen_describes() -> None:
    cold = [a_cold_result(), a_cold_result("tf-data", 8, 8, 8), a_cold_result("another", 12, 12, 12)]
    text = words(shown(a_main_job(a_result(), FAST, *cold)))
    assert "COLD generator: cold 556 img/s, warm 833: the page cache hides 33%; storage gave 210 MB/s" in text
    assert "COLD tf-data: cold " in text and "COLD another" not in text
    assert "COLD" not in shown(a_main_job(a_result(), FAST))


def test_a_disturbed_run_has_its_warning_on_top() -> None:
    slow = a_result(train=[replace(one, canary_ns=10**8) for one in rounds_of("train", 10, 10, 10, wait_ms=6)])
    text = shown(a_main_job(slow))
    assert text.index("Be careful: the machine was slow") < text.index("-BOUND")


def test_of_several_doubts_it_is_the_change_of_the_data_that_is_named() -> None:
    slow = a_result(train=[replace(one, canary_ns=10**8) for one in rounds_of("train", 10, 10, 10, wait_ms=6)])
    changed = Flag(kind=FlagKind.DATA_CHANGED, text="cats/1.jpg (deleted)")
    subject = replace(slow.subject, doubts=(changed,))
    text = " ".join(shown(a_main_job(replace(slow, subject=subject))).split())
    assert "Be careful: data changed during the run: cats/1.jpg (deleted) (and 1 more doubt: see report.html)." in text


def test_a_script_is_told_its_remedy_with_place_code_and_what_to_type() -> None:
    trial = a_trial({AS_WRITTEN: samples_at(*[100.0] * 4), "cache": samples_at(*[200.0] * 4)})
    result = a_result("fit 1 (train.py:9)", facts=Facts(data="a tf.data.Dataset"))
    text = shown(a_script(replace(result, stages=STAGE_TABLE), trial), "train.py --epochs 3")
    assert "FASTER         2.00x (2.00 to 2.00) with cache, measured on your own data" in text
    assert "code of cache" in text
    assert text.rstrip().endswith("unstall profile --apply=cache train.py --epochs 3")
    assert "fit 1 (train.py:9): cats-dogs-64, batches of 10, fed by a tf.data.Dataset" in text


def test_a_script_that_nothing_helps_is_told_what_was_tried() -> None:
    trial = a_trial({AS_WRITTEN: samples_at(*[100.0] * 4), "cache": samples_at(*[100.0] * 4)})
    text = shown(a_script(a_result("fit 1 (train.py:9)"), trial))
    assert "FASTER" not in text
    assert "TRIED cache 1.00x (1.00 to 1.00): none is shown to gain 3% or more. " in words(text)


def test_what_was_tried_and_not_taken_is_told_with_its_gain() -> None:
    rates = {AS_WRITTEN: [100.0] * 4, "workers": [99.0, 101.0, 100.0, 102.0], "cache": [200.0] * 4}
    trial = a_trial({name: samples_at(*some) for name, some in rates.items()})
    untried = tuple(Untried(name=name, reason="a reason") for name in ("pool", "repeat"))
    text = words(shown(a_script(a_result("fit 1 (train.py:9)"), replace(trial, untried=untried)), "train.py"))
    faster, tried, others = text.partition("FASTER 2.00x")[2].partition("TRIED workers 1.00x (0.98 to 1.03). ")
    assert tried and "with cache" in faster
    assert others.startswith("NOT TRIED pool, repeat: a reason. NEXT edit these lines")


@pytest.mark.parametrize(
    ("untried", "line"),
    [
        ((Untried(name="all", reason="it failed."),), "NOT TRIED it failed. "),
        (
            (
                Untried(name="cache", reason="an epoch takes 1 s", budget_s=30),
                Untried(name="workers", reason="the same", budget_s=45),
            ),
            "NOT TRIED cache: an epoch takes 1 s; --budget 30 would do. "
            "NOT TRIED workers: the same; --budget 45 would do. NEXT give the remedies that were not "
            "tried their time: unstall profile --budget 45 train.py --fast",
        ),
    ],
)
def test_a_script_for_which_no_remedy_was_tried_is_told_why(untried: tuple[Untried, ...], line: str) -> None:
    trial = replace(a_trial({AS_WRITTEN: samples_at(*[100.0] * 4)}), untried=untried)
    assert line in words(shown(a_script(a_result("fit 1 (train.py:9)"), trial), "train.py --fast"))


@pytest.mark.parametrize(
    ("canary_ns", "told"), [(10**8, "when the machine is quiet"), (5 * 10**6, "for more epochs")], ids=["busy", "quiet"]
)
def test_a_quiet_machine_is_asked_for_only_where_it_was_not(canary_ns: int, told: str) -> None:
    epochs = [replace(one, canary_ns=canary_ns if one.round else 5 * 10**6) for one in rounds_of("train", 10, 13, 16)]
    result = a_result("fit 1 (train.py:9)", train=epochs, resident_ms=10)
    assert result.attribution.bound == "uncertain"
    assert words(shown(a_script(result), "train.py")).rstrip().endswith(f"NEXT the same again {told}.")


@pytest.mark.parametrize(("first_ms", "label"), [(900, "INPUT-BOUND"), (10, "NO VERDICT")])
def test_epochs_of_few_steps_have_a_verdict_where_they_wait_for_their_first_batch(first_ms: int, label: str) -> None:
    epochs = [
        replace(
            one,
            step_ns=one.step_ns[:3],
            first_batch_ns=(first_ms * 10**6,),
            epoch_ns=10**9,
            epochs=1,
        )
        for one in rounds_of("train", 10, 10, 10, wait_ms=6)
    ]
    text = words(shown(a_script(a_result("fit 1 (train.py:9)", train=epochs))))
    assert f"{label} " in text
    assert ("at least 90% of an epoch is loading: the wait for its first batch" in text) is (label == "INPUT-BOUND")


def test_names_are_never_broken_inside_and_commands_never_wrapped() -> None:
    result = a_result("fit 1 (a_script_with_a_long_name_of_its_own.py:1234)")
    for width in (40, 80, 120):
        text = shown(a_script(result), width=width)
        assert "a_script_with_a_long_name_of_its_own.py:1234" in text.replace("\n", "")
    document = a_main_job(a_result())
    assert f"--data {'p' * 90} --model" in shown(document, "p" * 90, width=60)


def test_without_parts_a_bar_is_empty() -> None:
    console = Terminal(file=io.StringIO(), width=80)
    picture = Picture(columns=("img/s",), signs={"#": "model"}, bars=(ScreenBar(name="a", cells=("1",), parts={}),))
    print_screen(console, Screen(heading=("x",), picture=picture))
    assert "#" not in console.file.getvalue()  # type: ignore[attr-defined]


def test_nothing_measured_has_a_heading_and_the_reasons() -> None:
    document = a_measurement_document(command=SCRIPT, plan=Plan(rounds=0, data="train.py"))
    [screen] = screens_of(document, [])
    assert screen.heading == ("unstall: train.py",)


def next_labels(document: MeasurementDocument) -> list[str]:
    [screen] = screens_of(document, derive(document))
    return [line.label for line in screen.next]


# Of epochs that differ: the run is to be repeated.
UNCERTAIN = a_result("fit 1 (train.py:9)", train=rounds_of("train", 10, 13, 16), resident_ms=10)


def test_a_script_that_an_error_ended_is_not_to_be_run_again_for_better_figures() -> None:
    document = a_script(UNCERTAIN)
    assert "the same again" in shown(document)
    broken = replace(document, samples=replace(document.samples, broken="ValueError after 37 steps"), complete=False)
    assert next_labels(broken) == ["ENDED"]
    text = words(shown(broken))
    assert "by ValueError after 37 steps" in text and "the same again" not in text


def test_an_error_before_the_first_figures_is_said_as_well() -> None:
    document = a_measurement_document(command=SCRIPT, plan=Plan(rounds=0, data="train.py"))
    [screen] = screens_of(replace(document, samples=replace(document.samples, broken="ValueError after 1 step")), [])
    assert [line.label for line in screen.verdict] == ["ENDED"]


def test_a_trial_that_was_stopped_says_which_remedies_were_not_tried_and_how_they_are() -> None:
    trial = a_trial({AS_WRITTEN: samples_at(*[100.0] * 4), "a": samples_at(*[101.0] * 4), "b": (), "c": ()})
    thrown_out = Untried(name="c", reason="it has random operations")
    document = a_script(UNCERTAIN, replace(trial, untried=(thrown_out,), stopped=True, ended=False))
    document = replace(document, typed={"train.py": "train.py"})
    assert next_labels(document) == ["TRIED", "NOT TRIED", "STOPPED", "NEXT"]
    assert trial.left == ("b", "c")
    text = words(shown(document, "train.py 3"))
    assert "not all remedies were tried: b." in text and "when the machine is quiet" not in text
    assert "unstall profile train.py 3" in text


@pytest.mark.parametrize(
    ("free", "label", "labels"),
    [
        (101.0, "COMPUTE-BOUND", ["TRIED", "NEXT"]),  # look at the model
        (200.0, "INPUT-BOUND", ["TRIED"]),  # nothing that was tried helps: a quiet machine would say the same
    ],
)
def test_what_the_trial_says_of_loading_takes_the_place_of_what_the_script_leaves_open(
    free: float, label: str, labels: list[str]
) -> None:
    trial = a_trial({AS_WRITTEN: samples_at(*[100.0] * 4), "a": samples_at(*[101.0] * 4)})
    taken = tuple(replace(sample, others_ratio=0.3) for sample in samples_at(*[free] * 4))
    document = a_script(UNCERTAIN, replace(trial, in_memory=taken))
    [screen] = screens_of(document, derive(document))
    assert screen.verdict[0].label == label
    assert "while other programs took 30% of the cores" in screen.verdict[0].text
    assert next_labels(document) == labels


def test_what_may_be_chance_is_given_more_rounds() -> None:
    rates = {AS_WRITTEN: [100.0, 101.0, 99.0], "a": [110.0, 108.0, 104.0], **{name: [100.0] * 3 for name in "bcdef"}}
    trial = replace(a_trial({name: samples_at(*some) for name, some in rates.items()}), seconds=40.0)
    assert gains_of(trial).chosen is None and [gain.name for gain in gains_of(trial).helped()] == ["a"]
    document = replace(a_script(UNCERTAIN, trial), typed={"train.py": "train.py"})
    [screen] = screens_of(document, derive(document))
    assert screen.next[-1].code == ("unstall profile --budget 80 train.py",)
    assert screen.next[-1].text.startswith("a is faster by its own interval, which can be chance")


@pytest.mark.parametrize(("wait_ms", "named"), [(6, True), (0, False)])
def test_images_of_keras_old_generator_get_the_command_that_writes_them_as_tf_data(wait_ms: float, named: bool) -> None:
    result = a_result(train=rounds_of("train", 10, 10, 10, wait_ms=wait_ms), resident_ms=4 if wait_ms else 10)
    text = shown(a_script(with_subject(result, facts=OLD_ITERATOR)), "--max-steps 9 'my folder/train.py' 3 --fast")
    assert ("unstall migrate 'my folder/train.py'\n" in text) is named
    assert "migrate" not in shown(a_script(result), "train.py")


def test_a_call_is_told_its_own_argument_for_the_budget_and_no_command() -> None:
    untried = (Untried(name="cache", reason="an epoch takes 1 s", budget_s=30),)
    trial = replace(a_trial({AS_WRITTEN: samples_at(*[100.0] * 4)}), untried=untried)
    document = a_measurement_document(a_result("train"), command=CALL, plan=Plan(rounds=3, data="train"))
    document = replace(document, samples=replace(document.samples, trials={"train": trial}))
    [screen] = screens_of(document, derive(document))
    assert screen.next[0].text == "cache: an epoch takes 1 s; budget_s=30 would do."
    assert screen.next[-1].text == "give the remedies that were not tried their time: budget_s=30."
    assert "unstall" not in shown(document).partition("\n")[2].partition("\n")[2] and "--budget" not in shown(document)
    assert "budget_s=30 would do" in tables_of(KIND, document) and "--budget" not in tables_of(KIND, document)


def test_a_cell_is_no_script_that_a_command_could_name() -> None:
    result = a_result(train=rounds_of("train", 10, 10, 10, wait_ms=6), resident_ms=4)
    document = a_script(with_subject(result, facts=OLD_ITERATOR))
    assert "unstall migrate" not in shown(document) and "unstall migrate" in shown(document, "train.py")
