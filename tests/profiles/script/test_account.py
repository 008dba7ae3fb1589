"""The account of a watched `fit`: exact on a fake clock, and whole on the real one, for scripts of many kinds."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.builders import MS
from tests.fakes import FakeClock
from tests.planted import as_written, planted, sleepy_model, tensorflow_only
from unstall.profiles.machine import strain
from unstall.profiles.machine.page_cache import cached_ratio, drop
from unstall.profiles.machine.strain import Strain, StrainMeter
from unstall.profiles.measure import sums
from unstall.profiles.report.accounts import account_lines, account_rows
from unstall.profiles.results.account import PART_TEXTS, STEPS_TOGETHER, UNEXPLAINED_RATIO, Account
from unstall.profiles.results.fit_rules import fit_findings
from unstall.profiles.script.profiler import Profiler
from unstall.profiles.trial.ceilings import measure_ceilings

MEGABYTE = 2**20
IMAGES = np.random.default_rng(0).random((320, 8, 8, 3)).astype(np.float32)
LABELS = IMAGES.mean((1, 2, 3))


class Data(keras.utils.PyDataset):
    """Ten batches of 32 images."""

    def __init__(self, *, fails_at: int | None = None) -> None:
        super().__init__()
        self.fails_at = fails_at

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        if index == self.fails_at:
            raise ValueError("the disk is gone")
        return IMAGES[:32], LABELS[:32]


class Hooks(keras.callbacks.Callback):
    """Takes 1, 2, 3, ... ms in its hooks."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        super().__init__()
        self.sleep = sleep

    def on_train_begin(self, logs: Any = None) -> None:
        self.sleep(0.001)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.sleep(0.002)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.sleep(0.003)

    def on_test_begin(self, logs: Any = None) -> None:
        self.sleep(0.004)

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.sleep(0.005)

    def on_test_end(self, logs: Any = None) -> None:
        self.sleep(0.006)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.sleep(0.007)

    def on_train_end(self, logs: Any = None) -> None:
        self.sleep(0.008)


@tensorflow_only
def test_every_part_of_a_planted_fit_is_found(watched: Profiler, fake_clock: FakeClock) -> None:
    """On a clock that stands still but for what is planted, so that each part is exact."""
    model = sleepy_model(lambda: fake_clock.sleep(0.005), IMAGES.shape[1:])
    training = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).batch(32)
    model.fit(
        training, validation_data=(IMAGES[:64], LABELS[:64]), epochs=3, verbose=0, callbacks=[Hooks(fake_clock.sleep)]
    )
    account = watched.fits[0].account
    assert account is not None
    assert account.wall_ns == fake_clock.passed_ns
    assert (account.compute_ns, account.validation_compute_ns, account.rest_ns) == (3 * 10 * 5 * MS, 0, 0)
    assert account.callbacks_ns == (1 + 3 * (2 + 10 * 3 + 4 + 2 * 5 + 6 + 7) + 8) * MS
    assert (account.epochs, account.validations, account.steps) == (3, 3, 30)
    assert (account.waiting_ns, account.edges_ns, account.set_up_ns) == (0, 0, 0)


def test_the_memory_of_workers_is_read_for_a_hundredth_of_the_time_at_most(
    fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read() -> int:
        fake_clock.sleep(0.05)  # some workers
        return 7

    monkeypatch.setattr(strain, "_workers_bytes", read)
    monkeypatch.setattr(StrainMeter, "_began_ns", None)
    monkeypatch.setattr(StrainMeter, "_spent_ns", 0)
    found = []
    for _ in range(1000):  # epochs of 0.2 s
        meter = StrainMeter()
        fake_clock.sleep(0.2)
        found.append(meter.read().workers_bytes)
    known = [epoch for epoch, size in enumerate(found) if size == 7]
    assert known[:7] == [0, 1, 2, 3, 4, 5, 6] and 0.3 + 1.9 <= 0.05 * len(known) <= 0.3 + 2.2


@tensorflow_only
def test_the_profilers_own_readings_are_in_no_part(
    watched: Profiler, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(StrainMeter):
        def __init__(self) -> None:
            fake_clock.sleep(0.002)
            super().__init__()

        def read(self) -> Strain:
            fake_clock.sleep(0.003)
            return super().read()

    monkeypatch.setattr(sums, "StrainMeter", Slow)
    model = sleepy_model(lambda: fake_clock.sleep(0.005), IMAGES.shape[1:])
    data = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).batch(32)
    validation, hooks = (IMAGES[:64], LABELS[:64]), Hooks(fake_clock.sleep)
    model.fit(data, validation_data=validation, epochs=3, verbose=0, callbacks=[hooks])
    account = watched.fits[0].account
    assert account is not None
    assert account.watch_ns == (3 + 3) * (2 + 3) * MS
    assert account.wall_ns + account.watch_ns == fake_clock.passed_ns
    assert account.compute_ns == 3 * 10 * 5 * MS
    assert (account.edges_ns, account.validation_edges_ns, account.rest_ns) == (0, 0, 0)
    for record in watched.fits[0].epochs:
        assert record.claimed_ns == record.outer_ns


@tensorflow_only
def test_an_evaluation_outside_of_fit_is_in_no_account(watched: Profiler, fake_clock: FakeClock) -> None:
    model = sleepy_model(lambda: fake_clock.sleep(0.005), IMAGES.shape[1:])
    model.fit(IMAGES, LABELS, batch_size=32, epochs=2, verbose=0)
    model.evaluate(IMAGES, LABELS, verbose=0)
    account = watched.fits[0].account
    assert account is not None and (account.validations, account.wall_ns) == (0, 2 * 10 * 5 * MS)


class Evaluates(keras.callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.evaluate(IMAGES, LABELS, verbose=0)
        self.sleep(0.1)


@tensorflow_only
def test_an_evaluation_by_a_callback_is_the_callbacks(watched: Profiler, fake_clock: FakeClock) -> None:
    evaluates = Evaluates()
    evaluates.sleep = fake_clock.sleep
    sleepy_model(lambda: fake_clock.sleep(0.005), IMAGES.shape[1:]).fit(
        IMAGES, LABELS, batch_size=32, epochs=2, verbose=0, callbacks=[evaluates]
    )
    account = watched.fits[0].account
    assert account is not None
    assert (account.validations, account.callbacks_ns, account.rest_ns) == (0, 200 * MS, 0)


def test_a_validation_that_fails_ends_and_the_model_has_its_own_functions(watched: Profiler) -> None:
    model = network()
    with pytest.raises(Exception, match="the disk is gone"):
        model.fit(IMAGES, LABELS, validation_data=Data(fails_at=8), epochs=2, verbose=0)
    assert model.train_function.__module__.startswith("keras.") and model.test_function.__module__.startswith("keras.")


def network(**options: Any) -> keras.Model:
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("adam", "mse", **options)
    return model


def as_dataset(batch: int = 32) -> Any:
    return tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).shuffle(320).batch(batch).prefetch(2)


def batches() -> Iterator[Any]:
    while True:
        yield IMAGES[:32], LABELS[:32]


class Stops(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.stop_training = batch == 4


KINDS: dict[str, Callable[[Any], None]] = {
    "arrays": lambda folder: network().fit(IMAGES, LABELS, epochs=2, verbose=0),
    "arrays, validation split": lambda folder: network().fit(IMAGES, LABELS, validation_split=0.2, epochs=2, verbose=0),
    "dataset, validation dataset": lambda folder: network().fit(
        as_dataset(), validation_data=as_dataset(100), epochs=2, verbose=0
    ),
    "generator": lambda folder: network().fit(batches(), steps_per_epoch=10, epochs=2, verbose=0),
    "PyDataset with workers": lambda folder: network().fit(Data(), validation_data=Data(), epochs=2, verbose=0),
    "several steps a call": lambda folder: network(steps_per_execution=4).fit(as_dataset(), epochs=2, verbose=0),
    "eager": lambda folder: network(run_eagerly=True).fit(as_dataset(), epochs=2, verbose=0),
    "checkpoints": lambda folder: network().fit(
        as_dataset(), epochs=2, verbose=0, callbacks=[keras.callbacks.ModelCheckpoint(folder / "{epoch}.keras")]
    ),
    "left in an epoch": lambda folder: network().fit(as_dataset(), epochs=2, verbose=0, callbacks=[Stops()]),
    "compiled by XLA, a short last batch": lambda folder: network(jit_compile=True).fit(
        as_dataset(60), epochs=2, verbose=0
    ),
    "one validation example": lambda folder: network().fit(
        as_dataset(), validation_data=(IMAGES[:1], LABELS[:1]), epochs=3, verbose=0
    ),
}


@pytest.mark.long
@planted
@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_of_every_kind_of_fit_sum_to_its_wall_time(kind: str, watched: Profiler, tmp_path: Any) -> None:
    KINDS[kind](tmp_path)
    account = watched.fits[0].account
    assert account is not None
    # These are short; where other programs run as well, one of them may have the core for some milliseconds.
    assert abs(account.rest_ns) <= max(UNEXPLAINED_RATIO * account.wall_ns, 5 * account.epochs * MS), account
    assert all(ns >= 0 for ns in account.parts.values())


def test_the_table_has_a_row_for_each_part_and_sums_to_the_whole() -> None:
    account = Account(
        wall_ns=2 * 10**9,
        set_up_ns=10**8,
        waiting_ns=10**9,
        compute_ns=8 * 10**8,
        callbacks_ns=10**5,
        epochs=3,
        traces={"the first step": 1},
        watch_ns=2 * 10**6,
    )
    assert account_rows(account) == [
        (PART_TEXTS["set_up_ns"], "0.10 s", "5.0%"),
        (PART_TEXTS["waiting_ns"], "1.00 s", "50.0%"),
        (PART_TEXTS["compute_ns"], "0.80 s", "40.0%"),
        ("what is left", "0.10 s", "5.0%"),
        ("fit, from call to return", "2.00 s", "100.0%"),
    ]
    assert account_lines(account) == [
        "3 epochs; traced or compiled in 1 step (the first step)",
        "the profiler's own readings took 2 ms beside the times above",
        "not trustworthy: 5.0% of the wall time is in no part, or in two; at most 2% is right",
    ]


@pytest.mark.claims
def test_a_validation_of_one_image_is_explained_within_3_points(record_property) -> None:  # type: ignore[no-untyped-def]
    """keras#17328: one validation example makes `fit` many times slower, because each validation has its own set-up.

    By hand: the same `fit` with and without validation, neither of them watched.
    """
    model = network()
    # tf.data's autotuner can hold up the end of any epoch, by chance.
    data = as_written(tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).batch(32))
    one = as_written(tf.data.Dataset.from_tensor_slices((IMAGES[:1], LABELS[:1])).shuffle(100).batch(1))
    for _ in range(2):  # the first trace
        model.fit(data, validation_data=one, epochs=2, verbose=0)
    profiler = Profiler(ceilings=None, max_steps=None)
    ratios = []
    for _ in range(20):
        seconds = {}
        for kind in random.sample(("without", "with", "watched"), 3):
            if kind == "watched":
                profiler.attach()
            began_s = time.perf_counter()
            model.fit(data, validation_data=None if kind == "without" else one, epochs=10, verbose=0)
            seconds[kind] = time.perf_counter() - began_s
            profiler.detach()
        ratios.append(1 - seconds["without"] / seconds["with"])
    account = profiler.fits[0].account
    assert account is not None and account.validations == 200
    planted_ratio = float(np.median(ratios))
    record_property("measured", f"validation: {planted_ratio:.1%} of fit planted, {account.validation_ratio:.1%} found")
    assert account.validation_ratio == pytest.approx(planted_ratio, abs=0.03)


class Files(keras.utils.PyDataset):
    """Reads a file of a megabyte for each batch. After each epoch the page cache loses two files more."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.paths = [folder / f"{number}.bin" for number in range(10)]
        for path in self.paths:
            with path.open("wb") as file:
                file.write(os.urandom(MEGABYTE))
                os.fsync(file.fileno())
        self._lost = 0
        # Bytes that the page cache had lost when an epoch began.
        self.lost_bytes: list[int] = []

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        if index == 0:
            self.lost_bytes.append(len(self.paths[: self._lost]) * MEGABYTE)
        self.paths[index].read_bytes()
        return IMAGES[:32], LABELS[:32]

    def on_epoch_end(self) -> None:
        self._lost += 2
        drop(self.paths[: self._lost])


@planted
@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="pages of files can be dropped on Linux only")
def test_what_an_epoch_reads_from_storage_is_in_its_record(watched: Profiler, tmp_path: Path) -> None:
    data = Files(tmp_path)
    drop(data.paths)
    if cached_ratio(data.paths) > 0:
        pytest.skip(f"the filesystem of {tmp_path} keeps its pages: a RAM disk")
    network().fit(data, epochs=5, verbose=0)
    read = [record.strain.read_bytes for record in watched.fits[0].epochs if record.strain is not None]
    # Keras reads some files before the first epoch, to learn the shapes of the batches, and may end an epoch there.
    assert data.lost_bytes[-1] >= 8 * MEGABYTE and len(read) == 5
    assert read[1:] == pytest.approx(data.lost_bytes[-4:], rel=0.1)


@pytest.mark.claims
@planted
@tensorflow_only
def test_several_steps_in_a_call_gain_at_least_what_is_predicted(record_property) -> None:  # type: ignore[no-untyped-def]
    """The gain that a `fit` of one step a call predicts, beside that of the same `fit` with 16 steps a call."""
    data = as_dataset().repeat(20).cache()
    models = {calls: network(steps_per_execution=calls) for calls in (1, STEPS_TOGETHER)}
    seconds = dict.fromkeys(models, 0.0)
    for turn in range(6):
        for calls, model in models.items():
            began_s = time.perf_counter()
            model.fit(data, epochs=3, verbose=0)
            seconds[calls] += (time.perf_counter() - began_s) * (turn > 0)  # the first traces
    profiler = Profiler(ceilings=measure_ceilings, max_steps=None)
    profiler.attach()
    try:
        models[1].fit(data, epochs=15, verbose=0)
    finally:
        profiler.detach()
    account = profiler.fits[0].account
    assert account is not None
    (gain,) = [finding.gain for finding in fit_findings(account, None) if finding.rule == "steps per execution"]
    measured = seconds[1] / seconds[STEPS_TOGETHER]
    assert gain is not None
    record_property("measured", f"gain of 16 steps a call: {gain.ratio:.2f} predicted, {measured:.2f} measured")
    assert 1.2 < gain.ratio < 1.1 * measured


@pytest.mark.long
@tensorflow_only
def test_steps_that_trace_are_counted_by_their_cause(watched: Profiler) -> None:
    by_xla = network(jit_compile=True)
    by_xla.fit(as_dataset(60), epochs=2, verbose=0)  # five batches of 60 and one of 20
    plain = network(jit_compile=False)
    plain.fit(as_dataset(60), epochs=2, verbose=0)
    plain.fit(as_dataset(60), epochs=1, verbose=0)  # traced already
    for _ in range(2):
        plain.compile("adam", "mse", jit_compile=False)
        plain.fit(as_dataset(60), epochs=1, verbose=0)
    traces = [fit.account.traces for fit in watched.fits if fit.account is not None]
    first = {"the first step": 1}
    assert traces == [{**first, "a smaller batch": 1}, first, {}, first, first]
