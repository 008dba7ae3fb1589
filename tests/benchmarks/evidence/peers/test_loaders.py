"""The work in numbers: draws, crops, and maps; how loaders are read; and parts of the work."""

from __future__ import annotations

import dataclasses
import os

import cv2
import numpy as np
import pytest

from tests.benchmarks.evidence.peers.builders import small_photos
from unstall.benchmarks.evidence.peers.loaders import opencv, parts, work
from unstall.benchmarks.evidence.peers.loaders.parts_tf_data import read_decode_warp_tf_data
from unstall.benchmarks.evidence.peers.loaders.work import AllEpochs, Endless, Job
from unstall.benchmarks.evidence.peers.material import Material
from unstall.pipeline.draws import Draw
from unstall.pipeline.sources.folder import from_folder
from unstall.pipeline.stages.opencv_decode import OpenCVDecoder
from unstall.pipeline.variants import VARIANTS


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
    return dataclasses.replace(Material(source=source).job("cold", folder), workers=workers)


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
