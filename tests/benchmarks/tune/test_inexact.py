"""The tuner's choice between a pipeline that changes pixels and one that does not, from planted rates."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar

import pytest

from tests.builders import BARS, CLOSE, COMPOSED, PREDICTION, a_measured_pipeline, a_search_document, exact, samples_at
from tests.builders import TUNED_BASE as BASE
from tests.fakes import FakeGroup, PlantedChild
from unstall.benchmarks.lab import rounds
from unstall.benchmarks.lab.session import Job
from unstall.benchmarks.tune import __main__ as tune
from unstall.benchmarks.tune.exactness import Exactness
from unstall.benchmarks.tune.report import KIND
from unstall.benchmarks.tune.results import AUTOTUNE, choose, derive, has_place, rates_of_subjects, settle
from unstall.benchmarks.tune.samples import Subject
from unstall.benchmarks.tune.search import Tuner
from unstall.pipeline.config import config_from_toml
from unstall.pipeline.cost_model import StageCost, StageKey

SCALED = replace(BASE, decode="scaled", augment_with="opencv", augment_at="batch")
CACHED = replace(BASE, cache="memory", augment_with="opencv", augment_at="batch")
EXACT = Exactness(mean_levels=0.0, largest_levels=0.002, psnr_db=140.0)
# As seen in a real search: 1.59 times AUTOTUNE (1.35 to 1.86) with pixels off by up to 132 levels, 1.52 (1.28 to 1.81)
# with none. Their rounds scatter by a tenth.
NOISY = (1.10, 0.92, 1.05, 0.90, 1.08, 0.94, 0.97, 1.04)
OTHERS = (0.93, 1.07, 0.95, 1.09, 0.91, 1.06, 1.04, 0.96)


@pytest.mark.parametrize(
    ("exactness", "is_exact"),
    [
        (replace(EXACT, largest_levels=0.0, psnr_db=None), True),
        (EXACT, True),
        (replace(EXACT, largest_levels=0.50001), True),  # rounded to uint8
        (replace(EXACT, largest_levels=0.99), False),  # rounded twice, as for a prepared copy of pixels
        (CLOSE, False),
    ],
)
def test_what_is_off_by_more_than_rounding_is_not_exact(exactness, is_exact):
    assert Subject(name="a", config=BASE, prediction=PREDICTION, exactness=exactness).is_exact is is_exact


def test_layers_that_draw_in_another_way_are_not_exact():
    layers = replace(BASE, augment_with="keras_layers", augment_at="device")
    assert not Subject(name="layers", config=layers, prediction=PREDICTION).is_exact
    assert Subject(name=AUTOTUNE, config=BASE, prediction=PREDICTION).is_exact


def rounds_at(rate: float, factors=NOISY) -> tuple[float, ...]:
    return tuple(rate * factor for factor in factors)


def searched(train: Mapping[str, tuple[float, ...]], again: Mapping[str, tuple[float, ...]] | None = None):
    """The document of a search over "scaled", which changes pixels, "cached", which does not, and AUTOTUNE."""
    measured = {
        "scaled": a_measured_pipeline("scaled", 1.0, SCALED),
        "cached": exact(a_measured_pipeline("cached", 1.0, CACHED)),
        AUTOTUNE: BARS[2],
    }
    later = {name: samples_at(*rates, window="again") for name, rates in (again or {}).items()}
    subjects = tuple(
        replace(measured[name], samples=(*samples_at(*rates), *later.get(name, ()))) for name, rates in train.items()
    )
    chosen_first = None if again is None else "scaled"
    return a_search_document(measured["scaled"], {"subjects": subjects, "chosen_first": chosen_first})


TIE = {AUTOTUNE: rounds_at(1000.0), "scaled": rounds_at(1590.0), "cached": rounds_at(1520.0, OTHERS)}
GAIN = {AUTOTUNE: rounds_at(1000.0), "scaled": rounds_at(2400.0), "cached": rounds_at(1520.0, OTHERS)}


@pytest.mark.parametrize(("train", "chosen"), [(TIE, "cached"), (GAIN, "scaled")], ids=["tie", "gain"])
def test_rounds_must_show_that_what_changes_pixels_is_faster(train, chosen):
    results = rates_of_subjects(searched(train).samples.subjects, 2000)
    assert choose(results).name == chosen
    # Where further rounds follow, these must show it, so that the fastest of the first rounds is measured again.
    assert choose(results, surely=False).name == "scaled"


def test_of_two_within_one_per_cent_the_exact_one_is_chosen_though_the_other_is_simpler():
    """Rounds without noise show even half a per cent."""
    train = {AUTOTUNE: (1000.0,) * 8, "scaled": (1505.0,) * 8, "cached": rounds_at(1500.0, OTHERS)}
    results = rates_of_subjects(searched(train).samples.subjects, 2000)
    assert choose(results, surely=False).name == "cached"


AGAIN = {
    "a tie": ({AUTOTUNE: (1000.0,) * 5, "scaled": rounds_at(1590.0)[:5], "cached": rounds_at(1520.0, OTHERS)[:5]}, 1),
    "a gain": ({AUTOTUNE: (1000.0,) * 5, "scaled": (1590.0,) * 5, "cached": (1520.0,) * 5}, 0),
    "neither": ({AUTOTUNE: (1000.0,) * 5, "scaled": rounds_at(1000.0)[:5], "cached": rounds_at(990.0)[:5]}, 2),
    "the exact one is slow": ({AUTOTUNE: (1000.0,) * 5, "scaled": (1590.0,) * 5, "cached": (900.0,) * 5}, 0),
    "the exact one failed": ({AUTOTUNE: (1000.0,) * 5, "scaled": (1590.0,) * 5, "cached": (1000.0,)}, 2),
}


@pytest.mark.parametrize("name", AGAIN)
def test_rounds_that_measure_again_decide_between_the_two(name):
    again, place = AGAIN[name]
    results = derive(searched(TIE, again))
    assert [rival.name for rival in results.rivals] == ["scaled", "cached", AUTOTUNE]
    assert results.chosen is results.rivals[place]
    assert (results.passed_over is results.rivals[0]) == (name in ("a tie", "the exact one failed"))


def test_without_autotune_what_changes_pixels_must_beat_the_exact_one_all_the_same():
    train = {name: rates for name, rates in TIE.items() if name != AUTOTUNE}
    again = {name: rates for name, rates in AGAIN["a tie"][0].items() if name != AUTOTUNE}
    results = rates_of_subjects(searched(train, again).samples.subjects, 2000)
    assert settle(results, "scaled").name == "cached"


def test_the_file_says_what_was_passed_over_and_a_sentence_by_how_much():
    document = searched(TIE, AGAIN["a tie"][0])
    copies = KIND.copies(document, derive(document))
    assert (copies["chosen"], copies["passed_over"]) == ("cached", "scaled")
    assert {row["name"]: row["exact"] for row in copies["results"]} == {"scaled": False, "cached": True, AUTOTUNE: True}
    [sentence] = [sentence for sentence in copies["sentences"] if sentence.startswith("scaled")]
    assert sentence.startswith(
        "scaled, whose pixels are off by up to 100 of 255 levels, is not surely faster than this: 1.0"
    )
    [screen] = KIND.screens(document, derive(document))
    assert sentence in screen.verdict[0].text
    gained = searched(TIE, AGAIN["a gain"][0])
    assert KIND.copies(gained, derive(gained))["passed_over"] is None


def test_a_copy_of_what_was_passed_over_says_nothing_of_the_chosen_one():
    raw = a_measured_pipeline("AUTOTUNE, the same copy", 1.0, replace(BASE, storage="raw"))
    on_copy = replace(raw, samples=samples_at(*(1400.0,) * 5, window="again"))
    document = searched(TIE, AGAIN["a tie"][0])
    results = derive(replace(document, samples=replace(document.samples, on_copy=on_copy)))
    assert results.chosen.name == "cached" and results.on_copy is not None and results.on_chosen_copy is None
    cached = replace(on_copy, subject=replace(on_copy.subject, config=replace(BASE, cache="memory")))
    results = derive(replace(document, samples=replace(document.samples, on_copy=cached)))
    assert results.on_chosen_copy is results.on_copy


def test_the_best_exact_one_is_measured_again_in_turns_with_the_choice():
    rates = {AUTOTUNE: rounds_at(1000.0), "scaled": rounds_at(1590.0), "cached": rounds_at(1520.0, OTHERS)}
    subjects = {
        AUTOTUNE: Subject(name=AUTOTUNE, config=BASE, prediction=PREDICTION),
        "scaled": Subject(name="scaled", config=SCALED, prediction=PREDICTION, exactness=CLOSE),
        "cached": Subject(name="cached", config=CACHED, prediction=PREDICTION, exactness=EXACT),
        "slow": Subject(name="slow", config=CACHED, prediction=PREDICTION, exactness=EXACT),
    }
    jobs = {name: Job(variant=name, config=subject.config, model="m") for name, subject in subjects.items()}
    tuner = Tuner.__new__(Tuner)
    tuner._group = FakeGroup({jobs[name]: rates.get(name, 500.0) for name in subjects}, rounds=4)
    tuner._source, tuner._order = SimpleNamespace(images=100), random.Random()
    tuner._subjects = {jobs[name]: subject for name, subject in subjects.items()}
    tuner._say = lambda text: None
    tuner._after_round = lambda: None
    tuner._thorough = False
    tuner._settle()
    results = rates_of_subjects(tuner._measured_before_order, 100)
    assert {result.name: len(result.again_images_per_sec) for result in results} == {
        AUTOTUNE: 5,
        "scaled": 5,
        "cached": 5,
        "slow": 0,
    }
    assert settle(results, tuner._chosen_first).name == "cached"


def a_subject(config, exactness=EXACT) -> Subject:
    return Subject(name="a", config=config, prediction=PREDICTION, exactness=exactness)


def test_the_last_places_of_a_shortlist_are_for_an_exact_one_and_for_one_without_packages():
    inexact, opencv, plain = a_subject(COMPOSED, CLOSE), a_subject(CACHED), a_subject(BASE)
    rounded = a_subject(replace(BASE, decode="scaled"), CLOSE)
    assert has_place(inexact, [], 3)
    assert not has_place(inexact, [inexact], 3)
    assert has_place(opencv, [inexact], 3) and has_place(plain, [inexact], 3) and has_place(rounded, [inexact], 3)
    assert not has_place(opencv, [inexact, opencv], 3) and has_place(plain, [inexact, opencv], 3)
    assert not has_place(rounded, [inexact, rounded], 3) and has_place(opencv, [inexact, rounded], 3)
    assert has_place(inexact, [plain, opencv], 3) and not has_place(inexact, [plain, opencv, inexact], 3)


class ChildOfInexact(PlantedChild):
    """One resampling of images at a fraction of their size changes pixels; its rounds and those of others scatter."""

    batch_us: ClassVar[float] = 50.0

    @classmethod
    def _cost(cls, key: StageKey) -> StageCost:
        if key[0] == "composed":
            return StageCost(us_per_image=10.0)
        return StageCost(us_per_image=cls.batch_us) if key[:2] == ("batch", "batches") else PlantedChild._cost(key)

    def ask(self, method, *arguments, timeout_s):
        if method == "exactness":
            return CLOSE if arguments[0].composed or arguments[0].decode == "scaled" else EXACT
        answer = super().ask(method, *arguments, timeout_s=timeout_s)
        if method != "window":
            return answer
        slow = 1.1 if arguments[2] % 2 == arguments[0].config.composed else 1.0
        return replace(answer, epoch_ns=round(answer.epoch_ns * slow), wall_ns=round(answer.wall_ns * slow))


@pytest.mark.parametrize(("batch_us", "is_exact"), [(48.0, True), (10.0, False)], ids=["tie", "gain"])
def test_a_search_takes_what_changes_pixels_only_for_a_gain(batch_us, is_exact, photos, tmp_path, monkeypatch):
    """A cache takes 50 us an image, to make batches; what changes pixels takes 48, or 10."""
    monkeypatch.setattr(ChildOfInexact, "batch_us", batch_us)
    monkeypatch.setattr(rounds, "Child", ChildOfInexact)
    out = tmp_path / "out"
    words = ["--data", str(photos), "--device", "emulated:20000", "--budget", "1", "--batch-size", "8"]
    assert tune.main([*words, "--out", str(out)]) == 0
    document = json.loads((out / "results.json").read_text())
    by_name = {result["name"]: result for result in document["results"]}
    [first] = [result for name, result in by_name.items() if name == document["samples"]["chosen_first"]]
    assert not first["exact"] and by_name[document["chosen"]]["exact"] is is_exact
    assert document["passed_over"] == (first["name"] if is_exact else None)
    again = {name: len(result["again_images_per_sec"]) for name, result in by_name.items()}
    assert sorted(again.values()) == [0, 5, 5, 5]
    assert config_from_toml((out / "tuned.toml").read_text()).composed is not is_exact
