"""What a watched `fit` comes to, and that time which nobody can name in it is flagged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest

from tests.builders import MS, record_of, rounds_of
from tests.fakes import FakeClock
from tests.planted import planted, sleepy_model
from unstall.profiles.code_line import CodeLine
from unstall.profiles.devices import CPU
from unstall.profiles.measure.epochs import EpochRecord
from unstall.profiles.results.checks import check_claims
from unstall.profiles.results.facts import Facts
from unstall.profiles.results.flags import FlagKind
from unstall.profiles.results.result import Result, summarise
from unstall.profiles.results.verdict import judge
from unstall.profiles.script.profiler import Profiler
from unstall.profiles.script.results import Ceilings, FitRecord, join_calls, samples_of

IMAGES = np.random.default_rng(0).random((320, 8, 8, 3)).astype(np.float32)
LABELS = IMAGES.mean((1, 2, 3))


def a_fit(**changed: Any) -> FitRecord:
    """Returns a `fit` of four equal epochs, 1,300 ns of steps and edges in each, and 999 of validation."""
    records = tuple(record_of(**{"epoch": number, **changed}) for number in range(4))
    return FitRecord(
        short="fit 1",
        place=CodeLine(file="/home/me/train.py", line=7),
        model="network",
        epochs=records,
        device=CPU,
        ceilings=Ceilings(samples=(), reason="--no-ceilings"),
        canary_ns=5_000_000,
        facts=Facts(data="NumPy arrays"),
    )


def result_of(fit: FitRecord) -> Result:
    subject, samples = samples_of(fit)
    return summarise(subject, samples, typical_canary_ns=fit.canary_ns)


def unclaimed(result: Result) -> list[str]:
    return [str(flag) for flag in result.flags if flag.kind is FlagKind.UNCLAIMED]


@pytest.mark.parametrize(
    ("claimed_ns", "flags"),
    [
        (2299, []),
        (2185, []),
        (2183, ["unclaimed: 5% of the time of fit is neither step nor edge"]),
        (1150, ["unclaimed: 50% of the time of fit is neither step nor edge"]),
        (3449, ["unclaimed: -50% of the time of fit is neither step nor edge"]),
    ],
)
def test_the_pieces_of_an_epoch_are_held_against_one_clock_around_it(claimed_ns: int, flags: list[str]) -> None:
    result = result_of(a_fit(claimed_ns=claimed_ns))
    assert {(one.outer_ns, one.claimed_ns) for one in result.samples} == {(2299, claimed_ns)}
    assert unclaimed(result) == flags


def test_epochs_whose_pieces_nobody_timed_are_said_to_be_unchecked() -> None:
    result = result_of(a_fit(claimed_ns=None))
    assert {(one.outer_ns, one.claimed_ns, one.unclaimed_ratio) for one in result.samples} == {(2299, None, None)}
    assert unclaimed(result) == []
    unchecked = "not checked whether steps and edges add up to the time of an epoch"
    assert f"{unchecked}: the batch hooks of callbacks were not timed" in result.subject.notes


def test_only_what_callbacks_were_seen_to_take_is_left_out() -> None:
    # A step of 100 ms, of which 60 go by between the steps; the callbacks had 30 of them.
    times = {
        "steady_ns": 800_000_000,
        "between_ns": 480_000_000,
        "wall_ns": 1_100_000_000,
        "claimed_ns": 1,
    }
    seen = result_of(a_fit(**times, callbacks_ns=240_000_000))
    assert "callbacks took 30% of the time of the steps; it is left out" in " ".join(seen.subject.notes)
    unseen = result_of(a_fit(**times, callbacks_ns=0))
    assert "callbacks took" not in " ".join(unseen.subject.notes)


def test_the_model_alone_beside_a_fit_does_not_hide_what_is_unclaimed() -> None:
    ceilings = (*rounds_of("resident", 1e-5, 1e-5, 1e-5), *rounds_of("replay", 1e-5, 1e-5, 1e-5))
    fit = replace(a_fit(claimed_ns=1150), ceilings=Ceilings(samples=ceilings))
    assert unclaimed(result_of(fit)) == ["unclaimed: 50% of the time of fit is neither step nor edge"]


def an_epoch_of(steps: int, **changed: Any) -> EpochRecord:
    """Returns an epoch of steps of 1 ms for 10 images, a tenth of each waited for, with 62.5 ms at its edges."""
    values = {
        "steps": steps,
        "images": 10 * steps,
        "steady_steps": steps,
        "steady_images": 10 * steps,
        "steady_ns": steps * MS,
        "steady_wait_ns": steps * MS // 10,
        "before_ns": 40 * MS,
        "wall_ns": steps * MS,
        "after_ns": 22.5 * MS,
        "traced_ns": 0,
        "other_ns": 0,
        "step_ns": (MS,) * min(steps, 256),
    }
    return record_of(**{**values, **changed})


def fit_of(*epochs: EpochRecord, ceilings: bool) -> Result:
    """Returns the result of a `fit` of these epochs, with the model's own rate of 0.9 ms a step or without it."""
    alone = (*rounds_of("resident", 0.9, 0.9, 0.9), *rounds_of("replay", 0.9, 0.9, 0.9)) if ceilings else ()
    numbered = tuple(replace(epoch, epoch=number) for number, epoch in enumerate(epochs, 10))
    reason = None if ceilings else "--no-ceilings"
    return result_of(replace(a_fit(), epochs=numbered, ceilings=Ceilings(samples=alone, reason=reason)))


@pytest.mark.parametrize("ceilings", [True, False])
def test_edges_of_whole_epochs_are_spread_over_whole_epochs_where_the_last_was_left(ceilings: bool) -> None:
    whole, left = an_epoch_of(1000), an_epoch_of(100, whole=False)
    result = fit_of(whole, whole, left, ceilings=ceilings)
    # 62.5 ms of 1062.5.
    assert result.attribution.shares.epoch_overhead == pytest.approx(0.0588, abs=1e-4)
    assert result.attribution.loading_ratio == pytest.approx(0.1529, abs=1e-3)
    assert result.subject.images == 10_000


@pytest.mark.parametrize("ceilings", [True, False])
def test_edges_of_epochs_of_many_lengths_are_their_part_of_all_of_them(ceilings: bool) -> None:
    result = fit_of(an_epoch_of(100), an_epoch_of(1000), an_epoch_of(100), an_epoch_of(800), ceilings=ceilings)
    # 4 times 62.5 ms of 2,250.
    assert result.attribution.shares.epoch_overhead == pytest.approx(0.1111, abs=1e-4)


@pytest.mark.parametrize("ceilings", [True, False])
def test_of_a_fit_that_was_left_in_its_only_epoch_no_edge_is_charged(ceilings: bool) -> None:
    result = fit_of(an_epoch_of(100, whole=False), ceilings=ceilings)
    assert result.attribution.shares.epoch_overhead is None
    assert result.attribution.shares.compute == pytest.approx(0.9)
    assert result.epoch_images_per_sec == pytest.approx(result.images_per_sec)
    assert "epoch edges" not in {finding.rule for finding in judge([result])[0].findings}
    assert result.subject.images == 1000
    assert any("edges is unknown" in note for note in result.subject.notes)


def test_a_model_rate_that_was_not_measured_is_unknown() -> None:
    assert fit_of(an_epoch_of(100), ceilings=False).to_dict()["compute_images_per_sec"] is None
    assert fit_of(an_epoch_of(100), ceilings=True).to_dict()["compute_images_per_sec"] == pytest.approx(10 / 0.9e-3)


def test_the_batch_size_is_that_of_a_full_batch() -> None:
    """313 images in batches of 32 are 31 a batch in the mean."""
    assert fit_of(an_epoch_of(10, images=313, batch_size=32), ceilings=False).subject.batch_size == 32


def network() -> keras.Model:
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential([keras.Input((8, 8, 3)), layers.Conv2D(8, 3), layers.Flatten(), layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def watched(model: keras.Model, callbacks: Any = None, **options: Any) -> Result:
    """Trains five epochs of twenty steps."""
    profiler = Profiler(ceilings=None, max_steps=None)
    profiler.attach()
    try:
        model.fit(IMAGES, LABELS, batch_size=16, epochs=5, verbose=0, callbacks=callbacks, **options)
    finally:
        profiler.detach()
    (fit,) = profiler.fits
    return result_of(fit)


def test_keras_has_its_own_hooks_back() -> None:
    names = ("on_train_batch_begin", "on_train_batch_end")
    before = [vars(keras.callbacks.CallbackList)[name] for name in names]
    watched(network())
    assert [vars(keras.callbacks.CallbackList)[name] for name in names] == before


class OwnList(keras.callbacks.CallbackList):
    """Calls the hooks of its callbacks in its own way."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        for callback in self.callbacks:
            callback.on_train_batch_end(batch, logs)


def test_hooks_of_a_list_that_has_its_own_are_not_timed() -> None:
    model = network()
    callbacks = OwnList([], add_history=True, model=model, epochs=5, steps=20)
    result = watched(model, callbacks)
    assert {one.claimed_ns for one in result.samples} == {None}
    assert any("batch hooks of callbacks were not timed" in note for note in result.subject.notes)


class StepsUnseen(keras.callbacks.Callback):
    """From the twelfth step of each epoch the model trains by a function of the script's own, which nobody watches."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 11:
            self.own = own = self.model.train_function

            self.model.train_function = lambda iterator: own.innermost(iterator)
        if batch == 19:
            self.model.train_function = self.own


class LeavesInTheThird(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (self.epoch, batch) == (2, 4):
            raise KeyboardInterrupt


def test_an_epoch_is_whole_unless_fit_is_left_in_its_steps() -> None:
    profiler = Profiler(ceilings=None, max_steps=None)
    profiler.attach()
    model = network()
    try:
        with pytest.raises(KeyboardInterrupt):
            model.fit(IMAGES, LABELS, batch_size=32, epochs=5, verbose=0, callbacks=[LeavesInTheThird()])
    finally:
        profiler.detach()
    (fit,) = profiler.fits
    assert [(one.steps, one.whole, one.batch_size) for one in fit.epochs] == [
        (10, True, 32),
        (10, True, 32),
        (5, False, 32),
    ]


def test_steps_that_nobody_saw_are_unclaimed(fake_clock: FakeClock) -> None:
    """8 of 20 steps of 5 ms each."""
    result = watched(sleepy_model(lambda: fake_clock.sleep(0.005), IMAGES.shape[1:]), [StepsUnseen()])
    assert unclaimed(result) == ["unclaimed: 40% of the time of fit is neither step nor edge"]


VALIDATION = {"validation_data": (IMAGES[:64], LABELS[:64])}


class Ordinary(keras.callbacks.Callback):
    """Works at every hook, also for longer than a step takes."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        super().__init__()
        self.sleep = sleep

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.sleep(0.01)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.sleep(0.001)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.sleep(0.004)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.sleep(0.001)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.sleep(0.01)


@planted
def test_an_ordinary_fit_is_claimed_whole() -> None:
    """On the real clock, by which Keras itself takes time as well."""
    result = watched(network(), **VALIDATION)
    assert all(sample.claimed_ns is not None for sample in result.samples)
    assert unclaimed(result) == []
    assert check_claims({"train": result.of("train")}) == ()


@pytest.mark.parametrize(("validation", "epoch_ms"), [({}, 195), (VALIDATION, 199)])
def test_what_callbacks_take_is_claimed(validation: dict[str, Any], epoch_ms: int, fake_clock: FakeClock) -> None:
    """20 steps of 5 ms, and 95 ms in callbacks between them; what these do at the edges of an epoch is not in it."""
    model = sleepy_model(lambda: fake_clock.sleep(0.005), IMAGES.shape[1:])
    result = watched(model, [Ordinary(fake_clock.sleep)], **validation)
    assert {(sample.outer_ns, sample.claimed_ns) for sample in result.samples} == {(epoch_ms * MS, epoch_ms * MS)}
    assert unclaimed(result) == []


def test_epochs_beside_which_others_took_the_cores_are_left_out_where_some_are_quiet() -> None:
    quiet, loud = an_epoch_of(1000, others_ratio=0.02), an_epoch_of(1000, others_ratio=0.5, steady_wait_ns=500 * MS)
    result = fit_of(quiet, loud, quiet, loud, quiet, ceilings=True)
    assert [sample.round for sample in result.explained] == [10, 12, 14]
    assert "other programs took the cores in 2 of 5 epochs, which are left out" in result.subject.notes
    assert result.attribution.others_ratio == pytest.approx(0.02)


def test_where_others_took_the_cores_beside_every_epoch_the_verdict_says_so() -> None:
    loud = an_epoch_of(1000, others_ratio=0.4)
    (verdict,) = judge([fit_of(loud, loud, loud, ceilings=True)])
    assert verdict.findings[0].rule == "uncertain"
    assert "other programs took 40% of the cores: measure again while nothing else runs" in verdict.text()
    (verdict,) = judge([fit_of(*[replace(loud, others_ratio=0.0)] * 3, ceilings=True)])
    assert verdict.findings[0].rule == "balanced"


def test_ceilings_beside_which_others_took_the_cores_are_left_out() -> None:
    alone = [
        *rounds_of("resident", 0.9, 0.9, 0.9, others_ratio=0.0),
        *rounds_of("replay", 0.9, 0.9, 0.9, others_ratio=0.0),
        replace(rounds_of("resident", 5)[0], round=3, others_ratio=0.5),
        replace(rounds_of("replay", 0.9)[0], round=3, others_ratio=0.0),
    ]
    epochs = tuple(replace(an_epoch_of(1000), epoch=number) for number in range(10, 13))
    result = result_of(replace(a_fit(), epochs=epochs, ceilings=Ceilings(samples=tuple(alone))))
    assert {sample.round for sample in result.of("resident")} == {0, 1, 2}


def test_one_quiet_epoch_among_many_does_not_decide() -> None:
    loud = an_epoch_of(1000, others_ratio=0.08, steady_wait_ns=400 * MS)
    result = fit_of(loud, loud, loud, an_epoch_of(1000, others_ratio=0.0), ceilings=True)
    assert len(result.explained) == 4
    # A quiet scrap of an epoch is no epoch.
    scrap = an_epoch_of(4, others_ratio=0.0, whole=False)
    result = fit_of(loud, loud, loud, scrap, ceilings=True)
    assert [sample.whole for sample in result.explained] == [True] * 3
    assert result.attribution.loading_ratio > 0.1


def test_quiet_rounds_of_the_model_alone_that_are_too_few_for_a_rate_do_not_decide() -> None:
    alone = [
        replace(one, others_ratio=0.0 if number == 2 else 0.3)
        for window in ("resident", "replay")
        for number, one in enumerate(rounds_of(window, 0.9, 0.9, 0.5))
    ]
    epochs = tuple(replace(an_epoch_of(1000), epoch=number) for number in range(10, 13))
    result = result_of(replace(a_fit(), epochs=epochs, ceilings=Ceilings(samples=tuple(alone))))
    assert len(result.of("resident")) == 3 and result.attribution.others_ratio == pytest.approx(0.2)


def test_rounds_of_the_model_alone_are_never_those_of_an_epoch() -> None:
    """Epochs 5 to 7 and a model measured behind them, then epochs from 0 again on the same line."""

    def a_call(first: int) -> FitRecord:
        epochs = tuple(replace(an_epoch_of(1000), epoch=number) for number in range(first, first + 3))
        alone = [replace(one, round=first + 3 + one.round) for one in rounds_of("resident", 0.9, 0.9, 0.9)]
        return replace(a_fit(), epochs=epochs, ceilings=Ceilings(samples=tuple(alone)))

    first, second = a_call(5), a_call(0)
    without = replace(first, ceilings=Ceilings(samples=(), reason="--no-ceilings"))
    for before, more in ((first, replace(second, ceilings=without.ceilings)), (first, second), (without, second)):
        both = join_calls(before, more)
        assert [epoch.epoch for epoch in both.epochs] == [5, 6, 7, 8, 9, 10]
        assert [sample.round for sample in both.ceilings.samples] == [11, 12, 13]
