"""Remedies in turns on a fake clock: the budget, claims, combinations, what fails, what is measured again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import a_measurement_document, a_result, a_sample
from tests.fakes import FakeClock
from unstall.profiles.remedies import AS_WRITTEN, Remedy, Trial, Untried, gains_of, loading_of
from unstall.profiles.remedies.data import Failed
from unstall.profiles.remedies.equality import BatchComparison, Broken
from unstall.profiles.remedies.remedy import Edit
from unstall.profiles.remedies.turns import Turns
from unstall.profiles.report.remedies import decided_line, trial_sentences
from unstall.profiles.samples import Sample
from unstall.profiles.stages.places import Place
from unstall.profiles.trial.trying import with_trial

IMAGES = 8
IN_MEMORY = "batches in memory"
# Half of an epoch is loading.
HALF = {AS_WRITTEN: 20.0, IN_MEMORY: 10.0}


class FakeData:
    """Data whose batches take so many milliseconds with each combination of remedies."""

    def __init__(self, ms: dict[str, float], *, effects: dict[str, Any] | None = None, batches: float = 1000) -> None:
        self.ms = ms
        self.remedies: Sequence[Remedy] = [
            Remedy(name=name, text="", code="", effect="identical")
            for name in ms
            if name != AS_WRITTEN and " + " not in name
        ]
        self.untried: list[Untried] = []
        self.stages: tuple[str, ...] = ()
        self.epoch_batches = batches
        self.epoch_images = batches * IMAGES
        self.scaled = False
        self.edges_by = None
        self.notes: tuple[str, ...] = ()
        self.effects = effects or {}
        self.ready: dict[str, int] = {}
        self.promised: dict[str, float] = {}
        self.built_names: list[tuple[str, ...]] = []

    def is_whole(self, batches: int) -> bool:
        return batches >= self.epoch_batches

    def fits(self, names: Sequence[str]) -> bool:
        return " + ".join(names) in self.ms

    def ahead(self, names: Sequence[str]) -> int:
        return self.ready.get(" + ".join(names), 0)

    def most_gain(self, names: Sequence[str]) -> float:
        return self.promised.get(" + ".join(names), 1.0)

    def built(self, names: Sequence[str], batches: int) -> tuple[str, int]:
        self.built_names.append(tuple(names))
        return " + ".join(names) or AS_WRITTEN, min(batches, int(self.epoch_batches))

    def in_memory(self, batches: int) -> tuple[str, int]:
        return IN_MEMORY, batches

    def compared(self, names: Sequence[str]) -> BatchComparison:
        effect = self.effects.get(" + ".join(names), "identical")
        if isinstance(effect, Exception):
            raise effect
        return BatchComparison(effect=effect, text="the samples differ")


class FakeTraining:
    """Trains for as long as the data take, on a fake clock."""

    def __init__(self, data: FakeData, fake: FakeClock, fails: Callable[[str, str, int], object] | None = None) -> None:
        self.data, self.fake, self.fails = data, fake, fails
        self.windows: list[tuple[str, str, int]] = []

    def __call__(self, built: tuple[str, int], epochs: int, window: str, round_: int, limit_s: float) -> Sample:
        name, batches = built
        if self.fails is not None:
            self.fails(name, window, round_)
        self.windows.append((name, window, round_))
        ns = round(epochs * batches * self.data.ms[name] * 1e6)
        self.fake.sleep(ns / 1e9)
        images = epochs * batches * IMAGES
        return a_sample(
            window,
            round=round_,
            images=images,
            wall_ns=ns,
            epochs=epochs,
            epoch_images=images,
            epoch_ns=ns,
        )


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    return FakeClock(monkeypatch)


def last_of(turns: Turns) -> Trial:
    *_, last = turns.run()
    return last


def reasons(trial: Trial) -> dict[str, str]:
    return {untried.name: untried.reason for untried in trial.untried}


def budgets(trial: Trial) -> dict[str, int]:
    return {untried.name: untried.budget_s for untried in trial.untried if untried.budget_s is not None}


def test_the_best_combination_is_found_and_measured_again(fake: FakeClock) -> None:
    data = FakeData({AS_WRITTEN: 20, "a": 10, "b": 15, "c": 20, "a + b": 6})
    training = FakeTraining(data, fake)
    trial = last_of(Turns(data, training, budget_s=60))
    gains = gains_of(trial)
    assert gains.chosen is not None and gains.chosen.name == "a + b"
    assert gains.chosen.best[0] == pytest.approx(20 / 6)
    assert gains.chosen.again is not None and trial.ended
    assert {name for name, window, _ in training.windows if window == "again"} == {AS_WRITTEN, "a + b"}
    assert trial.seconds <= 60


def test_what_gains_only_along_with_another_is_tried_with_it(fake: FakeClock) -> None:
    data = FakeData({AS_WRITTEN: 20, "kept": 10, "alone": 25, "kept + alone": 4})
    data.remedies = [replace(data.remedies[0], better_with=("alone", "absent")), *data.remedies[1:]]
    chosen = gains_of(last_of(Turns(data, FakeTraining(data, fake), budget_s=60))).chosen
    assert chosen is not None and chosen.name == "kept + alone"


def test_a_combination_that_was_measured_is_not_measured_again(fake: FakeClock) -> None:
    data = FakeData({AS_WRITTEN: 20, "a": 10, "b": 15, "a + b": 20})
    data.remedies = [replace(data.remedies[0], better_with=("b",)), *data.remedies[1:]]
    training = FakeTraining(data, fake)
    trial = last_of(Turns(data, training, budget_s=60))
    assert [contender.name for contender in trial.contenders] == [AS_WRITTEN, "a", "a + b", "b"]
    assert (
        len(trial.contenders[2].samples) == len(trial.contenders[1].samples) and data.built_names.count(("a", "b")) == 1
    )
    data.effects["a + b"] = Failed("it fails")
    again = last_of(Turns(data, FakeTraining(data, fake), budget_s=60))
    assert [one.name for one in again.untried] == ["a + b"]


def test_the_second_best_is_combined_as_well_where_the_best_goes_with_nothing(fake: FakeClock) -> None:
    data = FakeData({AS_WRITTEN: 20, "a": 10, "b": 11, "c": 18, "b + c": 4})
    chosen = gains_of(last_of(Turns(data, FakeTraining(data, fake), budget_s=60))).chosen
    assert chosen is not None and chosen.name == "b + c"


def test_a_line_that_several_remedies_change_is_told_as_it_reads_with_all_of_them(
    fake: FakeClock, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text("data = files.map(load).batch(8)\n")
    place = Place(file=str(script), line=1, end_line=1, end_column=len("data = files.map(load)"))
    data = FakeData({AS_WRITTEN: 20, "a": 10, "b": 15, "a + b": 6})
    edits: dict[str, tuple[Any, str]] = {"a": ("argument", "num_parallel_calls=2"), "b": ("behind", ".cache()")}
    data.remedies = [
        replace(remedy, place="train.py:1", code=remedy.name, edits=(Edit(place=place, kind=kind, text=text),))
        for remedy, (kind, text) in zip(data.remedies, edits.values(), strict=True)
    ]
    trial = last_of(Turns(data, FakeTraining(data, fake), budget_s=60))
    _, a, _, together = trial.contenders
    assert a.code == "# train.py:1\ndata = files.map(load, num_parallel_calls=2).batch(8)"
    assert together.code == "# train.py:1\ndata = files.map(load, num_parallel_calls=2).cache().batch(8)"


def test_every_round_has_the_data_as_written_and_rounds_are_never_numbered_twice(fake: FakeClock) -> None:
    data = FakeData({AS_WRITTEN: 20, "a": 10, "b": 15, "a + b": 6})
    training = FakeTraining(data, fake)
    last_of(Turns(data, training, budget_s=60))
    rounds = [(name, round_) for name, window, round_ in training.windows if window != "warmup"]
    assert len(rounds) == len(set(rounds))
    numbers = {round_ for _, round_ in rounds}
    assert numbers == {round_ for name, round_ in rounds if name == AS_WRITTEN}


def test_whole_epochs_are_measured_where_they_are_short_and_parts_where_they_are_long(fake: FakeClock) -> None:
    data = FakeData({AS_WRITTEN: 1, "a": 1}, batches=30)
    assert last_of(Turns(data, FakeTraining(data, fake), budget_s=60)).batches in (48, 30)
    data = FakeData({AS_WRITTEN: 20, "a": 20}, batches=50)
    assert last_of(Turns(data, FakeTraining(data, fake), budget_s=60)).batches == 50
    data = FakeData({AS_WRITTEN: 1, "a": 1}, batches=10**6)
    trial = last_of(Turns(data, FakeTraining(data, fake), budget_s=60))
    assert trial.batches == 800 and trial.epoch_batches == 10**6


def test_a_remedy_that_holds_batches_ready_is_measured_on_three_times_as_many(fake: FakeClock) -> None:
    data = FakeData({AS_WRITTEN: 100, "a": 50, "b": 50})
    data.ready = {"a": 20, "b": 2}
    trial = last_of(Turns(data, FakeTraining(data, fake), budget_s=90))
    batches = {
        one.name: sample.epoch_images / sample.epochs / IMAGES for one in trial.contenders for sample in one.samples
    }
    assert batches == {AS_WRITTEN: 12, "a": 60, "b": 12}
    assert [gain.against[0] for gain in gains_of(trial).all[1:]] == pytest.approx([2, 2])
    assert "From 12 to 60 of 1,000 batches" in "\n".join(trial_sentences(trial))


def test_many_workers_are_tried_though_they_need_many_batches(fake: FakeClock) -> None:
    """On a machine of 16 cores 16 workers hold 32 batches ready; 96 batches as written took all of a budget."""
    data = FakeData({AS_WRITTEN: 110, "workers": 8})
    data.ready = {"workers": 32}
    refused = last_of(Turns(data, FakeTraining(data, fake), budget_s=30))
    assert reasons(refused)["workers"] == "96 batches take 10.6 s as written" and budgets(refused)["workers"]
    data.promised = {"workers": 16.0}
    trial = last_of(Turns(data, FakeTraining(data, fake), budget_s=30))
    chosen = gains_of(trial).chosen
    assert chosen is not None and chosen.best[0] == pytest.approx(110 / 8) and trial.seconds <= 30
    # Workers that do not keep their promise are measured no further, and others are tried.
    data = FakeData({AS_WRITTEN: 110, "workers": 105, "pin": 50})
    data.ready, data.promised = {"workers": 32}, {"workers": 16.0}
    trial = last_of(Turns(data, FakeTraining(data, fake), budget_s=40))
    assert reasons(trial)["workers"] == "96 batches take 10.1 s so" and budgets(trial)["workers"]
    chosen = gains_of(trial).chosen
    assert chosen is not None and chosen.name == "pin" and trial.seconds <= 40
    # An epoch of 20 batches is no longer than that, however many lie ready.
    data = FakeData({AS_WRITTEN: 110, "workers": 8}, batches=20)
    data.ready = {"workers": 32}
    trial = last_of(Turns(data, FakeTraining(data, fake), budget_s=30))
    assert not reasons(trial) and [one.name for one in trial.contenders] == [AS_WRITTEN, "workers"]


def test_what_the_tuner_took_from_the_epochs_of_the_script_is_charged_where_it_stays_on(fake: FakeClock) -> None:
    """A batch takes 100 ms. At the end of its 50 batches an epoch of the script lost 5 s more; 12 batches do not.

    Where a batch takes half as long, the tuner takes half as long at most.
    """
    ms: dict[str, float] = {AS_WRITTEN: 100, "off": 100, "fast": 50, "off + fast": 50}
    trials = {}
    for tuned in (True, False):
        data = FakeData(ms, batches=50)
        data.edges_by = "tf.data's tuner" if tuned else None
        data.remedies = [replace(one, ends_edges=one.name == "off") for one in data.remedies]
        trials[tuned] = last_of(Turns(data, FakeTraining(data, fake), budget_s=60, edges_s=5 / 50 / IMAGES))
    ratios = {one.name: one.best[0] for one in gains_of(trials[True]).all}
    assert ratios == pytest.approx({AS_WRITTEN: 1, "off": 2, "fast": 2, "off + fast": 4})
    said = "An epoch of the script lost 5.0 s more at its edges, presumably to tf.data's tuner: charged wherever"
    assert said in "\n".join(trial_sentences(trials[True]))
    # An epoch of the script took no longer than it does here: nothing of it is hidden.
    short = replace(trials[True], script_s=5.0 / 50 / IMAGES)
    assert {one.name: one.best[0] for one in gains_of(short).all}["off"] == pytest.approx(1)
    assert "may be off" not in "\n".join(trial_sentences(short))
    # Workers that start anew take no less where the batches are faster.
    workers = replace(trials[True], edges_by="workers that start anew")
    assert {one.name: one.best[0] for one in gains_of(workers).all}["fast"] == pytest.approx(10 / 7.5)
    # What starts no workers again ends what the script's epochs lost to that, or none of it, where that was another's.
    by_name = {one.name: one.best for one in gains_of(workers).all}
    assert by_name["off"] == (pytest.approx(10 / 5), pytest.approx((1, 10 / 5)))
    assert by_name["off + fast"] == (pytest.approx(10 / 2.5), pytest.approx((5 / 2.5, 10 / 2.5)))
    long = replace(short, script_s=14.0 / 50 / IMAGES)
    # What its steps took beyond those of the trial stays, whatever is done to the data.
    assert "Steps of the script took 4.0 s more in an epoch than those of the trial" in "\n".join(trial_sentences(long))
    assert {one.name: one.best[0] for one in gains_of(long).all}["off"] == pytest.approx(14 / 9)
    expected = "As written, an epoch takes 5.0 s in the trial and took 3.0 s in the script: gains are over the latter."
    fast = replace(long, script_s=3.0 / 50 / IMAGES)
    assert expected in "\n".join(trial_sentences(fast))
    assert {one.name: one.best[0] for one in gains_of(fast).all}["off"] == pytest.approx(3 / 5)
    # The tuner takes that of some epochs, and nothing of others.
    doubtful = replace(trials[True], script_epochs=2)
    intervals = {one.name: one.best[1] for one in gains_of(doubtful).all}
    assert [intervals[name] for name in ("off", "off + fast")] == [pytest.approx((1, 2)), pytest.approx((2, 4))]
    assert "off" not in {gain.name for gain in gains_of(doubtful).helped()}
    assert "Epochs in which that was seen: 2. Intervals go from" in "\n".join(trial_sentences(doubtful))
    assert "off" in {gain.name for gain in gains_of(replace(doubtful, script_epochs=3)).helped()}
    ratios = {one.name: one.best[0] for one in gains_of(trials[False]).all}
    assert ratios == pytest.approx({AS_WRITTEN: 1, "off": 1, "fast": 2})
    assert "presumably" not in "\n".join(trial_sentences(trials[False]))


def test_what_the_budget_does_not_allow_is_not_tried_and_the_budget_that_does_is_named(fake: FakeClock) -> None:
    data = FakeData({AS_WRITTEN: 100, "a": 50, "b": 50, "c": 50, "d": 50}, batches=12)
    trial = last_of(Turns(data, FakeTraining(data, fake), budget_s=22))
    names = {contender.name for contender in trial.contenders}
    assert {AS_WRITTEN, "a"} <= names and "d" not in names
    assert set(reasons(trial)) == {"a", "b", "c", "d"} - names
    assert trial.seconds <= 22
    needed = max(budgets(trial).values())
    data = FakeData(data.ms, batches=12)
    again = last_of(Turns(data, FakeTraining(data, fake), budget_s=needed))
    assert reasons(again) == {}


def test_where_the_budget_does_not_suffice_for_all_the_fastest_first_epochs_are_measured_in_rounds(
    fake: FakeClock,
) -> None:
    """A batch takes 150 ms as written; of four remedies the last makes it twenty times as fast."""
    data = FakeData({AS_WRITTEN: 150, "a": 150, "b": 148, "c": 75, "d": 7.5, "c + d": 5})
    trial = last_of(Turns(data, FakeTraining(data, fake), budget_s=40))
    chosen = gains_of(trial).chosen
    assert chosen is not None and chosen.name == "c + d" and trial.seconds <= 40
    assert reasons(trial).keys() == {"a"}
    assert reasons(trial)["a"] == "12 batches were 1.00 times as fast in a first epoch"
    named = {one.name: one.budget_s for one in trial.untried}
    data = FakeData(data.ms)
    assert not reasons(last_of(Turns(data, FakeTraining(data, fake), budget_s=max(named.values()))))


def test_a_first_epoch_that_was_disturbed_makes_no_promise(fake: FakeClock) -> None:
    """The first epoch of the cache takes as long as one as written, and three times as long when first measured."""
    data = FakeData({AS_WRITTEN: 20, "a": 2})
    data.remedies = [replace(one, warms_up=True) for one in data.remedies]
    training, times, filled = FakeTraining(data, fake), iter((3, 1, 1)), [0]

    def measure(built: tuple[str, int], epochs: int, window: str, round_: int, limit_s: float) -> Sample:
        builds = data.built_names.count(("a",))
        if built[0] != "a" or filled[-1] == builds:
            return training(built, epochs, window, round_, limit_s)
        filled.append(builds)
        sample, longer = training((AS_WRITTEN, built[1]), epochs, window, round_, limit_s), next(times)
        return replace(sample, wall_ns=sample.wall_ns * longer, epoch_ns=sample.epoch_ns * longer)

    trial = last_of(Turns(data, measure, budget_s=60, epochs=10))
    gain = gains_of(trial).chosen
    assert gain is not None and len(gain.contender.firsts) == 2
    assert gain.first_ratio == pytest.approx(1, rel=0.05)


def test_a_remedy_that_breaks_its_claim_is_thrown_out_and_the_others_stay(fake: FakeClock) -> None:
    effects = {"a": "other draws", "b": Broken("it gives 3 batches in the place of 4: it is thrown out")}
    data = FakeData({AS_WRITTEN: 20, "a": 1, "b": 1, "c": 10}, effects=effects)
    trial = last_of(Turns(data, FakeTraining(data, fake), budget_s=60))
    assert reasons(trial) == {
        "a": "it claims identical batches, and the samples differ: it is thrown out",
        "b": "it gives 3 batches in the place of 4: it is thrown out",
    }
    chosen = gains_of(trial).chosen
    assert chosen is not None and chosen.name == "c"


@pytest.mark.parametrize("error", [RuntimeError("no\nreally"), MemoryError()])
def test_a_remedy_that_fails_costs_no_other(fake: FakeClock, error: Exception) -> None:
    def fails(name: str, window: str, round_: int) -> None:
        if name == "a":
            raise error

    data = FakeData({AS_WRITTEN: 20, "a": 1, "b": 10})
    trial = last_of(Turns(data, FakeTraining(data, fake, fails), budget_s=60))
    assert reasons(trial)["a"] in ("it failed (RuntimeError: no)", "it did not fit into memory")
    chosen = gains_of(trial).chosen
    assert chosen is not None and chosen.name == "b"


def test_a_remedy_that_fails_in_a_round_is_measured_no_further(fake: FakeClock) -> None:
    def fails(name: str, window: str, round_: int) -> None:
        if name == "a" and window == "train" and round_ == 1:
            raise RuntimeError("gone")

    data = FakeData({AS_WRITTEN: 20, "a": 1, "b": 10})
    trial = last_of(Turns(data, FakeTraining(data, fake, fails), budget_s=60))
    assert reasons(trial) == {"a": "it failed (RuntimeError: gone)"}
    assert {contender.name for contender in trial.contenders} == {AS_WRITTEN, "b"}


def test_data_that_fail_as_they_are_written_end_the_trial(fake: FakeClock) -> None:
    def fails(name: str, window: str, round_: int) -> None:
        if name == AS_WRITTEN and window == "train":
            raise RuntimeError("gone")

    data = FakeData({AS_WRITTEN: 20, "a": 1})
    turns = Turns(data, FakeTraining(data, fake, fails), budget_s=60)
    with pytest.raises(Failed, match=r"the data as written failed: it failed \(RuntimeError: gone\)"):
        list(turns.run())


def test_a_remedy_that_is_far_too_slow_is_not_measured_in_rounds(fake: FakeClock) -> None:
    data = FakeData({AS_WRITTEN: 20, "a": 200})
    trial = last_of(Turns(data, FakeTraining(data, fake), budget_s=60))
    assert reasons(trial) == {"a": "an epoch takes 10.0 times as long"}
    assert gains_of(trial).chosen is None


def test_only_what_was_asked_for_is_measured(fake: FakeClock) -> None:
    data = FakeData({AS_WRITTEN: 20, "a": 10, "b": 15, "a + b": 6})
    trial = last_of(Turns(data, FakeTraining(data, fake), budget_s=60, only=("a", "b")))
    assert [contender.name for contender in trial.contenders] == [AS_WRITTEN, "a + b"]
    with pytest.raises(Failed, match="there is no remedy z for these data. Known: a, b"):
        list(Turns(data, FakeTraining(data, fake), budget_s=60, only=("z",)).run())


def test_data_without_a_remedy_are_not_measured(fake: FakeClock) -> None:
    data = FakeData({AS_WRITTEN: 20})
    training = FakeTraining(data, fake)
    trial = last_of(Turns(data, training, budget_s=60))
    assert training.windows == [] and trial.ended and trial.contenders == ()
    assert [(untried.name, untried.reason) for untried in trial.untried] == [
        ("all", "no known remedy for data of this kind helps against what is lost here")
    ]
    data.untried.append(Untried(name="workers", reason="divide the data first"))
    assert last_of(Turns(data, training, budget_s=60)).untried == tuple(data.untried)


def decided(fake: FakeClock, ms: dict[str, float], noise: Callable[[str, int], float], budget_s: float = 60) -> Trial:
    """Returns a trial beside another program, which makes all that runs in a round so many times as slow."""
    data = FakeData({name: one for name, one in ms.items() if name != IN_MEMORY})
    data.ms |= ms
    training = FakeTraining(data, fake)

    def measure(built: tuple[str, int], epochs: int, window: str, round_: int, limit_s: float) -> Sample:
        sample = training(built, epochs, window, round_, limit_s)
        times = noise(built[0], round_)
        return replace(
            sample,
            wall_ns=round(sample.wall_ns * times),
            epoch_ns=round(sample.epoch_ns * times),
            step_ns=(round(sample.wall_ns * times),),
        )

    return last_of(Turns(data, measure, budget_s=budget_s, decides=True))


def test_what_loading_costs_is_told_by_rounds_on_batches_in_memory_beside_any_other_program(fake: FakeClock) -> None:
    """Of 20 ms a batch 12 are loading, whatever else slows a round down to a third of its speed."""
    trial = decided(fake, {AS_WRITTEN: 20, "a": 10, IN_MEMORY: 8}, lambda _, round_: 1 + (7 * round_ % 5) / 2)
    loading = loading_of(trial)
    assert loading is not None and loading == (pytest.approx(0.6), pytest.approx((0.6, 0.6)))
    assert [one.name for one in trial.contenders] == [AS_WRITTEN, "a"]  # they are no remedy
    line = decided_line(trial)
    assert line is not None and line.label == "INPUT-BOUND" and line.text.startswith("60% of an epoch is loading")


def test_data_without_a_remedy_are_measured_where_the_script_does_not_tell_what_loading_costs(fake: FakeClock) -> None:
    trial = decided(fake, {AS_WRITTEN: 20, IN_MEMORY: 19.5}, lambda *_: 1.0)
    assert loading_of(trial) == (pytest.approx(0.025), pytest.approx((0.025, 0.025)))
    line = decided_line(trial)
    assert line is not None and line.label == "COMPUTE-BOUND"
    assert reasons(trial).keys() == {"all"}


def test_rounds_go_on_until_loading_is_known_or_the_budget_is_over(fake: FakeClock) -> None:
    assert len(decided(fake, HALF, lambda *_: 1.0).in_memory) == 3
    trial = decided(fake, HALF, lambda name, round_: 1.8 if name == IN_MEMORY and round_ % 2 else 1.0, budget_s=30)
    assert len(trial.in_memory) > 8 and trial.seconds <= 30


def test_all_that_is_measured_is_yielded_at_once(fake: FakeClock) -> None:
    data = FakeData({AS_WRITTEN: 20, "a": 10})
    counts = [
        sum(len(contender.samples) + len(contender.again) for contender in trial.contenders)
        for trial in Turns(data, FakeTraining(data, fake), budget_s=60).run()
    ]
    assert counts == sorted(counts) and counts[-1] > 10
    assert all(later - earlier <= 2 for earlier, later in itertools.pairwise(counts))


def test_epochs_that_differ_much_get_more_rounds_within_the_budget(fake: FakeClock) -> None:
    data = FakeData({AS_WRITTEN: 40, "a": 40}, batches=50)

    def vary(name: str, window: str, round_: int) -> None:
        data.ms[AS_WRITTEN] = 40 if window != "train" or round_ == 0 else 80

    trial = last_of(Turns(data, FakeTraining(data, fake, vary), budget_s=60))
    as_written, _ = trial.contenders
    assert len(as_written.samples) > 5 and trial.seconds < 60
    data = FakeData({AS_WRITTEN: 40, "a": 40}, batches=50)
    trial = last_of(Turns(data, FakeTraining(data, fake), budget_s=60))
    assert trial.seconds < 0.7 * 60  # nothing looks faster, and no time is spent on it


def test_slow_data_have_their_most_promising_remedy_tried_within_the_budget(fake: FakeClock) -> None:
    data = FakeData({AS_WRITTEN: 500, "a": 250, "b": 250})
    training = FakeTraining(data, fake)
    trial = last_of(Turns(data, training, budget_s=60))
    chosen = gains_of(trial).chosen
    assert chosen is not None and chosen.name == "a" and chosen.again is None
    assert chosen.best[0] == pytest.approx(2) and trial.seconds <= 60
    assert budgets(trial).keys() == {"b"}
    # The first reading of the data as written is their warm-up as well.
    assert [name for name, window, _ in training.windows if window == "warmup"] == [AS_WRITTEN, "a"]


@pytest.mark.parametrize(
    ("at", "rounds", "left"),
    [
        (("train", 2), {AS_WRITTEN: 2, "a": 2, "b": 2}, ()),
        (("train", 0), {AS_WRITTEN: 0, "a": 0, "b": 0}, ("a", "b")),
        (("warmup", 0), {}, ("a", "b")),
    ],
)
def test_ctrl_c_in_a_trial_keeps_what_was_measured_before(
    at: tuple[str, int], rounds: dict[str, int], left: tuple[str, ...], fake: FakeClock
) -> None:
    def interrupt(name: str, window: str, round_: int) -> None:
        if (window, round_) == at:
            raise KeyboardInterrupt

    data = FakeData({AS_WRITTEN: 20, "a": 10, "b": 15})
    document = a_measurement_document(a_result())
    [subject] = document.samples.subjects
    name = subject.subject.variant
    held = SimpleNamespace(
        name=name, took_ns=1, epochs=3, opened=lambda needs: nullcontext((data, FakeTraining(data, fake, interrupt)))
    )
    *_, last = with_trial(document, held, budget_s=60.0)
    trial = last.samples.trials[name]
    assert trial.stopped and not trial.ended and trial.left == left
    assert trial.notes == ("Stopped by Ctrl-C: not all remedies were tried.",)
    assert {contender.name: len(contender.samples) for contender in trial.contenders} == rounds
