"""Files of the published data sets, made small: `.npz` files, whole and broken, and what `keras.datasets` keeps."""

import hashlib
import io
import os
import pathlib
import pickle
import tarfile
import zipfile

import numpy as np
import pytest

from unstall.pipeline.sources import published_files
from unstall.pipeline.sources.published import DatasetError
from unstall.pipeline.sources.published_files import KERAS_FILES, kept_by_keras, read_by_keras, read_npz

RANDOM = np.random.default_rng(0)
DIGITS = RANDOM.integers(0, 256, (6, 28, 28), np.uint8)
NUMBERS = np.array([0, 9, 5, 3, 3, 1], np.uint8)
LABELS = np.array([0, 1, 1])
TOKENS = RANDOM.integers(0, 20_000, (3, 200))
FEATURES = RANDOM.standard_normal((3, 1000))


def npz(folder: pathlib.Path, **arrays: np.ndarray) -> pathlib.Path:
    np.savez(folder / "data.npz", **arrays)
    return folder / "data.npz"


def four(x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    return {"x_train": x, "y_train": y, "x_test": x[:2], "y_test": y[:2]}


def reviews(*texts: list[int]) -> np.ndarray:
    array = np.empty(len(texts), object)
    array[:] = texts
    return array


def refused(read, *arguments) -> str:
    with pytest.raises(DatasetError) as caught:
        read(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# .npz


@pytest.mark.parametrize("x", [DIGITS, DIGITS[..., np.newaxis]], ids=["as Keras has it", "with a channel"])
def test_digits_get_their_channel(tmp_path, x):
    splits = read_npz(npz(tmp_path, **four(x, NUMBERS)), "mnist")
    assert splits.x_train.shape == (6, 28, 28, 1) and splits.x_train.dtype == np.uint8
    np.testing.assert_array_equal(splits.x_train[..., 0], DIGITS)
    assert (splits.y_train.tolist(), splits.y_train.dtype) == (NUMBERS.tolist(), np.int64)
    assert splits.x_test.shape == (2, 28, 28, 1) and splits.y_test.tolist() == [0, 9]


@pytest.mark.parametrize(("name", "x", "dtype"), [("text", TOKENS, np.int32), ("features", FEATURES, np.float32)])
def test_tokens_and_features_get_their_type(tmp_path, name, x, dtype):
    splits = read_npz(npz(tmp_path, **four(x, LABELS[:, np.newaxis])), name)
    assert splits.x_train.dtype == dtype and splits.y_train.shape == (3,)
    np.testing.assert_array_equal(splits.x_train, x.astype(dtype))


@pytest.mark.parametrize(
    ("name", "x", "y", "message"),
    [
        (
            "mnist",
            DIGITS[:, :27],
            NUMBERS,
            "x_train must be uint8 of shape (examples, 28, 28, 1). Received: uint8 of shape",
        ),
        ("mnist", DIGITS / 255, NUMBERS, "x_train must be uint8 of shape (examples, 28, 28, 1). Received: float64 of"),
        ("mnist", DIGITS, NUMBERS + 1, "the labels of y_train must lie in 0 to 9. Received: 1 to 10."),
        (
            "mnist",
            DIGITS,
            NUMBERS[:4],
            "y_train must be one integer for each of the 6 examples. Received: uint8 of shape",
        ),
        ("mnist", DIGITS, NUMBERS / 2, "y_train must be one integer for each of the 6 examples. Received: float64 of"),
        ("mnist", DIGITS[:0], NUMBERS[:0], "Received: uint8 of shape (0, 28, 28, 1)."),
        (
            "text",
            TOKENS[:, :5],
            LABELS,
            "x_train must be int32 of shape (examples, 200). Received: int64 of shape (3, 5).",
        ),
        ("text", TOKENS + 20_000, LABELS, "the tokens of x_train must lie in 0 to 19999. Received: 20"),
        ("text", TOKENS, -LABELS, "the labels of y_train must lie in 0 to 1. Received: -1 to 0."),
        ("features", FEATURES * np.inf, LABELS, "the features of x_train must be finite numbers."),
        ("features", TOKENS, LABELS, "x_train must be float32 of shape (examples, 1000). Received: int64"),
    ],
)
def test_arrays_that_are_not_the_data_sets_are_refused(tmp_path, name, x, y, message):
    path = npz(tmp_path, **four(x, y))
    assert message in refused(read_npz, path, name)
    assert refused(read_npz, path, name).startswith(f"{path}: ")


def test_missing_arrays_are_named(tmp_path):
    path = npz(tmp_path, x_train=DIGITS, y_test=NUMBERS)
    assert refused(read_npz, path, "mnist") == (
        f"{path}: y_train, x_test is missing. It must hold x_train, y_train, x_test, y_test."
    )


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 and no end"])
def test_what_is_no_npz_is_refused(tmp_path, content):
    path = tmp_path / "data.npz"
    path.write_bytes(content)
    assert refused(read_npz, path, "mnist").startswith(f"{path} cannot be read as a .npz file: ")


def test_a_folder_is_no_npz(tmp_path):
    assert refused(read_npz, tmp_path, "mnist") == f"{tmp_path} cannot be read as a .npz file: Is a directory."


def test_an_npz_that_unpacks_to_gigabytes_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(published_files, "_MAX_BYTES", 4000)
    path = tmp_path / "data.npz"
    np.savez_compressed(path, **four(np.zeros((9, 28, 28), np.uint8), np.zeros(9, np.uint8)))
    assert path.stat().st_size < 4000
    assert refused(read_npz, path, "mnist") == f"{path} unpacks to over 4,000 bytes, and is not read."


@pytest.mark.parametrize(
    "broken",
    [b"", b"not npy", b"\x93NUMPY\x01\x00\x76\x00{'descr': '|u1', 'fortran_order': False, 'shape': (10**15,)}"],
)
def test_a_broken_array_in_an_npz_is_refused(tmp_path, broken):
    path = npz(tmp_path, **four(TOKENS, LABELS))
    with zipfile.ZipFile(tmp_path / "broken.npz", "w") as to, zipfile.ZipFile(path) as origin:
        for member in origin.namelist():
            to.writestr(member, broken if member in ("x_train.npy",) else origin.read(member))
    for name in ("text", "mnist"):
        message = refused(read_npz, tmp_path / "broken.npz", name)
        assert message.startswith(f"{tmp_path}/broken.npz: x_train cannot be read: ")


def test_objects_in_an_npz_are_not_unpickled(tmp_path):
    path = npz(tmp_path, **four(reviews([1], [2, 3], [4]), LABELS))
    assert "x_train cannot be read: Object arrays cannot be loaded when allow_pickle=False" in refused(
        read_npz, path, "features"
    )


def test_reviews_that_are_pickled_are_not_read_and_keras_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", "/keras")
    path = npz(tmp_path, **four(reviews([1], [2, 3], [4]), LABELS))
    assert refused(read_npz, path, "text") == (
        f"{path}: x_train cannot be read: Object arrays cannot be loaded when allow_pickle=False. "
        "Give a .npz file of x_train, y_train, x_test and y_test, or none and put imdb.npz at "
        "/keras/datasets/imdb.npz, where keras.datasets reads it, or let Keras fetch it (--download)."
    )


# What Keras keeps


def archive_of_cifar10() -> bytes:
    """CIFAR-10's archive with one image a batch, which Keras' loader repeats 10,000 times to train."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for number, name in enumerate([*(f"data_batch_{batch}" for batch in range(1, 6)), "test_batch"]):
            planes = np.repeat(np.array([[number, 10, 20]], np.uint8), 1024, axis=1)  # all red, all green, all blue
            batch = pickle.dumps({b"data": planes, b"labels": [number]}, protocol=4)
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(batch)
            archive.addfile(member, io.BytesIO(batch))
    return content.getvalue()


def packed(**arrays: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


CONTENT = {
    "mnist": packed(**four(DIGITS, NUMBERS)),
    "cifar10": archive_of_cifar10(),
    "text": packed(**four(reviews([1, 2, 19_996], list(range(1000, 1300)), [19_997]), LABELS)),
}


def test_digits_are_read_through_keras(keras_keeps):
    keras_keeps("mnist", CONTENT["mnist"])
    assert kept_by_keras("mnist", download=False)
    splits = read_by_keras("mnist")
    np.testing.assert_array_equal(splits.x_train[..., 0], DIGITS)
    assert (splits.y_train.tolist(), splits.y_test.tolist()) == (NUMBERS.tolist(), [0, 9])


def test_cifar10_is_read_through_keras_from_its_archive(keras_keeps):
    keras_keeps("cifar10", CONTENT["cifar10"])
    assert kept_by_keras("cifar10", download=False)
    splits = read_by_keras("cifar10")
    assert splits.x_train.shape == (50_000, 32, 32, 3) and splits.x_test.shape == (1, 32, 32, 3)
    assert splits.y_train[[0, 9_999, 10_000, 49_999]].tolist() == [0, 0, 1, 4]
    assert splits.x_train[25_000, 3, 7].tolist() == [2, 10, 20] and splits.x_test[0, 3, 7].tolist() == [5, 10, 20]


def test_reviews_are_read_through_keras_padded_and_cut_on_the_left(keras_keeps):
    keras_keeps("text", CONTENT["text"])
    assert kept_by_keras("text", download=False)
    splits = read_by_keras("text")
    # 1 starts, words count from 4, and 20,000 would be too rare: 2.
    expected = {
        (*[0] * 196, 1, 4, 5, 19_999): 0,
        tuple(range(1103, 1303)): 1,
        (*[0] * 198, 1, 2): 1,
    }
    tokens = map(tuple, splits.x_train.tolist())
    assert dict(zip(tokens, splits.y_train.tolist(), strict=True)) == expected
    assert splits.x_train.dtype == np.int32 and splits.x_test.shape == (2, 200)


@pytest.mark.parametrize("name", KERAS_FILES)
def test_nothing_is_kept_in_an_empty_folder(keras_folder, name):
    assert not kept_by_keras(name, download=False)


@pytest.mark.parametrize("name", KERAS_FILES)
def test_a_file_with_another_checksum_which_keras_would_download_again_is_refused(keras_keeps, name):
    path = keras_keeps(name, CONTENT[name])
    expected = KERAS_FILES[name].sha256
    path.write_bytes(b"something else")
    received = hashlib.sha256(b"something else").hexdigest()
    message = refused(lambda: kept_by_keras(name, download=False))
    assert message.startswith(f"{path} is not the published file: its SHA-256 is {received}, published is {expected}. ")
    assert message.endswith(f" at {path}, where keras.datasets reads it, or let Keras fetch it (--download).")
    assert not kept_by_keras(name, download=True)


@pytest.mark.parametrize("earlier", KERAS_FILES["cifar10"].earlier)
def test_what_an_earlier_keras_left_is_refused_and_the_message_says_what_to_do(keras_folder, earlier):
    (keras_folder / earlier).mkdir()
    assert refused(lambda: kept_by_keras("cifar10", download=False)) == (
        f"{keras_folder / earlier} is not read: keras.datasets looks for cifar-10-batches-py-target_archive there. "
        f"To read CIFAR-10, put cifar-10-python.tar.gz at {keras_folder}/cifar-10-batches-py-target_archive, "
        "where keras.datasets reads it, or let Keras fetch it (--download)."
    )
    assert not kept_by_keras("cifar10", download=True)


def test_a_folder_that_keras_may_not_write_to_is_refused(keras_keeps, monkeypatch):
    path = keras_keeps("mnist", CONTENT["mnist"])
    monkeypatch.setattr(os, "access", lambda folder, mode: (folder, mode) != (str(path.parents[1]), os.W_OK))
    assert refused(lambda: kept_by_keras("mnist", download=False)) == (
        f"{path} is not read: Keras must be able to write to {path.parents[1]}. Set KERAS_HOME to a copy of it."
    )


def test_a_file_that_cannot_be_opened_is_refused(keras_folder):
    (keras_folder / "mnist.npz").mkdir()
    assert refused(lambda: kept_by_keras("mnist", download=False)).startswith(
        f"{keras_folder}/mnist.npz cannot be read: Is a directory. "
    )


def test_what_keras_cannot_load_is_refused_in_one_line(keras_keeps):
    keras_keeps("mnist", CONTENT["mnist"]).write_bytes(b"broken\nfile")
    assert refused(read_by_keras, "mnist").startswith("keras.datasets cannot load MNIST: ")


def test_arrays_of_keras_are_checked(keras_keeps):
    keras_keeps("mnist", CONTENT["mnist"]).write_bytes(packed(**four(DIGITS[:, :27], NUMBERS)))
    assert refused(read_by_keras, "mnist").startswith("keras.datasets: x_train must be uint8 of shape ")


def test_names_and_checksums_are_those_of_keras_own_loaders():
    import keras.src.datasets

    sources = pathlib.Path(keras.src.datasets.__file__).parent
    for name, module in {"mnist": "mnist", "cifar10": "cifar10", "text": "imdb"}.items():
        file, code = KERAS_FILES[name], (sources / f"{module}.py").read_text()
        assert file.sha256 in code and file.published in code
        assert f'"{file.cached.removesuffix("_archive")}"' in code
