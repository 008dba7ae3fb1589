"""Copies in the user's cache: what a loader prepares for itself is never stale, never half, and made once.

Over 400 lines: each way in which a copy could be stale or half is a case, and all share the builders made here.
"""

import dataclasses
import importlib.metadata
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow
from PIL import Image

from tests import PROJECT_ROOT
from tests.builders import build_fed
from unstall.pipeline import Augmentation, PipelineConfig, build, from_arrays, from_folder
from unstall.pipeline.cache import cache_root
from unstall.pipeline.errors import UnavailableError
from unstall.pipeline.prepared import copies, write
from unstall.pipeline.prepared.index import INDEX, content_digest

PLAIN = PipelineConfig(augmentation=None, shuffle_buffer=0, image_size=(16, 16), batch_size=8)
RAW = dataclasses.replace(PLAIN, storage="raw")
DISK = dataclasses.replace(PLAIN, cache="disk")
KINDS = {"raw": RAW, "disk": DISK}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSTALL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    """12 pictures in a format whose size does not depend on what is in it."""
    root = tmp_path / "pictures"
    random = np.random.default_rng(0)
    for number in range(12):
        path = root / ("a" if number < 5 else "b") / f"{number:02d}.bmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (20, 24, 3), np.uint8)).save(path)
    return root


def served(config, source):
    [(images, labels)] = build_fed(config, source)
    return images, labels


def same(config, source):
    """Whether what the config serves is what it serves without copies: to half a level, or bit for bit."""
    images, labels = served(config, source)
    expected, their_labels = served(dataclasses.replace(config, storage="files", cache="none"), source)
    tolerance = 0.5 / 255 + 1e-6 if config.storage == "raw" else 0
    if config.storage == "raw" and config.loader == "py_dataset":
        tolerance = 1 / 255 + 1e-6  # TensorFlow makes the copy; OpenCV resizes in whole levels, and rounds otherwise
    return labels.tolist() == their_labels.tolist() and np.abs(images - expected).max() <= tolerance


def kept():
    """The names of all copies in the cache."""
    return {path.name for where in ("prepared", "cached") for path in (cache_root() / where).glob("*")}


# Made once


@pytest.mark.parametrize("storage", ["raw", "records", "resized"])
@pytest.mark.parametrize("loader", ["tf_data", "py_dataset"])
def test_a_storage_is_prepared_once_with_a_note(storage, loader, folder):
    config = dataclasses.replace(PLAIN, storage=storage, loader=loader)
    source = from_folder(folder)
    for number in range(2):
        with build(config, source) as built:
            notes = built.notes
        assert len(notes) == 1 - number
    assert len(kept()) == 1
    with build(config, source.take(4)) as part:
        assert part.notes[0].startswith("prepared once in ") and part.images == 4
        assert part.notes[0].endswith(" MB (raw, uint8)" if storage == "raw" else f" MB ({storage})")
    assert len(kept()) == 2
    if storage != "resized":
        assert same(config, source)


@pytest.mark.parametrize("loader", ["image_data_generator", "image_dataset_from_directory"])
def test_loaders_that_take_a_folder_read_resized_copies(loader, folder):
    config = dataclasses.replace(PLAIN, storage="resized", loader=loader)
    source = from_folder(folder)
    images, labels = served(config, source)
    expected, _ = served(dataclasses.replace(PLAIN, storage="resized"), source)
    assert labels.tolist() == source.labels.tolist()
    assert np.abs(images - expected).max() < 10 / 255  # Pillow decodes noise more exactly than TensorFlow does


def test_a_copy_that_is_prepared_already_is_not_prepared_again(folder):
    with build(RAW, from_folder(folder)) as loader:
        assert loader.notes
    [path] = (cache_root() / "prepared").iterdir()
    from unstall.pipeline import open_source

    with build(RAW, open_source(str(path))) as loader:
        assert loader.notes == ()
    assert len(kept()) == 1


def test_records_are_one_copy_for_all_sizes(folder):
    source = from_folder(folder)
    for side in (16, 24):
        build(dataclasses.replace(PLAIN, storage="records", image_size=(side, side)), source).close()
    assert len(kept()) == 1


def test_arrays_have_no_records():
    source = from_arrays(np.zeros((2, 8, 8, 3), np.uint8), np.array([0, 1]))
    with pytest.raises(UnavailableError, match="^records hold the bytes of files, and arrays images are none"):
        build(dataclasses.replace(PLAIN, storage="records"), source)


def test_a_copy_for_a_loader_that_cannot_be_written_makes_it_unavailable(folder, monkeypatch):
    source = from_folder(folder)
    shutil.rmtree(cache_root(), ignore_errors=True)
    cache_root().parent.mkdir(exist_ok=True)
    cache_root().write_text("a file")
    with pytest.raises(UnavailableError, match="Not a directory|File exists"):
        build(RAW, source)


# A cache on disk


@pytest.mark.parametrize(("augment_at", "decode"), [("element", "full"), ("batch", "scaled")])
def test_a_cache_on_disk_changes_no_bit(augment_at, decode, photos):
    config = PipelineConfig(augment_with="opencv", augment_at=augment_at, decode=decode, workers=2, batch_size=7)
    source = from_folder(photos)
    uncached = build_fed(config, source, 2)
    for _ in range(2):  # made, and used again
        for ours, theirs in zip(build_fed(dataclasses.replace(config, cache="disk"), source, 2), uncached, strict=True):
            np.testing.assert_array_equal(ours[0], theirs[0])
            np.testing.assert_array_equal(ours[1], theirs[1])


def test_augmentation_and_order_are_behind_the_cache(folder):
    source = from_folder(folder)
    for changes in ({}, {"augmentation": Augmentation()}, {"shuffle_buffer": 5}, {"seed": 4}, {"batch_size": 3}):
        build(dataclasses.replace(DISK, **changes), source).close()
    assert len(kept()) == 1


def test_a_cache_of_arrays(folder):
    images = np.random.default_rng(1).integers(0, 256, (9, 30, 20, 3), np.uint8)
    assert same(DISK, from_arrays(images, np.arange(9) % 2))
    assert same(dataclasses.replace(DISK, storage="raw"), from_arrays(images, np.arange(9) % 2))


# Never stale


def add(folder):
    shutil.copy(folder / "a/00.bmp", folder / "a/99.bmp")


def remove(folder):
    (folder / "a/00.bmp").unlink()


def rename(folder):
    (folder / "a/00.bmp").rename(folder / "b/00.bmp")


def edit(folder):
    """The same size, the same times."""
    path = folder / "a/02.bmp"
    status = path.stat()
    encoded = path.read_bytes()
    path.write_bytes(encoded[:100] + bytes(byte ^ 255 for byte in encoded[100:]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)


@pytest.mark.parametrize("change", [add, remove, rename, edit])
@pytest.mark.parametrize("kind", KINDS)
def test_a_change_of_the_data_is_noticed(kind, change, folder):
    build(KINDS[kind], from_folder(folder)).close()
    fingerprint = from_folder(folder).fingerprint
    change(folder)
    assert (from_folder(folder).fingerprint == fingerprint) == (change is edit)
    assert same(KINDS[kind], from_folder(folder))
    assert len(kept()) == 2


def test_times_and_places_do_not_matter_but_bytes_do(folder, tmp_path):
    build(RAW, from_folder(folder)).close()
    os.utime(folder / "a/00.bmp", ns=(1, 1))
    build(RAW, from_folder(folder)).close()
    build(RAW, from_folder(shutil.copytree(folder, tmp_path / "elsewhere"))).close()
    assert len(kept()) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changes", [{"image_size": (12, 16)}, {"interpolation": "nearest"}, {"decode": "scaled"}])
def test_a_change_of_the_settings_is_noticed(kind, changes, folder):
    source = from_folder(folder)
    build(KINDS[kind], source).close()
    assert same(dataclasses.replace(KINDS[kind], **changes), source)
    assert len(kept()) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_of_the_pixels_or_of_the_libraries_is_noticed(kind, folder, monkeypatch):
    source = from_folder(folder)
    build(KINDS[kind], source).close()
    for module, name, value in (
        (copies, "PIXELS_VERSION", copies.PIXELS_VERSION + 1),
        (copies, "_tensorflow_version", lambda: "2.99.0"),
        (np, "__version__", "2.99.0"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, value)
            build(KINDS[kind], source).close()
    assert len(kept()) == 4


# TensorFlow under another name


@pytest.fixture
def tensorflow_cpu(monkeypatch):
    """An installation whose distribution is called tensorflow-cpu."""
    version_of = importlib.metadata.version

    def version(name):
        if name == "tensorflow":
            raise importlib.metadata.PackageNotFoundError(name)
        return "2.99.0" if name == "tensorflow-cpu" else version_of(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: {"tensorflow": ["tensorflow-cpu"]})


@pytest.mark.parametrize("kind", KINDS)
def test_copies_are_made_where_the_distribution_has_another_name(kind, folder, tensorflow_cpu):
    source = from_folder(folder)
    assert same(KINDS[kind], source)
    with build(KINDS[kind], source) as loader:
        assert loader.notes == ()  # used again
    assert copies._tensorflow_version() == "tensorflow-cpu 2.99.0"


@pytest.mark.parametrize("provided", [{}, {"tensorflow": ["unknown-build"]}])
def test_copies_are_made_where_no_distribution_is_known(provided, folder, tensorflow_cpu, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: provided)
    assert same(RAW, from_folder(folder))
    assert copies._tensorflow_version() == tensorflow.__version__


OPENER = """
import sys
from unstall.pipeline import PipelineConfig, from_folder
from unstall.pipeline.prepared import copies
config = PipelineConfig(augmentation=None, shuffle_buffer=0, image_size=(16, 16), batch_size=8, storage="raw")
copy, note = copies.prepared_copy(from_folder(sys.argv[1]), config)
print(copy.kind, note, "tensorflow" in sys.modules)
"""


def test_a_copy_that_is_there_is_opened_without_tensorflow(folder):
    """A loop in PyTorch or JAX over a copy need not load TensorFlow; the process that made the copy did."""
    build(RAW, from_folder(folder)).close()
    done = subprocess.run(
        [sys.executable, "-c", OPENER, folder], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "raw None False\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_that_the_disk_has_damaged_is_made_again(kind, folder):
    source = from_folder(folder)
    build(KINDS[kind], source).close()
    for damage in ("images.*", INDEX):
        [path] = cache_root().rglob(damage)
        os.truncate(path, 100)
        assert same(KINDS[kind], source)
    assert len(kept()) == 1  # what was damaged is gone


def before_the_first_call(monkeypatch, module, name, act):
    """Lets another process act just before a function is first called."""
    called, function = [], getattr(module, name)

    def wrapped(*values):
        if not called:
            called.append(True)
            act()
        return function(*values)

    monkeypatch.setattr(module, name, wrapped)


@pytest.fixture
def damaged(folder, tmp_path):
    """A source, its damaged copy, and what puts a whole one in its place, as another process does."""
    source = from_folder(folder)
    build(RAW, source).close()
    [copy] = (cache_root() / "prepared").iterdir()
    whole = tmp_path / "whole"
    shutil.copytree(copy, whole)
    os.truncate(copy / "images.uint8", 100)

    def replace_it():
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(whole, copy)

    return source, copy, replace_it


def test_a_copy_that_another_has_made_again_is_not_taken_away(damaged, monkeypatch):
    source, copy, replace_it = damaged
    before_the_first_call(monkeypatch, copies.secrets, "token_hex", replace_it)  # when the damage is seen
    with build(RAW, source) as loader:
        assert loader.notes == ()  # not made again
    assert kept() == {copy.name}


def test_a_damaged_copy_that_another_has_taken_away_is_made_again(damaged, monkeypatch):
    source, copy, _ = damaged
    before_the_first_call(monkeypatch, copies.secrets, "token_hex", lambda: shutil.rmtree(copy))
    assert same(RAW, source)
    assert kept() == {copy.name}


def test_a_copy_that_another_makes_first_is_used(damaged, monkeypatch):
    source, copy, replace_it = damaged
    before_the_first_call(monkeypatch, write, "_check_out", replace_it)
    with build(RAW, source) as loader:
        assert loader.notes == ()
    assert copy.name in kept()


def test_what_the_scan_found_in_the_headers_is_noticed(folder):
    source = from_folder(folder)
    build(RAW, source).close()
    for changes in ({"formats": ("BMP", "PNG")}, {"jpeg_sizes": np.ones((12, 2), np.int64)}):
        build(RAW, dataclasses.replace(source, **changes)).close()
    assert len(kept()) == 3


def test_a_photo_that_is_gone_is_named(folder):
    source = from_folder(folder)
    remove(folder)
    with pytest.raises(UnavailableError, match=r"^a/00\.bmp cannot be read: No such file or directory\.$"):
        build(RAW, source)


def test_a_digest_of_a_part_is_its_own(folder):
    source = from_folder(folder)
    digests = {content_digest(source), content_digest(source.take(5)), content_digest(source.take(4))}
    assert len(digests) == 3


# Two builders at once

BUILDER = """
import os, sys, time
import unstall.pipeline.prepared.write as module
from unstall.pipeline import PipelineConfig, build, from_folder
from unstall.pipeline.prepared.index import write_index
me, others = sys.argv[2], sys.argv[3].split(",")
def together(folder, index):
    write_index(folder, index)
    open(f"{sys.argv[4]}/{me}", "w").close()  # whole, and not renamed until all others are
    while not all(os.path.exists(f"{sys.argv[4]}/{builder}") for builder in others):
        time.sleep(0.01)
module.write_index = together
config = PipelineConfig(augmentation=None, image_size=(16, 16), cache="disk")
with build(config, from_folder(sys.argv[1])) as loader:
    print(loader.notes, sum(float(images.numpy().sum()) for images, _ in loader.data))
"""


@pytest.mark.long
@pytest.mark.parametrize("builders", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_builders_at_once_end_with_one_whole_copy(builders, folder, tmp_path, monkeypatch, capsys):
    """This process is the first of them."""
    (tmp_path / "together").mkdir()
    names = ",".join(map(str, range(builders)))
    words = [["-c", str(folder), str(number), names, str(tmp_path / "together")] for number in range(builders)]
    children = [
        subprocess.Popen([sys.executable, "-c", BUILDER, *own[1:]], cwd=PROJECT_ROOT, stdout=subprocess.PIPE, text=True)
        for own in words[1:]
    ]
    with monkeypatch.context() as patched:
        patched.setattr(sys, "argv", words[0])
        patched.setattr(write, "write_index", write.write_index)  # to be put back
        exec(BUILDER, {})
    outputs = [capsys.readouterr().out, *(child.communicate(timeout=120)[0] for child in children)]
    sums = [float(text.split()[-1]) for text in outputs]
    assert [child.returncode for child in children] == [0] * (builders - 1)
    assert len(kept()) == 1
    images, _ = served(DISK, from_folder(folder))
    np.testing.assert_allclose(sums, images.sum(dtype=np.float64), rtol=1e-5)


# A cache in memory


@pytest.mark.parametrize("storage", ["files", "raw", "records", "resized"])
@pytest.mark.parametrize("shuffle_buffer", [0, 16])
def test_every_storage_can_be_cached_in_memory(storage, shuffle_buffer, folder):
    config = dataclasses.replace(PLAIN, storage=storage, cache="memory", shuffle_buffer=shuffle_buffer)
    first, second = build_fed(config, from_folder(folder), 2)
    assert sorted(map(bytes, first[0])) == sorted(map(bytes, second[0]))
    assert len({bytes(image) for image in first[0]}) == 12
