"""How loading grows with the number of files, the cores, the batch size and the image size: what is flat stays flat.

Over 400 lines of cases: each expectation has a planted series that breaks it and one that does not.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.growth import lists
from tests.growth.child import extent
from tests.growth.expectations import (
    EXPECTATIONS,
    FLAT_MEMORY_FILES,
    MOST_BYTES_A_FILE,
    NEGLIGIBLE,
    Series,
    checks,
    find,
)
from tests.growth.lists import copy_photos, link_files
from tests.growth.places import AXES, FIGURES, Measurement, Place, place_at
from unstall.benchmarks.lab.child import Child
from unstall.benchmarks.pipeline.sweep.measure import core_order
from unstall.pipeline import VARIANTS, PipelineConfig
from unstall.pipeline.sources.folder import from_folder
from unstall.profiles.devices import CPU
from unstall.profiles.provenance import usable_cores

FILES = (1_000, 10_000, 100_000)


def series(axis, figure, values, *numbers, decode="full"):
    """A series with one number, or one a round, at each value."""
    rounds = tuple(dict(enumerate(number if isinstance(number, tuple) else (number,))) for number in numbers)
    return Series(axis=axis, figure=figure, decode=decode, values=values, rounds=rounds)


def flat(axis, figure, values=FILES):
    return series(axis, figure, values, *(0.5,) * len(values))


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("figure", FIGURES)
def test_a_flat_series_is_no_finding_but_of_cores_that_do_nothing(axis, figure):
    expected = 1 if (axis, figure) == ("cores", "images_per_sec") else 0
    assert len(find([flat(axis, figure)])) == expected


@pytest.mark.parametrize(
    ("planted", "value", "measured"),
    [
        (
            series("files", "images_per_sec", FILES, 1000.0, 990.0, 700.0),
            100_000,
            "fitted 740 at 100,000 files against 1,058 at 1,000: 0.70 times as much",
        ),
        (
            series("files", "first_batch_s", FILES, 0.05, 0.06, 0.2),
            100_000,
            "fitted 169 ms at 100,000 files against 42.2 ms at 1,000: 4.00 times as much",
        ),
        (
            series("files", "memory_bytes", FILES, 20e6, 60e6, 180e6),
            100_000,
            "fitted 180 MB at 100,000 files against 20.0 MB at 1,000: 9.00 times as much",
        ),
        (
            series("files", "listing_s", FILES, 0.1, 1.0, 40.0),
            100_000,
            "fitted 31,748 ms at 100,000 files against 79.4 ms at 1,000: 400 times for 100 times as many",
        ),
        (
            series("files", "listing_again_s", FILES, 0.1, 1.0, 40.0),
            100_000,
            "fitted 31,748 ms at 100,000 files against 79.4 ms at 1,000: 400 times for 100 times as many",
        ),
        (
            series("files", "build_s", FILES, 0.1, 1.0, 40.0),
            100_000,
            "fitted 31,748 ms at 100,000 files against 79.4 ms at 1,000: 400 times for 100 times as many",
        ),
        (
            series("cores", "images_per_sec", (1, 2, 4), 100.0, 180.0, 240.0),
            4,
            "fitted 252 at 4 cores against 105 at 1: 2.4 times for 4 times as many (efficiency 0.60)",
        ),
        (
            series("batch-size", "images_per_sec", (8, 32, 128), 200.0, 150.0, 100.0),
            128,
            "fitted 102 at 128 images a batch against 204 at 8: 0.50 times as much",
        ),
        (
            series("batch-size", "first_batch_s", (8, 32, 128), 0.01, 0.1, 0.8),
            128,
            "fitted 830 ms at 128 images a batch against 10.4 ms at 8: 80 times for 16 times as many",
        ),
        (
            series("image-size", "images_per_sec", (32, 64), 120.0, 60.0),
            64,
            "fitted 60.0 at 64 pixels a side against 120 at 32: 0.50 times as much",
        ),
        (
            series("image-size", "images_per_sec", (32, 64), 120.0, 24.0, decode="scaled"),
            64,
            "fitted 24.0 at 64 pixels a side against 120 at 32: 0.2 times for 2 times as many",
        ),
    ],
)
def test_a_planted_slope_is_exactly_that_finding(planted, value, measured):
    (finding,) = find([planted, *(flat("files", figure) for figure in FIGURES)])
    assert (finding.axis, finding.figure, finding.value) == (planted.axis, planted.figure, value)
    assert finding.measured == measured
    assert finding.line.endswith(f"; {measured}")


@pytest.mark.parametrize(
    "harmless",
    [
        series("files", "images_per_sec", FILES, 1000.0, 950.0, 901.0),
        series("files", "images_per_sec", FILES, 1000.0, 2000.0, 3000.0),
        series("files", "first_batch_s", FILES, 0.020, 0.025, 0.034),
        series("files", "memory_bytes", FILES, 20e6, 28e6, 40e6),
        series("files", "listing_s", FILES, 0.1, 1.0, 10.0),
        series("files", "build_s", FILES, 1.0, 1.9, 10.9),
        series("cores", "images_per_sec", (1, 2, 4), 100.0, 170.0, 330.0),
        series("image-size", "images_per_sec", (32, 64), 100.0, 26.0, decode="scaled"),
    ],
)
def test_what_is_allowed_is_no_finding(harmless):
    assert find([harmless]) == ()


def test_noise_within_the_spread_is_no_finding():
    noisy = series("files", "images_per_sec", (1000, 10_000), (1000.0, 800.0, 1000.0), (850.0, 860.0, 870.0))
    assert find([noisy]) == ()
    steady = series("files", "images_per_sec", (1000, 10_000), (1000.0, 990.0, 1010.0), (750.0, 760.0, 770.0))
    assert [finding.ratio for finding in find([steady])] == [pytest.approx(770 / 1010)]


def test_rounds_are_held_against_the_same_round():
    # The machine was half as fast in the second round: nothing that the number of files did.
    drifting = series("files", "images_per_sec", (1000, 10_000), (1000.0, 500.0), (990.0, 495.0))
    assert find([drifting]) == ()
    fallen = series("files", "images_per_sec", (1000, 10_000), (1000.0, 500.0), (500.0,))
    assert [finding.ratio for finding in find([fallen])] == [pytest.approx(0.5)]


def test_every_expectation_names_an_axis_and_a_figure_that_there_are():
    assert {expectation.axis for expectation in EXPECTATIONS} == set(AXES)
    assert {expectation.figure for expectation in EXPECTATIONS} <= set(FIGURES) == set(NEGLIGIBLE)


def test_one_value_cannot_be_checked():
    assert checks([flat("files", "build_s", (1000,))]) == ()
    assert len(checks([flat("files", "build_s", (1000, 10_000))])) == 1


def test_a_number_of_workers_follows_the_cores_and_the_tuner_is_left_alone():
    found = [
        (place.cores, place.config.workers)
        for name in ("generator", "tf-data-autotune")
        for place in (place_at("cores", 2, VARIANTS[name], 16),)
    ]
    assert found == [(2, 2), (2, "auto")]


@pytest.mark.parametrize(("axis", "value"), [("files", 8), ("batch-size", 8), ("image-size", 32)])
def test_an_axis_changes_its_own_setting_alone(axis, value):
    place = place_at(axis, value, VARIANTS["tf-data-autotune"], 16)
    config = place.config
    assert {"batch-size": config.batch_size, "image-size": config.image_size[0], "files": place.files}[axis] == value
    assert dataclasses.replace(config, batch_size=32, image_size=(64, 64)) == VARIANTS["tf-data-autotune"]
    assert place.cores is None and (axis == "files" or place.files == 16)


def test_files_are_links_and_the_users_own_stay_as_they_are(photos, tmp_path):
    source = from_folder(photos)
    before = [os.stat(path) for path in source.paths]
    copied = copy_photos(source, 10, tmp_path / "photos")
    folder = link_files(copied, 1003, tmp_path / "files")
    assert [(one.st_nlink, one.st_ctime_ns) for one in map(os.stat, source.paths)] == [
        (one.st_nlink, one.st_ctime_ns) for one in before
    ]
    linked = from_folder(folder)
    assert (linked.images, linked.skipped, linked.class_names) == (1003, (), source.class_names)
    assert {os.stat(path).st_ino for path in linked.paths} == {path.stat().st_ino for path in copied.paths}
    assert not any(os.path.islink(path) for path in linked.paths)
    assert np.bincount(linked.labels).tolist() == [503, 500]


def test_where_there_are_no_hard_links_the_files_are_symbolic_ones(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError("no")))
    folder = link_files(copy_photos(from_folder(photos), 4, tmp_path / "photos"), 9, tmp_path / "files")
    linked = from_folder(folder)
    assert linked.images == 9
    assert all(os.path.islink(path) for path in linked.paths)


def test_every_class_keeps_a_photo_however_few_it_has(photos, tmp_path):
    for name in ("rare", "rarer"):
        (tmp_path / name).mkdir()
        os.link(from_folder(photos).paths[0], tmp_path / name / "one.jpg")
    (tmp_path / "common").symlink_to(photos / "discs")
    source = from_folder(tmp_path)
    assert sorted(copy_photos(source, 4, tmp_path / ".copies").labels) == [0, 0, 1, 2]
    with pytest.raises(ValueError, match="3 classes need a list of as many files at least. Received: 2"):
        copy_photos(source, 2, tmp_path / ".others")


def test_large_photos_are_fewer_and_no_room_is_said(photos, tmp_path, monkeypatch):
    source = from_folder(photos)
    monkeypatch.setattr(lists, "_MOST_BYTES", 100_000)
    assert 2 <= len(copy_photos(source, 40, tmp_path / "few").paths) < 10
    monkeypatch.setattr(lists.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(ValueError, match=r"copies of \d+ photos need \d+ MB, and 0 MB are free"):
        copy_photos(source, 40, tmp_path / "none")


@pytest.mark.parametrize(
    ("images", "rate", "expected"),
    [
        (100_000, 1000.0, (1, 1 + 47)),  # 1,500 images are 47 batches, beside one that is not steady
        (100_000, 10.0, (1, 1 + 6)),
        (100_000, 1e6, (1, 1 + 256)),
        (320, 1000.0, (5, None)),
        (1500, 1000.0, (1, None)),
    ],
)
def test_a_window_is_some_seconds_of_a_list_of_any_length(images, rate, expected):
    loader = SimpleNamespace(images=images, batches=-(-images // 32), parallel_batches=1)
    assert extent(loader, 32, rate) == expected


def measured(place: Place, list_: Path, folder: Path, number: int) -> Measurement:
    """Returns what a fresh process measures at a place; it keeps its files in a folder of its own."""
    cores = None if place.cores is None else core_order()[: place.cores]
    log = folder / "child.log"
    log.touch()
    child = Child("tests.growth.child:PlaceSession", CPU, log, cores, str(folder / f"cache-{number}"))
    try:
        measurement: Measurement = child.ask("measure", place, str(list_), number, timeout_s=300 + 0.003 * place.files)
        return measurement
    finally:
        child.kill()


@pytest.mark.long
def test_a_run_measures_every_image_of_a_list(photos, tmp_path):
    config = dataclasses.replace(VARIANTS["generator"], batch_size=4)
    list_ = link_files(copy_photos(from_folder(photos), 22, tmp_path / "photos"), 22, tmp_path / "files")
    one = measured(Place(config=config, files=22), list_, tmp_path, 0)
    assert one.images == 22
    epochs = one.steady.epochs
    assert one.steady.epoch_images == 22 * epochs
    assert len(one.steady.first_batch_ns) == epochs
    assert min(one.listing_ns, one.listing_again_ns, one.build_ns, one.first.images) > 0
    assert one.figures["images_per_sec"] == pytest.approx(one.steady.images / one.steady.wall_ns * 1e9)


class Grown:
    """The figures along an axis, of rounds that take every value in turn, each in a fresh process."""

    def __init__(self, axis: str, values: tuple[int, ...], config: PipelineConfig, photos: Path, folder: Path) -> None:
        self.axis, self.values, self.config = axis, values, config
        copied = copy_photos(from_folder(photos), 1_000, folder / "photos")
        places = [place_at(axis, value, config, 10_000) for value in values]
        lists_ = {
            files: link_files(copied, files, folder / f"files-{files}")
            for files in dict.fromkeys(place.files for place in places)
        }
        self.measurements = {
            value: [measured(place, lists_[place.files], folder, number) for number in range(2)]
            for value, place in zip(values, places, strict=True)
        }

    def series(self, figure: str, values: tuple[int, ...]) -> Series:
        rounds = tuple(
            {one.round: number for one in self.measurements[value] if (number := one.figures[figure]) is not None}
            for value in values
        )
        return Series(axis=self.axis, figure=figure, decode=self.config.decode, values=values, rounds=rounds)


@pytest.mark.slow  # 5 to 15 minutes a case: a million files are linked, listed and listed again in each process
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("variant", ["tf-data-autotune", "tf-data-composed"])
def test_a_million_files_are_loaded_as_a_thousand_are(variant, real_photos, tmp_path):
    values = (*FILES, 1_000_000)
    grown = Grown("files", values, VARIANTS[variant], real_photos / "train", tmp_path)
    assert all(one.images == value for value in values for one in grown.measurements[value])
    flat_memory = tuple(value for value in values if value <= FLAT_MEMORY_FILES)
    all_series = [
        grown.series(figure, flat_memory if figure == "memory_bytes" else values)
        for figure in FIGURES
        if any(grown.series(figure, values).rounds)
    ]
    assert [finding.line for finding in find(all_series)] == []
    memory = grown.series("memory_bytes", (FLAT_MEMORY_FILES, values[-1]))
    if all(memory.rounds):
        shorter, longer = (min(rounds.values()) for rounds in memory.rounds)
        assert longer - shorter < MOST_BYTES_A_FILE * (values[-1] - FLAT_MEMORY_FILES)


@pytest.mark.slow  # 1 to 3 minutes a case
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("axis", "values", "variant"),
    [
        ("cores", None, "tf-data-autotune"),
        ("cores", None, "tf-data-composed"),
        ("batch-size", (8, 32, 128, 512), "tf-data-autotune"),
        ("batch-size", (8, 32, 128, 512), "tf-data-composed"),
        # TensorFlow's operations on the resized pixels grow with them, so that only decoding at a fraction is checked.
        ("image-size", (32, 64, 128, 256), "tf-data-composed"),
    ],
)
def test_along_an_axis_each_figure_does_what_it_should(axis, values, variant, real_photos, tmp_path):
    if values is None:
        if not hasattr(os, "sched_setaffinity") or usable_cores() < 2:
            pytest.skip("needs two cores, and a system that binds processes to them")
        most = int(usable_cores())
        values = (*(2**power for power in range(most.bit_length()) if 2**power < most), most)
    grown = Grown(axis, values, VARIANTS[variant], real_photos / "train", tmp_path)
    assert [finding.line for finding in find(grown.series(figure, values) for figure in FIGURES)] == []
