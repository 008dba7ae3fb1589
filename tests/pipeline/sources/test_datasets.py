"""Where the published experiments' data come from, in order; what is generated; that nothing is downloaded unasked."""

import dataclasses
import json
import pathlib
import shutil
import socket
import subprocess
import sys

import numpy as np
import pytest

from tests import PROJECT_ROOT
from tests.checks import working_tfds
from unstall.pipeline.sources.datasets import open_dataset
from unstall.pipeline.sources.generated_arrays import generate
from unstall.pipeline.sources.published import FORMS, WORDS, DatasetError, Splits
from unstall.pipeline.sources.published_files import KERAS_FILES

SMALL = {name: generate(name, train=12, test=2, seed=7) for name in FORMS}


@pytest.fixture(autouse=True)
def bare_machine(tmp_path, monkeypatch):
    """Neither Keras nor TFDS has left anything here, and whoever connects to the network fails."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))

    def refuse(*_: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def some(name: str) -> dict[str, np.ndarray]:
    """The four arrays of a small data set."""
    return {field.name: getattr(SMALL[name], field.name) for field in dataclasses.fields(Splits)}


def npz(path: pathlib.Path, name: str) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **some(name))
    return path


# Generated


@pytest.mark.parametrize("name", FORMS)
def test_generated_data_have_the_published_form(name):
    form, opened = FORMS[name], open_dataset(name, examples=100)
    assert (opened.name, opened.kind, opened.class_names) == (name, "generated", form.class_names)
    assert opened.x_train.shape == (100, *form.shape) and opened.x_train.dtype == form.dtype
    assert opened.x_test.shape[1:] == form.shape and opened.x_test.dtype == form.dtype
    assert len(opened.y_test) == form.test * 100 // form.train
    for labels in (opened.y_train, opened.y_test):
        assert labels.dtype == np.int64 and set(labels) == set(range(len(form.class_names)))
    if name == "text":
        assert opened.x_train.min() == 0 and opened.x_train.max() < WORDS
        lengths = (opened.x_train > 0).sum(1)
        assert lengths.min() >= 20 and lengths.max() == 200
        for row, length in zip(opened.x_train, lengths, strict=True):
            assert not row[: 200 - length].any()  # padded on the left


@pytest.mark.parametrize("name", ["text", "features"])
def test_whole_data_sets_have_the_published_sizes(name):
    opened = open_dataset(name)
    assert (len(opened.x_train), len(opened.x_test)) == (FORMS[name].train, FORMS[name].test)


def test_the_published_sizes():
    assert {name: (form.train, form.test) for name, form in FORMS.items()} == {
        "mnist": (60_000, 10_000),
        "cifar10": (50_000, 10_000),
        "text": (25_000, 25_000),
        "features": (10_000, 2_000),
    }


@pytest.mark.parametrize("name", FORMS)
def test_the_same_seed_gives_the_same_data_and_another_gives_others(name):
    first, again, other = (open_dataset(name, examples=20, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.x_train, again.x_train)
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert not np.array_equal(first.x_train, other.x_train)
    assert not np.array_equal(first.x_train[: len(first.x_test)], first.x_test)


@pytest.mark.parametrize("name", ["mnist", "cifar10", "features"])
def test_generated_classes_can_be_learnt(name):
    opened = open_dataset(name, examples=3000)
    train, test = (x.reshape(len(x), -1).astype(np.float32) for x in (opened.x_train, opened.x_test))
    middles = np.stack([train[opened.y_train == label].mean(0) for label in range(len(opened.class_names))])
    nearest = (test @ middles.T - np.square(middles).sum(1) / 2).argmax(1)
    assert (nearest == opened.y_test).mean() > 0.7


def test_generated_reviews_can_be_learnt_by_their_words():
    opened = open_dataset("text", examples=4000)
    by_label = (opened.x_train[opened.y_train == label] for label in (0, 1))
    counts = np.stack([np.bincount(reviews.ravel(), minlength=WORDS) for reviews in by_label])
    weight = np.log(counts[1] + 1) - np.log(counts[0] + 1)
    right = (weight[opened.x_test].sum(1) > 0) == opened.y_test
    assert right.mean() > 0.9


@pytest.mark.parametrize("name", ["mnist", "cifar10", "text"])
def test_a_note_says_that_no_accuracy_is_to_be_read_from_what_is_generated(name):
    opened = open_dataset(name, examples=20)
    assert opened.note == f"generated in the form of {FORMS[name].title}: no accuracy is to be read from it."


def test_features_are_random_as_published():
    assert open_dataset("features", examples=20).note.startswith("random features, as published")


def test_a_results_file_can_say_all_of_it():
    opened = open_dataset("text", examples=10)
    assert json.loads(json.dumps(opened.to_dict(), allow_nan=False)) == {
        "kind": "generated",
        "name": "text",
        "examples": 10,
        "test_examples": 10,
        "shape": [200],
        "classes": {"negative": 5, "positive": 5},
        "fingerprint": opened.fingerprint,
        "note": opened.note,
    }


def test_a_data_set_cannot_be_changed_and_is_short_when_printed():
    opened = open_dataset("features", examples=10)
    with pytest.raises(dataclasses.FrozenInstanceError):
        opened.kind = "file"
    assert len(repr(opened)) < 300


# Files, then Keras, then TFDS


@pytest.mark.parametrize("name", FORMS)
def test_a_file_comes_first(tmp_path, kept_digits, name):
    path = npz(tmp_path / "mine.npz", name)
    opened, expected = open_dataset(name, path=str(path)), some(name)
    assert opened.kind == "file" and opened.note.endswith(", from a file given.")
    for key, array in expected.items():
        np.testing.assert_array_equal(getattr(opened, key), array)


@pytest.fixture
def kept_digits(tmp_path, keras_keeps):
    """Few digits, where Keras keeps MNIST."""
    return keras_keeps("mnist", npz(tmp_path / "few.npz", "mnist").read_bytes())


def test_what_keras_keeps_is_next(kept_digits):
    opened = open_dataset("mnist")
    assert opened.kind == "keras" and opened.note == "MNIST, from keras.datasets."
    np.testing.assert_array_equal(opened.x_train, some("mnist")["x_train"])


def test_a_broken_file_of_keras_is_an_error_and_not_replaced_by_generated_data(kept_digits):
    kept_digits.write_bytes(b"broken")
    with pytest.raises(DatasetError, match="mnist.npz is not the published file: its SHA-256 is "):
        open_dataset("mnist")


def test_keras_own_folder_is_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("KERAS_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    npz(tmp_path / ".keras" / "datasets" / "mnist.npz", "mnist")
    with pytest.raises(DatasetError, match=r"\.keras/datasets/mnist\.npz is not the published file"):
        open_dataset("mnist")


def test_fewer_examples_are_spread_over_the_file(tmp_path):
    path = tmp_path / "sorted.npz"
    x, y = np.arange(100)[:, np.newaxis] % 100 * np.ones((1, 200), int), np.arange(100) // 50
    np.savez(path, x_train=x, y_train=y, x_test=x[:40], y_test=y[:40])
    opened = open_dataset("text", path=path, examples=5)
    assert opened.x_train[:, 0].tolist() == [0, 25, 50, 74, 99] and opened.y_train.tolist() == [0, 0, 1, 1, 1]
    assert opened.x_test[:, 0].tolist() == [0, 39]
    assert len(open_dataset("text", path=path, examples=500).x_train) == 100
    assert opened.fingerprint != open_dataset("text", path=path).fingerprint


# TFDS


@pytest.fixture(scope="module")
def tfds_folder(tmp_path_factory):
    """Data sets as TFDS prepares them, small, under the published names."""
    tfds = working_tfds()
    from tensorflow_datasets.core import registered

    folder = tmp_path_factory.mktemp("tfds")

    def prepare(name: str, features: dict, examples: list[dict], splits: tuple[str, ...]) -> None:
        def info(self):
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def generate(self):
            yield from enumerate(examples)

        with registered.skip_registration():
            kind = type(
                "".join(word.title() for word in name.split("_")),
                (tfds.core.GeneratorBasedBuilder,),
                {
                    "__doc__": "Small.",
                    "__module__": "somewhere",  # of a package, TFDS looks for its files beside the module
                    "name": name,
                    "VERSION": tfds.core.Version("1.0.0"),
                    "_info": info,
                    "_split_generators": lambda self, _: {split: generate(self) for split in splits},
                    "_generate_examples": generate,
                },
            )
            kind(data_dir=folder).download_and_prepare()
        shutil.copytree(folder / name / "1.0.0", folder / name / "0.9.11")
        (folder / name / "0.9.11" / "dataset_info.json").write_text("an older version, not to be read")

    digits = [{"image": np.full((28, 28, 1), number, np.uint8), "label": number % 10} for number in range(12)]
    image = tfds.features.Image(shape=(28, 28, 1))
    prepare("mnist", {"image": image, "label": tfds.features.ClassLabel(num_classes=10)}, digits, ("train", "test"))
    texts = [{"text": "A good film.<br />Good!" if label else "no, no", "label": label} for label in (0, 1, 1)]
    features = {"text": tfds.features.Text(), "label": tfds.features.ClassLabel(names=["neg", "pos"])}
    prepare("imdb_reviews", features, texts, ("train", "test"))
    return folder


def test_what_tfds_has_prepared_is_next(tfds_folder, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tfds_folder))
    opened = open_dataset("mnist")
    assert (opened.kind, opened.x_train.shape, opened.x_test.shape) == ("tfds", (12, 28, 28, 1), (12, 28, 28, 1))
    assert opened.note == "MNIST, as TFDS prepared it."
    assert [int(image[0, 0, 0]) % 10 for image in opened.x_train] == opened.y_train.tolist()


def test_reviews_of_tfds_are_tokenised(tfds_folder, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tfds_folder))
    opened = open_dataset("text")
    rows = {(label, tuple(row[row > 0].tolist())) for row, label in zip(opened.x_train, opened.y_train, strict=True)}
    assert opened.x_train.shape == (3, 200) and len(rows) == 2
    by_label = dict(rows)
    assert len(set(by_label[0])) == 1 and len(by_label[0]) == 2  # no, no
    assert len(by_label[1]) == 4 and by_label[1][1] > 1  # a, good, "filmbr", good: no word of these is rare


def test_what_tfds_has_begun_and_not_prepared_is_passed_over(tmp_path):
    begun = tmp_path / "tfds" / "cifar10" / "incomplete.F01SKW_3.0.2"
    begun.mkdir(parents=True)
    (begun / "dataset_info.json").touch()
    assert open_dataset("cifar10", examples=10).kind == "generated"


def test_what_tfds_cannot_read_is_an_error(tmp_path):
    folder = tmp_path / "tfds" / "mnist" / "3.0.1"
    folder.mkdir(parents=True)
    (folder / "dataset_info.json").write_text("{ broken")
    (folder / "features.json").write_text("{ broken")
    with pytest.raises(DatasetError, match=r"mnist/3.0.1 cannot be read as TFDS prepared it: "):
        open_dataset("mnist")


# Downloads


@pytest.mark.parametrize("name", FORMS)
def test_nothing_is_downloaded_unless_asked_for(keras_folder, name):
    assert open_dataset(name, examples=10).kind == "generated"


def test_opening_generated_data_imports_neither_keras_nor_tensorflow():
    code = (
        "import sys; from unstall.pipeline.sources.datasets import open_dataset; open_dataset('text', examples=9);"
        "print({'keras', 'tensorflow', 'tensorflow_datasets'} & set(sys.modules))"
    )
    output = subprocess.check_output([sys.executable, "-c", code], cwd=PROJECT_ROOT, text=True)
    assert output.strip() == "set()"


@pytest.mark.parametrize("name", KERAS_FILES)
def test_what_is_asked_for_is_downloaded_by_keras(keras_folder, name):
    with pytest.raises(DatasetError, match=f"^keras.datasets cannot load {FORMS[name].title}: Keras downloads.$"):
        open_dataset(name, download=True)


def test_what_keras_has_downloaded_is_opened(tmp_path, kept_digits, monkeypatch):
    published = kept_digits.rename(tmp_path / "published.npz")
    monkeypatch.setattr("keras.src.utils.file_utils.urlretrieve", lambda _, to, *__: published.rename(to))
    opened = open_dataset("mnist", download=True)
    assert opened.kind == "keras" and kept_digits.exists()
    np.testing.assert_array_equal(opened.x_train, some("mnist")["x_train"])


def test_features_cannot_be_downloaded_and_are_generated():
    assert open_dataset("features", examples=10, download=True).kind == "generated"


# What is refused


@pytest.mark.parametrize(
    ("name", "keywords", "message"),
    [
        ("cifar", {}, "'cifar' is not a data set. Did you mean 'cifar10'? Known: mnist, cifar10, text, features."),
        ("photos", {}, "'photos' is not a data set. Known: "),
        ("mnist", {"examples": 9}, "`examples` must be at least 10, one a class. Received: examples=9."),
        ("mnist", {"path": "no/such/file"}, "no/such/file does not exist."),
        ("features", {"path": "/dev/null"}, "/dev/null is no .npz file, and is not read. Give a .npz file of x_train"),
    ],
)
def test_what_cannot_be_opened_is_refused(name, keywords, message):
    with pytest.raises(DatasetError) as caught:
        open_dataset(name, **keywords)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("file", ["train-images-idx3-ubyte.gz", "cifar-10-python.tar.gz", "folder.npz"])
@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_a_file_in_another_format_is_refused_and_the_message_says_which_is_read(tmp_path, keras_folder, name, file):
    path = tmp_path / file
    path.mkdir() if path.suffix == ".npz" else path.touch()
    with pytest.raises(DatasetError) as caught:
        open_dataset(name, path=path)
    kept = KERAS_FILES[name]
    assert str(caught.value) == (
        f"{path} is no .npz file, and is not read. Give a .npz file of x_train, y_train, x_test and y_test, or none "
        f"and put {kept.published} at {keras_folder}/{kept.cached}, where keras.datasets reads it, "
        "or let Keras fetch it (--download)."
    )


def test_features_are_read_from_a_npz_file_alone(tmp_path):
    with pytest.raises(DatasetError, match="Give a .npz file of x_train, y_train, x_test and y_test.$"):
        open_dataset("features", path=tmp_path)
