"""MNIST's, the reviews' and the features' files, made small in the same formats, and broken ones."""

import gzip
import hashlib
import io
import pathlib
import struct
import zipfile

import numpy as np
import pytest

from pipeline.sources import published_files
from pipeline.sources.published import DatasetError
from pipeline.sources.published_files import read_idx, read_npz

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
    path = npz(tmp_path, **four(np.array([[1], [2, 3], [4]], object), LABELS))
    assert "x_train cannot be read: Object arrays cannot be loaded when allow_pickle=False" in refused(
        read_npz, path, "features"
    )


# The reviews as Keras has them


def reviews(*texts: list[int]) -> np.ndarray:
    array = np.empty(len(texts), object)
    array[:] = texts
    return array


@pytest.fixture
def imdb(tmp_path, monkeypatch):
    def write(**changes: np.ndarray) -> pathlib.Path:
        arrays = four(reviews([1, 2, 19_996], list(range(1000, 1300)), [19_997]), LABELS)
        path = npz(tmp_path, **{**arrays, **changes})
        monkeypatch.setattr(published_files, "IMDB_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
        return path

    return write


def test_reviews_become_tokens_as_keras_makes_them(imdb):
    splits = read_npz(imdb(), "text")
    # 1 starts, words count from 4, one that would be 20,000 is rare (2); padded and cut on the left.
    assert splits.x_train[0].tolist() == [0] * 196 + [1, 4, 5, 19_999]
    assert splits.x_train[1].tolist() == list(range(1103, 1303))
    assert splits.x_train[2].tolist() == [0] * 198 + [1, 2]
    assert (splits.y_train.tolist(), splits.x_test.shape) == ([0, 1, 1], (2, 200))


def test_reviews_are_those_of_keras_own_loader(imdb, monkeypatch):
    import keras

    path = imdb()
    monkeypatch.setattr("keras.src.datasets.imdb.get_file", lambda *_, **__: str(path))
    (x, y), _ = keras.datasets.imdb.load_data(num_words=20_000)
    theirs = keras.utils.pad_sequences(x, maxlen=200)
    ours = read_npz(path, "text")
    order = np.lexsort(theirs.T)
    np.testing.assert_array_equal(ours.x_train[np.lexsort(ours.x_train.T)], theirs[order])
    np.testing.assert_array_equal(ours.y_train[np.lexsort(ours.x_train.T)], y[order])


def test_reviews_that_are_not_the_published_ones_are_not_unpickled(imdb, monkeypatch):
    path = imdb()
    monkeypatch.setattr(published_files, "IMDB_SHA256", "0" * 64)
    assert f"{path}: it is not the published file, and is not read. SHA256 is " in refused(read_npz, path, "text")


def test_hostile_reviews_are_not_run_even_with_the_right_checksum(imdb, tmp_path):
    class Hostile(list):
        def __reduce__(self):
            return exec, (f"open({str(tmp_path / 'marker')!r}, 'w')",)

    path = imdb(x_train=reviews([1], Hostile(), [2]))
    assert refused(read_npz, path, "text").endswith("and is not read: it asks for builtins.exec.")
    assert not (tmp_path / "marker").exists()


def test_a_newer_npy_header_is_read_as_well(imdb, monkeypatch):
    path = imdb()
    stream = io.BytesIO()
    np.lib.format.write_array(stream, reviews([1], [2], [3]), version=(2, 0))
    with zipfile.ZipFile(path) as origin:
        members = {member: origin.read(member) for member in origin.namelist()}
    with zipfile.ZipFile(path, "w") as to:
        for member, content in {**members, "x_train.npy": stream.getvalue()}.items():
            to.writestr(member, content)
    monkeypatch.setattr(published_files, "IMDB_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    assert read_npz(path, "text").x_train[:, -1].tolist() == [4, 5, 6]


# idx


def idx(array: np.ndarray, *, magic: int | None = None) -> bytes:
    header = struct.pack(f">{1 + array.ndim}I", magic or 0x800 + array.ndim, *array.shape)
    return header + array.tobytes()


FILES = {
    "train-images-idx3-ubyte": idx(DIGITS),
    "train-labels-idx1-ubyte": idx(NUMBERS),
    "t10k-images-idx3-ubyte": idx(DIGITS[:2]),
    "t10k-labels-idx1-ubyte": idx(NUMBERS[:2]),
}


def in_folder(folder: pathlib.Path, files: dict[str, bytes]) -> pathlib.Path:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dot", [False, True])
def test_mnists_own_files_are_read(tmp_path, packed, dot):
    files = {
        (name.replace("-idx", ".idx") if dot else name) + (".gz" if packed else ""): (
            gzip.compress(content) if packed else content
        )
        for name, content in FILES.items()
    }
    splits = read_idx(in_folder(tmp_path, files))
    np.testing.assert_array_equal(splits.x_train[..., 0], DIGITS)
    assert splits.y_train.tolist() == NUMBERS.tolist() and splits.y_test.tolist() == [0, 9]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-images-idx3-ubyte", b"", "must begin with the magic number 0x00000803. Received: 0x."),
        ("train-images-idx3-ubyte", FILES["train-labels-idx1-ubyte"], "Received: 0x00000801."),
        ("train-labels-idx1-ubyte", idx(NUMBERS, magic=0x901), "the magic number 0x00000801. Received: 0x00000901."),
        (
            "train-images-idx3-ubyte",
            FILES["train-images-idx3-ubyte"][:-5],
            "must have 4,704 bytes behind its header, which says (6, 28, 28). Received: 4,699.",
        ),
        ("t10k-labels-idx1-ubyte", FILES["t10k-labels-idx1-ubyte"] + b"\0", "must have 2 bytes behind its header"),
        ("t10k-labels-idx1-ubyte", struct.pack(">II", 0x801, 2**32 - 1), "must have 4,294,967,295 bytes behind"),
        ("train-labels-idx1-ubyte", idx(NUMBERS + 1), "the labels of y_train must lie in 0 to 9. Received: 1 to 10."),
        ("train-images-idx3-ubyte", idx(DIGITS[:, :5]), "x_train must be uint8 of shape (examples, 28, 28, 1)."),
    ],
)
def test_a_broken_idx_file_is_refused(tmp_path, name, content, message):
    assert message in refused(read_idx, in_folder(tmp_path, {**FILES, name: content}))


def test_a_missing_idx_file_is_named(tmp_path):
    files = {name: content for name, content in FILES.items() if "t10k-images" not in name}
    message = refused(read_idx, in_folder(tmp_path, files))
    assert message == f"{tmp_path}: t10k-images-idx3-ubyte is missing, packed (.gz) or not."


@pytest.mark.parametrize(
    "content", [b"no gzip", gzip.compress(FILES["train-images-idx3-ubyte"])[:-30]], ids=["no gzip", "cut off"]
)
def test_a_broken_packed_file_is_refused(tmp_path, content):
    files = {f"{name}.gz": gzip.compress(one) for name, one in FILES.items()}
    folder = in_folder(tmp_path, {**files, "train-images-idx3-ubyte.gz": content})
    assert refused(read_idx, folder).startswith(f"{folder}/train-images-idx3-ubyte.gz cannot be read: ")


def test_a_packed_file_is_unpacked_to_a_limit_only(tmp_path, monkeypatch):
    monkeypatch.setattr(published_files, "_MAX_BYTES", 100)
    files = {f"{name}.gz": gzip.compress(one) for name, one in FILES.items()}
    assert "must have 4,704 bytes behind its header, which says (6, 28, 28). Received: 85." in refused(
        read_idx, in_folder(tmp_path, files)
    )
