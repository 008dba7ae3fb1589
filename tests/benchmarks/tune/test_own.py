"""Advice for a user's own pipeline: gains that are known by hand are found, and errors are said in one line."""

from __future__ import annotations

import io
import math
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from rich.console import Console

from tests.builders import a_trial, an_advice_document, samples_at
from tests.checks import assert_follows_from_its_file
from tests.planted import planted
from unstall.benchmarks.lab.backend import Refused
from unstall.benchmarks.lab.command import progress_bar
from unstall.benchmarks.tune.own import child as own_child
from unstall.benchmarks.tune.own import measure as own_measure
from unstall.benchmarks.tune.own.child import UserPipeline, call
from unstall.benchmarks.tune.own.report import KIND, derive
from unstall.benchmarks.tune.plan import AdvicePlan
from unstall.pipeline.commands import Stopped
from unstall.profiles.devices import parse_device
from unstall.profiles.measure.windows import Windows
from unstall.profiles.provenance import usable_cores
from unstall.profiles.remedies import AS_WRITTEN, Edit, Trial, Untried, gains_of, turns
from unstall.profiles.remedies.room import Room
from unstall.profiles.report.document import LeftOut
from unstall.profiles.stages.places import Place

IMAGES, BATCH = 96, 8
# Calls at once of a parallel map, as many as the advice takes.
CALLS = max(1, round(usable_cores()))
ROOM = Room(calls=CALLS, memory_bytes=1e9, disk_bytes=1e9)
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


@pytest.fixture
def briefly(monkeypatch):
    monkeypatch.setattr(turns, "_EPOCH_S", 0.02)
    monkeypatch.setattr(turns, "_WINDOW_S", 0.02)
    monkeypatch.setattr(turns, "_MOST_ROUNDS", 3)
    monkeypatch.setattr(turns, "_ROUNDS_AGAIN", 1)
    # An epoch of 20 ms may seem several times as long on a busy machine: no contender is given up for that.
    monkeypatch.setattr(turns, "_HOPELESS_RATIO", math.inf)


def advised(dataset, windows, budget_s=30.0):
    pipeline = UserPipeline(dataset, windows, ROOM, budget_s)
    trial = Trial()
    while not trial.ended:
        trial = pipeline.advance()
    return trial


@pytest.mark.long
def test_a_change_is_measured(windows, briefly):
    trial = advised(plain(), windows)
    assert trial.contenders[0].name == AS_WRITTEN
    assert (trial.epoch_images, trial.scaled, trial.notes) == (IMAGES, False, ())
    assert {"cache", "prefetch"} <= {contender.name for contender in trial.contenders}
    for contender in trial.contenders:
        assert all(sample.epoch_images == sample.epochs * IMAGES for sample in contender.samples)


@pytest.mark.long
def test_a_long_epoch_is_measured_in_part(windows, briefly):
    trial = advised(plain(10**7), windows)
    samples = [sample for contender in trial.contenders for sample in contender.samples]
    sizes = {sample.epoch_images // sample.epochs for sample in samples}
    assert trial.epoch_images == 10**7
    assert len(sizes) == 1 and sizes.pop() < 10**6


def test_an_epoch_whose_length_is_not_found_is_noted(windows, briefly, monkeypatch):
    monkeypatch.setattr("unstall.profiles.remedies.tf.tf_part._COUNT_S", 0.0)
    trial = advised(plain().unbatch().batch(BATCH), windows)
    assert trial.epoch_images is None
    assert trial.notes[0].startswith("The length of an epoch was not found: ")


def test_a_pipeline_of_long_whole_epochs_is_refused_in_one_line(windows):
    dataset = tf.data.Dataset.range(IMAGES).map(decode).shuffle(IMAGES).filter(lambda *_: True).batch(BATCH)
    match = "the shuffle in front of `<lambda>` lets only whole epochs be measured. An epoch must end within 0 s. "
    with pytest.raises(Refused, match=match) as caught:
        advised(dataset, windows, budget_s=1e-9)
    assert "\n" not in str(caught.value)


def test_a_pipeline_without_a_batch_is_refused(windows):
    with pytest.raises(Refused, match="this pipeline gives no batch"):
        UserPipeline(plain(0), windows, ROOM, 1.0)


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

    monkeypatch.setattr(own_child, "note_places", lambda owner: None)
    monkeypatch.setitem(sys.modules, "users_own", SimpleNamespace(boom=boom, three=lambda: 3))
    with pytest.raises(Refused, match=expected) as caught:
        call(f"users_own:{function}")
    assert "\n" not in str(caught.value)


def test_a_function_is_called(monkeypatch):
    monkeypatch.setattr(own_child, "note_places", lambda owner: None)
    monkeypatch.setitem(sys.modules, "users_own", SimpleNamespace(make=plain))
    assert np.array_equal(next(iter(call("users_own:make")))[1].numpy(), [0, 1] * 4)


MINE = """
import numpy as np, tensorflow as tf

def slow(index):
    return np.float32(sum(range(20_000)) % 7 + index)

def load(index):
    return tf.ones((8, 8, 3)) * tf.ensure_shape(tf.numpy_function(slow, [index], tf.float32), ()), 1.0

def make():
    data = tf.data.Dataset.range(96)
    data = data.map(load)
    return data.batch(8)
"""


@pytest.mark.long
def test_the_change_of_the_users_file_is_a_diff_that_applies_and_names_no_folder(
    windows, briefly, monkeypatch, tmp_path
):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "mine_own.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "work"))
    pipeline = UserPipeline(call("mine_own:make"), windows, ROOM, 8.0)
    with pytest.raises(Refused, match="nothing is faster"):
        pipeline.change()
    trial = Trial()
    while not trial.ended:
        trial = pipeline.advance()
    assert str(tmp_path) not in repr(trial)
    assert trial.remedy("cache").edits[0].place.file == "mine_own.py"
    monkeypatch.setattr(own_child, "gains_of", lambda trial: SimpleNamespace(chosen=SimpleNamespace(contender=CACHE)))
    (tmp_path / "own.diff").write_text(pipeline.change())
    done = subprocess.run(["patch", "-p1", "-i", "own.diff"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    assert "data = data.map(load).cache()\n" in (tmp_path / "work" / "mine_own.py").read_text()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="mine_own.py lies outside of this folder"):
        pipeline.change()


CACHE = SimpleNamespace(remedies=("cache",))


# What is printed. How gains follow from samples: tests/profiles/remedies/test_gains.py


def printed(document):
    console = Console(width=100, file=io.StringIO())
    KIND.print(console, document, derive(document))
    return console.file.getvalue()


# Four rounds in which "b" is twice as fast.
TWICE = {AS_WRITTEN: samples_at(*[100] * 4), "b": samples_at(*[200] * 4)}


def test_printed_rates_have_the_printed_ratio():
    trial = a_trial({AS_WRITTEN: samples_at(100, 200, 400, 200), "prefetch": samples_at(200, 400, 800, 400)})
    as_written, prefetch = derive(an_advice_document(trial)).all
    assert as_written.rate == pytest.approx(200) and prefetch.rate == pytest.approx(400)
    text = " ".join(printed(an_advice_document(trial)).split())
    assert "prefetch * 400 2.00x" in text and "whole epochs of 96 images" in text


def test_what_is_printed_says_what_must_not_be_done():
    trial = a_trial(TWICE, notes=("a note",), untried=(Untried(name="cache", reason="it draws"),))
    assert [line.rstrip() for line in printed(an_advice_document(trial)).splitlines()] == [
        "mine:make: range, decode, batch",
        "a-model on cpu",
        "pipeline   img/s of as written      95 % batches",
        "as written   100         1.00x 1.00-1.00 identical",
        "b *          200         2.00x 2.00-2.00 identical",
        "img/s: of whole epochs of 96 images",
        "",
        "(*) 2.00 times as fast (2.00 to 2.00): b.",
        "  b (what b does; batches: identical)",
        "    # mine.py:1",
        "    code of b",
        "a note",
        "not tried: cache: it draws",
    ]


def test_the_first_screen_has_the_gain_the_code_and_rates_whose_ratio_is_that_gain():
    again = {AS_WRITTEN: samples_at(100, 100, 100), "b": samples_at(150, 150, 150)}
    document = an_advice_document(a_trial(TWICE, again, untried=(Untried(name="cache", reason="it draws"),)))
    [screen] = KIND.screens(document, derive(document))
    assert [line.label for line in (*screen.verdict, *screen.why, *screen.next)] == ["FASTER", "NOT TRIED", "NEXT"]
    assert screen.verdict[0].text.startswith("1.50x (1.50 to 1.50) with b, ")
    assert screen.next[0].code == ("# mine.py:1", "code of b")
    assert [bar.cells for bar in screen.picture.bars] == [("100", "1.00x"), ("150", "1.50x")]


def test_a_signal_ends_a_child_that_measures_at_once(tmp_path, monkeypatch):
    ended = []

    class Measuring:
        def __init__(self, *arguments):
            pass

        def ask(self, method, *arguments, timeout_s):
            if method == "advance_pipeline":
                raise Stopped(2)

        def close(self):
            ended.append("closed")

        def kill(self):
            ended.append("killed")

    monkeypatch.setattr(own_measure, "Child", Measuring)
    asked = an_advice_document(Trial()).plan
    plan = AdvicePlan(asked=asked, pipeline=asked.pipeline, model=asked.model, out=tmp_path)
    with pytest.raises(Stopped):
        own_measure.Run(plan, progress_bar(Console(quiet=True))).measure(lambda: None)
    assert ended == ["killed", "closed"] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("files", "offered"),
    [({"b": "mine.py", "c": "mine.py"}, True), ({"b": "mine.py", "c": "other.py"}, False), ({"b": "mine.py"}, False)],
    ids=["one file", "two files", "no edit of one"],
)
def test_a_diff_is_offered_where_all_edits_are_of_one_file(files, offered):
    trial = a_trial({AS_WRITTEN: samples_at(*[100] * 4), "b + c": samples_at(*[200] * 4)})
    edits = {
        name: (Edit(place=Place(file=file, line=1, end_line=1, end_column=9), kind="behind", text=".cache()"),)
        for name, file in files.items()
    }
    remedies = tuple(replace(remedy, edits=edits.get(remedy.name, ())) for remedy in trial.remedies)
    document = an_advice_document(replace(trial, remedies=remedies))
    [screen] = KIND.screens(document, derive(document))
    assert screen.next[0].text.startswith("edit these lines")
    assert ("tuned.diff" in screen.next[0].text) is offered


def test_where_nothing_is_faster_the_first_screen_says_so():
    document = an_advice_document(a_trial({AS_WRITTEN: samples_at(100, 100, 100), "b": samples_at(100, 99, 101)}))
    [screen] = KIND.screens(document, derive(document))
    assert screen.verdict[0].label == "SAME" and "b" in screen.verdict[0].text and screen.next == ()


def test_a_run_that_measured_nothing_yet_is_printed():
    document = an_advice_document(Trial(), left_out=(LeftOut(who="c", reason="no"),))
    assert printed(document).startswith("mine:make: ")


def test_all_that_follows_from_the_advice_follows_from_its_file(tmp_path):
    again = {AS_WRITTEN: samples_at(100, 100, 100), "b": samples_at(150, 151, 149)}
    document = an_advice_document(a_trial(TWICE, again, epoch_images=None))
    assert_follows_from_its_file(KIND, document, tmp_path)


# Gains that are known by hand: an image takes so long in the slow map, and in the model. Behind a shuffle the slow map
# takes batches: tf.data makes one of a map of elements and the batch behind it, which runs beside the model by itself.
SLOW_MS, MODEL_MS = 10, 3
EPOCH, PAIR = 4000, 2


def slow(*element):
    images = PAIR if element[0].shape.rank == 4 else 1

    def sleep(part):
        time.sleep(images * SLOW_MS / 1e3)
        return part + np.float32(1e-3 * np.random.default_rng().random())  # drawn: no cache may stand behind it

    return tf.ensure_shape(tf.numpy_function(sleep, [element[0]], tf.float32), element[0].shape), *element[1:]


def gains_on(dataset, model_ms=MODEL_MS):
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # tf.data would add what the user did not write
    trial = advised(dataset.with_options(options), windows_of(f"emulated:{1e3 / model_ms}"), budget_s=60.0)
    print(printed(an_advice_document(trial)))
    gains = gains_of(trial)
    return gains.chosen, {gain.name: gain.against[0] for gain in gains.all}


@planted
@pytest.mark.claims
def test_a_slow_map_in_front_of_a_shuffle_larger_than_the_epoch():
    """Nothing trains until the last image is read: a prefetch gains nothing, parallel calls only on reading."""
    numbers = tf.data.Dataset.range(EPOCH).map(decode)
    chosen, gains = gains_on(numbers.map(slow).shuffle(2 * EPOCH).batch(PAIR))
    assert gains["prefetch"] == pytest.approx(1, rel=KNOWN_RATIO)
    known = (SLOW_MS + MODEL_MS) / (SLOW_MS / CALLS + MODEL_MS)
    assert gains["parallel"] == pytest.approx(known, rel=KNOWN_RATIO)
    assert chosen is not None and chosen.best[0] > gains["parallel"] * (1 - KNOWN_RATIO)


@planted
@pytest.mark.claims
def test_a_slow_map_behind_a_shuffle_larger_than_the_epoch():
    """The shuffle is full at once; a prefetch reads while the model trains, and the slower of the two sets the pace."""
    shuffled = tf.data.Dataset.range(EPOCH).shuffle(2 * EPOCH).map(decode)
    chosen, gains = gains_on(shuffled.batch(PAIR, drop_remainder=True).map(slow))
    assert gains["prefetch"] == pytest.approx((SLOW_MS + MODEL_MS) / max(SLOW_MS, MODEL_MS), rel=KNOWN_RATIO)
    known = (SLOW_MS + MODEL_MS) / max(SLOW_MS / CALLS, MODEL_MS)
    assert chosen is not None and chosen.best[0] > known * (1 - KNOWN_RATIO)


@planted
@pytest.mark.claims
def test_a_pipeline_that_is_right_already_is_told_so():
    """The model takes longer than all calls at once: nothing can be gained."""
    shuffled = tf.data.Dataset.range(EPOCH).shuffle(2 * EPOCH).map(decode).batch(PAIR, drop_remainder=True)
    right = shuffled.map(slow, num_parallel_calls=CALLS).prefetch(2)
    chosen, _ = gains_on(right, model_ms=2 * SLOW_MS / CALLS)
    assert chosen is None
