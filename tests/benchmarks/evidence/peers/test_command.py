"""Other libraries' loaders: what catches unequal work, what becomes of peers that fail, and a run from end to end.

Over 400 lines: every refusal and every failure of a peer's process needs a peer of its own.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator

import cv2
import numpy as np
import psutil
import pytest
from rich.console import Console

from tests import PROJECT_ROOT
from tests.builders import a_measured_peer, a_peer, a_peers_document, a_survey, an_identity
from tests.checks import have_ended, lives, tables_of
from unstall.benchmarks.evidence.peers import __main__ as peers
from unstall.benchmarks.evidence.peers import child as peer_child
from unstall.benchmarks.evidence.peers import measure, processes, renditions, rounds
from unstall.benchmarks.evidence.peers.catalogue import (
    OURS,
    PARTS,
    PEERS,
    Peer,
    all_peers,
    our_peers,
    worker_choices,
    workers_text,
)
from unstall.benchmarks.evidence.peers.child import Identifier, Surveyor
from unstall.benchmarks.evidence.peers.equal_work import differences, made_otherwise
from unstall.benchmarks.evidence.peers.loaders import opencv, parts, work
from unstall.benchmarks.evidence.peers.loaders.parts_tf_data import read_decode_warp_tf_data
from unstall.benchmarks.evidence.peers.loaders.work import AllEpochs, Endless, Job
from unstall.benchmarks.evidence.peers.material import Material, make_material
from unstall.benchmarks.evidence.peers.parser import parser
from unstall.benchmarks.evidence.peers.plan import read_plan
from unstall.benchmarks.evidence.peers.processes import Launcher, link_packages
from unstall.benchmarks.evidence.peers.report import KIND
from unstall.benchmarks.evidence.peers.results import PeersDocument, ratio_to
from unstall.benchmarks.evidence.peers.rounds import PeerRun
from unstall.benchmarks.evidence.peers.works import WORKS
from unstall.benchmarks.lab.child import Child, JobRefused
from unstall.benchmarks.lab.command import progress_bar
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.lab.show import show
from unstall.pipeline.commands import Stopped
from unstall.pipeline.draws import Draw
from unstall.pipeline.sources.arrays import from_arrays
from unstall.pipeline.sources.folder import from_folder
from unstall.pipeline.stages.opencv_decode import OpenCVDecoder
from unstall.pipeline.variants import VARIANTS
from unstall.profiles.report import LeftOut, load, write

IMAGES = 100

# A library that needs NumPy alone, and the ways in which it can go wrong.
PLANTED = """
import os, threading, time
import numpy as np
from unstall.benchmarks.evidence.peers.loaders.work import AllEpochs, draw_crop


class Planted:
    def __init__(self, job):
        self.job, self.array = job, np.load(job.array)
        self.labels = np.array(job.labels)
        self.random = np.random.default_rng(0)

    def order(self):
        return self.random.permutation(self.job.images)

    def moved(self, index):
        top = int(self.random.integers(0, 6))
        return self.array[index][np.clip(np.arange(64) - top, 0, 63)]

    def image(self, index):
        moved = self.moved(index)
        return moved[:, ::-1] if self.random.random() < 0.5 else moved

    def out(self, images):
        return images.astype(np.float32) / np.float32(255)

    def label(self, rows):
        return self.labels[rows]

    def starts(self):
        return range(0, self.job.images, 32)

    def __call__(self, epochs):
        for _ in range(epochs):
            order = self.order()
            for start in self.starts():
                rows = order[start : start + 32]
                yield self.out(np.stack([self.image(row) for row in rows])), self.label(rows)


class ForgetsRescale(Planted):
    def out(self, images):
        return images.astype(np.float32)


class RescalesTwice(Planted):
    def out(self, images):
        return images.astype(np.float32) / np.float32(255 * 255)


class DropsTheLastBatch(Planted):
    def starts(self):
        return range(0, self.job.images - 31, 32)


class MixesLabels(Planted):
    def label(self, rows):
        return np.roll(self.labels[rows], 1)


class SwapsClasses(Planted):
    def label(self, rows):
        return self.labels.max() - self.labels[rows]


class DoesNotShuffle(Planted):
    def order(self):
        return np.arange(self.job.images)


class DoesNotAugment(Planted):
    def image(self, index):
        return self.array[index]


class NeverFlips(Planted):
    def image(self, index):
        return self.moved(index)


class TakesTheNearestPixel(Planted):
    def moved(self, index):
        top = self.random.uniform(0, 6)
        return self.array[index][(top + np.arange(64) * 0.9).astype(int)]


class Smooths(Planted):
    def moved(self, index):
        moved = super().moved(index).astype(np.uint16)
        return ((moved + np.roll(moved, 1, 1) + np.roll(moved, 2, 1)) // 3).astype(np.uint8)


class DrawsWithReplacement(Planted):
    def order(self):
        return self.random.integers(0, self.job.images, self.job.images)


class Darkens(Planted):
    def out(self, images):
        return super().out(images) * np.float32(0.9)


class Halves(Planted):
    def out(self, images):
        return super().out(images)[:, ::2, ::2]


class Uint8(Planted):
    def out(self, images):
        return images


class FewWorkersOnly(Planted):
    def __init__(self, job):
        super().__init__(job)
        if job.workers > 1:
            raise ValueError("one worker is all there is\\nand more")


class NeverRests(Planted):
    def __init__(self, job):
        super().__init__(job)
        threading.Thread(target=self.burn, daemon=True).start()

    def burn(self):
        while True:
            pass


class DiesLater(Planted):
    def __call__(self, epochs):
        if os.path.exists(os.environ["PLANTED_TROUBLE"]):
            print("planted: out of luck", flush=True)
            os._exit(7)
        return super().__call__(epochs)


class HangsLater(Planted):
    def __call__(self, epochs):
        if os.path.exists(os.environ["PLANTED_TROUBLE"]):
            if os.fork() == 0:  # a worker, which outlives whoever does not end it
                time.sleep(600)
            time.sleep(600)
        return super().__call__(epochs)


def __getattr__(name):
    kind = globals()["".join(word.capitalize() for word in name.split("_"))]
    return lambda job: AllEpochs(kind(job))
"""


def planted_peer(function: str, **options) -> Peer:
    functions = dict.fromkeys(("prepared", "prepared-float"), function)
    renditions = dict.fromkeys(functions, "bilinear")
    return Peer(
        name=function,
        module="planted_peer",
        functions=functions,
        renditions=renditions,
        packages=("numpy",),
        **options,
    )


def small_photos(images: int) -> np.ndarray:
    """Images that differ in brightness and are not their own mirror image."""
    random = np.random.default_rng(0)
    ramp = np.linspace(0, 60, 64)[None, None, :, None]
    level = random.uniform(20, 180, (images, 1, 1, 3))
    return np.clip(level + ramp + random.uniform(-5, 5, (images, 64, 64, 3)), 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Material:
    """Material without photos; all work is compared with that of the planted peer that does nothing wrong."""
    folder = tmp_path_factory.mktemp("reference")
    images = small_photos(IMAGES)
    labels = np.arange(IMAGES) % 5 // 3  # 60 of the one class, 40 of the other
    np.save(folder / "array.npy", images)
    source = from_arrays(images, labels)
    array = str(folder / "array.npy")
    material = Material(source=source, sample=source, plain=array, array=array, array_labels=tuple(labels.tolist()))
    return surveyed(material, Launcher(folder, with_planted(folder), {}))


class InOneProcess(Launcher):
    """Gives each peer the process of the one before, in which it loads its own loader: a start takes a second or more.

    After a process that was ended comes a new one.
    """

    def start(self, name: str, *, gpu: bool = False) -> tuple[Child, pathlib.Path]:
        if not self._running or self._running[-1]._killed:
            return super().start(name, gpu=gpu)
        self._started += 1
        folder = self._scratch / f"{self._started:03d}"
        folder.mkdir()
        return self._running[-1], folder


def with_planted(folder) -> pathlib.Path:
    """A folder of modules with the planted library."""
    modules = link_packages(folder / "modules")
    (modules / "planted_peer.py").write_text(PLANTED)
    return modules


def surveyed(material: Material, launcher: Launcher) -> Material:
    """The material with what the planted peer that does nothing wrong makes of it, for all work."""
    try:
        process, folder = launcher.start("reference")
        process.ask("load", "planted_peer", "planted", [], timeout_s=20)
        process.ask("open", material.job("prepared-float", folder), timeout_s=20)
        survey = process.ask("survey", timeout_s=20)
    finally:
        launcher.end()
    return dataclasses.replace(material, references=dict.fromkeys(WORKS, survey))


@pytest.fixture
def workshop(tmp_path, monkeypatch, reference):
    """Returns a launcher whose children find the planted library, material without photos, and a file for trouble."""
    monkeypatch.setattr(rounds, "WINDOW_S", 0.02)
    monkeypatch.setattr(rounds, "TRIAL_S", 0.01)
    monkeypatch.setattr(rounds, "TRIALS", 1)
    monkeypatch.setattr(processes, "_REST_MS", 20)
    monkeypatch.setenv("PLANTED_TROUBLE", str(tmp_path / "trouble"))
    launcher = Launcher(tmp_path, with_planted(tmp_path), {})
    yield launcher, reference, tmp_path / "trouble"
    launcher.end()


def run_of(workshop, *functions, work_name="prepared-float", **options) -> PeerRun:
    """A run of planted peers."""
    launcher, material, _ = workshop
    chosen = [peer if isinstance(peer, Peer) else planted_peer(peer) for peer in functions]
    return PeerRun(work_name, chosen, material, launcher, cores=2, **options)


# Equal work


@pytest.mark.long
def test_wrong_peers_are_caught_and_the_right_one_is_not(workshop, tmp_path, monkeypatch):
    wrong = {
        "forgets_rescale": "values from",
        "rescales_twice": "mean off by",
        "drops_the_last_batch": "96 images an epoch, not 100",
        "mixes_labels": "labels of other images",
        "swaps_classes": "labels 0: 40, 1: 60, not 0: 60, 1: 40",
        "does_not_shuffle": "not shuffled",
        "does_not_augment": "of the images the same in two epochs",
        "never_flips": "flipped, not 50%",
        "draws_with_replacement": "not each image once an epoch",
        "darkens": "mean off by",
        "halves": "images of 32x32x3",
        "uint8": "uint8, not float32",
        "takes_the_nearest_pixel": "nearest, not bilinear: pixels off by",
        "smooths": "of 255 from bilinear",
    }
    _, material, trouble = workshop
    monkeypatch.setattr(renditions, "_IMAGES", 8)  # each takes 40 ms to compare
    launcher = InOneProcess(tmp_path / "one", with_planted(tmp_path / "one"), {})
    runs = {name: run_of((launcher, material, trouble), name) for name in ("planted", *wrong)}
    try:
        for name, run in runs.items():
            run.prepare()
            run.measure(0)
            assert run.left_out == {} and list(run.measured) == [name]
    finally:
        launcher.end()
    other_work = {name: "; ".join(run.other_work[name]) for name, run in runs.items() if run.other_work}
    assert list(other_work) == list(wrong)
    assert {name: text for name, text in other_work.items() if wrong[name] not in text} == {}
    assert [name for name, run in runs.items() if run.measured[name].samples] == ["planted"]


@pytest.mark.parametrize(
    ("survey", "identity", "expected"),
    [
        ({}, {}, ()),
        ({"shape": (3, 64, 64), "mean": (0.51, 0.44, 0.41)}, {}, ()),
        ({"mean": (0.5, 0.45, 0.43)}, {}, ("mean off by 0.030",)),
        ({"std": (0.25, 0.2, 0.25)}, {}, ("std off by 0.050",)),
        ({"range": (-0.1, 1.0)}, {}, ("values from -0.1 to 1",)),
        ({"full_batches": False}, {}, ("batches of other sizes",)),
        ({"class_means": {"0": 0.5, "1": 0.4}}, {}, ("a class's mean off by 0.050",)),
        ({}, {"changed_ratio": 0.5}, ("50% of the images the same in two epochs",)),
        ({}, {"once": False, "distinct": 60}, ("not each image once an epoch (60 of 64 seen)",)),
    ],
)
def test_every_difference_is_said(survey, identity, expected):
    assert differences(a_survey(**survey), an_identity(**identity), a_survey(), "float32") == expected


@pytest.mark.parametrize(
    ("medians", "expected"),
    [
        ({"full": (0.2, 0.4, 9.0), "scaled": (4.0, 5.0, 5.0)}, ()),
        ({"full": (0.45, 0.45, 0.45), "scaled": (0.4, 0.4, 0.4)}, ()),  # a small photo: the two are alike
        (
            {"full": (4.0, 5.0, 5.0), "scaled": (0.2, 0.4, 9.0)},
            ("pixels off by 5.0 of 255 from full, by 0.4 from scaled",),
        ),
        ({"full": (1.9, 1.9, 1.9), "scaled": (0.4, 0.4, 0.4)}, ("scaled, not full: pixels off by 0.4 and 1.9 of 255",)),
        ({}, ()),  # a document of an earlier version
    ],
)
def test_how_images_were_made_is_said_where_it_is_not_as_stated(medians, expected):
    assert made_otherwise(medians, "full") == expected


def test_a_survey_counts_what_came_out_and_knows_its_statistics():
    surveyor = Surveyor()
    surveyor.begin()
    black, white = np.zeros((32, 64, 64, 3), np.uint8), np.full((8, 64, 64, 3), 255, np.uint8)
    surveyor.take(white, np.ones((8, 1)))  # the short batch need not be the last
    surveyor.take(black, np.zeros(32))
    survey = surveyor.survey(opened_ns=surveyor.first_ns - 2_000_000_000)
    assert (survey.first_batch_s, survey.images, survey.dtype, survey.full_batches) == (2.0, 40, "uint8", True)
    assert survey.labels == {"0": 32, "1": 8}
    assert survey.mean == pytest.approx([0.2] * 3)
    assert survey.std == pytest.approx([0.4] * 3)
    assert survey.class_means == {"0": 0.0, "1": 1.0}


def test_channels_first_are_seen_as_the_same_images():
    images = small_photos(40).astype(np.float32) / 255
    numbers = np.arange(40)
    identities = []
    for served in (images, np.moveaxis(images, -1, 1)):
        identifier = Identifier(small_photos(40))
        for _ in range(2):
            identifier.take(served, numbers)
        identities.append(identifier.identity())
    identity, channels_first = identities
    assert identity == channels_first
    assert identity.pairing == pytest.approx(1.0)
    assert (identity.flipped_ratio, identity.changed_ratio, identity.once) == (0.0, 0.0, True)


# The work in numbers


@pytest.mark.parametrize("flip", [False, True])
def test_the_map_of_a_single_image_is_that_of_our_own_pipeline(flip):
    draw = Draw(
        shear_degrees=np.array([0.15]),
        zoom_x=np.array([0.9]),
        zoom_y=np.array([1.2]),
        flip=np.array([flip]),
        crop=np.array([[0.0, 0.0, 1.0, 1.0]]),
    )
    matrix = work.affine_map(np.deg2rad(0.15), 0.9, 1.2, flip=flip)
    np.testing.assert_allclose(matrix, draw.affine(64, 64)[0], rtol=1e-5, atol=1e-5)


def test_draws_for_an_epoch_at_once_are_those_of_single_images():
    for seed in range(100):
        at_once, single = np.random.default_rng(seed), np.random.default_rng(seed)
        np.testing.assert_allclose(work.draw_affines(at_once, 1)[0], work.draw_affine(single))
        assert tuple(work.draw_crops(at_once, 1)[0]) == work.draw_crop(single)


def test_crops_lie_inside_and_have_the_areas_and_aspects_of_torchvision():
    random = np.random.default_rng(0)
    crops = np.array([work.draw_crop(random) for _ in range(2000)])
    top, left, height, width = crops.T
    assert (top >= 0).all() and (left >= 0).all()
    assert (top + height <= 64).all() and (left + width <= 64).all()
    area = height * width / 64**2
    assert area.min() < 0.1 and area.max() > 0.95
    aspect = width / height
    assert aspect.min() > 0.7 and aspect.max() < 1.4


def test_opencv_crops_and_warps_to_the_same_size():
    random = np.random.default_rng(0)
    image = small_photos(1)[0]
    for function in (opencv.crop, opencv.augment):
        output = function(image, random)
        assert (output.shape, output.dtype) == ((64, 64, 3), np.uint8)
        assert abs(float(output.mean()) - float(image.mean())) < 30


@pytest.mark.parametrize(("height", "width", "ratio"), [(375, 500, 4), (128, 1000, 2), (126, 200, 1), (512, 512, 8)])
def test_a_scaled_decode_never_falls_below_the_output(height, width, ratio):
    assert opencv.scaled_ratio(height, width) == ratio


def test_the_last_batch_of_a_job_may_be_short():
    job = Job(work="cold", images=33, labels=(0, 1), folder="/f")
    assert (job.batches, job.dtype) == (2, "float32")


class Sink:
    """Writes down what it is told."""

    def __init__(self):
        self.taken = []

    def begin(self):
        self.taken.append("begin")

    def take(self, images, labels):
        self.taken.append(labels)

    def count(self, images):
        self.taken.append(images)


def test_loaders_without_an_end_give_away_what_was_ready_before_the_clock_runs():
    loader = Endless(((None, number) for number in range(100)), per_epoch=3, buffered=4)
    first, second = Sink(), Sink()
    loader.feed(1, first)
    loader.feed(2, second)
    assert first.taken == ["begin", 0, 1, 2]
    assert second.taken == ["begin", 7, 8, 9, 10, 11, 12]


def test_loaders_with_an_end_serve_whole_epochs():
    batches = [(None, 0), (None, 1)]
    sink = Sink()
    AllEpochs(lambda epochs: batches * epochs).feed(2, sink)
    assert sink.taken == ["begin", 0, 1, 0, 1]


# Parts of the work


def a_file_job(source, folder, *, workers: int) -> Job:
    material = Material(source=source, sample=source, plain="")
    return dataclasses.replace(material.job("cold", folder), workers=workers)


@pytest.mark.parametrize("threads", [1, 3, 8])
def test_shares_are_every_image_once_an_epoch(threads):
    indices, sink = [], Sink()
    parts.Shares(indices.extend, images=7, threads=threads).feed(2, sink)
    assert sorted(indices) == sorted([*range(7)] * 2)
    assert sink.taken == ["begin", 14]


def test_an_error_in_a_share_is_everybodys():
    def work(indices):
        if 3 in indices:
            raise ValueError("cats/3.jpg cannot be decoded by OpenCV.")

    with pytest.raises(ValueError, match=r"cats/3\.jpg cannot be decoded"):
        parts.Shares(work, images=7, threads=2).feed(1, Sink())


def test_decoding_alone_decodes_every_file_from_memory_at_the_fraction_of_the_loaders(photos, monkeypatch, tmp_path):
    shapes = []
    decode = OpenCVDecoder.decode

    def counting(self, index, encoded):
        image = decode(self, index, encoded)
        shapes.append((index, image.shape))
        return image

    monkeypatch.setattr(OpenCVDecoder, "decode", counting)
    source = from_folder(photos)
    loader = parts.decode(a_file_job(source, tmp_path, workers=2))
    monkeypatch.setattr(OpenCVDecoder, "_read", lambda self, path: pytest.fail(f"{path} is read again"))
    loader.feed(1, Sink())
    expected = OpenCVDecoder(source, VARIANTS["tf-data-composed"])
    assert sorted(shapes) == [
        (index, decode(expected, index, np.fromfile(path, np.uint8)).shape) for index, path in enumerate(source.paths)
    ]


@pytest.mark.parametrize(
    ("part", "warps"), [(parts.read_decode, 0), (parts.read_decode_warp, 40), (read_decode_warp_tf_data, 40)]
)
def test_what_loaders_cannot_do_without_is_done_to_every_file_once(part, warps, photos, monkeypatch, tmp_path):
    read, warped = [], []
    read_file, warp = OpenCVDecoder._read, cv2.warpAffine

    def reading(self, path):
        read.append(path)
        return read_file(self, path)

    def warping(image, *others):
        warped.append(others)
        return warp(image, *others)

    monkeypatch.setattr(OpenCVDecoder, "_read", reading)
    monkeypatch.setattr(cv2, "warpAffine", warping)
    source = from_folder(photos)
    part(a_file_job(source, tmp_path, workers=2)).feed(1, Sink())
    assert sorted(map(os.path.realpath, read)) == sorted(map(os.path.realpath, source.paths))
    assert len(warped) == warps


@pytest.fixture
def cold(photos, tmp_path, workshop):
    """A launcher, and material of photos without a reference to compare with."""
    shutil.copytree(photos, tmp_path / "photos")
    source = from_folder(tmp_path / "photos")
    return workshop[0], Material(source=source, sample=source, plain="")


def test_parts_are_timed_in_rounds_on_all_cores_and_compared_with_no_reference(cold):
    launcher, material = cold
    parts = [part for part in PARTS.values() if not part.gpu]
    run = PeerRun("cold", parts, material, launcher, cores=2, workers=(1,))
    run.prepare()
    for number in range(2):
        run.measure(number)
    run.end()
    assert (run.left_out, run.other_work) == ({}, {})
    assert list(run.measured) == ["decode", "read-decode", "read-decode-warp", "read-decode-warp-tf-data"]
    for measured in run.measured.values():
        assert (measured.workers, measured.first_batch_s, measured.flags) == ("2 threads", None, ())
        assert measured.survey is None and measured.identity is None
        assert [sample.round for sample in measured.samples] == [0, 1]
        assert all(sample.images == 40 * sample.epochs and sample.wall_ns > 0 for sample in measured.samples)


def test_a_part_that_meets_a_damaged_photo_is_left_out_with_its_name(cold):
    launcher, material = cold
    damaged = pathlib.Path(material.source.paths[7])
    damaged.write_bytes(b"no photo")
    run = PeerRun("cold", [PARTS["decode"]], material, launcher, cores=2)
    run.prepare()
    assert run.measured == {}
    named = f"{damaged.parent.name}/{damaged.name}"
    reason = f"ValueError: {named} cannot be decoded by OpenCV. (unstall doctor names the file)"
    assert run.left_out == {"decode": reason}


# Workers


@pytest.mark.parametrize(
    ("kinds", "least", "asked", "choices"),
    [
        ((), 1, (3,), [(None, False)]),
        (("threads",), 1, (), [(1, False), (2, False), (4, False)]),
        (("processes",), 0, (), [(0, True), (2, True), (4, True)]),
        (("threads", "processes"), 0, (0, 2), [(0, False), (2, False), (2, True)]),
        (("threads",), 1, (0,), [(1, False)]),
    ],
)
def test_workers_to_try(kinds, least, asked, choices):
    peer = planted_peer("planted", kinds=kinds, least=least)
    assert worker_choices(peer, 2, asked) == choices


def test_workers_in_words():
    words = [
        workers_text(*choice) for choice in ((None, False), (0, True), (1, True), (2, True), (1, False), (4, False))
    ]
    assert words == ["auto", "main thread", "1 process", "2 processes", "1 thread", "4 threads"]


def test_a_number_of_workers_that_fails_is_flagged_and_another_chosen(workshop):
    run = run_of(workshop, planted_peer("few_workers_only", kinds=("threads",)))
    run.prepare()
    measured = run.measured["few_workers_only"]
    assert measured.workers == "1 thread" and list(measured.trials) == ["1 thread"]
    assert measured.flags == (
        "2 threads: ValueError: one worker is all there is",
        "4 threads: ValueError: one worker is all there is",
    )


# Peers that fail


@pytest.mark.long
def test_rounds_are_complete_and_every_image_is_counted_once(workshop):
    run = run_of(workshop, "planted", dataclasses.replace(planted_peer("planted"), name="again"))
    run.prepare()
    for number in range(3):
        run.measure(number)
    run.end()
    assert list(run.measured) == ["planted", "again"]
    for measured in run.measured.values():
        assert [sample.round for sample in measured.samples] == [0, 1, 2]
        assert all(sample.images == IMAGES * sample.epochs for sample in measured.samples)
        assert all(0 < sample.first_batch_ns < sample.wall_ns for sample in measured.samples)


@pytest.mark.slow  # 26 s: a peer is watched at rest
def test_a_peer_that_works_on_between_its_windows_is_flagged(workshop, monkeypatch):
    monkeypatch.setattr(processes, "_REST_MS", 100)
    monkeypatch.setattr(processes, "_REST_TRIES", 2)
    run = run_of(workshop, "never_rests", "planted")
    run.prepare()
    run.measure(0)
    flags = {name: measured.flags for name, measured in run.measured.items()}
    assert flags == {"never_rests": ("does not rest between its windows",), "planted": ()}


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("dies_later", r"the process ended with exit code 7: planted: out of luck"),
        ("hangs_later", r"no answer within \d+ s: it hung and was ended"),  # beside other work it has longer
    ],
)
def test_a_peer_that_dies_or_hangs_is_left_out_and_the_rest_goes_on(workshop, monkeypatch, function, reason):
    monkeypatch.setattr(rounds, "HANG_LEAST_S", 3.0)
    run = run_of(workshop, function, "planted")
    run.prepare()
    process = psutil.Process(run._processes[function].pid)
    workshop[2].touch()
    run.measure(0)
    run.measure(1)
    assert list(run.left_out) == [function] and re.fullmatch(reason, run.left_out[function])
    assert {name: len(measured.samples) for name, measured in run.measured.items()} == {"planted": 2}
    assert left_of(process.pid) == []


def test_a_trial_of_many_images_gets_more_time_before_it_counts_as_hung(tmp_path, monkeypatch):
    asked = []

    class FakeProcess:
        def ask(self, method, *arguments, timeout_s):
            asked.append((method, timeout_s))
            return {"images": 1, "wall_ns": 1}

    monkeypatch.setattr(rounds, "rest", lambda process: True)
    source, peer = from_arrays(small_photos(2), np.array([0, 1])), planted_peer("planted")
    material = Material(source=source, sample=source, plain="", array_labels=(0,) * 8000)
    run = PeerRun("prepared-float", [peer], material, Launcher(tmp_path, tmp_path, {}), cores=1)
    run._processes, run._folders = {peer.name: FakeProcess()}, {peer.name: tmp_path}
    run._try(peer, (None, False))
    assert asked == [("open", 300), ("window", 400), ("window", 400)]


def left_of(session: int) -> list[psutil.Process]:
    """The processes of a session that still run."""
    processes_left = []
    for process in psutil.process_iter(["status"]):
        try:
            if lives(process.pid) and os.getsid(process.pid) == session:
                processes_left.append(process)
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    return processes_left


def test_a_peer_needs_numpy_and_psutil_and_nothing_else_of_its_interpreter(workshop, tmp_path, monkeypatch):
    lacking = tmp_path / "lacking"
    lacking.mkdir()
    for name in ("PIL", "rich", "scipy", "jinja2", "cv2", "keras", "tensorflow"):
        (lacking / f"{name}.py").write_text(f"raise ImportError('there is no {name}')\n")
    monkeypatch.setenv("PYTHONPATH", str(lacking))
    launcher, material, _ = workshop
    assert surveyed(material, launcher).references["prepared"].images == IMAGES


def test_what_is_not_installed_says_how_to_install_it(workshop):
    peer = dataclasses.replace(planted_peer("planted"), module="no_such_library", install="pip install it")
    run = run_of(workshop, peer)
    run.prepare()
    reason = "not installed (ModuleNotFoundError: No module named 'no_such_library'); pip install it"
    assert run.left_out == {"planted": reason}


# What is printed


COMPOSED = "scaled decode, one resampling"


def a_run() -> PeersDocument:
    """Returns the document of a run in which each kind of line is printed."""
    return a_peers_document(
        a_measured_peer("slow", (500.0, 1000.0, 1500.0), workers="2 processes"),
        a_measured_peer("ours:one", (1000.0, 2000.0, 3000.0)),
        a_measured_peer("ours:two", (450.0, 900.0, 1300.0), flags=("does not rest between its windows",)),
        a_measured_peer("decode", (1250.0, 2500.0, 3750.0), survey=None, identity=None),
        a_measured_peer(
            "other", (), survey=a_survey(dtype="uint8"), identity=an_identity(shuffled=False), workers="4 threads"
        ),
        a_measured_peer("slow:composed", (600.0, 1200.0, 1800.0), differences={COMPOSED: (0.2,), "other": (5.0,)}),
        peers=[
            a_peer("slow", note="DataLoader"),
            a_peer("decode", part=True),
            a_peer("slow:composed", renditions={"cold": COMPOSED}, remedied=True),
        ],
        left_out=(
            LeftOut(who="spdl (cold)", reason="not installed"),
            LeftOut(who="ffcv (prepared, prepared-float)", reason="not built"),
        ),
    )


GOLDEN = """
cold: JPEG files to float32 in [0, 1]: read, decode, 64x64, shear and zoom,
flip; 1,600 images
peer                          workers     img/s to ours      95 % 1st s
full decode, bilinear
decode                        auto        2,271    1.25 1.25-1.25     -
ours:one                      auto        1,817    1.00         -  0.25
slow                          2 processes   909    0.50 0.50-0.50  0.25
ours:two                      auto          807    0.44 0.42-0.47  0.25
other                         4 threads       -       -         -  0.25
scaled decode, one resampling
slow:composed                 auto        1,090       -         -  0.25
slow: DataLoader
ours:two: does not rest between its windows
other: other work: uint8, not float32, not shuffled
p 1.2
to ours: images/sec over those of our fastest loader under the same heading,
round by round. LIBRARY:REMEDY: with every remedy that we know. 1st s: from
making the loader to its first batch.
ours:one has 1.67 (1.67-1.67) times the rate of the fastest with our remedies,
slow:composed, at other work: scaled decode, one resampling.
ours:one has 2.00 (2.00-2.00) times the rate of the fastest as its documentation
has it, slow, at the same work.

left out spdl (cold): not installed
left out ffcv (prepared, prepared-float): not built
"""


def test_the_table_is_this():
    assert tables_of(KIND, a_run()) == GOLDEN.rstrip("\n")


def test_a_run_without_another_library_says_so():
    ours = a_measured_peer("ours:one", (1000.0,))
    part = a_measured_peer("decode", (1000.0,), survey=None, identity=None)
    sentence = "No peer is here: no other library was measured."
    assert tables_of(KIND, a_peers_document(ours, part, peers=[a_peer("decode", part=True)])).endswith(
        f"\n\n{sentence}"
    )
    assert sentence not in tables_of(KIND, a_peers_document(ours, a_measured_peer("other", (1000.0,))))


def test_a_ratio_is_of_the_rounds_that_both_have():
    ours = a_measured_peer("ours:one", (100.0, 400.0, 200.0, 100.0))
    late = a_measured_peer("late", (100.0, 200.0, 100.0, 50.0))
    late = dataclasses.replace(late, samples=late.samples[1:])
    ratio, interval = ratio_to(late, ours)
    assert (ratio, *interval) == pytest.approx((0.5, 0.5, 0.5))
    late = dataclasses.replace(late, samples=late.samples[1:])
    assert ratio_to(late, ours) == (pytest.approx(0.5), None)
    ours = dataclasses.replace(ours, samples=ours.samples[:1])
    assert ratio_to(late, ours) == (None, None)


def test_a_rate_is_of_equal_work_and_held_against_the_fastest_of_ours():
    document = a_peers_document(
        a_measured_peer("other", (3000.0,) * 3, survey=a_survey(dtype="uint8")),
        a_measured_peer("ours:two", (1000.0,) * 3),
        a_measured_peer("ours:wrong", (3000.0,) * 3, identity=an_identity(shuffled=False)),
        a_measured_peer("ours:one", (2000.0,) * 3),
    )
    [work_result] = KIND.derive(document).works
    [group] = work_result.groups
    assert group.ours == "ours:one"
    rows = [(result.peer.name, result.images_per_sec, result.ratio) for result in work_result.peers]
    assert rows == [
        ("ours:one", pytest.approx(2000), pytest.approx(1)),
        ("ours:two", pytest.approx(1000), pytest.approx(0.5)),
        ("other", None, None),
        ("ours:wrong", None, None),
    ]
    assert [row["peer"] for row in KIND.rows(KIND.derive(document))] == ["ours:one", "ours:two"]


def test_only_peers_that_make_images_in_the_same_way_are_compared():
    rendered = {"differences": {COMPOSED: (0.2,)}}
    document = a_peers_document(
        a_measured_peer("ours:full", (1000.0,) * 3),
        a_measured_peer("library", (800.0,) * 3),
        a_measured_peer("ours:composed", (4000.0,) * 3, **rendered),
        a_measured_peer("library:composed", (2000.0,) * 3, **rendered),
        peers=[
            a_peer("ours:composed", renditions={"cold": COMPOSED}),
            a_peer("library:composed", renditions={"cold": COMPOSED}, remedied=True),
        ],
    )
    [work_result] = KIND.derive(document).works
    groups = {group.rendition: (group.ours, [result.ratio for result in group.peers]) for group in work_result.groups}
    assert list(groups) == [COMPOSED, "full decode, bilinear"]
    assert groups[COMPOSED] == ("ours:composed", [pytest.approx(1), pytest.approx(0.5)])
    assert groups["full decode, bilinear"] == ("ours:full", [pytest.approx(1), pytest.approx(0.8)])
    leads = [(lead.other, lead.remedied, lead.rendition, lead.ratio) for lead in work_result.leads]
    assert leads == [
        ("library:composed", True, "", pytest.approx(2)),
        ("library", False, "full decode, bilinear", pytest.approx(5)),
    ]


def test_a_peer_whose_images_are_made_otherwise_is_not_compared():
    wrong = a_measured_peer("library", (800.0,) * 3, differences={COMPOSED: (0.2,), "full decode, bilinear": (5.0,)})
    [work_result] = KIND.derive(a_peers_document(a_measured_peer("ours:full", (1000.0,)), wrong)).works
    other_work = ("pixels off by 5.0 of 255 from full decode, bilinear, by 0.2 from scaled decode, one resampling",)
    assert [(result.ratio, result.other_work) for result in work_result.peers] == [(1, ()), (None, other_work)]
    assert work_result.leads == ()


def test_all_that_follows_from_a_document_follows_from_its_file(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    document = a_run()
    write(tmp_path, document, KIND, KIND.derive(document))
    loaded, kind = load(tmp_path, {"peers": KIND})
    assert (loaded, kind) == (document, KIND)
    assert KIND.page(loaded, KIND.derive(loaded)) == (tmp_path / "report.html").read_text()
    assert show([str(tmp_path)]) == 0
    assert "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines()) == GOLDEN.rstrip("\n")


def test_the_page_has_the_lines_of_the_terminal():
    document = a_run()
    page = KIND.page(document, KIND.derive(document))
    assert "<tr><td>slow</td><td>2 processes</td><td>909</td><td>0.50</td><td>0.50-0.50</td><td>0.25</td></tr>" in page
    assert "<li>other: other work: uint8, not float32, not shuffled</li>" in page
    assert '<tr><th colspan="6">scaled decode, one resampling</th></tr>' in page
    assert "<p>ours:one has 2.00 (2.00-2.00) times the rate of the fastest as its documentation has it, slow," in page
    assert "<li>ffcv (prepared, prepared-float): not built</li>" in page


# The command


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--rounds", "0"], "--rounds must be at least 1. Received: 0."),
        (["--work", "colt"], "--work: 'colt' is not known. Did you mean 'cold'?"),
        (["--work", ","], "--work needs at least one name. Received: ','."),
        (["--peers", "torch-pilow"], "--peers: 'torch-pilow' is not known. Did you mean 'torch-pillow'?"),
        (["--peers", "ffcv", "--work", "cold"], "--peers: none of ffcv does the work cold."),
        (
            ["--peers", "parts", "--work", "prepared"],
            "--peers: none of decode, read-decode, read-decode-warp, read-decode-warp-tf-data, decode-gpu does",
        ),
        (["--workers", "two"], "--workers needs numbers from 0 to 1024, such as 1,2,4. Received: 'two'."),
        (["--python", "ffcv"], "--python needs PEER=PATH. Received: 'ffcv'."),
        (["--python", "ffcv=/no/python"], "--python ffcv: /no/python is not an interpreter that can be run."),
        (["--prepared-images", "3"], "--prepared-images must be at least 64. Received: 3."),
        (["--data", "/no/folder"], "/no/folder does not exist."),
    ],
)
def test_bad_options_are_refused_in_one_line(capsys, tmp_path, monkeypatch, words, expected):
    monkeypatch.chdir(tmp_path)
    assert peers.main(words) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(expected)
    assert len(printed.splitlines()) == 1
    assert not list(tmp_path.glob("runs/*"))


def test_a_plan_keeps_no_path_in_what_the_document_holds(tmp_path):
    words = ["--data", str(tmp_path), "--python", f"ffcv={sys.executable}"]
    plan = read_plan(parser().parse_args(words), tmp_path)
    assert plan.pythons == {"ffcv": sys.executable}
    assert (plan.asked.other_pythons, plan.asked.data) == (("ffcv",), tmp_path.name)


def test_children_find_what_they_are_given_from_their_own_folders(photos, tmp_path, monkeypatch):
    given = []

    def made(source, launcher, folder, **others):
        given.append(folder)
        raise UserError("enough")

    monkeypatch.setattr(measure, "make_material", made)
    monkeypatch.chdir(tmp_path)
    assert peers.main(["--data", str(photos), "--out", "out"]) == 2
    assert given[0].is_absolute() and given[0].parent == tmp_path / "out"
    assert not (tmp_path / "out").exists()


@pytest.fixture
def planted_run(workshop, tmp_path, monkeypatch):
    """Returns a lab whose peers are planted, in two rounds of the two prepared works, and its folder."""

    def lab(*functions: str) -> measure.Run:
        _, material, _ = workshop
        monkeypatch.setattr(measure, "make_material", lambda *arguments, **others: material)
        monkeypatch.setattr(measure, "link_packages", lambda folder: tmp_path / "modules")
        words = ["--work", "prepared,prepared-float", "--rounds", "2"]
        plan = read_plan(parser().parse_args(words), tmp_path / "out")
        asked = dataclasses.replace(plan.asked, peers=tuple(map(planted_peer, functions)))
        plan = dataclasses.replace(plan, asked=asked)
        return measure.Run(plan, material.source, progress_bar(Console(file=io.StringIO())))

    return lab


@pytest.mark.long
def test_each_round_of_each_work_is_there_to_be_written(planted_run, tmp_path):
    lab = planted_run("planted", "uint8")
    seen = []

    def look() -> None:
        document = lab.document(complete=False)
        samples = {
            (measured_work.work, measured.peer): len(measured.samples)
            for measured_work in document.samples.works
            for measured in measured_work.peers
        }
        seen.append(samples)

    lab.measure(look)
    assert seen[0] == {("prepared", "planted"): 0, ("prepared", "uint8"): 1}
    assert [sum(samples.values()) for samples in seen] == [1, 2, 3, 4]
    assert list((tmp_path / "out").iterdir()) == []


def test_a_run_that_is_stopped_keeps_its_samples_and_leaves_no_process_and_no_file(planted_run, tmp_path):
    lab, children = planted_run("uint8"), []
    before = psutil.Process().children(recursive=True)  # such as a server of processes that an earlier test began

    def stop() -> None:
        children.extend(child for child in psutil.Process().children(recursive=True) if child not in before)
        raise Stopped(signal.SIGINT)

    with pytest.raises(Stopped):
        lab.measure(stop)
    assert len(children) >= 1
    assert [child for child in children if lives(child.pid)] == []
    assert list((tmp_path / "out").iterdir()) == []
    [work_samples] = lab.document(complete=False).samples.works
    assert [(measured.peer, len(measured.samples)) for measured in work_samples.peers] == [("uint8", 1)]


def test_a_peer_that_fails_at_two_works_for_one_reason_is_left_out_once(planted_run):
    lab = planted_run("planted", "no_such_function")
    lab.measure(lambda: None)
    (left_out,) = lab.document(complete=True).left_out
    assert left_out.who == "no_such_function (prepared, prepared-float)"


def test_where_all_did_other_work_the_reason_says_in_what(planted_run, tmp_path):
    reason = r"nothing could be measured\. does_not_shuffle \(prepared\): other work: .*not shuffled"
    with pytest.raises(UserError, match=reason) as refused:
        planted_run("does_not_shuffle").measure(lambda: None)
    assert refused.value.exit_code == 3
    assert list((tmp_path / "out").iterdir()) == []


def test_images_that_cannot_be_decoded_are_exit_code_3(photos, tmp_path, monkeypatch, capsys):
    def fails(*arguments, **others):
        raise JobRefused("ValueError: 3.jpg is damaged")

    monkeypatch.setattr(measure, "make_material", fails)
    assert peers.main(["--data", str(photos), "--out", str(tmp_path / "out")]) == 3
    assert capsys.readouterr().err == "the images cannot be decoded: ValueError: 3.jpg is damaged\n"
    assert not (tmp_path / "out").exists()


def test_photos_that_are_too_few_to_compare_work_on_are_refused(photos, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, "read_files", lambda *arguments, **others: from_folder(photos).take(15))
    assert peers.main(["--data", "few", "--out", str(tmp_path / "out")]) == 2
    said = "--data must have at least 16 photos: on fewer, the work of loaders cannot be compared. Received: 15.\n"
    assert capsys.readouterr().err == said


def test_every_peer_is_listed(capsys):
    assert peers.main(["--list"]) == 0
    printed = capsys.readouterr().out
    assert [name for name in all_peers() if name[:20] not in printed] == []


@pytest.mark.parametrize("peer", all_peers().values(), ids=lambda peer: peer.name)
def test_every_entry_names_what_exists(peer):
    assert set(peer.functions) <= set(WORKS)
    assert importlib.util.find_spec(peer.module) is not None
    source = pathlib.Path(importlib.util.find_spec(peer.module).origin).read_text()
    assert [name for name in peer.functions.values() if f"\ndef {name}(job: Job) -> Loader:" not in source] == []
    assert set(peer.configs) <= set(peer.functions)


def test_the_version_of_tensorflow_is_known_where_its_distribution_has_another_name(monkeypatch):
    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(__version__="2.99.0"))
    versions = peer_child.PeerSession().load(
        "benchmarks.evidence.peers.loaders.plain", "prepared", ["tensorflow", "no-such-package"]
    )
    assert versions == {"tensorflow": "2.99.0", "no-such-package": "unknown"}


def test_ours_are_known_by_their_works():
    assert set(OURS) == set(WORKS)
    assert all(f"ours:{name}" in our_peers() for configs in OURS.values() for name in configs)


@pytest.fixture(scope="module")
def finished(photos, tmp_path_factory):
    """One run on 40 photos with what is installed everywhere; returns its exit code, output and results."""
    out = tmp_path_factory.mktemp("run")
    chosen = "ours:tf-data-composed,ours:tf-data-autotune,image_dataset_from_directory,ImageDataGenerator,decode"
    words = ["--data", str(photos), "--work", "cold", "--peers", chosen, "--rounds", "3", "--workers", "1"]
    words += ["--out", str(out)]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("WINDOW_S", 0.05), ("TRIAL_S", 0.02), ("TRIALS", 1)):
            patch.setattr(rounds, name, value)
        patch.setattr(processes, "_REST_MS", 20)
        patch.setattr(sys, "stdout", io.StringIO())
        patch.setenv("COLUMNS", "140")
        exit_code = peers.main(words)
        return exit_code, sys.stdout.getvalue(), json.loads((out / "results.json").read_text()), out


@pytest.mark.claims
def test_a_run_has_every_peer_at_equal_work(finished):
    exit_code, _, document, _ = finished
    assert exit_code == 0
    assert document["left_out"] == []
    assert {(result["work"], result["peer"], result["other_work"]) for result in document["results"]} == {
        ("cold", "ours:tf-data-composed", ""),
        ("cold", "ours:tf-data-autotune", ""),
        ("cold", "image_dataset_from_directory", ""),
        ("cold", "ImageDataGenerator", ""),
        ("cold", "decode", ""),
    }


@pytest.mark.claims
def test_a_run_keeps_its_raw_samples(finished):
    _, _, document, _ = finished
    assert document["complete"] is True
    [work_samples] = document["samples"]["works"]
    assert len(work_samples["peers"]) == len(document["results"]) == 5
    for measured in work_samples["peers"]:
        assert [sample["round"] for sample in measured["samples"]] == [0, 1, 2]
        assert all(sample["images"] == 40 * sample["epochs"] for sample in measured["samples"])
        assert measured["versions"]
    for result in document["results"]:
        assert "samples" not in result
        if result["peer"] == "ImageDataGenerator":  # no loader of ours makes images in its way
            assert result["ratio_to_ours"] is None
        else:
            assert result["ratio_low"] <= result["ratio_to_ours"] <= result["ratio_high"]
    assert str(pathlib.Path.home()) not in json.dumps(document)


@pytest.mark.claims
def test_a_run_prints_its_tables_and_leaves_nothing_else_behind(finished):
    _, printed, _, out = finished
    assert "cold: JPEG files to float32 in [0, 1]" in printed
    assert "to ours: images/sec over those of our fastest loader under the same heading, round by round." in printed
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "results.json"]


def test_ctrl_c_ends_everything_soon(photos, tmp_path):
    words = [sys.executable, "-m", "benchmarks.evidence.peers", "--data", str(photos), "--out", str(tmp_path / "out")]
    run = subprocess.Popen(words, cwd=PROJECT_ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    children = []
    for _ in range(2400):
        children = psutil.Process(run.pid).children(recursive=True)
        if children:
            break
        time.sleep(0.05)
    assert children
    run.send_signal(signal.SIGINT)
    assert run.wait(20) == 130
    assert have_ended(*(child.pid for child in children))
    assert not (tmp_path / "out").exists()
    run.stderr.close()


# The other libraries, where they are installed

_MODULES = {"torch": "torch", "grain": "grain", "spdl": "spdl.io", "dali": "nvidia.dali", "ffcv": "ffcv"}
OTHERS = [(module, name) for library, module in _MODULES.items() for name in PEERS if name.startswith(library)]


@pytest.fixture(scope="module")
def material(photos, tmp_path_factory):
    folder = tmp_path_factory.mktemp("material")
    launcher = Launcher(folder, link_packages(folder / "modules"), {})
    try:
        return make_material(from_folder(photos), launcher, folder, works=tuple(WORKS), least=640)
    finally:
        launcher.end()


@pytest.fixture(scope="module")
def launcher_of(tmp_path_factory) -> Iterator[Callable[[Peer], InOneProcess]]:
    """Returns the launcher of all peers that are in one module, whose library takes seconds to import."""
    launchers: dict[tuple[str, bool], InOneProcess] = {}

    def launcher_of(peer: Peer) -> InOneProcess:
        if (key := (peer.module, peer.gpu)) not in launchers:
            folder = tmp_path_factory.mktemp("one")
            launchers[key] = InOneProcess(folder, link_packages(folder / "modules"), {})
        return launchers[key]

    yield launcher_of
    for launcher in launchers.values():
        launcher.end()


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.needs(library)) for library, name in OTHERS),
        pytest.param("tfrecord", marks=pytest.mark.claims),
    ],
)
def test_a_library_that_is_here_does_equal_work(name, material, launcher_of, monkeypatch):
    for setting, value in (("WINDOW_S", 0.05), ("TRIAL_S", 0.02), ("TRIALS", 1)):
        monkeypatch.setattr(rounds, setting, value)
    monkeypatch.setattr(processes, "_REST_MS", 20)
    for work_name in PEERS[name].functions:
        run = PeerRun(work_name, [PEERS[name]], material, launcher_of(PEERS[name]), cores=2, workers=(1,))
        run.prepare()
        run.measure(0)
        assert (run.left_out, run.other_work) == ({}, {})
        assert [len(measured.samples) for measured in run.measured.values()] == [1]
