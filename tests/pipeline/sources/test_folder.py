"""One scan of a folder, arrays, TFDS: what is kept, what is skipped and why, and what is refused.

Long because a folder of other people's files has that many ways to be odd, and each has its own words.
"""

import collections
import io
import json
import os
import pathlib
import shutil
import socket
import tracemalloc
import warnings

import numpy as np
import pytest
from PIL import Image

from tests.bad_files import png_claiming
from tests.checks import working_tfds
from unstall.pipeline import SourceError, from_arrays, from_folder, from_tfds, open_source
from unstall.pipeline.cache import cache_root
from unstall.pipeline.sources import folder as sources
from unstall.pipeline.sources.folder import copied_to_ram, folder_of_links
from unstall.pipeline.sources.headers import FORMATS, MAX_PIXELS, image_format

RULE = "Give a folder that holds one folder of images per class, such as cats/ and dogs/."
DiskUsage = collections.namedtuple("DiskUsage", "total used free")


def encoded(
    file_format: str = "JPEG", size: tuple[int, int] = (20, 10), colour: tuple[int, ...] = (10, 200, 30)
) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", size, colour).save(stream, file_format)
    return stream.getvalue()


def write(root: pathlib.Path, files: dict[str, bytes]) -> pathlib.Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


@pytest.fixture
def two_classes(tmp_path):
    return write(
        tmp_path / "pets",
        {
            "dogs/b.jpg": encoded(),
            "dogs/a.jpg": encoded(),
            "cats/2.jpg": encoded(),
            "cats/10.jpg": encoded(),
            "cats/deep/er/1.jpg": encoded(),
        },
    )


def skipped(source) -> dict[str, str]:
    return {file.path: file.reason for file in source.skipped}


def refusal(folder: pathlib.Path | str) -> str:
    with pytest.raises(SourceError) as caught:
        from_folder(folder)
    return str(caught.value)


# What is kept


def test_files_are_listed_in_sorted_order_with_sorted_classes(two_classes):
    source = from_folder(two_classes)
    assert source.class_names == ("cats", "dogs")
    assert source.files == ("cats/10.jpg", "cats/2.jpg", "cats/deep/er/1.jpg", "dogs/a.jpg", "dogs/b.jpg")
    assert source.labels.tolist() == [0, 0, 0, 1, 1]
    assert source.labels.dtype == np.int64
    assert source.paths == [str(two_classes / file) for file in source.files]
    assert (source.kind, source.name, source.images) == ("folder", "pets", 5)
    assert (source.formats, source.skipped, source.arrays) == (("JPEG",), (), None)


def test_two_scans_and_a_scan_in_another_order_of_the_disk_agree(two_classes, monkeypatch):
    write(two_classes, {"cats/a/1.jpg": encoded(), "cats/z/1.jpg": encoded()})
    first = from_folder(two_classes)
    scandir = os.scandir

    class Backwards:
        def __init__(self, path):
            self._entries = list(scandir(path))[::-1]

        def __enter__(self):
            return iter(self._entries)

        def __exit__(self, *_):
            pass

        def __iter__(self):
            return iter(self._entries)

        def __next__(self):
            if not self._entries:
                raise StopIteration
            return self._entries.pop(0)

        def close(self):
            pass

    monkeypatch.setattr(os, "scandir", Backwards)
    again = from_folder(two_classes)
    assert (again.files, again.fingerprint, again.labels.tolist()) == (
        first.files,
        first.fingerprint,
        first.labels.tolist(),
    )


def test_a_relative_folder_is_still_found_after_a_change_of_folder(two_classes, monkeypatch, tmp_path):
    monkeypatch.chdir(two_classes.parent)
    source = from_folder("pets")
    monkeypatch.chdir(tmp_path.parent)
    assert [os.path.isfile(path) for path in source.paths] == [True] * 5
    assert source.name == "pets"


def test_the_current_folder_has_its_own_name(two_classes, monkeypatch):
    monkeypatch.chdir(two_classes)
    assert from_folder(".").name == "pets"


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_format_is_known_by_content_not_by_suffix(tmp_path, file_format):
    source = from_folder(write(tmp_path, {"a/x.txt": encoded(file_format), "b/y": encoded(file_format)}))
    assert (source.images, source.formats) == (2, (file_format,))


def test_formats_are_listed_sorted_and_once(tmp_path):
    files = {f"{name}/{file_format}": encoded(file_format) for name in "ab" for file_format in FORMATS}
    assert from_folder(write(tmp_path, files)).formats == ("BMP", "GIF", "JPEG", "PNG", "WEBP")


def test_a_jpeg_with_more_pictures_behind_the_first_is_a_jpeg(tmp_path):
    stream = io.BytesIO()
    Image.new("RGB", (20, 10)).save(stream, "MPO", save_all=True, append_images=[Image.new("RGB", (20, 10))])
    assert Image.open(io.BytesIO(stream.getvalue())).format == "MPO"
    source = from_folder(write(tmp_path, {"a/1.jpg": stream.getvalue(), "b/1.jpg": encoded()}))
    assert source.formats == ("JPEG",)
    assert image_format(source.paths[0]) == "JPEG"


def test_a_link_to_a_file_or_to_a_class_folder_counts_as_what_it_names(tmp_path):
    root = write(tmp_path / "root", {"a/1.jpg": encoded(), "b/1.jpg": encoded()})
    write(tmp_path / "elsewhere", {"2.jpg": encoded()})
    (root / "a" / "link.jpg").symlink_to(tmp_path / "elsewhere" / "2.jpg")
    (root / "c").symlink_to(tmp_path / "elsewhere")
    assert from_folder(root).files == ("a/1.jpg", "a/link.jpg", "b/1.jpg", "c/2.jpg")


def test_links_to_folders_below_a_class_are_not_followed(two_classes):
    (two_classes / "cats" / "loop").symlink_to(two_classes)
    assert from_folder(two_classes).images == 5


def test_hidden_folders_are_no_classes_and_files_beside_the_classes_do_not_matter(two_classes):
    write(two_classes, {".cache/1.jpg": encoded(), "README.md": b"about"})
    source = from_folder(two_classes)
    assert (source.class_names, source.images, source.skipped) == (("cats", "dogs"), 5, ())


def test_the_labels_are_gone_through_once_however_many_classes_there_are(tmp_path, monkeypatch):
    sizes = []

    def counted(items=()):
        sizes.append(len(items))
        return {*items}

    monkeypatch.setattr(sources, "set", counted, raising=False)
    write(tmp_path, {f"{name}/1.jpg": encoded() for name in "abcdefgh"})
    assert from_folder(tmp_path).images == 8
    assert sum(sizes) == 8


def test_progress_is_reported_for_every_file(two_classes):
    write(two_classes, {"cats/notes.txt": b"text"})
    reports = []
    from_folder(two_classes, progress=lambda done, total: reports.append((done, total)))
    assert reports == [(number, 6) for number in range(1, 7)]


def test_what_the_results_file_says_adds_up(two_classes):
    write(two_classes, {"cats/notes.txt": b"text", "dogs/none.jpg": b""})
    summary = from_folder(two_classes).to_dict()
    fingerprint = summary.pop("fingerprint")
    assert len(fingerprint) == 16 and set(fingerprint) <= set("0123456789abcdef")
    assert json.loads(json.dumps(summary)) == {
        "kind": "folder",
        "name": "pets",
        "images": 5,
        "skipped": 2,
        "skipped_files": [
            {"path": "cats/notes.txt", "reason": "not an image"},
            {"path": "dogs/none.jpg", "reason": "zero bytes"},
        ],
        "classes": {"cats": 3, "dogs": 2},
        "formats": ["JPEG"],
    }


# The fingerprint


def test_the_fingerprint_stays_while_nothing_changes(two_classes):
    before = from_folder(two_classes).fingerprint
    write(two_classes, {"cats/notes.txt": b"not served, so not in it"})
    (two_classes / "cats" / "2.jpg").read_bytes()
    assert from_folder(two_classes).fingerprint == before


def rename(root: pathlib.Path) -> None:
    (root / "cats" / "2.jpg").rename(root / "cats" / "3.jpg")


def other_class(root: pathlib.Path) -> None:
    (root / "cats" / "2.jpg").rename(root / "dogs" / "2.jpg")


def touch(root: pathlib.Path) -> None:
    status = (root / "cats" / "2.jpg").stat()
    os.utime(root / "cats" / "2.jpg", ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def grow(root: pathlib.Path) -> None:
    path = root / "cats" / "2.jpg"
    status = path.stat()
    path.write_bytes(path.read_bytes() + b"\0")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def remove(root: pathlib.Path) -> None:
    (root / "cats" / "2.jpg").unlink()


@pytest.mark.parametrize("change", [rename, other_class, touch, grow, remove])
def test_the_fingerprint_changes_with_name_size_time_and_number(two_classes, change):
    before = from_folder(two_classes).fingerprint
    change(two_classes)
    assert from_folder(two_classes).fingerprint != before


# What is skipped


def test_every_file_is_kept_or_skipped_with_a_reason(tmp_path, monkeypatch):
    images = {f"{name}/{number}.jpg": encoded() for name in "ab" for number in range(3)}
    root = write(
        tmp_path / "root",
        {
            **images,
            "a/notes.txt": b"not an image\n",
            "a/empty.jpg": b"",
            "a/text.jpg": b"plain text under the name of an image",
            "a/cut.jpg": encoded()[:10],
            "a/huge.png": png_claiming(10_001, 5_000),
            "a/bomb.png": png_claiming(60_000, 60_000),
            "b/tiff.jpg": encoded("TIFF"),
            "b/.DS_Store": b"\0\0\0\1Bud1",
        },
    )
    (root / "b" / "dangling.jpg").symlink_to(tmp_path / "gone.jpg")
    os.mkfifo(root / "b" / "pipe.jpg")
    monkeypatch.chdir(root)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("b/socket.jpg")
        source = from_folder(root)
    reasons = skipped(source)
    assert set(source.files) == set(images)
    assert reasons.pop("a/bomb.png").startswith("not a readable image: Image size (3600000000 pixels) exceeds limit")
    assert reasons.pop("a/cut.jpg")  # whatever Pillow calls it
    assert reasons == {
        "a/empty.jpg": "zero bytes",
        "a/huge.png": "10001x5000 pixels, over the limit of 50 megapixels",
        "a/notes.txt": "not an image",
        "a/text.jpg": "not an image",
        "b/.DS_Store": "not an image",
        "b/dangling.jpg": "cannot be read: No such file or directory",
        "b/pipe.jpg": "not a regular file",
        "b/socket.jpg": "not a regular file",
        "b/tiff.jpg": "not an image",
    }
    total = sum(len(files) for _, _, files in os.walk(root))
    assert source.images + len(source.skipped) == total == 17


def test_an_image_over_the_limit_is_skipped_without_a_warning_of_pillows(tmp_path):
    write(tmp_path, {"a/1.jpg": encoded(), "a/large.png": png_claiming(10_000, 10_000), "b/1.jpg": encoded()})
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        source = from_folder(tmp_path)
    assert skipped(source) == {"a/large.png": "10000x10000 pixels, over the limit of 50 megapixels"}
    assert [str(warning.message) for warning in warned] == []


def test_an_image_of_exactly_the_limit_is_kept(tmp_path):
    assert MAX_PIXELS == 50_000_000
    files = {"a/limit.png": png_claiming(10_000, 5_000), "b/1.jpg": encoded()}
    assert from_folder(write(tmp_path, files)).files == ("a/limit.png", "b/1.jpg")


def test_a_folder_below_a_class_that_cannot_be_listed_is_refused_not_lost(two_classes, monkeypatch):
    scandir = os.scandir

    def denied(path):
        if str(path).endswith("deep"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    assert refusal(two_classes) == f"{two_classes} cannot be read: Permission denied."


# What is refused


def test_a_missing_folder_is_refused(tmp_path):
    folder = tmp_path / "gone"
    assert refusal(folder) == f"{folder} does not exist. Give a folder that holds one folder of images per class."


def test_a_file_in_place_of_a_folder_is_refused(tmp_path):
    path = tmp_path / "file"
    path.touch()
    assert refusal(path) == f"{path} is not a folder. Give a folder that holds one folder of images per class."


def test_an_empty_folder_is_refused(tmp_path):
    assert refusal(tmp_path) == f"{tmp_path} is empty. {RULE}"


def test_a_folder_without_class_folders_is_refused(tmp_path):
    write(tmp_path, {"1.jpg": encoded(), ".hidden/1.jpg": encoded()})
    assert refusal(tmp_path) == f"{tmp_path} has no class folders. {RULE}"


def test_one_class_is_refused(tmp_path):
    write(tmp_path, {"cats/1.jpg": encoded()})
    assert refusal(tmp_path) == f"{tmp_path} has one class folder, cats; at least 2 are needed. {RULE}"


def test_splits_beside_other_folders_are_refused_with_the_folder_to_give(tmp_path):
    files = {f"{split}/{name}/1.jpg": encoded() for split in ("test_set", "training_set") for name in ("cats", "dogs")}
    write(tmp_path, files | {"single_prediction/1.jpg": encoded()})
    assert refusal(tmp_path) == (
        f"{tmp_path} holds splits (test_set, training_set), each with the classes cats, dogs. "
        f"Give one of them: {tmp_path}/training_set."
    )


def test_a_folder_of_splits_is_refused_with_the_folder_to_give(tmp_path):
    write(tmp_path, {f"{split}/{name}/1.jpg": encoded() for split in ("test", "train") for name in ("cats", "dogs")})
    assert refusal(tmp_path) == (
        f"{tmp_path} holds splits (test, train), each with the classes cats, dogs. Give one of them: {tmp_path}/train."
    )


def test_a_class_without_an_image_is_refused_with_the_first_skipped_file(tmp_path):
    write(tmp_path, {"cats/1.jpg": encoded(), "dogs/notes.txt": b"text", "fish/1.jpg": b""})
    assert refusal(tmp_path) == (
        f"{tmp_path}: no image in class folder dogs, fish. Every class needs at least one "
        "(JPEG, PNG, BMP, GIF, WEBP). First skipped: dogs/notes.txt (not an image)."
    )


def test_an_empty_class_folder_is_refused(tmp_path):
    write(tmp_path, {"cats/1.jpg": encoded()})
    (tmp_path / "dogs").mkdir()
    assert refusal(tmp_path) == (
        f"{tmp_path}: no image in class folder dogs. Every class needs at least one (JPEG, PNG, BMP, GIF, WEBP)."
    )


def test_a_folder_that_cannot_be_read_is_refused(two_classes, monkeypatch):
    def denied(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", denied)
    assert refusal(two_classes) == f"{two_classes} cannot be read: Permission denied."


# Names that a terminal must not get


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("two\nlines", r"two\nlines"),
        ("red\x1b[31m", r"red\x1b[31m"),
        (os.fsdecode(b"latin-\xe9"), r"latin-\udce9"),
        ("right\u202eleft", r"right\u202eleft"),
        ("Kätzchen", "Kätzchen"),
    ],
)
def test_names_are_shown_with_what_is_not_printable_escaped(tmp_path, name, escaped):
    root = write(tmp_path / name, {"a/1.jpg": encoded(), "b/1.jpg": encoded(), f"b/{name}.txt": b"text"})
    source = from_folder(root)
    assert source.name == escaped
    assert skipped(source) == {f"b/{escaped}.txt": "not an image"}
    assert refusal(root / name).startswith(f"{tmp_path}/{escaped}/{escaped} does not exist.")
    assert json.loads(json.dumps(source.to_dict()))["name"] == escaped


def test_a_class_with_an_odd_name_is_shown_escaped_in_errors(tmp_path):
    write(tmp_path, {"cats/1.jpg": encoded()})
    (tmp_path / "do\ngs").mkdir()
    assert refusal(tmp_path).startswith(f"{tmp_path}: no image in class folder do\\ngs. ")


def test_the_results_file_holds_no_class_name_that_is_not_printable(tmp_path):
    odd = os.fsdecode(b"do\ngs\xe9")
    classes = from_folder(write(tmp_path, {"cats/1.jpg": encoded(), f"{odd}/1.jpg": encoded()})).to_dict()["classes"]
    assert list(classes) == ["cats", r"do\ngs\udce9"]


# take


def test_take_spreads_evenly_over_the_classes(photos):
    source = from_folder(photos)
    taken = source.take(10)
    assert taken.images == len(taken.files) == 10
    assert np.bincount(taken.labels).tolist() == [5, 5]
    assert len(set(taken.files)) == 10 and list(taken.files) == sorted(taken.files)
    position = {file: index for index, file in enumerate(source.files)}
    assert [source.labels[position[file]] for file in taken.files] == taken.labels.tolist()
    assert taken.fingerprint == f"{source.fingerprint}-10"
    assert all(os.path.isfile(path) for path in taken.paths)


@pytest.mark.parametrize("images", [40, 41, 10_000])
def test_take_of_all_or_more_is_the_source_itself(photos, images):
    source = from_folder(photos)
    assert source.take(images) is source


def test_take_keeps_arrays_and_labels_together():
    images = np.arange(8, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 3), np.uint8)
    taken = from_arrays(images, np.array([0, 0, 0, 0, 1, 1, 1, 1])).take(4)
    assert taken.arrays[:, 0, 0, 0].tolist() == [0, 2, 5, 7]
    assert taken.labels.tolist() == [0, 0, 1, 1]
    assert (taken.images, taken.files, taken.paths) == (4, (), [])


# Arrays


def test_arrays_are_a_source_without_files():
    images = np.zeros((4, 5, 6, 3), np.uint8)
    source = from_arrays(images, np.array([[1], [0], [2], [1]], np.uint8))
    assert (source.kind, source.name, source.images) == ("arrays", "arrays", 4)
    assert source.class_names == ("0", "1", "2")
    assert source.labels.tolist() == [1, 0, 2, 1] and source.labels.dtype == np.int64
    assert (source.files, source.paths, source.root, source.formats) == ((), [], None, ())
    assert source.to_dict()["classes"] == {"0": 1, "1": 2, "2": 1}
    assert from_arrays(images, np.array([1, 0, 1, 0]), class_names=("cat", "dog")).class_names == ("cat", "dog")


def test_the_fingerprint_of_arrays_is_of_their_bytes():
    images, labels = np.zeros((4, 5, 6, 3), np.uint8), np.array([0, 1, 0, 1])
    before = from_arrays(images, labels).fingerprint
    assert from_arrays(images.copy(), labels).fingerprint == before
    images[3, 4, 5, 2] = 1
    assert from_arrays(images, labels).fingerprint != before


def test_the_fingerprint_of_arrays_takes_no_copy_of_them():
    images, labels = np.zeros((2, 1000, 500, 3), np.uint8), np.array([0, 1])
    tracemalloc.start()
    try:
        fingerprint = from_arrays(images, labels).fingerprint
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < images.nbytes / 10
    assert from_arrays(np.asfortranarray(images), labels).fingerprint == fingerprint


def test_the_fingerprint_of_arrays_tells_labels_and_shapes_apart():
    images = np.zeros((4, 5, 6, 3), np.uint8)
    fingerprints = {
        from_arrays(images, np.array([0, 1, 0, 1])).fingerprint,
        from_arrays(images, np.array([1, 0, 1, 0])).fingerprint,
        from_arrays(images.reshape(4, 6, 5, 3), np.array([0, 1, 0, 1])).fingerprint,
    }
    assert len(fingerprints) == 3


@pytest.mark.parametrize(
    "images",
    [
        np.zeros((4, 5, 6), np.uint8),
        np.zeros((4, 5, 6, 1), np.uint8),
        np.zeros((4, 5, 6, 4), np.uint8),
        np.zeros((4, 5, 6, 3), np.float32),
        np.zeros((0, 5, 6, 3), np.uint8),
    ],
    ids=["no-channels", "grey", "alpha", "float", "none"],
)
def test_arrays_of_another_shape_or_type_are_refused(images):
    with pytest.raises(SourceError) as caught:
        from_arrays(images, np.zeros(len(images), int))
    assert str(caught.value) == (
        "`images` must be a uint8 array of shape (images, height, width, 3). "
        f"Received: shape={images.shape}, dtype={images.dtype}."
    )


@pytest.mark.parametrize(
    ("labels", "received"),
    [
        ([0, 1, 0], "3 of int64"),
        ([0.0, 1.0, 0.0, 1.0], "4 of float64"),
        ([[0, 1], [1, 0], [0, 1], [1, 0]], "8 of int64"),
    ],
)
def test_labels_that_are_not_one_integer_an_image_are_refused(labels, received):
    with pytest.raises(SourceError) as caught:
        from_arrays(np.zeros((4, 5, 6, 3), np.uint8), np.array(labels))
    assert str(caught.value) == f"`labels` must be one integer per image (4). Received: {received}."


@pytest.mark.parametrize(
    ("labels", "class_names", "received"),
    [
        ([0, 0, 0, 0], None, "1 classes, labels 0 to 0"),
        ([-1, 0, 1, 0], None, "2 classes, labels -1 to 1"),
        ([0, 1, 2, 0], ("cat", "dog"), "2 classes, labels 0 to 2"),
        ([0, 0, 0, 0], ("cat",), "1 classes, labels 0 to 0"),
    ],
)
def test_labels_outside_of_the_classes_are_refused(labels, class_names, received):
    with pytest.raises(SourceError) as caught:
        from_arrays(np.zeros((4, 5, 6, 3), np.uint8), np.array(labels), class_names=class_names)
    assert str(caught.value) == (f"`labels` must lie in 0 to classes - 1, of at least 2 classes. Received: {received}.")


# A folder of links


def test_the_folder_of_links_holds_exactly_the_source_in_its_order(two_classes):
    write(two_classes, {"cats/notes.txt": b"text"})
    source = from_folder(two_classes)
    folder = folder_of_links(source)
    assert folder.is_relative_to(cache_root())
    linked = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink())
    assert linked == [
        "cats/00000000.jpg",
        "cats/00000001.jpg",
        "cats/00000002.jpg",
        "dogs/00000003.jpg",
        "dogs/00000004.jpg",
    ]
    assert [os.path.realpath(folder / name) for name in linked] == [os.path.realpath(path) for path in source.paths]


def test_links_end_as_the_content_says(tmp_path):
    files = {f"{name}/{number}.txt": encoded(kind) for name in "ab" for number, kind in enumerate(FORMATS)}
    source = from_folder(write(tmp_path, files))
    folder = folder_of_links(source)
    for position, path in enumerate(source.paths):
        suffix = FORMATS[image_format(path)]
        link = folder / source.class_names[source.labels[position]] / f"{position:08d}{suffix}"
        assert os.path.realpath(link) == os.path.realpath(path)
    assert {path.suffix for path in folder.rglob("*.*")} == set(FORMATS.values())


def test_a_folder_of_links_is_used_again(two_classes):
    first = folder_of_links(from_folder(two_classes))
    before = {path: path.lstat().st_ino for path in first.rglob("*")}
    again = folder_of_links(from_folder(two_classes))
    assert again == first
    assert {path: path.lstat().st_ino for path in again.rglob("*")} == before


def test_other_files_and_a_copy_elsewhere_get_links_of_their_own(two_classes, tmp_path):
    first = folder_of_links(from_folder(two_classes))
    shutil.copytree(two_classes, tmp_path / "copy")  # keeps the times: the same fingerprint
    copy = from_folder(tmp_path / "copy")
    assert copy.fingerprint == from_folder(two_classes).fingerprint
    assert folder_of_links(copy) != first
    assert folder_of_links(from_folder(two_classes).take(3)) != first
    touch(two_classes)
    assert folder_of_links(from_folder(two_classes)) != first


# A copy in RAM


def test_a_copy_in_ram_holds_the_same_bytes(two_classes, tmp_path):
    source = from_folder(two_classes)
    target = tmp_path / "ram"
    copy = copied_to_ram(source, target)
    assert copy.root == target
    assert (copy.files, copy.fingerprint, copy.labels.tolist()) == (
        source.files,
        source.fingerprint,
        source.labels.tolist(),
    )
    assert [pathlib.Path(path).read_bytes() for path in copy.paths] == [
        pathlib.Path(path).read_bytes() for path in source.paths
    ]
    assert not any(os.path.islink(path) for path in copy.paths)


@pytest.mark.parametrize("file_format", ["JPEG", "PNG"])
def test_a_truncated_file_is_skipped_and_bytes_behind_the_end_are_harmless(two_classes, file_format):
    import io

    from PIL import Image

    stream = io.BytesIO()
    Image.effect_noise((90, 70), 50).convert("RGB").save(stream, file_format)
    whole = stream.getvalue()
    folder = next(path for path in sorted(two_classes.iterdir()) if path.is_dir())
    for name, content in {"cut": whole[:-40], "tail": whole + bytes(900), "half": whole[: len(whole) // 2]}.items():
        (folder / name).write_bytes(content)
    source = from_folder(two_classes)
    assert {skip.path: skip.reason for skip in source.skipped if "truncated" in skip.reason} == {
        f"{folder.name}/cut": "truncated: the image has no end",
        f"{folder.name}/half": "truncated: the image has no end",
    }
    assert f"{folder.name}/tail" in source.files


# What --data names


def test_a_source_is_opened_by_its_text(two_classes):
    assert open_source(str(two_classes)).files == from_folder(two_classes).files


def test_generated_photos_are_opened_by_their_number(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSTALL_CACHE", str(tmp_path))  # where no other test has made them
    reports = []
    source = open_source("generated:4", progress=lambda done, total: reports.append((done, total)))
    assert (source.kind, source.name, source.images) == ("generated", "generated:4", 4)
    assert source.class_names == ("discs", "stripes")
    assert source.labels.tolist() == [0, 0, 1, 1]
    assert source.root.is_relative_to(cache_root().resolve())
    assert reports[-1] == (4, 4)


@pytest.mark.parametrize("count", ["many", "-4", "1e3", "4.0", "²"])
def test_generated_photos_need_a_number(count):
    with pytest.raises(SourceError) as caught:
        open_source(f"generated:{count}")
    assert str(caught.value) == (
        f"generated:N needs a number of photos, such as generated:2000. Received: generated:{count}."
    )


def test_too_few_generated_photos_are_refused():
    with pytest.raises(SourceError, match=r"^`images` must be at least 4. Received: images=1\.$"):
        open_source("generated:1")


def test_generated_photos_without_room_are_refused(monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: DiskUsage(1, 1, 0))
    with pytest.raises(SourceError) as caught:
        open_source("generated:1000")
    assert str(caught.value).startswith(f"the photos cannot be written to {cache_root()}: ")


@pytest.mark.parametrize("text", ["generated:", "tfds:"])
def test_a_kind_without_a_name_is_taken_for_a_folder(text):
    with pytest.raises(SourceError, match=f"^{text} does not exist"):
        open_source(text)


# TFDS


def no_room(*_):
    raise OSError(28, "No space left on device")


@pytest.fixture(scope="module")
def tfds_folder(tmp_path_factory):
    """A prepared data set as TFDS writes it, of a builder that nobody can import: 5 images of 2 classes, unsorted."""
    tfds = working_tfds()
    from tensorflow_datasets.core import registered

    folder = tmp_path_factory.mktemp("tfds")
    with registered.skip_registration():

        class TinyPets(tfds.core.GeneratorBasedBuilder):
            """Two classes."""

            VERSION = tfds.core.Version("1.2.3")

            def _info(self):
                features = {
                    "image": tfds.features.Image(shape=(None, None, 3), encoding_format="png"),
                    "label": tfds.features.ClassLabel(names=["zebra", "ant"]),
                }
                return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

            def _split_generators(self, dl_manager):
                return {"train": self._generate_examples()}

            def _generate_examples(self):
                for number in range(5):
                    image = np.full((20, 30, 3), 10 + 40 * number, np.uint8)
                    yield number, {"image": image, "label": ("zebra", "ant")[number % 2]}

        class NoImages(tfds.core.GeneratorBasedBuilder):
            """No images."""

            VERSION = tfds.core.Version("1.0.0")

            def _info(self):
                return tfds.core.DatasetInfo(
                    builder=self, features=tfds.features.FeaturesDict({"text": tfds.features.Text()})
                )

            def _split_generators(self, dl_manager):
                return {"train": self._generate_examples()}

            def _generate_examples(self):
                yield 0, {"text": "a"}

    for builder in (TinyPets, NoImages):
        builder.__module__ = "somewhere"  # of a package, TFDS looks for its files beside the module
        builder(data_dir=folder).download_and_prepare()
    return folder


@pytest.fixture
def tfds_data_dir(tfds_folder, tmp_path, monkeypatch):
    """As if TFDS_DATA_DIR had been set before TFDS was imported; exports go to a cache of this test's own."""
    from tensorflow_datasets.core import constants

    monkeypatch.setattr(constants, "DATA_DIR", str(tfds_folder))
    monkeypatch.setenv("UNSTALL_CACHE", str(tmp_path / "cache"))
    return tfds_folder


def test_a_tfds_data_set_is_served_with_its_labels_and_bytes(tfds_data_dir):
    reports = []
    source = open_source("tfds:tiny_pets", progress=lambda done, total: reports.append((done, total)))
    assert (source.kind, source.name, source.images) == ("tfds", "tiny_pets", 5)
    assert source.class_names == ("ant", "zebra")
    assert source.formats == ("PNG",) and source.skipped == ()
    assert (1, 5) in reports and (5, 5) in reports
    levels = {}
    for path, label in zip(source.paths, source.labels, strict=True):
        levels[int(np.asarray(Image.open(path))[0, 0, 0])] = source.class_names[label]
    assert levels == {10: "zebra", 50: "ant", 90: "zebra", 130: "ant", 170: "zebra"}


def test_the_bytes_of_a_tfds_data_set_are_not_encoded_again(tfds_data_dir):
    import tensorflow_datasets as tfds

    source = from_tfds("tiny_pets")
    records = tfds.builder_from_directory(tfds_data_dir / "tiny_pets" / "1.2.3").as_dataset(
        split="train", decoders={"image": tfds.decode.SkipDecoding()}
    )
    assert {pathlib.Path(path).read_bytes() for path in source.paths} == {
        record["image"] for record in records.as_numpy_iterator()
    }


def test_a_tfds_data_set_is_exported_once(tfds_data_dir):
    first = from_tfds("tiny_pets")
    before = {path: path.stat().st_mtime_ns for path in cache_root().rglob("*") if path.is_file()}
    assert len(before) > 2
    again = from_tfds("tiny_pets")
    assert {path: path.stat().st_mtime_ns for path in cache_root().rglob("*") if path.is_file()} == before
    assert (again.files, again.fingerprint) == (first.files, first.fingerprint)


@pytest.mark.parametrize("name", ["tiny_pets", "mnist"])
def test_a_tfds_data_set_that_is_not_prepared_is_refused_and_not_downloaded(tmp_path, monkeypatch, tfds_folder, name):
    from tensorflow_datasets.core import constants

    monkeypatch.setenv("UNSTALL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "DATA_DIR", str(tmp_path))
    split = "train"
    if name == "tiny_pets":
        monkeypatch.setattr(constants, "DATA_DIR", str(tfds_folder))
        split = "test"
    with pytest.raises(SourceError) as caught:
        from_tfds(name, split=split)
    assert str(caught.value) == (
        f"tfds:{name} has no split {split!r} on this machine, and nothing is downloaded unasked. "
        f"Prepare it with `tfds build {name}`, or set TFDS_DATA_DIR to where it lies."
    )
    assert not (tmp_path / "cache").exists()


def test_an_unknown_tfds_data_set_is_refused_in_one_line(tfds_data_dir):
    with pytest.raises(SourceError) as caught:
        from_tfds("tiny_petz")
    message = str(caught.value)
    assert message.startswith("tfds:tiny_petz is not a data set that TFDS can find here: ")
    assert message.endswith("not found.") and not message.endswith("..") and "\n" not in message


def test_a_tfds_data_set_without_images_is_refused(tfds_data_dir):
    with pytest.raises(SourceError) as caught:
        from_tfds("no_images")
    assert str(caught.value) == (
        "tfds:no_images has no `image` and `label`; only image classification data sets can be read."
    )


def test_an_export_that_fails_leaves_nothing_behind(tfds_data_dir, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(pathlib.Path, "write_bytes", no_room)
        with pytest.raises(SourceError, match="No space left on device"):
            from_tfds("tiny_pets")
    assert [path for path in cache_root().rglob("*") if path.is_file()] == []
    assert from_tfds("tiny_pets").images == 5
