"""The generated photographs: their bytes, their likeness to the real ones, and the folder that keeps them."""

import errno
import hashlib
import io
import os
import pathlib
import shutil
import subprocess
import sys
from collections import namedtuple

import numpy as np
import pytest
from PIL import Image

from tests import PROJECT_ROOT
from tests.checks import dead_pid, entries
from unstall.pipeline.sources import generated, photographs

# Measured on the 2,000 real photographs.
MEAN_BYTES = 22_780
MEAN_PIXELS = 150_628
BITS_PER_PX = 1.2099

REAL_PHOTOS = pathlib.Path(os.environ.get("CATS_DOGS_DIR") or PROJECT_ROOT.parent / "shared" / "photos")
SAMPLE = range(200)

DiskUsage = namedtuple("DiskUsage", "total used free")


@pytest.fixture(scope="module")
def sample() -> list[bytes]:
    return [photographs.encode_photo(index, 0) for index in SAMPLE]


def pixels(encoded: bytes) -> int:
    width, height = Image.open(io.BytesIO(encoded)).size
    return width * height


def digest(folder: pathlib.Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def coherence(encoded: bytes) -> float:
    """How much all edges of a photograph of 64 x 64 share one direction: 0 for discs, 1 for straight bars."""
    photo = Image.open(io.BytesIO(encoded)).convert("L").resize((64, 64), Image.Resampling.NEAREST)
    down, right = np.gradient(np.asarray(photo, np.float64))
    along, across, mixed = (right * right).sum(), (down * down).sum(), (right * down).sum()
    return float(np.hypot(along - across, 2 * mixed) / (along + across))


def test_the_same_index_and_seed_give_the_same_bytes(sample):
    # In another process, so that nothing kept in this one can hide a difference.
    code = (
        "import sys; from unstall.pipeline.sources import photographs; "
        "sys.stdout.buffer.write(photographs.encode_photo(7, 0))"
    )
    again = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, check=True).stdout
    assert again == sample[7]
    assert photographs.encode_photo(7, 0) == sample[7]


def test_photos_of_one_seed_and_of_two_seeds_differ(sample):
    assert len(set(sample)) == len(SAMPLE)
    assert photographs.encode_photo(7, 1) != sample[7]


def test_every_photo_is_a_baseline_jpeg_with_the_settings_of_the_real_ones(sample):
    for encoded in sample:
        photo = Image.open(io.BytesIO(encoded))
        assert (photo.format, photo.mode) == ("JPEG", "RGB")
        assert "progressive" not in photo.info
        assert b"\xff\xc0" in encoded[:300]  # Start of frame, baseline.
        assert [layer[1:3] for layer in photo.layer] == [(2, 2), (1, 1), (1, 1)]  # 4:2:0.
        assert photo.quantization[0][:8] == [10, 7, 6, 10, 14, 24, 31, 37]
        assert photo.quantization[1][:4] == [10, 11, 14, 28]
        assert min(photo.size) >= 16 and max(photo.size) <= 500
        assert len(encoded) > 623 and encoded[621:623] == b"\x3f\x00"  # The header of the real ones is as long.


def test_sizes_are_landscape_and_portrait_and_mostly_of_500_pixels(sample):
    sizes = [Image.open(io.BytesIO(encoded)).size for encoded in sample]
    landscape = sum(width > height for width, height in sizes) / len(sizes)
    long_side = sum(max(size) in (499, 500) for size in sizes) / len(sizes)
    assert landscape == pytest.approx(0.69, abs=0.06)
    assert long_side == pytest.approx(0.55, abs=0.06)


def test_bytes_and_bits_per_pixel_are_within_10_percent_of_the_measured_ones(sample):
    total_bytes, total_pixels = sum(map(len, sample)), sum(map(pixels, sample))
    assert total_bytes / len(sample) == pytest.approx(MEAN_BYTES, rel=0.1)
    assert total_pixels / len(sample) == pytest.approx(MEAN_PIXELS, rel=0.1)
    assert total_bytes * 8 / total_pixels == pytest.approx(BITS_PER_PX, rel=0.1)


@pytest.mark.skipif(
    not REAL_PHOTOS.is_dir(), reason=f"no real photographs at {REAL_PHOTOS}; set CATS_DOGS_DIR to their folder"
)
def test_the_real_photos_have_the_bytes_and_bits_of_the_generated_ones(sample):
    real = [path.read_bytes() for path in sorted(REAL_PHOTOS.rglob("*.jpg"))]
    assert real, f"{REAL_PHOTOS} holds no *.jpg"
    bits_per_px = [np.array([len(encoded) * 8 / pixels(encoded) for encoded in photos]) for photos in (real, sample)]
    assert np.mean([*map(len, sample)]) == pytest.approx(np.mean([*map(len, real)]), rel=0.1)
    assert sum(map(len, sample)) / sum(map(pixels, sample)) == pytest.approx(
        sum(map(len, real)) / sum(map(pixels, real)), rel=0.1
    )
    for share in (0.1, 0.5, 0.9):
        assert np.quantile(bits_per_px[1], share) == pytest.approx(np.quantile(bits_per_px[0], share), rel=0.1)


def test_edge_directions_tell_the_classes_apart_and_mean_colour_does_not(sample):
    is_stripes = np.array([index % 2 for index in SAMPLE]) == 1
    by_edges = np.array([coherence(encoded) for encoded in sample]) > 0.3
    assert np.mean(by_edges == is_stripes) > 0.9

    means = [np.asarray(Image.open(io.BytesIO(encoded))).mean((0, 1)) for encoded in sample]
    features = np.column_stack([np.array(means), np.ones(len(means))])
    train, validation = slice(0, 100), slice(100, 200)
    weights = np.linalg.lstsq(features[train], is_stripes[train] * 2.0 - 1.0, rcond=None)[0]
    assert np.mean((features[validation] @ weights > 0) == is_stripes[validation]) < 0.65


def test_folder_holds_exactly_the_photos_by_class(tmp_path):
    folder = generated.generated_folder(5, tmp_path / "new" / "root", processes=1)
    assert folder == tmp_path / "new" / "root" / f"generated-v{photographs.VERSION}-5-s0"
    assert entries(folder.parent) == [folder.name]
    assert list(photographs.CLASS_NAMES) == sorted(photographs.CLASS_NAMES) == entries(folder)
    assert sorted(digest(folder)) == [
        "discs/000000.jpg",
        "discs/000002.jpg",
        "discs/000004.jpg",
        "stripes/000001.jpg",
        "stripes/000003.jpg",
    ]
    assert (folder / "stripes" / "000003.jpg").read_bytes() == photographs.encode_photo(3, 0)


def test_two_processes_write_what_one_writes_and_report_every_photo(tmp_path, monkeypatch):
    monkeypatch.setattr(generated, "_CHUNK_PHOTOS", 10)
    reports = {1: [], 2: []}
    folders = [
        generated.generated_folder(
            21,
            tmp_path / str(processes),
            seed=3,
            processes=processes,
            progress=lambda done, total, log=reports[processes]: log.append((done, total, os.getpid())),
        )
        for processes in (1, 2)
    ]
    assert digest(folders[0]) == digest(folders[1])
    assert len(digest(folders[0])) == 21
    assert reports[1] == [(10, 21, os.getpid()), (20, 21, os.getpid()), (21, 21, os.getpid())]
    assert reports[2][-1] == (21, 21, os.getpid())
    assert sorted(reports[2]) == reports[2] and len(reports[2]) == 3


def test_a_whole_folder_is_used_again_as_it_is(tmp_path, monkeypatch):
    folder = generated.generated_folder(4, tmp_path, processes=1)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    # Reuse needs neither room nor work.
    monkeypatch.setattr(shutil, "disk_usage", lambda path: DiskUsage(1, 1, 0))
    reports = []
    assert generated.generated_folder(4, tmp_path, progress=lambda *report: reports.append(report)) == folder
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert reports == []


FAILURES = (RuntimeError("stop"), KeyboardInterrupt(), OSError(errno.ENOSPC, "disk full"))


@pytest.mark.parametrize(
    ("processes", "failure"),
    [
        *((1, failure) for failure in FAILURES),
        *(pytest.param(2, failure, marks=() if failure is FAILURES[1] else pytest.mark.slow) for failure in FAILURES),
    ],
)
def test_a_failure_half_way_leaves_nothing_behind(tmp_path, failure, processes, monkeypatch):
    monkeypatch.setattr(generated, "_CHUNK_PHOTOS", 10)
    seen = []

    def fail(done, total):
        seen.extend(entries(tmp_path))
        raise failure

    with pytest.raises(type(failure)) as caught:
        generated.generated_folder(12, tmp_path, processes=processes, progress=fail)
    assert caught.value is failure
    assert len(seen) == 1 and f".building-{os.getpid()}-" in seen[0]
    assert entries(tmp_path) == []


def test_the_folder_of_a_faster_builder_is_kept(tmp_path):
    final = tmp_path / f"generated-v{photographs.VERSION}-4-s0"

    def overtake(done, total):
        (final / "discs").mkdir(parents=True)
        (final / "discs" / "theirs.jpg").write_bytes(b"theirs")

    assert generated.generated_folder(4, tmp_path, processes=1, progress=overtake) == final
    assert entries(tmp_path) == [final.name]
    assert entries(final / "discs") == ["theirs.jpg"]


def test_a_name_taken_by_a_file_is_an_error_that_leaves_nothing_behind(tmp_path):
    (tmp_path / f"generated-v{photographs.VERSION}-4-s0").write_text("a file")
    with pytest.raises(OSError, match=f"generated-v{photographs.VERSION}-4-s0"):
        generated.generated_folder(4, tmp_path, processes=1)
    assert entries(tmp_path) == [f"generated-v{photographs.VERSION}-4-s0"]


def test_what_a_dead_builder_left_is_removed_and_other_folders_stay(tmp_path):
    stale = tmp_path / f"generated-v0-9-s0.building-{dead_pid()}-00ff"
    alive = tmp_path / f"generated-v0-9-s0.building-{os.getpid()}-00ff"
    other = tmp_path / "generated-v0-9-s0.building-notes"
    for path in (stale, alive, other):
        (path / "discs").mkdir(parents=True)
        (path / "discs" / "000000.jpg").write_bytes(b"part")
    folder = generated.generated_folder(4, tmp_path, processes=1)
    assert entries(tmp_path) == sorted([alive.name, other.name, folder.name])


def test_no_room_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    needed_bytes = int(1000 * 26_000 * 1.2)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: DiskUsage(10**12, 0, needed_bytes - 1))
    with pytest.raises(OSError, match=r"1000 generated photographs need 31\.2 MB of free room") as caught:
        generated.generated_folder(1000, tmp_path, processes=1)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(tmp_path)
    assert entries(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"images": 1}, "`images` must be at least 4. Received: images=1."),
        ({"images": 4, "seed": -1}, "`seed` must be at least 0. Received: seed=-1."),
        ({"images": 4, "processes": 0}, "`processes` must be at least 1. Received: processes=0."),
    ],
)
def test_an_argument_too_small_is_refused(tmp_path, arguments, message):
    with pytest.raises(ValueError) as caught:
        generated.generated_folder(cache_root=tmp_path / "cache", **arguments)
    assert str(caught.value) == message
    assert entries(tmp_path) == []


@pytest.mark.parametrize(("index", "seed", "name"), [(-1, 0, "index"), (0, -1, "seed")])
def test_a_negative_index_or_seed_is_refused(index, seed, name):
    with pytest.raises(ValueError, match=f"`index` and `seed` must be at least 0. Received: .*{name}=-1"):
        photographs.encode_photo(index, seed)


def test_importing_the_module_does_not_import_tensorflow_or_opencv():
    code = (
        "import sys, pipeline.sources.generated; print([m for m in ('tensorflow', 'keras', 'cv2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"
