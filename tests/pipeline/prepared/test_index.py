"""Prepared copies: the images of the source, each once an epoch; an index that cannot be mistaken; never half.

Over 400 lines: the four forms of a copy share their sources and their ways to be spoilt.
"""

import dataclasses
import json
import math
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
from collections import namedtuple

import numpy as np
import psutil
import pytest
import tensorflow as tf
from PIL import Image

from tests import PROJECT_ROOT
from unstall.pipeline import Augmentation, PipelineConfig, SourceError, build, from_arrays, from_folder, open_source
from unstall.pipeline.draws import block_windows
from unstall.pipeline.errors import PreparedError, UnavailableError, WriteError
from unstall.pipeline.prepared import write as materialize_module
from unstall.pipeline.prepared.index import FORMS, INDEX, content_digest, is_prepared, open_prepared
from unstall.pipeline.prepared.write import materialize
from unstall.pipeline.sources.stored import MappedImages, Records

DiskUsage = namedtuple("DiskUsage", "total used free")
Memory = namedtuple("Memory", "available")

PLAIN = PipelineConfig(augmentation=None, shuffle_buffer=0, image_size=(16, 16))
# Which loaders read which form.
READERS = [(form, loader) for form in FORMS for loader in ("tf_data", "py_dataset")]
READERS += [("resized", "image_data_generator"), ("resized", "image_dataset_from_directory")]


@pytest.fixture(scope="module")
def greys(tmp_path_factory):
    """64 photos of odd sizes; the k-th is all of level 4k, so that an image says which it is."""
    folder = tmp_path_factory.mktemp("greys")
    for number in range(64):
        path = folder / ("cats" if number < 20 else "dogs") / f"{number:02d} é.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (20 + number, 90 - number), (4 * number,) * 3).save(path, quality=95)
    return from_folder(folder)


@pytest.fixture(scope="module")
def copies(greys, tmp_path_factory):
    """A copy of so many images in a form, made when first asked for."""
    root = tmp_path_factory.mktemp("copies")

    def copy(form, images=64):
        folder = root / f"{form}-{images}"
        if not folder.exists():
            materialize(greys.take(images), folder, form, PipelineConfig(image_size=(16, 16)))
        return open_source(str(folder))

    return copy


def batches(loader):
    if isinstance(loader.data, tf.data.Dataset):
        return [(images.numpy(), labels.numpy()) for images, labels in loader.data]
    return [loader.data[index] for index in range(loader.batches)]


def served(config, source):
    """The levels of an epoch's images, in order, and its labels."""
    with build(config, source) as loader:
        epoch = batches(loader)
    images = np.concatenate([images for images, _ in epoch])
    return 255 * images, np.concatenate([labels for _, labels in epoch])


def numbers(images):
    """Which of the greys these are."""
    return np.rint(images.mean((1, 2, 3)) / 4).astype(int).tolist()


# The images


# One batch and many, short last ones, and a batch larger than the source.
SIZES = [(1, 1), (1, 32), (7, 1), (7, 7), (64, 7), (64, 32)]


@pytest.mark.parametrize(("images", "batch_size"), SIZES)
@pytest.mark.parametrize(("form", "loader"), READERS)
def test_a_copy_serves_every_image_once_in_the_order_of_its_source(form, loader, images, batch_size, greys, copies):
    config = dataclasses.replace(PLAIN, loader=loader, batch_size=batch_size)
    part = greys.take(images)
    expected = np.linspace(0, 63, images).round().astype(int).tolist()
    pixels, labels = served(config, copies(form, images))
    assert pixels.shape == (images, 16, 16, 3)
    assert numbers(pixels) == expected
    assert labels.tolist() == part.labels.tolist()


@pytest.mark.parametrize(("images", "batch_size"), [SIZES[index] for index in (1, 3, 4, 5)])
@pytest.mark.parametrize(("form", "loader"), READERS[:6])
def test_an_epoch_in_any_order_has_every_image_once(form, loader, images, batch_size, greys, copies):
    config = dataclasses.replace(PLAIN, loader=loader, batch_size=batch_size, shuffle_buffer=16, seed=3)
    label_of = dict(zip(np.linspace(0, 63, images).round().astype(int), greys.take(images).labels, strict=True))
    epochs = []
    for _ in range(2):
        with build(config, copies(form, images)) as loader_:
            for _ in range(2):
                epoch = batches(loader_)
                order = numbers(255 * np.concatenate([pixels for pixels, _ in epoch]))
                assert sorted(order) == sorted(label_of)
                labels = np.concatenate([labels for _, labels in epoch])
                assert labels.tolist() == [label_of[number] for number in order]
                epochs.append(order)
                if loader == "py_dataset":
                    loader_.data.on_epoch_end()
    assert epochs[:2] == epochs[2:]  # the same seed
    if images == 64:
        assert epochs[0] != epochs[1]


@pytest.mark.parametrize("form", ["raw", "resized"])
@pytest.mark.parametrize("loader", ["tf_data", "py_dataset"])
def test_a_copy_at_one_size_has_the_epochs_of_its_source(form, loader, greys, copies):
    config = dataclasses.replace(PLAIN, loader=loader, shuffle_buffer=1)
    (ours, labels), (theirs, expected) = served(config, copies(form)), served(config, greys)
    assert numbers(ours) == numbers(theirs)
    assert labels.tolist() == expected.tolist()


@pytest.mark.parametrize("decode", ["full", "scaled"])
def test_records_have_the_same_pixels_bit_for_bit(decode, photos, tmp_path):
    source = from_folder(photos).take(12)
    materialize(source, tmp_path / "records", "records", PipelineConfig(image_size=(64, 64)))
    for loader in ("tf_data", "py_dataset"):
        config = PipelineConfig(loader=loader, augmentation=None, shuffle_buffer=0, decode=decode)
        np.testing.assert_array_equal(
            served(config, open_source(str(tmp_path / "records")))[0], served(config, source)[0]
        )
    # From front to back, the same images in another order.
    config = PipelineConfig(augmentation=None, decode=decode)
    ours, theirs = (served(config, opened)[0] for opened in (open_source(str(tmp_path / "records")), source))
    assert sorted(map(bytes, ours)) == sorted(map(bytes, theirs))


def psnr(ours, theirs):
    return 10 * np.log10(255**2 / np.mean((ours - theirs) ** 2))


@pytest.mark.parametrize("decode", ["full", "scaled"])
@pytest.mark.parametrize("interpolation", ["bilinear", "nearest"])
def test_raw_pixels_are_those_of_the_source_to_half_a_level(decode, interpolation, photos, tmp_path):
    source = from_folder(photos).take(12)
    materialize(
        source, tmp_path / "raw", "raw", PipelineConfig(image_size=(64, 64), decode=decode, interpolation=interpolation)
    )
    config = PipelineConfig(augmentation=None, shuffle_buffer=0, decode=decode, interpolation=interpolation)
    ours, theirs = served(config, open_source(str(tmp_path / "raw")))[0], served(config, source)[0]
    assert np.abs(ours - theirs).max() <= 0.5 + 1e-4
    assert np.abs(ours - theirs).mean() < 0.26
    if interpolation == "bilinear":
        assert psnr(ours, theirs) > 58.5  # a twelfth of a level squared: 10 log10(255**2 * 12) is 58.9


def test_resized_pixels_are_close_to_those_of_the_source(photos, tmp_path):
    """JPEG loses most at sizes this small; at 224 px it is 40 dB."""
    source = from_folder(photos)
    materialize(source, tmp_path / "resized", "resized", PipelineConfig(image_size=(64, 64)))
    config = PipelineConfig(augmentation=None, shuffle_buffer=0)
    ours, theirs = served(config, open_source(str(tmp_path / "resized")))[0], served(config, source)[0]
    assert psnr(ours, theirs) > 33
    assert np.abs(ours - theirs).mean() < 4.5


def test_a_copy_at_another_size_is_resized_when_it_is_read(copies):
    for form in FORMS:
        pixels, _ = served(dataclasses.replace(PLAIN, image_size=(8, 24)), copies(form))
        assert pixels.shape == (64, 8, 24, 3)
        assert numbers(pixels) == list(range(64))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("loader", ["tf_data", "py_dataset"])
def test_one_resampling_reads_a_copy(form, loader, copies):
    augmentation = Augmentation(shear_degrees=0, zoom_range=0, crop_area=(0.35, 1.0))
    config = PipelineConfig(
        loader=loader,
        augmentation=augmentation,
        augment_with="opencv",
        augment_at="batch" if loader == "tf_data" else "element",
        resample="composed",
        decode="scaled",
        image_size=(16, 16),
        batch_size=7,
    )
    pixels, labels = served(config, copies(form))
    assert sorted(numbers(pixels)) == list(range(64))
    assert labels.tolist() == [int(number >= 20) for number in numbers(pixels)]


def test_arrays_and_copies_are_sources_too(copies, tmp_path):
    levels = np.arange(10, dtype=np.uint8) * 4
    arrays = from_arrays(np.tile(levels[:, np.newaxis, np.newaxis, np.newaxis], (1, 16, 16, 3)), np.arange(10))
    materialize(arrays, tmp_path / "raw", "raw", PipelineConfig(image_size=(16, 16)))
    materialize(arrays, tmp_path / "resized", "resized", PipelineConfig(image_size=(16, 16)))
    materialize(copies("records"), tmp_path / "again", "raw", PipelineConfig(image_size=(16, 16)))
    for name, count in (("raw", 10), ("resized", 10), ("again", 64)):
        assert numbers(served(PLAIN, open_source(str(tmp_path / name)))[0]) == list(range(count))
    for source in (arrays, copies("raw"), copies("records")):
        with pytest.raises(PreparedError, match=r"^records hold the bytes of files, and (arrays|raw|records) images"):
            materialize(source, tmp_path / "records", "records", PipelineConfig(image_size=(16, 16)))


def test_a_resized_copy_is_a_folder_that_anybody_can_read(greys, copies):
    copy = copies("resized")
    plain = from_folder(copy.root)
    assert (plain.files, plain.labels.tolist(), plain.class_names) == (
        copy.files,
        greys.labels.tolist(),
        greys.class_names,
    )
    assert plain.files[0] == "cats/00000000-00.jpg"
    assert copy.jpeg_sizes.tolist() == plain.jpeg_sizes.tolist()


def test_a_class_that_cannot_be_a_folder_is_refused(tmp_path):
    arrays = from_arrays(np.zeros((2, 8, 8, 3), np.uint8), np.array([0, 1]), class_names=("a/b", "c"))
    with pytest.raises(SourceError, match=r"^class 'a/b' cannot be the name of a folder\.$"):
        materialize(arrays, tmp_path / "out", "resized", PipelineConfig(image_size=(8, 8)))
    assert list(tmp_path.iterdir()) == []


def test_records_are_what_other_programs_expect(greys, copies):
    records = {}
    for path in copies("records").records.paths:
        for serialized in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            feature = tf.train.Example.FromString(serialized).features.feature
            name = feature["image/filename"].bytes_list.value[0].decode()
            records[name] = (
                feature["image/class/label"].int64_list.value[0],
                feature["image/encoded"].bytes_list.value[0],
            )
    assert records == {
        file: (label, pathlib.Path(path).read_bytes())
        for file, label, path in zip(greys.files, greys.labels.tolist(), greys.paths, strict=True)
    }


# Sent to another process


@pytest.mark.parametrize("form", FORMS)
def test_a_copy_is_sent_by_path_and_not_by_value(form, copies):
    source = copies(form).take(40)
    sent = pickle.dumps(source)
    assert len(sent) < 8000  # 40 images of 768 bytes are more
    again = pickle.loads(sent)
    assert numbers(served(PLAIN, again)[0]) == numbers(served(PLAIN, source)[0])
    assert content_digest(again) == content_digest(source)


def test_a_mapped_image_is_a_view_and_several_are_a_copy(copies):
    mapped = copies("raw").arrays
    assert isinstance(mapped, MappedImages)
    assert (mapped.shape, mapped.dtype, len(mapped), mapped.nbytes) == ((64, 16, 16, 3), np.uint8, 64, 64 * 768)
    assert mapped[3].base is not None and not mapped[3].flags.writeable
    assert numbers(mapped[[3, 1]]) == [3, 1]
    assert numbers(np.asarray(mapped)) == list(range(64))
    assert mapped.rows.tolist() != sorted(mapped.rows)


# The index


def changed(values, **entries):
    return {**values, **entries}


BROKEN = {
    "is not JSON": lambda text: text[: len(text) // 2],
    "is not of this program": lambda text: "[]",
    "holds NaN": lambda text: text.replace('"version": 1', '"version": NaN'),
    "it is of version 2, and this program reads version 1": lambda text: text.replace('"version": 1', '"version": 2'),
    "its entries are not those of an index": lambda text: text.replace('"rows"', '"lines"'),
    "no form other is known": lambda text: text.replace('"form": "raw"', '"form": "other"'),
    "a file lies outside of the folder": lambda text: text.replace("images.uint8", "../images.uint8"),
    "labels are not those of its classes": lambda text: text.replace('"cats", "dogs"', '"cats"'),
    "there are not as many names as images": lambda text: text.replace('"cats/00 \\u00e9.jpg", ', ""),
    "the file of pixels is not as large as its images": lambda text: text.replace("[16, 16]", "[16, 17]"),
    "the rows are not those of its images": lambda text: text.replace('"rows": [', '"rows": [64, '),
    "is not JSON, or only a part of it": lambda text: "[" * 100_000,
    "the pixels have no size or type": lambda text: text.replace('"uint8"', '"float64"'),
}


@pytest.mark.parametrize("problem", BROKEN)
def test_a_wrong_index_is_refused_in_one_line(problem, greys, tmp_path):
    folder = tmp_path / "raw"
    materialize(greys, folder, "raw", PipelineConfig(image_size=(16, 16)))
    index = folder / INDEX
    before = index.read_text()
    index.write_text(BROKEN[problem](before))
    assert index.read_text() != before
    assert is_prepared(folder)
    with pytest.raises(PreparedError) as caught:
        open_source(str(folder))
    message = str(caught.value)
    assert problem in message and "\n" not in message
    assert message.startswith(f"{folder} cannot be used as a prepared copy: ")
    assert message.endswith(" --as raw (or records, resized).")


def test_a_copy_of_records_has_no_more_shards_than_can_be_open(greys, tmp_path, monkeypatch):
    monkeypatch.setattr("unstall.pipeline.prepared.write._SHARD_BYTES", 1)
    for name, value in (("_MIN_SHARDS", 2), ("_MOST_SHARDS", 3)):
        monkeypatch.setattr(f"unstall.pipeline.prepared.write.{name}", value)
    materialize(greys, tmp_path / "copy", "records", PipelineConfig())
    assert len(open_prepared(tmp_path / "copy").records.paths) == 3


RECORDS_BROKEN = {
    "images have no place in a shard": lambda values: changed(values, shard=values["shard"][1:]),
    "an image lies outside of its shard": lambda values: changed(values, offset=[10**9, *values["offset"][1:]]),
    "its entries": lambda values: changed(values, bytes_of={}),
    "no file can have such a name": lambda values: changed(values, bytes_of={"im\0ages": 1}),
    "no image can have such a size": lambda values: changed(values, heights=[10**12, *values["heights"][1:]]),
}


@pytest.mark.parametrize("problem", RECORDS_BROKEN)
def test_a_wrong_index_of_records_is_refused(problem, copies, tmp_path):
    folder = shutil.copytree(copies("records").records.paths[0].parent, tmp_path / "records")
    values = json.loads((folder / INDEX).read_text())
    (folder / INDEX).write_text(json.dumps(RECORDS_BROKEN[problem](values)))
    with pytest.raises(PreparedError, match=problem):
        open_prepared(folder)


RESIZED_BROKEN = {
    "the images have no size": {"image_size": None},
    "there are not as many heights as widths": {"heights": [1]},
    "no file can have such a name": {"names": ["a\0.jpg"]},
}


@pytest.mark.parametrize("problem", RESIZED_BROKEN)
def test_a_wrong_index_of_resized_images_is_refused(problem, copies, tmp_path):
    folder = shutil.copytree(copies("resized").root, tmp_path / "resized")
    values = json.loads((folder / INDEX).read_text())
    (folder / INDEX).write_text(json.dumps(changed(values, **RESIZED_BROKEN[problem])))
    with pytest.raises(PreparedError, match=f"damaged: {problem}"):
        open_prepared(folder)


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_is_cut_or_gone_is_noticed(form, greys, tmp_path):
    folder = tmp_path / form
    materialize(greys, folder, form, PipelineConfig(image_size=(16, 16)))
    path = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != INDEX)[-1]
    size = path.stat().st_size
    os.truncate(path, size - 1)
    with pytest.raises(PreparedError, match=f"{path.name} has {size - 1:,} bytes in place of {size:,}"):
        open_source(str(folder))
    path.unlink()
    with pytest.raises(PreparedError, match=f"{path.name} cannot be read: No such file"):
        open_source(str(folder))


def test_a_folder_of_photos_may_hold_an_index_of_somebody_else(greys, tmp_path):
    folder = shutil.copytree(greys.root, tmp_path / "photos")
    (folder / INDEX).write_text("{}")
    assert open_source(str(folder)).kind == "folder"


def test_equal_copies_have_equal_fingerprints_and_others_have_not(greys, tmp_path):
    for name, images in (("a", 64), ("b", 64), ("c", 63)):
        materialize(greys.take(images), tmp_path / name, "raw", PipelineConfig(image_size=(16, 16)))
    a, b, c = (open_prepared(tmp_path / name).fingerprint for name in "abc")
    assert a == b != c


# Written whole, or not at all


def test_what_is_there_is_not_overwritten(greys, tmp_path):
    for name in ("file", "folder"):
        out = tmp_path / name
        out.write_text("mine") if name == "file" else (out / "mine").mkdir(parents=True)
        with pytest.raises(PreparedError, match=f"^{out} is there already, and nothing is overwritten"):
            materialize(greys, out, "raw", PipelineConfig(image_size=(16, 16)))
    (tmp_path / "empty").mkdir()
    assert materialize(greys, tmp_path / "empty", "raw", PipelineConfig(image_size=(16, 16))).images == 64


@pytest.mark.parametrize("is_there", [True, False])
def test_a_copy_goes_where_a_link_leads(is_there, greys, tmp_path):
    if is_there:
        (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    prepared = materialize(greys, tmp_path / "link", "raw", PipelineConfig(image_size=(16, 16)))
    assert prepared.folder == (tmp_path / "disk").resolve() and (tmp_path / "link").is_symlink()
    assert open_prepared(tmp_path / "link").images == 64


def test_an_empty_folder_where_a_disk_is_mounted_is_named(greys, tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    rename = pathlib.Path.rename

    def busy(path, to):
        if pathlib.Path(to) == tmp_path / "out":
            raise OSError(16, "Device or resource busy", str(path), None, str(to))
        return rename(path, to)

    monkeypatch.setattr(pathlib.Path, "rename", busy)
    with pytest.raises(WriteError, match=f"^{tmp_path}/out: Device or resource busy; nothing was left behind"):
        materialize(greys, tmp_path / "out", "raw", PipelineConfig(image_size=(16, 16)))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_current_folder_is_not_replaced(greys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PreparedError, match=r"^\. is the folder that this is run from\. Give a new folder\.$"):
        materialize(greys, ".", "raw", PipelineConfig(image_size=(16, 16)))


def test_a_copy_among_the_photos_is_refused(greys):
    with pytest.raises(PreparedError, match="would lie among the photos"):
        materialize(greys, greys.root / "raw", "raw", PipelineConfig(image_size=(16, 16)))
    assert not (greys.root / "raw").exists()


def test_an_unknown_form_is_refused_with_the_nearest(greys, tmp_path):
    with pytest.raises(PreparedError, match=r"Received: 'record'\. Did you mean 'records'\?"):
        materialize(greys, tmp_path / "out", "record", PipelineConfig(image_size=(16, 16)))


@pytest.mark.parametrize("form", FORMS)
def test_room_is_checked_first(form, greys, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: DiskUsage(1, 1, 1000))
    with pytest.raises(WriteError, match=r"^not enough room on disk: 0 MB needed, 0 MB free$"):
        materialize(greys, tmp_path / "deep" / "out", form, PipelineConfig(image_size=(16, 16)))
    assert list(tmp_path.iterdir()) == []


def full(*_, **__):
    raise OSError(28, "No space left on device")


def exhausted(*_, **__):
    raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")


@pytest.mark.parametrize(
    ("form", "target", "failing"),
    [
        ("raw", (os, "fsync"), full),
        ("resized", (pathlib.Path, "write_bytes"), full),
        ("records", (tf.io, "TFRecordWriter"), exhausted),
        ("records", (materialize_module, "write_index"), full),
    ],
)
def test_a_disk_that_gets_full_leaves_nothing_behind(form, target, failing, greys, tmp_path, monkeypatch):
    monkeypatch.setattr(*target, failing)
    with pytest.raises(WriteError, match="No space left on device; nothing was left behind"):
        materialize(greys, tmp_path / "out", form, PipelineConfig(image_size=(16, 16)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", FORMS)
def test_stopping_leaves_nothing_behind(form, greys, tmp_path):
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        materialize(greys, tmp_path / "out", form, PipelineConfig(image_size=(16, 16)), progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_an_image_that_cannot_be_decoded_is_named(greys, tmp_path):
    folder = shutil.copytree(greys.root, tmp_path / "photos")
    victim = folder / greys.files[40]
    Image.effect_noise((40, 40), 50).save(victim, "PNG")
    encoded = victim.read_bytes()
    victim.write_bytes(encoded[:60] + bytes(len(encoded) - 80) + encoded[-20:])
    with pytest.raises(PreparedError, match=r"^dogs/40 é\.jpg cannot be decoded: "):
        materialize(from_folder(folder), tmp_path / "out", "raw", PipelineConfig(image_size=(16, 16)))
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_photos_that_change_while_they_are_copied_are_noticed(greys, tmp_path):
    folder = shutil.copytree(greys.root, tmp_path / "photos")

    def change(done, total):
        shutil.copy(folder / greys.files[1], folder / greys.files[0])

    with pytest.raises(PreparedError, match=r"^photos changed while it was prepared\.$"):
        materialize(from_folder(folder), tmp_path / "out", "raw", PipelineConfig(image_size=(16, 16)), progress=change)
    assert not (tmp_path / "out").exists()


KILLED = """
import sys, threading, time
import unstall.pipeline.prepared.write as module
from unstall.pipeline import PipelineConfig
from unstall.pipeline.sources.folder import from_folder
module._BATCH_IMAGES = 1
source, waiting = from_folder(sys.argv[1]).take(20), threading.Barrier(7)
def build(form, percent):
    def stop(done, total):
        if done * 100 >= percent * total:
            waiting.wait()
            time.sleep(600)
    config = PipelineConfig(image_size=(16, 16))
    module.materialize(source, f"{sys.argv[2]}/{form}-{percent}", form, config, progress=stop)
for form in module.FORMS:
    for percent in (10, 95):
        threading.Thread(target=build, args=(form, percent)).start()
waiting.wait()
print("all wait", flush=True)
time.sleep(600)
"""


@pytest.mark.long
def test_a_builder_that_is_killed_leaves_no_half_and_the_next_one_succeeds(greys, tmp_path):
    root = tmp_path / "copies"
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, greys.root, root], cwd=PROJECT_ROOT, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "all wait\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    left = [path.name for path in root.iterdir()]
    assert len(left) == 6 and all(".building-" in name for name in left)
    for form in FORMS:
        materialize(greys, root / f"{form}-95", form, PipelineConfig(image_size=(16, 16)))
        assert numbers(served(PLAIN, open_source(str(root / f"{form}-95")))[0]) == list(range(64))
    assert sorted(path.name for path in root.iterdir()) == sorted(f"{form}-95" for form in FORMS)


# Files larger than memory


@pytest.mark.parametrize(
    ("images", "per_block", "blocks"), [(1, 1, 1), (7, 3, 2), (64, 5, 3), (1000, 10, 8), (9, 50, 64)]
)
def test_windows_of_blocks_are_a_permutation_that_reads_whole_blocks(images, per_block, blocks):
    def order(seed, epoch):
        return list(block_windows(images, images_per_block=per_block, blocks_in_window=blocks, seed=seed, epoch=epoch))

    windows = order(0, 0)
    assert sorted(np.concatenate(windows)) == list(range(images))
    assert len(windows) == math.ceil(math.ceil(images / per_block) / blocks)
    for window in windows:
        touched = np.unique(window // per_block)
        assert len(touched) <= blocks
        whole = np.concatenate(
            [np.arange(block * per_block, min((block + 1) * per_block, images)) for block in touched]
        )
        assert sorted(window) == whole.tolist()
    again = order(0, 0)
    assert all(np.array_equal(*pair) for pair in zip(windows, again, strict=True))
    if images == 1000:
        assert not np.array_equal(windows[0], order(0, 1)[0]) and not np.array_equal(windows[0], order(1, 0)[0])


def test_a_batch_of_a_window_comes_from_as_many_blocks_as_is_said():
    windows = block_windows(64 * 80, images_per_block=80, blocks_in_window=64, seed=0, epoch=0)
    batches_ = np.concatenate(list(windows)).reshape(-1, 32)
    blocks = [len(np.unique(batch // 80)) for batch in batches_]
    assert np.mean(blocks) == pytest.approx(64 * (1 - (1 - 1 / 64) ** 32), abs=0.5)


@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize("loader", ["tf_data", "py_dataset"])
def test_a_file_larger_than_memory_is_read_in_windows_every_image_once(
    loader, composed, greys, copies, tmp_path, monkeypatch
):
    monkeypatch.setattr("unstall.pipeline.sources.stored.BLOCK_BYTES", 4 * 768)
    monkeypatch.setattr("unstall.pipeline.sources.stored.WINDOW_BLOCKS", 4)
    config = dataclasses.replace(PLAIN, loader=loader, shuffle_buffer=1, batch_size=6)
    if composed:
        config = dataclasses.replace(
            config,
            augmentation=Augmentation(shear_degrees=0, zoom_range=0, flip_probability=0, crop_area=(0.9, 1.0)),
            augment_with="opencv",
            augment_at="batch" if loader == "tf_data" else "element",
            resample="composed",
        )
    stored = copies("raw").take(60).arrays
    rows = dict(zip(numbers(stored[:]), stored.rows.tolist(), strict=True))
    ranks = {number: rank for rank, number in enumerate(sorted(rows, key=rows.__getitem__))}
    for free, limited in ((2 * stored.nbytes, False), (2 * stored.nbytes - 2, True)):
        monkeypatch.setattr(psutil, "virtual_memory", lambda free=free: Memory(free))
        source = copies("raw").take(60)
        with build(config, source) as loader_:
            epochs = []
            for _ in range(2):
                pixels = np.concatenate([images for images, _ in batches(loader_)])
                epochs.append(numbers(255 * pixels))
                if loader == "py_dataset":
                    loader_.data.on_epoch_end()
        for order in epochs:
            assert sorted(order) == sorted(rows)
            in_blocks = [len({ranks[number] // 4 for number in order[at : at + 16]}) for at in range(0, 60, 16)]
            assert (max(in_blocks) <= 4) == limited
        assert epochs[0] != epochs[1]


def test_a_loader_that_cannot_read_records_says_so(copies):
    config = PipelineConfig(loader="image_data_generator", augment_with="keras_generator", augmentation=None)
    with pytest.raises(UnavailableError, match="^image_data_generator cannot read TFRecord files$"):
        build(config, copies("records"))


@pytest.mark.parametrize("form", ["raw", "records"])
def test_a_copy_in_large_files_is_not_copied_to_the_ram_disk(form, copies):
    expected = "^only files of single images are copied to the RAM disk, not copies in large files$"
    with pytest.raises(UnavailableError, match=expected):
        build(PipelineConfig(location="ram"), copies(form))


def test_a_part_of_records_is_found_by_where_it_lies(copies):
    part = copies("records").take(5)
    assert isinstance(part.records, Records) and not part.records.whole
    assert sorted(numbers(served(dataclasses.replace(PLAIN, shuffle_buffer=8), part)[0])) == [0, 16, 32, 47, 63]


def test_prepared_errors_are_source_errors():
    assert issubclass(PreparedError, SourceError)
