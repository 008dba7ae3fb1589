"""Training to the end: what is trained on and tested with, what is kept, and what is said when it cannot be."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil

import keras
import numpy as np
import pytest
from rich.console import Console

from tests.bad_files import CONTENTS
from tests.checks import assert_gone, children, passes_on_jax
from unstall import models
from unstall.benchmarks import cli as models_command
from unstall.benchmarks.lab.command import progress_bar
from unstall.benchmarks.lab.photos import held_out, open_splits
from unstall.benchmarks.lab.training import DivergedError, Evaluation, antialiases, classes_of, train, without_draws
from unstall.benchmarks.train import __main__ as command
from unstall.benchmarks.train import session
from unstall.benchmarks.train.parser import parser
from unstall.benchmarks.train.plan import read_plan
from unstall.models.saved import open_finished
from unstall.pipeline import NoSplit, SourceError, from_arrays, from_folder
from unstall.pipeline.config import config_to_toml
from unstall.pipeline.variants import BASELINE, VARIANTS

QUIET = Console(quiet=True)
TUNED = VARIANTS["tf-data-composed"]


@pytest.fixture(scope="module")
def source(photos):
    return from_folder(photos)


def a_network(classes: int = 2, optimizer: str = "adam") -> keras.Model:
    keras.utils.set_random_seed(0)
    units = 1 if classes == 2 else classes
    layers = [
        keras.Input((8, 8, 3)),
        keras.layers.Flatten(),
        keras.layers.Dense(units, activation="sigmoid" if units == 1 else "softmax"),
    ]
    network = keras.Sequential(layers)
    loss = "binary_crossentropy" if units == 1 else "sparse_categorical_crossentropy"
    network.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])
    return network


def small(config):
    return dataclasses.replace(config, image_size=(8, 8), batch_size=16)


def opened(data, seed: int = 0):
    with progress_bar(QUIET) as progress:
        return open_splits(str(data), seed=seed, progress=progress, errors=QUIET)


def test_a_fifth_of_each_class_is_held_out_and_trained_on_never(source):
    splits = held_out(source, seed=3)
    assert (splits.train.images, splits.test.images) == (32, 8)
    assert np.bincount(splits.test.labels).tolist() == [4, 4]
    assert sorted([*splits.train.files, *splits.test.files]) == sorted(source.files)
    assert splits.how == "held out: 20% of each class, drawn with seed 3"


def test_the_seed_decides_what_is_held_out(source):
    one, again, other = (held_out(source, seed=seed).test for seed in (0, 0, 1))
    assert one.files == again.files and one.files != other.files
    assert one.fingerprint == again.fingerprint
    assert len({one.fingerprint, other.fingerprint, held_out(source, seed=0).train.fingerprint}) == 3


def test_a_class_of_one_photo_cannot_be_split():
    images = from_arrays(np.zeros((3, 2, 2, 3), np.uint8), np.array([0, 0, 1]), class_names=("many", "lone"))
    with pytest.raises(SourceError, match="class lone has 1 photo; at least 2 are needed"):
        held_out(images, seed=0)


def test_a_small_class_keeps_a_photo_of_each_kind():
    splits = held_out(from_arrays(np.zeros((4, 2, 2, 3), np.uint8), np.array([0, 0, 1, 1])), seed=0)
    assert splits.train.labels.tolist() == splits.test.labels.tolist() == [0, 1]


def test_the_folder_test_beside_train_is_tested_with(photos, tmp_path):
    shutil.copytree(photos, tmp_path / "train")
    shutil.copytree(photos, tmp_path / "test")
    next((tmp_path / "test").rglob("*.jpg")).unlink()
    for data in (tmp_path, tmp_path / "train"):
        splits = opened(data)
        assert (splits.train.images, splits.test.images, splits.how) == (40, 39, "the folder test beside it")
    assert opened(photos).how.startswith("held out")
    first = next(path for path in (tmp_path / "test").iterdir())
    first.rename(tmp_path / "test" / "birds")
    with pytest.raises(
        SourceError, match="must be of the classes to train on. Received: .* in train, birds, .* in test"
    ):
        opened(tmp_path)


@pytest.mark.parametrize("data", [".", "train"])
def test_photos_that_are_left_out_are_named_by_the_doctor_as_no_file_of_ours_names_them(photos, tmp_path, data):
    for part in ("train", "test"):
        shutil.copytree(photos, tmp_path / part)
        (tmp_path / part / "discs" / "empty.jpg").touch()
    errors = Console(file=io.StringIO(), width=200)
    with progress_bar(QUIET) as progress:
        open_splits(str(tmp_path / data), seed=0, progress=progress, errors=errors)
    printed = errors.file.getvalue()
    assert printed.count("unstall doctor names all") == 2 and "results.json" not in printed


def test_a_tfds_data_set_is_tested_with_its_own_split_where_it_has_one(source, monkeypatch):
    def no_split(name, split, skip_list):
        raise NoSplit(f"{name} has no {split}")

    def no_room(name, split, skip_list):
        raise SourceError(f"{name} cannot be exported")

    whole = dataclasses.replace(source, kind="tfds")
    monkeypatch.setattr("unstall.benchmarks.lab.photos.read_source", lambda *_, **__: whole)
    monkeypatch.setattr(
        "unstall.benchmarks.lab.photos.from_tfds",
        lambda name, split, skip_list: {"mnist/test": source}[f"{name}/{split}"],
    )
    assert (opened("tfds:mnist").test, opened("tfds:mnist").how) == (source, "its split test")
    monkeypatch.setattr("unstall.benchmarks.lab.photos.from_tfds", no_split)
    assert opened("tfds:cats_vs_dogs").how.startswith("held out: 20%")
    monkeypatch.setattr("unstall.benchmarks.lab.photos.from_tfds", no_room)
    with pytest.raises(SourceError, match="mnist cannot be exported"):
        opened("tfds:mnist")


@pytest.mark.long
@pytest.mark.parametrize("name", ["generator", "py-dataset", "directory", "tf-data-composed", "tf-data-uint8"])
def test_a_network_learns_pass_by_pass_from_any_loader(source, name):
    passes, seen = [], []
    network, config = a_network(), small(VARIANTS[name])
    before = network.get_weights()[0].copy()
    train(network, source, config, passes=2, on_images=seen.append, on_pass=passes.append)
    assert [(one.number, one.images) for one in passes] == [(1, 40), (2, 40)]
    assert seen == [16, 32, 40, 56, 72, 80]
    assert all(np.isfinite(one.loss) and one.images_per_sec > 0 for one in passes)
    assert not np.array_equal(network.get_weights()[0], before)  # also where layers stand in front of it


@pytest.mark.parametrize(
    "name", ["generator", "py-dataset", "python-batches", "tf-data-composed", "tf-data-uint8", "tf-data-raw"]
)
def test_an_evaluation_counts_every_photo_once_and_in_order(source, name):
    network, config = a_network(), small(VARIANTS[name])
    before = children()
    evaluation = Evaluation(network, source, config)
    assert_gone(before)  # the photos are held: no worker is needed any more
    network.layers[-1].set_weights([np.zeros((192, 1), np.float32), np.array([5], np.float32)])
    assert np.array_equal(evaluation.correct(), source.labels == 1)  # the weights of now, and not of then
    network.layers[-1].set_weights([np.zeros((192, 1), np.float32), np.array([-5], np.float32)])
    assert np.array_equal(evaluation.correct(), source.labels == 0)
    evaluation.close()


def test_what_memory_does_not_hold_is_read_again(source, monkeypatch):
    monkeypatch.setattr("unstall.benchmarks.lab.training._HELD_BYTES", 0)
    evaluation = Evaluation(a_network(), source, small(TUNED))
    assert np.array_equal(evaluation.correct(), evaluation.correct())


def test_a_pipeline_that_leaves_a_photo_out_is_no_evaluation(source):
    evaluation = Evaluation(a_network(), source, small(TUNED))
    evaluation._held = evaluation._held[:-1]
    with pytest.raises(RuntimeError, match="every test photo exactly once, in order"):
        evaluation.correct()


@pytest.mark.parametrize("name", list(VARIANTS))
def test_every_variant_can_be_tested_with(name):
    config = without_draws(VARIANTS[name])
    assert (config.augmentation, config.shuffle_buffer, config.cache) == (None, 0, "none")
    assert config.service == "none"  # whose workers have other photos
    assert config.decode == VARIANTS[name].decode and config.interpolation == VARIANTS[name].interpolation


def test_half_is_not_yet_the_second_class():
    assert classes_of(np.array([[0.5], [0.51], [0.1]])).tolist() == [0, 1, 0]
    assert classes_of(np.array([[0.2, 0.5, 0.3], [0.6, 0.4, 0.0]])).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (BASELINE, False),
        (dataclasses.replace(BASELINE, interpolation="bilinear"), True),
        (VARIANTS["tf-data"], False),
        (VARIANTS["tf-data-scaled-decode"], True),
    ],
)
def test_a_kept_model_smooths_where_training_did(source, config, expected):
    assert antialiases(config, source) == expected


def test_a_loss_that_is_no_number_ends_training(source):
    network = a_network()
    network.layers[-1].set_weights([np.full((192, 1), np.nan, np.float32), np.zeros(1, np.float32)])
    with pytest.raises(DivergedError, match="The loss is nan in pass 1, after 3 of its steps"):
        train(network, source, small(TUNED), passes=2, on_images=lambda _: None, on_pass=lambda _: None)
    many = dataclasses.replace(small(TUNED), batch_size=1)
    seen_after = 40 if keras.backend.backend() == "jax" else 16  # there the loss is seen behind a pass only
    with pytest.raises(DivergedError, match=f"after {seen_after} of its steps"):
        train(network, source, many, passes=2, on_images=lambda _: None, on_pass=lambda _: None)


def run(*words: str) -> int:
    return command.main(words)


def tiny_model(classes: int) -> keras.Model:
    return a_network(classes)


def diverging() -> keras.Model:
    network = a_network()
    network.layers[-1].set_weights([np.full((192, 1), np.nan, np.float32), np.zeros(1, np.float32)])
    return network


def with_three_outputs() -> keras.Model:
    return a_network(3)


TINY = ("--model", f"{__name__}:tiny_model")


def test_a_model_is_trained_kept_and_predicts(photos, tmp_path, capfd):
    out = tmp_path / "a.keras"
    assert run(*TINY, "--data", str(photos), "--out", str(out), "--epochs", "2", "--batch-size", "8") == 0
    printed = " ".join(capfd.readouterr().out.split())
    assert (
        "32 photos of 2 classes to train on, 8 to test with (held out: 20% of each class, drawn with seed 0)" in printed
    )
    assert f"trained by Keras on {keras.backend.backend()}, CPU" in printed
    assert "pass 1 of 2 loss 0." in printed and "of 8 test photos right" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["a.keras"]
    finished = open_finished(str(out))
    assert finished.class_names == from_folder(photos).class_names
    [resize] = [layer for layer in finished.model.operations if type(layer).__name__ in ("Resizing", "Resize")]
    assert (resize.interpolation, resize.antialias) == ("bilinear", True)  # a scaled decode
    assert tuple(resize.output.shape) == (None, 8, 8, 3)
    pictures = [str(path) for path in sorted(photos.rglob("*.jpg"))[:3]]
    assert models_command.main(["predict", "--json", str(out), *pictures]) == 0
    assert [one["picture"] for one in json.loads(capfd.readouterr().out)] == pictures


def test_the_seed_gives_the_same_model_again(photos, tmp_path, capfd):
    weights = []
    for name in ("a", "b"):
        out = tmp_path / f"{name}.keras"
        assert run(*TINY, "--data", str(photos), "--out", str(out), "--epochs", "1", "--seed", "4") == 0
        weights.append(open_finished(str(out)).model.get_weights())
    assert all(np.array_equal(one, other) for one, other in zip(*weights, strict=True))


def test_a_pipeline_s_interpolation_is_kept(photos, tmp_path, capfd):
    (tmp_path / "mine.toml").write_text(config_to_toml(dataclasses.replace(BASELINE, batch_size=20)))
    out = tmp_path / "a.keras"
    words = ("--data", str(photos), "--out", str(out), "--epochs", "1", "--config", str(tmp_path / "mine.toml"))
    assert run(*TINY, *words) == 0
    assert open_finished(str(out)).model.get_layer("resize").interpolation == "nearest"


def refusal(capfd, *words: str) -> tuple[int, str]:
    code = run(*words)
    return code, " ".join(capfd.readouterr().err.split())


def test_wrong_options_are_refused_in_a_line(photos, tmp_path, capfd):
    data, out = ("--data", str(photos)), ("--out", str(tmp_path / "a.keras"))
    for words, said in (
        ((*data, *out, "--epochs", "0"), "--epochs must be at least 1. Received: 0."),
        ((*data, *out, "--seed", "-1"), "--seed must be at least 0. Received: -1."),
        (
            (*data, *out, "--model", "cats-dogs-46"),
            "'cats-dogs-46' is not a model. Did you mean 'cats-dogs-64'?",
        ),
        ((*data, "--out", str(tmp_path / "a.h5")), "a.h5 must end in .keras."),
        (
            (*data, *out, "--model", f"{__name__}:with_three_outputs"),
            "as many units as there are classes (2)",
        ),
    ):
        code, printed = refusal(capfd, *words)
        assert code == 2 and said in printed
    assert list(tmp_path.iterdir()) == []


def test_a_training_that_diverges_is_exit_code_3_and_leaves_no_file(photos, tmp_path, capfd):
    words = ("--data", str(photos), "--out", str(tmp_path / "a.keras"), "--model", f"{__name__}:diverging")
    code, printed = refusal(capfd, *words)
    assert code == 3 and "The loss is nan in pass 1" in printed and "a.keras was not written." in printed
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_was_taken_meanwhile_costs_no_training(photos, tmp_path, capfd, monkeypatch):
    out = tmp_path / "a.keras"
    (tmp_path / "a-2.keras").write_text("also precious")
    print_pass = session.print_pass

    def taken(*arguments):
        out.write_text("precious")
        return print_pass(*arguments)

    monkeypatch.setattr(session, "print_pass", taken)
    code, printed = refusal(capfd, *TINY, "--data", str(photos), "--out", str(out), "--epochs", "1")
    assert code == 0 and "has appeared meanwhile and was left as it is" in printed
    assert out.read_text() == "precious" and open_finished(str(tmp_path / "a-3.keras")).class_names


def test_overwrite_replaces_the_file(photos, tmp_path, capfd):
    out = tmp_path / "a.keras"
    out.write_text("old")
    assert run(*TINY, "--data", str(photos), "--out", str(out), "--epochs", "1", "--overwrite") == 0
    assert open_finished(str(out)).class_names


def test_a_photo_that_cannot_be_decoded_is_said_in_a_line(photos, tmp_path, capfd):
    shutil.copytree(photos, tmp_path / "data")
    path = max((tmp_path / "data").rglob("*.jpg"))
    path.write_bytes(CONTENTS["bad Huffman table"][1]())  # its header is whole for every version of Pillow
    words = ("--data", str(tmp_path / "data"), "--out", str(tmp_path / "a.keras"), "--epochs", "1")
    code, printed = refusal(capfd, *TINY, *words)
    assert code == 3 and "Training failed: " in printed and "Traceback" not in printed
    assert f"{path.name} cannot be decoded by OpenCV. " in printed
    assert not (tmp_path / "a.keras").exists()


def test_the_catalogue_says_how_many_passes():
    plan = read_plan(parser().parse_args(["--data", "d", "--out", "a.keras"]))
    published = models.MODELS["cats-dogs-64"].training
    assert (plan.epochs, plan.config.batch_size) == (published.epochs, published.batch_size) == (25, 32)
    said = " ".join(parser().format_help().split())
    assert f"default: {published.epochs} passes" in said
    assert f"published: {published.images_seen // 8000} passes' worth" in said


@pytest.mark.claims
@pytest.mark.needs("jax")
@pytest.mark.skipif(keras.backend.backend() == "jax", reason="the child of this very test")
def test_training_and_testing_hold_on_jax():
    passes_on_jax(__file__, "trains or evaluation or no_number or trained_kept_and_predicts")
