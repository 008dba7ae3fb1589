"""The built loaders: formats, arrays, workers, notes, and nothing left behind.

Over 400 lines: each question is asked of every kind of loader, built by the functions made here.
"""

import dataclasses
import io
import math
import os
import pathlib
import shutil
import threading
from collections import namedtuple

import numpy as np
import psutil
import pytest
import tensorflow as tf
from PIL import Image

from tests.builders import WITHOUT_SERVICE, build_fed, fed, unit, whole
from unstall.pipeline import (
    VARIANTS,
    Augmentation,
    ConfigError,
    PipelineConfig,
    build,
    building,
    from_arrays,
    from_folder,
)
from unstall.pipeline.building import RAM_DISK, READS, parallel_batches, unread_here
from unstall.pipeline.cache import cache_root
from unstall.pipeline.config import AUTO
from unstall.pipeline.errors import UnavailableError
from unstall.pipeline.loaders.keras import RecordingDirectoryIterator
from unstall.pipeline.prepared.copies import prepared_copy
from unstall.pipeline.sources.headers import FORMATS
from unstall.pipeline.stages.batching import batches_per_call
from unstall.pipeline.stages.opencv_decode import OpenCVDecoder, decode_ratios
from unstall.pipeline.stages.read import decode_scaled
from unstall.profiles import provenance

DiskUsage = namedtuple("DiskUsage", "total used free")
Memory = namedtuple("Memory", "available")

# One configuration a loader, without anything random.
PLAIN = {
    loader: PipelineConfig(loader=loader, augmentation=None, shuffle_buffer=0, batch_size=4)
    for loader in ("tf_data", "py_dataset", "image_data_generator", "image_dataset_from_directory")
}


# What a loader writes for itself


def own_folders() -> set[pathlib.Path]:
    """What loaders of this process have written for themselves; another's folders in RAM come and go."""
    return {
        path for root in (RAM_DISK, cache_root()) for path in root.glob(f"unstall-scratch.building-{os.getpid()}-*")
    }


@pytest.mark.skipif(not RAM_DISK.is_dir(), reason=f"no RAM disk at {RAM_DISK}")
def test_close_removes_what_the_loader_wrote(photos):
    before = own_folders()
    loader = build(VARIANTS["generator-ram"], from_folder(photos))
    assert len(loader.folders) == 1 and loader.folders[0].is_dir()
    fed(loader.data)
    assert any(path.is_file() for path in loader.folders[0].rglob("*"))
    assert own_folders() > before
    loader.close()
    assert own_folders() == before
    loader.close()  # a second time is no error


@pytest.mark.skipif(not RAM_DISK.is_dir(), reason=f"no RAM disk at {RAM_DISK}")
def test_close_leaves_no_link_to_a_copy_that_is_gone(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("UNSTALL_CACHE", str(tmp_path))
    with build(VARIANTS["generator-ram"], from_folder(photos)) as loader:
        assert loader.batches == 2
    assert [path for path in tmp_path.rglob("*") if path.is_symlink() and not path.exists()] == []


@pytest.mark.parametrize("name", [name for name in WITHOUT_SERVICE if name != "generator-ram"])
def test_other_variants_write_no_folder_of_their_own(name, photos):
    with build(VARIANTS[name], from_folder(photos)) as loader:
        assert loader.folders == ()


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("tf-data-autotune", {}),
        ("tf-data-composed", {}),
        ("tf-data-raw", {}),
        ("tf-data-raw", {"workers": 1, "batch_size": 2}),  # two batches a call
        ("tf-data-raw", {"resample": "separate"}),
        ("tf-data-autotune", {"cache": "memory", "augment_at": "batch"}),
        ("tf-data-autotune", {"storage": "records"}),
        ("tf-data-device-prefetch", {}),
    ],
)
def test_one_iterator_serves_the_same_epochs_and_fit_is_told_how_long_they_are(name, changed, photos):
    config = dataclasses.replace(VARIANTS[name], **{"batch_size": 16, **changed})
    assert_one_iterator_serves_the_same(config, from_folder(photos).take(39))


@pytest.mark.parametrize("resample", ["composed", "separate"])
@pytest.mark.parametrize("planned", ["in parts", "in windows"])
def test_one_iterator_serves_the_same_long_epochs_and_large_files(planned, resample, photos, monkeypatch):
    if planned == "in windows":
        monkeypatch.setattr("unstall.pipeline.sources.stored._free_bytes", lambda: 0)
    for module in ("order", "epochs"):
        monkeypatch.setattr(f"unstall.pipeline.stages.{module}.LONG_EPOCH", 5)
    monkeypatch.setattr("unstall.pipeline.stages.order.PLANNED_AT_ONCE", 7)
    config = dataclasses.replace(VARIANTS["tf-data-raw"], resample=resample, batch_size=16)
    assert_one_iterator_serves_the_same(config, from_folder(photos).take(39))


def assert_one_iterator_serves_the_same(config, source):
    with build(config, source) as loader:
        expected = [batch for _ in range(3) for batch in loader.data.as_numpy_iterator()]
    if config.batch_size == 2:
        assert batches_per_call(prepared_copy(source, config)[0], config) == 2
    with build(dataclasses.replace(config, one_iterator=True), source, device="/GPU:0") as loader:
        assert loader.fit_arguments["steps_per_epoch"] == loader.batches == len(expected) // 3
        endless = tf.data.UNKNOWN_CARDINALITY if config.prefetch_to_device else tf.data.INFINITE_CARDINALITY
        assert loader.fit_arguments["x"].cardinality() == endless
        given = list(loader.fit_arguments["x"].take(len(expected)).as_numpy_iterator())
    # The last batch of an epoch is short: none holds images of two epochs.
    for (images, labels), (other_images, other_labels) in zip(given, expected, strict=True):
        np.testing.assert_array_equal(labels, other_labels)
        np.testing.assert_allclose(images, other_images)


def test_without_one_iterator_fit_is_given_the_data_alone(photos):
    with build(VARIANTS["tf-data-autotune"], from_folder(photos)) as loader:
        assert loader.fit_arguments == {"x": loader.data}


def test_the_photos_in_ram_are_read_from_there(photos):
    with build(VARIANTS["generator-ram"], from_folder(photos)) as loader:
        read = {os.path.realpath(path) for path in loader.data.filepaths}
        assert len(read) == 40
        assert all(path.startswith(f"{loader.folders[0]}/") for path in read)


@pytest.mark.parametrize("loader", ["tf_data", "image_data_generator", "image_dataset_from_directory"])
@pytest.mark.parametrize("probability", [0.25, 1.0])
def test_a_flip_probability_that_keras_cannot_draw_is_refused(loader, probability, photos):
    augment_with = "keras_generator" if loader == "image_data_generator" else "keras_layers"
    with pytest.raises(ConfigError, match=r"^`flip_probability` must be 0 or 0\.5 .*Received: flip_probability="):
        build(
            PipelineConfig(
                loader=loader,
                augment_with=augment_with,
                augment_at="element" if augment_with == "keras_generator" else "batch",
                augmentation=Augmentation(flip_probability=probability),
            ),
            from_folder(photos),
        )


@pytest.mark.parametrize("loader", PLAIN)
def test_without_a_shuffle_buffer_the_files_come_in_their_order(loader, photos):
    source = from_folder(photos)
    for _, labels in build_fed(PLAIN[loader], source, 2):
        np.testing.assert_array_equal(labels, source.labels)


def test_the_written_cache_is_read_and_not_the_photos(photos, tmp_path):
    shutil.copytree(photos, tmp_path / "copy")
    config = dataclasses.replace(VARIANTS["tf-data-cache-disk"], augmentation=None, shuffle_buffer=0)
    with build(config, from_folder(tmp_path / "copy")) as loader:
        [first] = fed(loader.data)
        shutil.rmtree(tmp_path / "copy")
        [second] = fed(loader.data)
    np.testing.assert_array_equal(whole(first)[0], whole(second)[0])


# What the loader is told, and tells


@pytest.mark.parametrize("name", [name for name in VARIANTS if name.startswith("generator")])
def test_a_stock_generator_has_the_workers_and_the_queue_that_were_asked_for(name, photos):
    config = VARIANTS[name]
    with build(config, from_folder(photos)) as loader:
        assert (loader.data.workers, loader.data.use_multiprocessing, loader.data.max_queue_size) == (
            config.workers,
            config.use_multiprocessing,
            config.max_queue_size,
        )
        assert loader.parallel_batches == config.workers
        race = {1: "", 4: ": threads race for it"}[config.workers]
        race = ": forked workers repeat draws" if config.use_multiprocessing else race
        assert loader.notes == (f"draws come from NumPy's global random state{race}",)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_a_stock_generator_resizes_as_it_was_asked_to(interpolation, photos):
    with build(dataclasses.replace(VARIANTS["generator"], interpolation=interpolation), from_folder(photos)) as loader:
        assert loader.data.interpolation == interpolation


def test_four_worker_threads_of_a_stock_generator_are_busy_at_once(photos, monkeypatch):
    barrier = threading.Barrier(4)
    transform = RecordingDirectoryIterator._get_batches_of_transformed_samples

    def together(self, index_array):
        if threading.current_thread() is not threading.main_thread():  # Keras draws two batches in advance
            barrier.wait(timeout=60)
        return transform(self, index_array)

    monkeypatch.setattr(RecordingDirectoryIterator, "_get_batches_of_transformed_samples", together)
    config = dataclasses.replace(VARIANTS["generator-4-workers"], batch_size=5)
    with build(config, from_folder(photos)) as loader:
        fed(loader.data)
        assert loader.record.workers == 4


def test_one_worker_is_one_worker(photos):
    with build(VARIANTS["generator"], from_folder(photos)) as loader:
        fed(loader.data)
        assert loader.record.workers == 1


def test_what_is_ahead_follows_the_cores_that_the_process_may_use_now(photos, monkeypatch):
    """A process may be held to fewer cores after the module was imported: those of `pipeline --sweep cores` are."""
    config = PipelineConfig(
        image_size=(16, 16), batch_size=8, resample="composed", augment_with="opencv", augment_at="batch"
    )
    ahead = []
    for cores in ({0}, {0, 1, 2}):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: cores)
        with build(dataclasses.replace(config, workers=AUTO, prefetch=AUTO), from_folder(photos)) as loader:
            ahead.append((loader.parallel_batches, loader.buffered_batches))
    assert ahead == [(2, 2), (3, 6)]


@pytest.mark.parametrize(("workers", "batches"), [(AUTO, 8), (5, 5)])
def test_a_quota_below_the_affinity_does_not_shorten_the_ramp(workers, batches, monkeypatch, tmp_path):
    """tf.data counts the CPUs of the affinity: that many batches may be in the making, slowed by the quota."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    (tmp_path / "cpu.max").write_text("200000 100000\n")
    monkeypatch.setattr(provenance, "control_groups", lambda: [tmp_path])
    assert provenance.usable_cores() == 2
    config = PipelineConfig(
        image_size=(16, 16), batch_size=8, resample="composed", augment_with="opencv", augment_at="batch"
    )
    source = from_arrays(np.zeros((2, 8, 8, 3), np.uint8), np.array([0, 1]))
    assert parallel_batches(dataclasses.replace(config, workers=workers), source) == batches


def test_tf_data_has_no_record_of_workers(photos):
    with build(VARIANTS["tf-data"], from_folder(photos)) as loader:
        assert (loader.record, loader.parallel_batches, loader.notes, loader.device_layers) == (None, 1, (), ())


def test_prefetch_to_device_on_a_cpu_is_said_to_be_prefetch(photos):
    with build(VARIANTS["tf-data-device-prefetch"], from_folder(photos)) as loader:
        assert loader.notes == ("prefetch_to_device is the same as prefetch on a CPU",)


def test_bytes_are_rescaled_by_a_layer_for_the_device(photos):
    with build(VARIANTS["tf-data-uint8"], from_folder(photos)) as loader:
        [rescale] = loader.device_layers
    np.testing.assert_allclose(rescale(np.uint8([[0, 51, 255]])), [[0.0, 0.2, 1.0]], atol=1e-7)


# Formats and odd files


@pytest.fixture(scope="module")
def formats(tmp_path_factory):
    """A folder a format: two images of one colour."""
    root = tmp_path_factory.mktemp("formats")
    for file_format, suffix in FORMATS.items():
        for name, colour in (("a", (200, 40, 120)), ("b", (40, 200, 120))):
            path = root / file_format / name / f"1{suffix}"
            path.parent.mkdir(parents=True)
            Image.new("RGB", (90, 70), colour).save(path, file_format)
    return root


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("loader", PLAIN)
def test_a_loader_serves_a_format_or_says_that_it_cannot(loader, file_format, formats):
    source = from_folder(formats / file_format)
    if file_format not in READS[loader] - unread_here(PLAIN[loader]):
        with pytest.raises(UnavailableError, match=f"^{loader} cannot read {file_format} files$"):
            build(PLAIN[loader], source)
        return
    [(images, labels)] = build_fed(PLAIN[loader], source)
    assert labels.tolist() == [0, 1]
    expected = np.float32([(200, 40, 120), (40, 200, 120)])[:, np.newaxis, np.newaxis]
    assert np.abs(255 * images - expected).max() < 3.5  # WebP and JPEG lose up to 3 levels


@pytest.mark.parametrize("loader", ["tf_data", "py_dataset"])
def test_formats_may_be_mixed(loader, formats, tmp_path):
    read = {name: suffix for name, suffix in FORMATS.items() if name not in unread_here(PLAIN[loader])}
    for position, (file_format, suffix) in enumerate(read.items()):
        for name in "ab":
            (tmp_path / name).mkdir(exist_ok=True)
            shutil.copy(formats / file_format / name / f"1{suffix}", tmp_path / name / str(position))
    for decode in ("full", "scaled"):
        config = dataclasses.replace(PLAIN[loader], decode=decode, image_size=(16, 16))
        [(images, labels)] = build_fed(config, from_folder(tmp_path))
        assert labels.tolist() == [0] * len(read) + [1] * len(read)
        assert (255 * images[:, 8, 8, 0] > 128).tolist() == [True] * len(read) + [False] * len(read)


def test_every_unreadable_format_is_named(formats, tmp_path):
    for name, file_format in (("a", "WEBP"), ("b", "GIF")):
        shutil.copytree(formats / file_format / name, tmp_path / name)
    with pytest.raises(UnavailableError, match="^image_data_generator cannot read GIF, WEBP files$"):
        build(PLAIN["image_data_generator"], from_folder(tmp_path))


@pytest.mark.parametrize("loader", PLAIN)
@pytest.mark.parametrize(
    ("mode", "file_format"), [("L", "JPEG"), ("L", "PNG"), ("P", "PNG"), ("1", "PNG"), ("RGBA", "PNG"), ("I;16", "PNG")]
)
def test_an_image_that_is_not_rgb_is_served_as_rgb(loader, mode, file_format, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        if mode == "I;16":
            image = Image.fromarray(np.full((70, 90), 65535, np.uint16))
        else:
            image = Image.new("RGB", (90, 70), (255, 255, 255)).convert(mode)
        image.save(tmp_path / name / f"1{FORMATS[file_format]}", file_format)
    [(images, _)] = build_fed(PLAIN[loader], from_folder(tmp_path))
    assert images.shape == (2, 64, 64, 3)
    assert images.min() > 0.99


@pytest.mark.parametrize("loader", PLAIN)
def test_an_orientation_tag_turns_no_image(loader, tmp_path):
    image = Image.new("RGB", (96, 64), (255, 255, 255))
    image.paste((0, 0, 0), (0, 0, 48, 64))  # black on the left
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in "ab":
        (tmp_path / name).mkdir()
        image.save(tmp_path / name / "1.jpg", exif=exif, quality=95)
    [(images, _)] = build_fed(PLAIN[loader], from_folder(tmp_path))
    assert images[0, :, :28].max() < 0.1 and images[0, :, 36:].min() > 0.9


@pytest.mark.parametrize("loader", PLAIN)
def test_class_and_file_names_may_be_anything_that_a_disk_takes(loader, tmp_path, formats):
    for name, odd in (("a", "Kätz chen [1]"), ("b", "*?{x} $HOME")):
        (tmp_path / odd).mkdir()
        shutil.copy(formats / "JPEG" / name / "1.jpg", tmp_path / odd / "ö %d #1.JPG")
    source = from_folder(tmp_path)
    assert source.class_names == ("*?{x} $HOME", "Kätz chen [1]")
    [(images, labels)] = build_fed(PLAIN[loader], source)
    assert labels.tolist() == [0, 1]
    assert (255 * images[:, 0, 0, 0]).round(-1).tolist() == [40, 200]


@pytest.mark.parametrize("loader", PLAIN)
def test_three_classes_have_three_labels(loader, formats, tmp_path):
    for name in "abc":
        shutil.copytree(formats / "JPEG" / "a", tmp_path / name)
    [(_, labels)] = build_fed(PLAIN[loader], from_folder(tmp_path))
    assert labels.tolist() == [0, 1, 2]


# Scaled decode


# By how much a side of that many pixels can be divided, rounding up, and still be 64.
RATIOS = {40: 1, 63: 1, 64: 1, 126: 1, 127: 2, 128: 2, 129: 2, 252: 2, 253: 4, 256: 4, 504: 4, 505: 8, 512: 8, 1100: 8}


@pytest.mark.parametrize(("side", "ratio"), RATIOS.items())
def test_scaled_decode_is_never_below_the_target(side, ratio, tmp_path):
    # Where both sides are long, the shorter decides.
    for name in "ab":
        (tmp_path / name).mkdir()
    for width, height in ((side, side), (side, 2000), (2000, side)):
        path = tmp_path / "a" / "1.jpg"
        Image.new("RGB", (width, height), (10, 20, 30)).save(path)
        shutil.copy(path, tmp_path / "b")
        expected = (-(-height // ratio), -(-width // ratio), 3)
        assert all(scaled >= min(64, full) for scaled, full in zip(expected, (height, width), strict=False))
        assert decode_scaled(path.read_bytes(), (64, 64)).shape == expected
        source = from_folder(tmp_path)
        assert decode_ratios(source.jpeg_sizes, (64, 64)).tolist() == [ratio] * 2
        decoder = OpenCVDecoder(source, PipelineConfig(decode="scaled", loader="py_dataset", augmentation=None))
        assert decoder(1).shape == expected


def test_scaled_decode_looks_at_each_side_for_itself():
    stream = io.BytesIO()
    Image.new("RGB", (800, 400)).save(stream, "JPEG")
    for image_size, expected in {(50, 100): (50, 100), (51, 100): (100, 200), (50, 101): (100, 200)}.items():
        assert decode_scaled(stream.getvalue(), image_size).shape[:2] == expected


# Arrays


ARRAYS = np.random.default_rng(0).integers(0, 256, (70, 32, 32, 3), np.uint8)


@pytest.fixture(scope="module")
def arrays():
    return from_arrays(ARRAYS, np.arange(70) % 10)


# Arrays are not decoded, and a buffer or a worker more changes none of what is served.
AS_ANOTHER = ("tf-data-scaled-decode", "tf-data-parallel", "tf-data-prefetch", "tf-data-device-prefetch")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in AS_ANOTHER else ())
        for name in WITHOUT_SERVICE
        if VARIANTS[name].loader in ("tf_data", "py_dataset")
    ],
)
def test_arrays_are_served_by_our_loaders(name, arrays):
    in_order = dataclasses.replace(VARIANTS[name], augmentation=None, shuffle_buffer=0, image_size=(32, 32))
    [(images, labels)] = build_fed(in_order, arrays)
    np.testing.assert_allclose(255 * unit(images), ARRAYS, atol=1e-4)
    np.testing.assert_array_equal(labels, np.arange(70) % 10)
    for images, labels in build_fed(VARIANTS[name], arrays, 2):
        assert images.shape == (70, 64, 64, 3) and images.dtype == np.dtype(VARIANTS[name].output_dtype)
        assert np.bincount(labels).tolist() == [7] * 10


@pytest.mark.parametrize("loader", ["image_data_generator", "image_dataset_from_directory"])
def test_loaders_that_take_a_folder_cannot_serve_arrays(loader, arrays):
    with pytest.raises(UnavailableError, match=f"^{loader} reads folders only, not arrays$"):
        build(PLAIN[loader], arrays)


def test_arrays_need_no_ram_disk(arrays):
    with pytest.raises(UnavailableError, match="^arrays are in memory already$"):
        build(dataclasses.replace(PLAIN["tf_data"], location="ram"), arrays)


# No room


def test_a_missing_ram_disk_makes_the_variant_unavailable(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "RAM_DISK", tmp_path / "gone")
    with pytest.raises(UnavailableError, match=f"^there is no RAM disk at {tmp_path}/gone$"):
        build(VARIANTS["generator-ram"], from_folder(photos))


def test_a_ram_disk_without_room_makes_the_variant_unavailable(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "RAM_DISK", tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: DiskUsage(1, 1, 1000))
    with pytest.raises(UnavailableError, match="not enough room on the RAM disk: 1 MB needed, 0 MB free"):
        build(VARIANTS["generator-ram"], from_folder(photos))
    assert list(tmp_path.iterdir()) == []


def test_a_loader_that_cannot_be_built_leaves_nothing_on_the_ram_disk(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "RAM_DISK", tmp_path)
    monkeypatch.setattr("unstall.pipeline.loaders.keras.image_data_generator", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        build(VARIANTS["generator-ram"], from_folder(photos))
    assert list(tmp_path.iterdir()) == []


def test_a_cache_in_memory_without_room_makes_the_variant_unavailable(photos, monkeypatch):
    needed = 40 * 64 * 64 * 3 * 4
    for free, fits in ((math.ceil(needed / 0.8), True), (int(needed / 0.8) - 1, False)):
        monkeypatch.setattr(psutil, "virtual_memory", lambda free=free: Memory(free))
        if fits:
            build(VARIANTS["tf-data-cache"], from_folder(photos)).close()
            continue
        with pytest.raises(UnavailableError) as caught:
            build(VARIANTS["tf-data-cache"], from_folder(photos))
        assert str(caught.value) == "not enough memory for the cache: 2 MB needed, 2 MB free"


def test_a_cache_on_disk_without_room_makes_the_variant_unavailable(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("UNSTALL_CACHE", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: DiskUsage(1, 1, 1000))
    with pytest.raises(UnavailableError) as caught:
        build(VARIANTS["tf-data-cache-disk"], from_folder(photos))
    assert str(caught.value) == "not enough room on disk for the cache: 2 MB needed, 0 MB free"
    assert {path.name for path in tmp_path.iterdir()} <= {"digests", "headers"}  # what was read of the photos: no copy


def test_a_cache_folder_that_cannot_be_made_makes_the_variant_unavailable(arrays, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("UNSTALL_CACHE", str(tmp_path / "file" / "cache"))
    expected = (
        rf"^the cache folder {tmp_path}/file/cache cannot be made \(Not a directory\): name another in UNSTALL_CACHE$"
    )
    with pytest.raises(UnavailableError, match=expected):
        build(VARIANTS["tf-data-cache-disk"], arrays)


def test_a_cache_on_disk_that_is_there_needs_no_room(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("UNSTALL_CACHE", str(tmp_path))
    config, source = VARIANTS["tf-data-cache-disk"], from_folder(photos)
    build(config, source).close()
    build(config, source.take(8)).close()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: DiskUsage(1, 1, 1000))
    with build(config, source) as loader:
        assert loader.images == 40 and loader.notes == ()
    with build(config, source.take(8), whole=source) as part:
        assert part.images == 8
    with pytest.raises(UnavailableError, match="not enough room on disk for the cache: 2 MB needed"):
        build(config, source.take(8), whole=source.take(39))
