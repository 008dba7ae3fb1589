"""CIFAR-10's published files, made small in the same formats; and what a stranger may have put there instead."""

import gzip
import hashlib
import io
import pathlib
import pickle
import struct
import tarfile

import numpy as np
import pytest

from pipeline.sources import published_files
from pipeline.sources.published import DatasetError
from pipeline.sources.published_files import BINARY, PICKLE_MD5, check_digest, load_arrays, read_cifar10

PER_FILE = 4


def rows(number: int) -> tuple[np.ndarray, list[int]]:
    random = np.random.default_rng(number)
    return random.integers(0, 256, (PER_FILE, 3072), np.uint8), random.integers(0, 10, PER_FILE).tolist()


def python_2_pickle(data: np.ndarray, labels: list[int]) -> bytes:
    """A batch as the published ones are written: by Python 2, whose strings are bytes, and NumPy 1."""

    def string(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value if len(value) < 256 else b"T" + struct.pack("<I", len(value)) + value

    numbers = b"".join(b"K" + bytes([label]) for label in labels)
    dtype = b"cnumpy\ndtype\n(" + string(b"u1") + b"K\x00K\x01tR(K\x03" + string(b"|") + b"NNNJ\xff\xff\xff\xffJ"
    dtype += b"\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + string(b"b") + b"tR(K\x01(M"
    array += struct.pack("<H", data.shape[0]) + b"M" + struct.pack("<H", data.shape[1]) + b"t" + dtype + b"\x89"
    array += string(data.tobytes()) + b"tb"
    return b"\x80\x02}(" + string(b"labels") + b"](" + numbers + b"e" + string(b"data") + array + b"u."


def binary(data: np.ndarray, labels: list[int]) -> bytes:
    return np.concatenate([np.array(labels, np.uint8)[:, np.newaxis], data], axis=1).tobytes()


def content(version: str) -> dict[str, bytes]:
    names, write = (PICKLE_MD5, python_2_pickle) if version == "python" else (BINARY, binary)
    return {name: write(*rows(number)) for number, name in enumerate(names)}


def folder_name(version: str) -> str:
    return "cifar-10-batches-py" if version == "python" else "cifar-10-batches-bin"


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    """The published checksums and sizes are those of files of 30 MB; here, of these small ones."""
    sums = {name: hashlib.md5(one).hexdigest() for name, one in content("python").items()}
    monkeypatch.setattr(published_files, "PICKLE_MD5", sums)
    monkeypatch.setattr(published_files, "RECORDS", PER_FILE)


def in_folder(folder: pathlib.Path, files: dict[str, bytes]) -> pathlib.Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, one in files.items():
        (folder / name).write_bytes(one)
    return folder


def in_archive(path: pathlib.Path, files: dict[str, bytes]) -> pathlib.Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, one in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(one)
            archive.addfile(member, io.BytesIO(one))
    return path


def refusal(path: pathlib.Path) -> str:
    with pytest.raises(DatasetError) as caught:
        read_cifar10(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("version", ["python", "binary"])
@pytest.mark.parametrize("how", ["folder", "folder in a folder", "archive"])
def test_every_published_form_gives_the_same_images(tmp_path, version, how):
    files = content(version)
    if how == "archive":
        path = in_archive(tmp_path / "cifar.tar.gz", {f"{folder_name(version)}/{name}": files[name] for name in files})
    else:
        in_folder(tmp_path / folder_name(version), {**files, "readme.html": b"<html>"})
        path = tmp_path if "in" in how else tmp_path / folder_name(version)
    splits = read_cifar10(path)
    assert splits.x_train.shape == (5 * PER_FILE, 32, 32, 3) and splits.x_test.shape == (PER_FILE, 32, 32, 3)
    for number in range(6):
        data, labels = rows(number)
        x, y = (splits.x_test, splits.y_test) if number == 5 else (splits.x_train, splits.y_train)
        part = slice(0 if number == 5 else number * PER_FILE, None if number == 5 else (number + 1) * PER_FILE)
        assert y[part].tolist() == labels
        # Row 3, column 7 of the red, green and blue planes, which follow each other in the file.
        np.testing.assert_array_equal(x[part][:, 3, 7], data[:, [103, 1024 + 103, 2048 + 103]])


def test_the_published_checksums_are_md5_sums():
    assert len(PICKLE_MD5) == 6 and all(len(one) == 32 and int(one, 16) for one in PICKLE_MD5.values())


# What is refused


def test_a_file_with_another_checksum_is_not_unpickled(tmp_path):
    files = content("python")
    files["data_batch_3"] += b"\n"
    message = refusal(in_folder(tmp_path / "batches", files))
    found = hashlib.md5(files["data_batch_3"]).hexdigest()
    expected = published_files.PICKLE_MD5["data_batch_3"]
    assert message == (
        f"{tmp_path}/batches: data_batch_3: it is not the published file, and is not read. "
        f"MD5 is {found}, published {expected}. Get it again."
    )


class Hostile:
    def __init__(self, marker: pathlib.Path) -> None:
        self._marker = marker

    def __reduce__(self):
        import os

        return os.system, (f"touch {self._marker}",)


def test_a_pickle_that_calls_is_not_run_even_with_the_right_checksum(tmp_path, monkeypatch):
    files = content("python")
    files["data_batch_1"] = pickle.dumps({b"data": Hostile(tmp_path / "marker"), b"labels": []})
    sums = {**published_files.PICKLE_MD5, "data_batch_1": hashlib.md5(files["data_batch_1"]).hexdigest()}
    monkeypatch.setattr(published_files, "PICKLE_MD5", sums)
    message = refusal(in_folder(tmp_path / "batches", files))
    assert message.endswith("it is no pickle of plain arrays, and is not read: it asks for posix.system.")
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("one", [print, np.frombuffer, np.testing.assert_equal, pathlib.PurePath("a")])
def test_only_what_rebuilds_an_array_may_be_named_in_a_pickle(one):
    with pytest.raises(DatasetError, match="here: it is no pickle of plain arrays, and is not read: it asks for"):
        load_arrays(pickle.dumps(one), "here")


@pytest.mark.parametrize("broken", [b"", b"\x80\x02}", b"not a pickle", b"cnumpy\nndarray\n)R."])
def test_a_broken_pickle_is_refused_in_one_line(broken):
    with pytest.raises(DatasetError, match="^here: it is no pickle of plain arrays, and is not read: .*[.]$"):
        load_arrays(broken, "here")


def test_arrays_of_today_are_read_as_well():
    array = np.arange(6, dtype=np.int64).reshape(2, 3)
    read = load_arrays(pickle.dumps({"data": array}, protocol=4), "here")
    np.testing.assert_array_equal(read["data"], array)


def test_a_right_checksum_passes():
    check_digest(b"abc", "sha256", hashlib.sha256(b"abc").hexdigest(), "here")


@pytest.mark.parametrize("batch", [[1, 2], {b"data": 1}, {b"labels": 1}])
def test_a_pickle_without_data_and_labels_is_refused(tmp_path, monkeypatch, batch):
    files = {**content("python"), "test_batch": pickle.dumps(batch)}
    sums = {name: hashlib.md5(one).hexdigest() for name, one in files.items()}
    monkeypatch.setattr(published_files, "PICKLE_MD5", sums)
    assert refusal(in_folder(tmp_path / "batches", files)).endswith("test_batch: it must hold `data` and `labels`.")


def test_rows_of_another_size_are_refused(tmp_path, monkeypatch):
    files = {**content("python"), "test_batch": python_2_pickle(np.zeros((4, 300), np.uint8), [0] * 4)}
    sums = {name: hashlib.md5(one).hexdigest() for name, one in files.items()}
    monkeypatch.setattr(published_files, "PICKLE_MD5", sums)
    message = refusal(in_folder(tmp_path / "batches", files))
    assert message.endswith("test_batch: its rows must have 3,072 values. Received: shape=(4, 300).")


def test_a_missing_batch_is_named(tmp_path):
    files = content("binary")
    del files["data_batch_2.bin"], files["test_batch.bin"]
    message = refusal(in_folder(tmp_path / "batches", files))
    assert message == f"{tmp_path}/batches: data_batch_2.bin, test_batch.bin is missing. Unpack the archive again."


def test_a_truncated_binary_file_is_refused(tmp_path):
    files = content("binary")
    files["data_batch_4.bin"] = files["data_batch_4.bin"][:-1]
    message = refusal(in_folder(tmp_path / "batches", files))
    assert message.endswith("data_batch_4.bin: it must have 4 records of 3,073 bytes. Received: 12,291 bytes.")


def test_a_label_out_of_range_is_refused(tmp_path):
    files = content("binary")
    files["data_batch_1.bin"] = b"\x0a" + files["data_batch_1.bin"][1:]
    message = refusal(in_folder(tmp_path / "batches", files))
    assert message.endswith("the labels of y_train must lie in 0 to 9. Received: 0 to 10.")


def test_an_empty_folder_is_refused(tmp_path):
    assert refusal(tmp_path).startswith(f"{tmp_path} holds no batch of CIFAR-10: data_batch_1, ")


def test_what_is_no_archive_is_refused(tmp_path):
    path = tmp_path / "x.tar.gz"
    path.write_bytes(b"no archive")
    assert refusal(path) == f"{path} cannot be read as an archive (.tar.gz): not a gzip file."


def test_a_truncated_archive_is_refused(tmp_path):
    path = in_archive(tmp_path / "cifar.tar.gz", {f"a/{name}": one for name, one in content("binary").items()})
    path.write_bytes(path.read_bytes()[:-20_000])
    assert refusal(path).startswith(f"{path} cannot be read as an archive (.tar.gz): ")


@pytest.mark.parametrize("name", ["../data_batch_1.bin", "/etc/data_batch_1.bin", "a/../../data_batch_1.bin"])
def test_an_archive_that_would_leave_its_folder_is_refused(tmp_path, name):
    (tmp_path / "inside").mkdir()
    path = in_archive(tmp_path / "inside" / "cifar.tar.gz", {name: b"x", **content("binary")})
    message = refusal(path)
    if name.startswith("/"):  # tarfile takes the leading slash off, and the file is then there twice
        assert message.endswith("data_batch_1.bin is there twice, or larger than any batch of CIFAR-10.")
    else:
        assert message.startswith(f"{path} holds what does not belong into a data set, and is not read: ")
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["cifar.tar.gz", "inside"]


def test_a_link_in_an_archive_that_leads_outside_is_refused(tmp_path):
    path = tmp_path / "cifar.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("data_batch_1")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(member)
    assert "holds what does not belong into a data set" in refusal(path)


def test_an_archive_with_far_more_in_it_is_not_read_to_its_end(tmp_path):
    path = in_archive(tmp_path / "many.tar.gz", {f"{number}": b"" for number in range(60)})
    assert refusal(path) == f"{path} holds more than CIFAR-10's archives do, and is not read."


def test_a_member_that_unpacks_to_gigabytes_is_not_read(tmp_path):
    path = tmp_path / "bomb.tar.gz"
    header = tarfile.TarInfo("data_batch_1")
    header.size = 10**10
    path.write_bytes(gzip.compress(header.tobuf() + bytes(10_000)))
    assert refusal(path) == f"{path} holds more than CIFAR-10's archives do, and is not read."


def test_a_batch_larger_than_any_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(published_files, "_MAX_FILE_BYTES", 1000)
    folder = in_folder(tmp_path / "batches", {"data_batch_1.bin": bytes(1001)})
    assert refusal(folder) == f"{folder}/data_batch_1.bin has over 1,000 bytes, more than any batch of CIFAR-10."
    archive = in_archive(tmp_path / "cifar.tar.gz", {"data_batch_1.bin": bytes(1001)})
    assert refusal(archive) == f"{archive}: data_batch_1.bin is there twice, or larger than any batch of CIFAR-10."


def test_a_batch_that_may_not_be_opened_is_refused(tmp_path, monkeypatch):
    folder = in_folder(tmp_path / "batches", content("binary"))

    def forbidden(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pathlib.Path, "open", forbidden)
    assert "cannot be read: Permission denied." in refusal(folder)
