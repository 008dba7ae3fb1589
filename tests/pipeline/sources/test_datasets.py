"""Where the published experiments' data come from, in order; what is generated; and that nothing is fetched unasked."""

import dataclasses
import json
import pathlib
import shutil
import socket
import subprocess
import sys

import numpy as np
import pytest

from pipeline.sources import datasets
from pipeline.sources.datasets import DOWNLOADS, open_dataset
from pipeline.sources.published import FORMS, WORDS, DatasetError
from tests import PROJECT_ROOT
from tests.checks import working_tfds


@pytest.fixture(autouse=True)
def bare_machine(tmp_path, monkeypatch):
    """Neither Keras nor TFDS has left anything here, and whoever connects to the network fails."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))

    def refuse(*_: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def some(name: str, examples: int = 12) -> dict[str, np.ndarray]:
    """The four arrays of a data set, for a .npz file."""
    data = open_dataset(name, examples=examples, seed=7)
    return {key: getattr(data, key) for key in ("x_train", "y_train", "x_test", "y_test")}


def npz(path: pathlib.Path, name: str, **keywords: int) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **some(name, **keywords))
    return path


# Generated


@pytest.mark.parametrize("name", FORMS)
def test_generated_data_have_the_published_form(name):
    form, data = FORMS[name], open_dataset(name, examples=100)
    assert (data.name, data.kind, data.class_names) == (name, "generated", form.class_names)
    assert data.x_train.shape == (100, *form.shape) and data.x_train.dtype == form.dtype
    assert data.x_test.shape[1:] == form.shape and data.x_test.dtype == form.dtype
    assert len(data.y_test) == form.test * 100 // form.train
    for labels in (data.y_train, data.y_test):
        assert labels.dtype == np.int64 and set(labels) == set(range(len(form.class_names)))
    if name == "text":
        assert data.x_train.min() == 0 and data.x_train.max() < WORDS
        lengths = (data.x_train > 0).sum(1)
        assert lengths.min() >= 20 and lengths.max() == 200
        for row, length in zip(data.x_train, lengths, strict=True):
            assert not row[: 200 - length].any()  # padded on the left


@pytest.mark.parametrize("name", ["text", "features"])
def test_whole_data_sets_have_the_published_sizes(name):
    data = open_dataset(name)
    assert (len(data.x_train), len(data.x_test)) == (FORMS[name].train, FORMS[name].test)


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
    data = open_dataset(name, examples=3000)
    train, test = (x.reshape(len(x), -1).astype(np.float32) for x in (data.x_train, data.x_test))
    middles = np.stack([train[data.y_train == label].mean(0) for label in range(len(data.class_names))])
    nearest = (test @ middles.T - np.square(middles).sum(1) / 2).argmax(1)
    assert (nearest == data.y_test).mean() > 0.7


def test_generated_reviews_can_be_learnt_by_their_words():
    data = open_dataset("text", examples=4000)
    counts = np.stack([np.bincount(data.x_train[data.y_train == label].ravel(), minlength=WORDS) for label in (0, 1)])
    weight = np.log(counts[1] + 1) - np.log(counts[0] + 1)
    right = (weight[data.x_test].sum(1) > 0) == data.y_test
    assert right.mean() > 0.9


@pytest.mark.parametrize("name", ["mnist", "cifar10", "text"])
def test_a_note_says_that_no_accuracy_is_to_be_read_from_what_is_generated(name):
    data = open_dataset(name, examples=20)
    assert data.note == f"generated in the form of {FORMS[name].title}: no accuracy is to be read from it."


def test_features_are_random_as_published():
    assert open_dataset("features", examples=20).note.startswith("random features, as published")


def test_a_results_file_can_say_all_of_it():
    data = open_dataset("text", examples=10)
    assert json.loads(json.dumps(data.to_dict(), allow_nan=False)) == {
        "kind": "generated",
        "name": "text",
        "examples": 10,
        "test_examples": 10,
        "shape": [200],
        "classes": {"negative": 5, "positive": 5},
        "fingerprint": data.fingerprint,
        "note": data.note,
    }


def test_a_data_set_cannot_be_changed_and_is_short_when_printed():
    data = open_dataset("features", examples=10)
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.kind = "file"
    assert len(repr(data)) < 300


# Files, then Keras, then TFDS


@pytest.mark.parametrize("name", FORMS)
def test_a_file_comes_first(tmp_path, name):
    npz(tmp_path / "keras" / "datasets" / "mnist.npz", "mnist")
    path = npz(tmp_path / "mine.npz", name)
    opened, expected = open_dataset(name, path=str(path)), some(name)
    assert opened.kind == "file" and opened.note.endswith(", from a file given.")
    for key, array in expected.items():
        np.testing.assert_array_equal(getattr(opened, key), array)


@pytest.mark.parametrize("name", ["mnist", "text"])
def test_what_keras_has_kept_is_next(tmp_path, name):
    npz(tmp_path / "keras" / "datasets" / DOWNLOADS[name][0], name)
    opened = open_dataset(name)
    assert opened.kind == "keras" and opened.note.endswith(", from the file that Keras keeps.")
    np.testing.assert_array_equal(opened.x_train, some(name)["x_train"])


@pytest.mark.parametrize(
    "file",
    ["cifar-10-batches-py-target/cifar-10-batches-py", "cifar-10-batches-py", "cifar-10-batches-py.tar.gz"],
)
def test_cifar10_is_found_where_any_keras_has_put_it(tmp_path, monkeypatch, file):
    seen = []
    arrays = some("cifar10", 20)
    monkeypatch.setattr(datasets, "read_cifar10", lambda path: seen.append(path) or datasets.Splits(**arrays))
    folder = tmp_path / "keras" / "datasets" / file
    folder.mkdir(parents=True)
    assert open_dataset("cifar10").kind == "keras"
    assert seen == [folder]


def test_a_broken_file_in_keras_cache_is_an_error_and_not_replaced_by_generated_data(tmp_path):
    path = npz(tmp_path / "keras" / "datasets" / "mnist.npz", "mnist")
    path.write_bytes(b"broken")
    with pytest.raises(DatasetError, match="mnist.npz cannot be read as a .npz file"):
        open_dataset("mnist")


@pytest.mark.parametrize("keras_home", [None, ""])
def test_keras_own_folder_is_in_the_home_folder(tmp_path, monkeypatch, keras_home):
    monkeypatch.delenv("KERAS_HOME") if keras_home is None else monkeypatch.setenv("KERAS_HOME", keras_home)
    monkeypatch.setattr(pathlib.Path, "home", lambda: tmp_path)
    npz(tmp_path / ".keras" / "datasets" / "mnist.npz", "mnist")
    assert open_dataset("mnist").kind == "keras"


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


def test_nothing_is_fetched_unless_asked_for(monkeypatch):
    import keras

    monkeypatch.setattr(keras.utils, "get_file", lambda *_, **__: pytest.fail("fetched"))
    for name in FORMS:
        assert open_dataset(name, examples=10).kind == "generated"


def test_opening_generated_data_imports_neither_keras_nor_tensorflow():
    code = (
        "import sys; from pipeline.sources.datasets import open_dataset; open_dataset('text', examples=9);"
        "print({'keras', 'tensorflow', 'tensorflow_datasets'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("name", ["mnist", "text"])
def test_what_is_asked_for_is_fetched_with_its_published_checksum(tmp_path, monkeypatch, name):
    import keras

    asked = []

    def get_file(file: str, address: str, file_hash: str) -> str:
        asked.append((file, address, file_hash))
        return str(npz(tmp_path / "fetched.npz", name))

    monkeypatch.setattr(keras.utils, "get_file", get_file)
    assert open_dataset(name, download=True).kind == "keras"
    assert asked == [DOWNLOADS[name]]


def test_the_published_addresses_and_checksums_are_those_of_keras_own_loaders():
    import keras.src.datasets

    folder = pathlib.Path(keras.src.datasets.__file__).parent
    for name, module in {"mnist": "mnist", "cifar10": "cifar10", "text": "imdb"}.items():
        file, address, sha256 = DOWNLOADS[name]
        code = (folder / f"{module}.py").read_text()
        assert sha256 in code and address.removesuffix(file) in code


def test_features_cannot_be_fetched_and_are_generated():
    assert open_dataset("features", examples=10, download=True).kind == "generated"


def test_what_cannot_be_fetched_is_an_error_and_not_replaced_by_generated_data(monkeypatch):
    import keras

    def get_file(*_: object, **__: object) -> None:
        raise Exception("URL fetch failure on ...: None -- [Errno -2] Name or service not known\nmore")

    monkeypatch.setattr(keras.utils, "get_file", get_file)
    with pytest.raises(DatasetError) as caught:
        open_dataset("mnist", download=True)
    assert str(caught.value) == (
        f"MNIST cannot be fetched from {DOWNLOADS['mnist'][1]}: "
        "URL fetch failure on ...: None -- [Errno -2] Name or service not known."
    )


# What is refused


@pytest.mark.parametrize(
    ("name", "keywords", "message"),
    [
        ("cifar", {}, "'cifar' is not a data set. Did you mean 'cifar10'? Known: mnist, cifar10, text, features."),
        ("photos", {}, "'photos' is not a data set. Known: "),
        ("mnist", {"examples": 9}, "`examples` must be at least 10, one a class. Received: examples=9."),
        ("mnist", {"path": "no/such/file"}, "no/such/file does not exist."),
        ("mnist", {"path": "/dev/null"}, "/dev/null is neither a file nor a folder."),
    ],
)
def test_what_cannot_be_opened_is_refused(name, keywords, message):
    with pytest.raises(DatasetError) as caught:
        open_dataset(name, **keywords)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("name", "formats"),
    [
        ("mnist", "MNIST. Give mnist.npz, or a folder of MNIST's four idx files."),
        ("text", "the IMDB reviews. Give imdb.npz, or a .npz file of x_train, y_train, x_test and y_test."),
        ("features", "random features. Give a .npz file of x_train, y_train, x_test and y_test."),
    ],
)
def test_a_file_of_no_known_format_is_refused_with_those_that_are(tmp_path, name, formats):
    path = tmp_path / "data.csv"
    path.touch()
    with pytest.raises(DatasetError) as caught:
        open_dataset(name, path=path)
    assert str(caught.value) == f"{path} is no file of {formats}"


def test_folders_of_idx_files_and_of_batches_are_opened(tmp_path):
    with pytest.raises(DatasetError, match="train-images-idx3-ubyte is missing"):
        open_dataset("mnist", path=tmp_path)
    with pytest.raises(DatasetError, match="holds no batch of CIFAR-10"):
        open_dataset("cifar10", path=tmp_path)
