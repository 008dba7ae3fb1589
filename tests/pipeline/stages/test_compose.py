"""One resampling an image: the map is the right one, and how far its pixels are from two resamplings."""

import dataclasses
import io
import pickle

import cv2
import numpy as np
import pytest
from PIL import Image

from tests.builders import build_fed
from unstall.pipeline import VARIANTS, Augmentation, PipelineConfig, from_arrays, from_folder
from unstall.pipeline.building import build
from unstall.pipeline.config import AUTO
from unstall.pipeline.draws import drawn
from unstall.pipeline.stages.batching import batches_per_call
from unstall.pipeline.stages.compose import ComposedBatches, only_crops, through_resize
from unstall.pipeline.stages.opencv_decode import OpenCVDecoder, decode_ratios

CONFIG = dataclasses.replace(VARIANTS["tf-data-composed"], shuffle_buffer=0)
CROP = Augmentation(shear_degrees=0.0, zoom_range=0.0, crop_area=(0.08, 1.0))
STRONG = Augmentation(shear_degrees=20.0, zoom_range=0.4)


def waves(height: int, width: int) -> np.ndarray:
    """A picture without fine detail, in coordinates of its sides: the same at any size. uint8."""
    y, x = (np.mgrid[:height, :width] + 0.5) / [[[height]], [[width]]]
    channels = [np.sin(5 * x + 2 * y), np.cos(3 * x * y + 1), np.sin(4 * y - 2 * x)]
    return np.round(127.5 + 120 * np.stack(channels, -1)).astype(np.uint8)


def two_passes(image: np.ndarray, matrix: np.ndarray, side: int = 64) -> np.ndarray:
    resized = cv2.resize(image, (side, side), interpolation=cv2.INTER_LINEAR)
    flags = cv2.WARP_INVERSE_MAP | cv2.INTER_LINEAR
    return cv2.warpAffine(resized, matrix, (side, side), flags=flags, borderMode=cv2.BORDER_REPLICATE)


@pytest.mark.parametrize("size", [(64, 64), (90, 122), (300, 64), (47, 200)])
@pytest.mark.parametrize("augmentation", [Augmentation(), STRONG, dataclasses.replace(STRONG, crop_area=(0.3, 0.9))])
def test_one_resampling_of_smooth_pictures_is_two_of_them(size, augmentation):
    images = np.stack([waves(*size)] * 16)
    config = dataclasses.replace(CONFIG, augmentation=augmentation)
    matrices = drawn(augmentation, 16, seed=0, epoch=0).affine(64, 64)
    made = ComposedBatches(from_arrays(images, np.arange(16) % 2), config)(np.arange(16), matrices)
    expected = np.stack([two_passes(waves(*size), matrix) for matrix in matrices])
    assert made.dtype == np.uint8 and made.shape == (16, 64, 64, 3)
    # Away from the rim, where the last pixel of a picture lies elsewhere in one of another size.
    difference = np.abs(np.float64(made) - expected)[:, 6:-6, 6:-6]
    assert difference.mean() < 1.0 and np.percentile(difference, 99) < 6


@pytest.mark.parametrize("decode", ["full", "scaled"])
def test_arrays_have_no_fraction_to_be_decoded_at(decode):
    images = np.stack([waves(64, 64)] * 3)
    config = dataclasses.replace(CONFIG, decode=decode)
    still = np.tile(np.array([[[1, 0, 0], [0, 1, 0]]], np.float32), (3, 1, 1))
    made = ComposedBatches(from_arrays(images, np.array([0, 1, 0])), config)(np.arange(3), still)
    np.testing.assert_array_equal(made, images)


def test_a_map_through_no_resize_is_itself():
    matrices = drawn(STRONG, 5, seed=0, epoch=0).affine(64, 48)
    np.testing.assert_allclose(through_resize(matrices, np.tile([64, 48], (5, 1)), (64, 48)), matrices, atol=1e-6)


def test_a_map_through_a_resize_keeps_the_corners_on_the_corners():
    still = np.array([[[1, 0, 0], [0, 1, 0]]], np.float32)
    [matrix] = through_resize(still, np.array([[128, 32]]), (64, 64))
    # Edges lie half a pixel outside of the first and the last centre: -0.5 and 63.5 to -0.5 and 31.5, 127.5.
    np.testing.assert_allclose(matrix @ [-0.5, -0.5, 1], [-0.5, -0.5])
    np.testing.assert_allclose(matrix @ [63.5, 63.5, 1], [31.5, 127.5])


@pytest.mark.parametrize(("augmentation", "expected"), [(CROP, True), (Augmentation(), False), (STRONG, False)])
def test_only_a_crop_without_shear_and_zoom_is_a_box(augmentation, expected):
    assert only_crops(augmentation) is expected
    assert not only_crops(dataclasses.replace(CROP, zoom_range=0.1))
    assert not only_crops(dataclasses.replace(CROP, shear_degrees=0.1))


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("size", [(64, 64), (100, 40)])
def test_a_box_is_cut_and_resized(size, flip):
    draw = drawn(CROP, 50, seed=0, epoch=0)
    draw = dataclasses.replace(draw, flip=np.full(50, flip))
    noise = np.random.default_rng(0).integers(0, 256, (50, *size, 3), np.uint8)
    config = dataclasses.replace(CONFIG, augmentation=CROP)
    made = ComposedBatches(from_arrays(noise, np.arange(50) % 2), config)(np.arange(50), draw.affine(64, 64))
    for image, found, (left, top, width, height) in zip(noise, made, draw.crop, strict=True):
        rows = slice(round(top * size[0]), round((top + height) * size[0]))
        columns = slice(round(left * size[1]), round((left + width) * size[1]))
        expected = cv2.resize(image[rows, columns], (64, 64), interpolation=cv2.INTER_LINEAR)
        np.testing.assert_array_equal(found, expected[:, ::-1] if flip else expected)


def test_a_crop_is_decoded_at_the_smallest_fraction_that_leaves_it_enough_pixels(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        noise = np.random.default_rng(0).integers(0, 256, (600, 800, 3), np.uint8)
        Image.fromarray(noise).save(tmp_path / name / "1.jpg", quality=95)
    source = from_folder(tmp_path)
    config = dataclasses.replace(CONFIG, augmentation=dataclasses.replace(CROP, flip_probability=0.0), decode="scaled")
    draw = drawn(config.augmentation, 60, seed=0, epoch=0)
    made = ComposedBatches(source, config)(np.zeros(60, np.int64), draw.affine(64, 64))
    reduced = {1: 1, 2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4, 8: cv2.IMREAD_REDUCED_COLOR_8}
    seen = set()
    for found, (left, top, width, height) in zip(made, draw.crop, strict=True):
        # 600 and 800 pixels are multiples of 8: a fraction has no rounded sides.
        ratio = next((ratio for ratio in (8, 4, 2) if min(height * 600, width * 800) >= 64 * ratio), 1)
        image = cv2.cvtColor(cv2.imread(source.paths[0], reduced[ratio]), cv2.COLOR_BGR2RGB)
        rows = slice(round(top * 600 / ratio), round((top + height) * 600 / ratio))
        columns = slice(round(left * 800 / ratio), round((left + width) * 800 / ratio))
        expected = cv2.resize(image[rows, columns], (64, 64), interpolation=cv2.INTER_LINEAR)
        np.testing.assert_array_equal(found, expected)
        seen.add(ratio)
    assert seen == {2, 4, 8}


def test_a_crop_of_a_png_among_jpegs_is_cut_from_the_whole_image(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)
    for name in "ab":
        (tmp_path / name).mkdir()
        Image.fromarray(noise).save(tmp_path / name / "1.png")
        Image.fromarray(noise).save(tmp_path / name / "2.jpg", quality=95)
    source = from_folder(tmp_path)
    config = dataclasses.replace(CONFIG, augmentation=dataclasses.replace(CROP, flip_probability=0.0), decode="scaled")
    draw = drawn(config.augmentation, 20, seed=0, epoch=0)
    made = ComposedBatches(source, config)(np.zeros(20, np.int64), draw.affine(64, 64))
    for found, (left, top, width, height) in zip(made, draw.crop, strict=True):
        rows = slice(round(top * 300), round((top + height) * 300))
        columns = slice(round(left * 400), round((left + width) * 400))
        expected = cv2.resize(noise[rows, columns], (64, 64), interpolation=cv2.INTER_LINEAR)
        np.testing.assert_array_equal(found, expected)


def test_a_box_of_less_than_a_pixel_is_a_pixel():
    tiny = dataclasses.replace(CROP, crop_area=(1e-6, 1e-6), flip_probability=0.0)
    image = np.arange(64 * 64 * 3, dtype=np.uint8).reshape(1, 64, 64, 3)
    source = from_arrays(np.concatenate([image, image]), np.array([0, 1]))
    made = ComposedBatches(source, dataclasses.replace(CONFIG, augmentation=tiny))(
        np.array([0]), drawn(tiny, 1, seed=0, epoch=0).affine(64, 64)
    )
    assert len(np.unique(made.reshape(-1, 3), axis=0)) == 1


def test_a_file_that_changed_its_size_since_the_scan_is_still_drawn_right(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        Image.fromarray(waves(300, 400)).save(tmp_path / name / "1.png")
        Image.fromarray(waves(300, 400)).save(tmp_path / name / "2.jpg", quality=98)
    source = from_folder(tmp_path)
    assert source.jpeg_sizes.tolist() == [[0, 0], [300, 400], [0, 0], [300, 400]]
    matrices = drawn(STRONG, 4, seed=0, epoch=0).affine(64, 64)
    batches = ComposedBatches(source, dataclasses.replace(CONFIG, augmentation=STRONG))
    for name in "ab":
        Image.fromarray(waves(200, 180)).save(tmp_path / name / "2.jpg", quality=98)
    made = batches(np.arange(4), matrices)
    expected = np.stack([two_passes(waves(300, 400), matrix) for matrix in matrices])
    assert np.abs(np.float64(made) - expected)[:, 6:-6, 6:-6].mean() < 1.5


def test_how_far_one_resampling_is_from_two_on_photographs(photos):
    """The class of the rewrite is *close*: no draw differs, and the pixels by their blur."""
    source = from_folder(photos)
    [(one, labels)] = build_fed(CONFIG, source)
    [(two, same_labels)] = build_fed(dataclasses.replace(CONFIG, resample="separate"), source)
    np.testing.assert_array_equal(labels, same_labels)
    difference = 255 * np.abs(one - two)
    psnr = 20 * np.log10(255 / np.sqrt((difference**2).mean()))
    # Measured: 4.1 levels, 31.3 dB. Another draw, or none, is some 39 levels away.
    assert difference.mean() < 6.0 and psnr > 27.0
    assert difference.mean() > 0.1


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_tf_data_and_a_py_dataset_compose_the_same_images(photos, dtype):
    source = from_folder(photos)
    [(first, _), (second, _)] = build_fed(dataclasses.replace(CONFIG, output_dtype=dtype), source, 2)
    config = dataclasses.replace(VARIANTS["py-dataset-composed"], shuffle_buffer=0)
    [(images, _)] = build_fed(config, source)
    assert second.dtype == np.dtype(dtype)
    # `fit` ends an epoch before its first: a PyDataset's draws begin with those of epoch 1.
    expected = second / np.float32(255) if dtype == "uint8" else second
    np.testing.assert_allclose(images, expected, atol=1e-6)
    assert np.any(first != second)


@pytest.mark.parametrize("workers", [1, 4])
def test_composed_batches_are_the_same_for_any_number_of_workers(photos, workers):
    config = dataclasses.replace(CONFIG, batch_size=7, shuffle_buffer=512)
    for (images, labels), (others, other_labels) in zip(
        build_fed(dataclasses.replace(config, workers=workers), from_folder(photos), 2),
        build_fed(config, from_folder(photos), 2),
        strict=True,
    ):
        np.testing.assert_array_equal(images, others)
        np.testing.assert_array_equal(labels, other_labels)


# The decoder


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("images", [2, 97])
def test_several_batches_a_call_are_the_same_batches(images, deterministic, monkeypatch):
    config = dataclasses.replace(
        VARIANTS["tf-data-raw"], storage="files", image_size=(8, 8), batch_size=4, deterministic=deterministic
    )
    source = from_arrays(
        np.repeat(np.arange(images, dtype=np.uint8), 8 * 8 * 3).reshape(-1, 8, 8, 3), np.arange(images)
    )
    calls, real = [], ComposedBatches.__call__

    def counted(self, indices, *others):
        calls.append(len(indices))
        return real(self, indices, *others)

    monkeypatch.setattr(ComposedBatches, "__call__", counted)
    epochs, sizes = [], []
    for ratio in ("_AT_ONCE_RATIO", "_AT_ONCE_OF_A_PART_RATIO"):
        monkeypatch.setattr(f"unstall.pipeline.stages.batching.{ratio}", 1)
    for call_bytes in (0, 7 * 4 * 8 * 8 * 3):
        monkeypatch.setattr("unstall.pipeline.stages.batching._CALL_BYTES", call_bytes)
        calls.clear()
        with build(config, source) as loader:
            assert int(loader.data.cardinality()) == loader.batches == -(-images // 4)
            epochs.append([list(loader.data.as_numpy_iterator()) for _ in range(2)])
        sizes.append(sorted(calls))
        for epoch in epochs[-1]:
            found = sorted((len(labels) for _, labels in epoch), reverse=True)
            assert found == [4] * (images // 4) + [images % 4] * (images % 4 > 0)
            assert sorted(np.concatenate([labels for _, labels in epoch]).tolist()) == list(range(images))
    assert sizes == ([[2] * 2] * 2 if images == 2 else [[1] * 2 + [4] * 48, [13] * 2 + [28] * 6])
    if deterministic:
        for one, other in zip(*epochs, strict=True):
            for (pixels, labels), (other_pixels, other_labels) in zip(one, other, strict=True):
                np.testing.assert_array_equal(labels, other_labels)
                np.testing.assert_array_equal(pixels, other_pixels)


def test_a_call_makes_several_batches_of_small_images_at_hand(photos):
    def per_call(side: int, batch_size: int, images: int, workers: int | str = 2, whole: int | None = None) -> int:
        config = dataclasses.replace(
            VARIANTS["tf-data-raw"],
            image_size=(side, side),
            batch_size=batch_size,
            workers=workers,
            autotune=workers == AUTO,
        )
        source = from_arrays(np.zeros((images, 4, 4, 3), np.uint8), np.arange(images) % 2)
        return batches_per_call(source, config, whole)

    assert [per_call(side, 32, 100_000) for side in (32, 64, 128, 224)] == [64, 16, 4, 1]
    assert [per_call(64, batch_size, 100_000) for batch_size in (8, 128, 1000)] == [64, 4, 1]
    # One call at a time: its buffer must last for a call.
    assert [per_call(side, 32, 100_000, workers=1) for side in (32, 64, 128, 224)] == [10, 2, 1, 1]
    # All calls at once make at most an eighth of an epoch.
    assert [per_call(64, 32, images) for images in (20, 992, 1000, 1600, 100_000)] == [1, 1, 2, 3, 16]
    assert [per_call(64, 32, 10_000, workers) for workers in (1, 2, 4, 16, AUTO)] == [2, 16, 9, 2, 2]
    # A part is read as the whole is, but not half of it by one call.
    assert [per_call(64, 32, part, whole=100_000) for part in (320, 768, 1600)] == [2, 6, 12]
    assert batches_per_call(from_folder(photos), dataclasses.replace(CONFIG, batch_size=2)) == 1


def test_a_decoder_survives_pickling(photos):
    source = from_folder(photos)
    decoder = OpenCVDecoder(source, CONFIG)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(decoder))(3), decoder(3))


def test_a_decoder_gives_red_green_blue(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        Image.new("RGB", (300, 300), (200, 100, 20)).save(tmp_path / name / "1.jpg", quality=95)
    for decode in ("full", "scaled"):
        pixel = OpenCVDecoder(from_folder(tmp_path), PipelineConfig(decode=decode))(0)[5, 5]
        assert np.abs(pixel - np.float64([200, 100, 20])).max() < 5


def test_a_file_larger_than_the_buffer_is_read_whole(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (900, 900, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(noise).save(stream, "PNG")
    assert len(stream.getvalue()) > 2**20
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(stream.getvalue())
    np.testing.assert_array_equal(OpenCVDecoder(from_folder(tmp_path), PipelineConfig())(1), noise)


def test_what_is_no_jpeg_is_decoded_whole():
    assert decode_ratios(np.array([[0, 0], [512, 512], [256, 2000], [63, 512]]), (64, 64)).tolist() == [1, 8, 4, 1]
