"""Advice for a user's own pipeline: gains that are known by hand are found, and errors are said in one line."""

from __future__ import annotations

import io
import sys
import time
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from rich.console import Console

from benchmarks.lab.child import JobRefused
from benchmarks.tune.own import child as own_child
from benchmarks.tune.own.child import PipelineError, UserPipeline, call
from benchmarks.tune.own.measure import Rounds
from benchmarks.tune.own.report import KIND
from benchmarks.tune.own.results import derive
from benchmarks.tune.own.samples import PipelineFacts
from profiles.devices import parse_device
from profiles.measure.windows import Windows
from profiles.provenance import usable_cores
from profiles.remedies import AS_WRITTEN, Change
from profiles.report.document import LeftOut, load, write
from tests.builders import a_sample, an_advice_document, samples_at
from tests.planted import planted

IMAGES, BATCH = 96, 8
# Calls at once of a parallel map, as many as the advice takes.
CALLS = max(1, round(usable_cores()))
KNOWN_RATIO = 0.1


def decode(index):
    return tf.ones((8, 8, 3)) * tf.cast(index, tf.float32), tf.cast(index % 2, tf.int32)


def plain(images=IMAGES):
    return tf.data.Dataset.range(images).map(decode).batch(BATCH)


def windows_of(device):
    layers = [keras.Input((8, 8, 3)), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(loss="mse")
    return Windows(model, parse_device(device))


@pytest.fixture(scope="module")
def windows():
    return windows_of("emulated:1000000")


def test_a_change_is_measured(windows, monkeypatch):
    monkeypatch.setattr(own_child, "_EPOCH_S", 0.05)
    pipeline = UserPipeline(plain(), windows, 1e9)
    facts = pipeline.facts()
    assert facts.changes[0].name == AS_WRITTEN
    assert (facts.epoch_images, facts.scaled, facts.notes) == (IMAGES, False, ())
    for name in (AS_WRITTEN, "cache"):
        sample = pipeline.window(name, 0)
        assert sample.epoch_images == sample.epochs * IMAGES


def test_a_long_epoch_is_measured_in_part(windows, monkeypatch):
    monkeypatch.setattr(own_child, "_EPOCH_S", 0.02)
    pipeline = UserPipeline(plain(10**7), windows, 1e9)
    facts = pipeline.facts()
    samples = [pipeline.window(name, 0) for name in (AS_WRITTEN, "prefetch")]
    sizes = {sample.epoch_images // sample.epochs for sample in samples}
    assert facts.epoch_images == 10**7
    assert len(sizes) == 1 and sizes.pop() < 10**6


def test_an_epoch_whose_length_is_not_found_is_noted(windows, monkeypatch):
    monkeypatch.setattr(own_child, "_EPOCH_S", 0.05)
    monkeypatch.setattr("profiles.remedies.tf_part._COUNT_S", 0.0)
    facts = UserPipeline(plain().unbatch().batch(BATCH), windows, 1e9).facts()
    assert facts.epoch_images is None
    [note] = facts.notes
    assert note.startswith("The length of an epoch was not found: ")


def test_a_pipeline_of_long_whole_epochs_is_refused_in_one_line(windows, monkeypatch):
    monkeypatch.setattr(own_child, "_WHOLE_EPOCH_S", 0.0)
    dataset = tf.data.Dataset.range(IMAGES).map(decode).shuffle(IMAGES).filter(lambda *_: True).batch(BATCH)
    pipeline = UserPipeline(dataset, windows, 1e9)
    match = "the shuffle in front of `<lambda>` lets only whole epochs be measured. An epoch must end within 0 s. "
    with pytest.raises(PipelineError, match=match) as caught:
        pipeline.facts()
    assert "\n" not in str(caught.value)


def test_a_pipeline_without_a_batch_is_refused(windows):
    with pytest.raises(PipelineError, match="this pipeline gives no batch"):
        UserPipeline(plain(0), windows, 1e9)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("boom", "RuntimeError: no."),
        ("three", "must return a tf.data.Dataset. Received: int."),
        ("missing", "AttributeError: "),
    ],
)
def test_a_function_that_gives_no_pipeline_is_said_in_one_line(function, expected, monkeypatch):
    def boom():
        raise RuntimeError("no\nreally")

    monkeypatch.setitem(sys.modules, "users_own", SimpleNamespace(boom=boom, three=lambda: 3))
    with pytest.raises(PipelineError, match=expected) as caught:
        call(f"users_own:{function}")
    assert "\n" not in str(caught.value)


def test_a_function_is_called(monkeypatch):
    monkeypatch.setitem(sys.modules, "users_own", SimpleNamespace(make=plain))
    assert np.array_equal(next(iter(call("users_own:make")))[1].numpy(), [0, 1] * 4)


# What is derived and printed


def facts_of(*names, epoch_images=float(IMAGES), scaled=False, notes=(), refused=()):
    changes = tuple(Change(name=name, code=f"code of {name}") for name in (AS_WRITTEN, *names))
    return PipelineFacts(
        stages=("range", "decode", "batch"),
        changes=changes,
        refused=refused,
        epoch_images=epoch_images,
        scaled=scaled,
        notes=notes,
    )


def printed(document):
    console = Console(width=100, file=io.StringIO())
    KIND.print(console, document, derive(document))
    return console.file.getvalue()


def test_printed_rates_have_the_printed_ratio():
    document = an_advice_document(
        facts_of("prefetch"),
        {AS_WRITTEN: samples_at(100, 200, 400, 200), "prefetch": samples_at(200, 400, 800, 400)},
    )
    as_written, prefetch = derive(document).results
    assert as_written.rate == pytest.approx(200) and prefetch.rate == pytest.approx(400)
    assert prefetch.against[0] == pytest.approx(2)
    text = " ".join(printed(document).split())
    assert "prefetch * 400 2.00x" in text and "whole epochs of 96 images" in text


# Four rounds in which "b" is twice as fast.
TWICE = {AS_WRITTEN: samples_at(*[100] * 4), "b": samples_at(*[200] * 4)}


def test_the_chosen_change_is_told_by_rounds_that_did_not_choose_it():
    again = {AS_WRITTEN: samples_at(100, 100, 100), "b": samples_at(150, 151, 149)}
    document = an_advice_document(facts_of("b"), TWICE, again)
    results = derive(document)
    assert results.chosen is not None and results.chosen.again[0] == pytest.approx(1.5, rel=1e-3)
    assert results.chosen is results.results[1] and results.chosen.against[0] == pytest.approx(2)
    assert "(*) 1.50 times as fast (1.48 to 1.53; measured again)" in " ".join(printed(document).split())


@pytest.mark.parametrize("rates", [(100, 101, 99), (90, 180, 300)], ids=["as fast", "perhaps"])
def test_a_gain_that_does_not_come_again_is_none(rates):
    again = {AS_WRITTEN: samples_at(100, 100, 100), "b": samples_at(*rates)}
    assert derive(an_advice_document(facts_of("b"), TWICE, again)).chosen is None
    failed = an_advice_document(facts_of("b"), TWICE, again | {"b": []}, left_out=(LeftOut(who="b", reason="no"),))
    assert derive(failed).chosen is None
    assert "could not be measured: b: no" in printed(failed)


def test_a_run_that_is_stopped_while_it_measures_again_keeps_what_the_first_rounds_chose():
    again = {AS_WRITTEN: samples_at(100), "b": []}
    assert derive(an_advice_document(facts_of("b"), TWICE, again, complete=False)).chosen.name == "b"


def test_a_round_that_was_not_whole_is_compared_as_far_as_it_goes():
    document = an_advice_document(facts_of("b", "c"), {**TWICE, "b": samples_at(200, 200), "c": []}, complete=False)
    assert [(result.name, result.against[0]) for result in derive(document).results] == [
        (AS_WRITTEN, 1.0),
        ("b", pytest.approx(2)),
    ]


def test_nothing_follows_from_a_run_without_a_whole_sample_of_the_pipeline_as_written():
    assert derive(an_advice_document(facts_of("b"), {AS_WRITTEN: [], "b": samples_at(100)})).results == ()
    assert derive(an_advice_document(None, {})).results == ()


def test_a_gain_that_is_hardly_one_is_none():
    document = an_advice_document(
        facts_of("prefetch"), {AS_WRITTEN: samples_at(*[100] * 4), "prefetch": samples_at(*[102] * 4)}
    )
    results = derive(document)
    assert results.results[1].against[1][0] > 1
    assert results.chosen is None
    text = "significantly faster than the pipeline as it is written, by 3 % or more."
    assert text in " ".join(printed(document).split())


@pytest.mark.parametrize(
    ("epoch_images", "scaled", "expected"),
    [
        (10_000.0, False, 1000 / 1.1),  # 1 s of edges on 10,000 images, each of 1 ms
        (10_000.0, True, 500),  # as it was measured: 1 s on 1,000
        (None, False, 1000),
    ],
)
def test_a_rate_is_that_of_a_whole_epoch(epoch_images, scaled, expected):
    sample = a_sample(images=500, wall_ns=500_000_000, epochs=2, epoch_images=2000, epoch_ns=4_000_000_000, whole=True)
    facts = facts_of(epoch_images=epoch_images, scaled=scaled)
    assert derive(an_advice_document(facts, {AS_WRITTEN: [sample]})).results[0].rate == pytest.approx(expected)


def test_what_is_printed_says_what_must_not_be_done():
    facts = facts_of("b", notes=("a note",), refused=("a cache: it draws",))
    document = an_advice_document(facts, TWICE, left_out=(LeftOut(who="c", reason="no"),))
    assert [line.rstrip() for line in printed(document).splitlines()] == [
        "mine:make: range, decode, batch",
        "a-model on cpu",
        "pipeline    img/s  of as written       95 %",
        "as written    100          1.00x  1.00-1.00",
        "b *           200          2.00x  2.00-2.00",
        "img/s: of whole epochs of 96 images",
        "",
        "(*) 2.00 times as fast (2.00 to 2.00): code of b",
        "a note",
        "refused: a cache: it draws",
        "could not be measured: c: no",
    ]


def test_all_that_follows_from_the_advice_follows_from_its_file(tmp_path):
    again = {AS_WRITTEN: samples_at(100, 100, 100), "b": samples_at(150, 151, 149)}
    document = an_advice_document(facts_of("b", epoch_images=None), TWICE, again)
    write(tmp_path, document, KIND, derive(document))
    loaded, kind = load(tmp_path, {"tune --pipeline": KIND})
    assert loaded == document
    assert kind.page(loaded, kind.derive(loaded)) == (tmp_path / "report.html").read_text()
    assert printed(loaded) == printed(document)


class Here:
    """A child that is this process."""

    def __init__(self, window):
        self._window = window

    def ask(self, method, *arguments, timeout_s):
        assert method == "pipeline_window" and timeout_s > 0
        return self._window(*arguments)


def test_the_order_is_drawn_anew_in_each_round_and_what_fails_is_left_out():
    asked = []

    def window(name, round_):
        asked.append((round_, name))
        if name == "d" and round_ == 1:
            raise JobRefused("no")
        return samples_at(100)[0]

    rounds, written = Rounds([AS_WRITTEN, "b", "c", "d"]), []
    rounds.measure(Here(window), range(9), lambda text: None, lambda: written.append(len(asked)))
    assert written == [4, 8, *range(11, 32, 3)]
    names = [[name for number, name in asked if number == round_] for round_ in range(9)]
    assert [sorted(some) for some in names[:2]] == [["as written", "b", "c", "d"]] * 2
    assert [sorted(some) for some in names[2:]] == [["as written", "b", "c"]] * 7
    assert len({tuple(some) for some in names[2:]}) > 1
    assert {name: len(samples) for name, samples in rounds.samples.items()} == {AS_WRITTEN: 9, "b": 9, "c": 9}
    assert rounds.left_out == [LeftOut(who="d", reason="no")]


def test_a_pipeline_that_fails_as_it_is_written_ends_the_rounds():
    def window(*_):
        raise JobRefused("no")

    with pytest.raises(JobRefused, match="no"):
        Rounds([AS_WRITTEN, "b"]).measure(Here(window), range(4), lambda text: None, lambda: None)


# Gains that are known by hand: an image takes so long in the slow map, and in the model. Behind a shuffle the slow map
# takes batches: tf.data makes one of a map of elements and the batch behind it, which runs beside the model by itself.
SLOW_MS, MODEL_MS = 10, 3
EPOCH, PAIR = 4000, 2


def slow(*element):
    images = PAIR if element[0].shape.rank == 4 else 1

    def sleep(part):
        time.sleep(images * SLOW_MS / 1e3)
        return part

    return tf.ensure_shape(tf.numpy_function(sleep, [element[0]], tf.float32), element[0].shape), *element[1:]


def advised(dataset, model_ms=MODEL_MS):
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # tf.data would add what the user did not write
    pipeline = UserPipeline(dataset.with_options(options), windows_of(f"emulated:{1e3 / model_ms}"), 1e9)
    facts, here = pipeline.facts(), Here(pipeline.window)
    choosing = in_rounds(here, [AS_WRITTEN, "prefetch", "parallel"], 4)
    document = an_advice_document(facts, choosing)
    if (chosen := derive(document).chosen) is not None:
        document = an_advice_document(facts, choosing, in_rounds(here, [AS_WRITTEN, chosen.name], 3))
    print(printed(document))
    results = derive(document)
    return results.chosen, {result.name: result.against[0] for result in results.results}


def in_rounds(here, names, count):
    rounds = Rounds(names)
    rounds.measure(here, range(count), lambda text: None, lambda: None)
    return rounds.samples


@planted
@pytest.mark.claims
def test_a_slow_map_in_front_of_a_shuffle_larger_than_the_epoch():
    """Nothing trains until the last image is read: a prefetch gains nothing, parallel calls only on reading."""
    numbers = tf.data.Dataset.range(EPOCH).map(decode)
    chosen, gains = advised(numbers.map(slow).shuffle(2 * EPOCH).batch(PAIR))
    assert gains["prefetch"] == pytest.approx(1, rel=KNOWN_RATIO)
    known = (SLOW_MS + MODEL_MS) / (SLOW_MS / CALLS + MODEL_MS)
    assert gains["parallel"] == pytest.approx(known, rel=KNOWN_RATIO)
    assert chosen is not None and chosen.against[0] == pytest.approx(known, rel=KNOWN_RATIO)


@planted
@pytest.mark.claims
def test_a_slow_map_behind_a_shuffle_larger_than_the_epoch():
    """The shuffle is full at once; a prefetch reads while the model trains, and the slower of the two sets the pace."""
    shuffled = tf.data.Dataset.range(EPOCH).shuffle(2 * EPOCH).map(decode)
    chosen, gains = advised(shuffled.batch(PAIR, drop_remainder=True).map(slow))
    assert gains["prefetch"] == pytest.approx((SLOW_MS + MODEL_MS) / max(SLOW_MS, MODEL_MS), rel=KNOWN_RATIO)
    known = (SLOW_MS + MODEL_MS) / max(SLOW_MS / CALLS, MODEL_MS)
    assert gains["parallel"] == pytest.approx(known, rel=KNOWN_RATIO)
    assert chosen is not None and chosen.against[0] == pytest.approx(known, rel=KNOWN_RATIO)


@planted
@pytest.mark.claims
def test_a_slow_map_in_front_of_a_shuffle_larger_than_what_is_measured():
    """A quarter is read before anything trains, the rest beside training; a quarter is trained on beside no reading."""
    numbers = tf.data.Dataset.range(EPOCH).map(decode)
    chosen, gains = advised(numbers.map(slow).shuffle(EPOCH // 4).batch(PAIR))
    for name, ms in (("prefetch", SLOW_MS), ("parallel", SLOW_MS / CALLS)):
        known = (SLOW_MS + MODEL_MS) / (ms / 4 + max(ms, MODEL_MS) * 3 / 4 + MODEL_MS / 4)
        assert gains[name] == pytest.approx(known, rel=KNOWN_RATIO)
    assert chosen is not None and chosen.against[0] == pytest.approx(known, rel=KNOWN_RATIO)


@planted
@pytest.mark.claims
def test_a_pipeline_that_is_right_already_is_told_so():
    """The model takes longer than all calls at once: nothing can be gained."""
    shuffled = tf.data.Dataset.range(EPOCH).shuffle(2 * EPOCH).map(decode).batch(PAIR, drop_remainder=True)
    right = shuffled.map(slow, num_parallel_calls=CALLS).prefetch(2)
    chosen, gains = advised(right, model_ms=2 * SLOW_MS / CALLS)
    assert gains["parallel"] == pytest.approx(1, rel=KNOWN_RATIO)
    assert chosen is None
