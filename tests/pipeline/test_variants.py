"""Every named variant: each image once an epoch, the right label, the same work, the same batches for the same seed."""

import dataclasses
import math
import pathlib

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from tests.builders import build_fed, fed, unit, whole
from unstall.pipeline import VARIANTS, Augmentation, PipelineConfig, build, from_folder
from unstall.pipeline.draws import drawn
from unstall.pipeline.variants import GENERATORS, TF_DATA, other_work

LEVELS = (20, 74, 128, 182, 236)
COLOURS = np.array([(r, g, b) for r in LEVELS for g in LEVELS for b in LEVELS])
IMAGES = 70

# Who draws for itself: only the distribution of its images can be compared.
DRAWS_FOR_ITSELF = ("keras_generator", "keras_layers")
SAME_DRAW = [
    name
    for name, config in VARIANTS.items()
    if config.augmentation is not None and config.augment_with not in DRAWS_FOR_ITSELF and config.decode == "full"
]


# They differ from another variant in the number of workers, or in the length of a queue or a buffer, and in nothing
# that could change an image. Those of a service start processes that import TensorFlow: tests/pipeline/service.
OF_A_SERVICE = ("service-autotune", "service-albumentations")
IN_NUMBERS = (
    *OF_A_SERVICE,
    *("generator-4-workers", "generator-batch-64", "generator-queue-64"),
    *("tf-data-parallel", "tf-data-prefetch", "tf-data-device-prefetch"),
)


def cases(names, slow=IN_NUMBERS):
    return [pytest.param(name, marks=pytest.mark.slow if name in slow else ()) for name in names]


@pytest.fixture(scope="module")
def some(photos):
    """20 of the photographs, ten of each class."""
    return from_folder(photos).take(20)


@pytest.fixture(scope="module")
def colours(tmp_path_factory):
    """70 JPEGs, each of one colour that no other has, of many sizes: no shear, zoom or flip changes one."""
    folder = tmp_path_factory.mktemp("colours")
    random = np.random.default_rng(0)
    for index in range(IMAGES):
        path = folder / ("cats", "dogs")[index % 2] / f"{index:03d}.jpg"
        path.parent.mkdir(exist_ok=True)
        size = tuple(random.integers(40, 200, 2).tolist())
        Image.new("RGB", size, tuple(COLOURS[index].tolist())).save(path, quality=95)
    return folder


@pytest.mark.parametrize("name", cases(VARIANTS, slow=OF_A_SERVICE))
def test_a_variant_serves_every_image_once_an_epoch_with_its_label(name, colours):
    config, source = VARIANTS[name], from_folder(colours)
    with build(config, source) as loader:
        assert (loader.images, loader.batches) == (IMAGES, math.ceil(IMAGES / config.batch_size))
        epochs = fed(loader.data, epochs=2)
    label_of = dict(zip((int(pathlib.Path(file).stem) for file in source.files), source.labels.tolist(), strict=True))
    orders = []
    for batches in epochs:
        sizes = [config.batch_size] * (IMAGES // config.batch_size) + [IMAGES % config.batch_size]
        assert [images.shape for images, _ in batches] == [(size, 64, 64, 3) for size in sizes]
        assert [labels.shape for _, labels in batches] == [(size,) for size in sizes]
        images, labels = whole(batches)
        assert images.dtype == np.dtype(config.output_dtype)
        assert labels.dtype == (np.float32 if config.loader == "image_data_generator" else np.int32)
        images = unit(images)
        assert images.min() >= 0.0 and images.max() <= 1.0
        # JPEG at quality 95 moves a flat colour by at most 3 levels; the next one is 54 away.
        colour = 255 * images.mean((1, 2))
        assert np.abs(255 * images - colour[:, np.newaxis, np.newaxis]).max() < 0.6
        distance = np.abs(colour[:, np.newaxis] - COLOURS).max(-1)
        assert distance.min(1).max() < 5
        order = distance.argmin(1).tolist()
        assert sorted(order) == list(range(IMAGES))
        assert labels.tolist() == [label_of[index] for index in order]
        orders.append(order)
    assert orders[0] != orders[1]
    assert sorted(label_of) != orders[0]


def test_every_variant_is_a_generator_or_tf_data():
    assert {*GENERATORS, *TF_DATA} == set(VARIANTS) and not set(GENERATORS) & set(TF_DATA)
    assert (
        tuple(name for name in VARIANTS if name.startswith(("generator", "py-dataset", "python-batches"))) == GENERATORS
    )


def test_the_baseline_is_the_tutorial():
    assert VARIANTS["generator"] == PipelineConfig(
        loader="image_data_generator",
        augment_with="keras_generator",
        interpolation="nearest",
        batch_size=32,
        workers=1,
        max_queue_size=10,
        use_multiprocessing=False,
        augmentation=Augmentation(shear_degrees=0.2, zoom_range=0.2, flip_probability=0.5),
    )


def test_variants_that_do_other_work_say_what():
    marks = {name: other_work(config) for name, config in VARIANTS.items()}
    generators = [name for name in VARIANTS if name.startswith("generator")]
    assert {name: mark for name, mark in marks.items() if mark} == {
        **dict.fromkeys(generators, ("nearest",)),
        "generator-no-augment": ("nearest", "no augmentation"),
        "tf-data-scaled-decode": ("scaled decode",),
        "tf-data-composed": ("scaled decode", "one resampling"),
        "py-dataset-composed": ("scaled decode", "one resampling"),
        "python-batches": ("scaled decode", "one resampling"),
        "tf-data-no-augment": ("no augmentation",),
    }


# The same work


def resized(image: np.ndarray, side: int, interpolation: str) -> np.ndarray:
    """Resizes with pixel centres at halves and without antialiasing, in float64."""
    row, column = ((np.arange(side) + 0.5) * length / side - 0.5 for length in image.shape[:2])
    if interpolation == "nearest":
        return np.float64(image[np.floor(row + 0.5).astype(int)][:, np.floor(column + 0.5).astype(int)])
    grid = np.meshgrid(row, column, indexing="ij")
    channels = [
        ndimage.map_coordinates(np.float64(image[..., channel]), grid, order=1, mode="nearest") for channel in range(3)
    ]
    return np.stack(channels, -1)


def warped(image: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    matrix = np.float64(matrix)
    channels = [
        ndimage.affine_transform(image[..., channel], matrix[::-1, 1::-1], matrix[::-1, 2], order=1, mode="nearest")
        for channel in range(3)
    ]
    return np.stack(channels, -1)


@pytest.fixture(scope="module")
def references(some):
    """What Pillow and SciPy make of the photos, in levels: resized either way, and with the draws of three epochs."""
    decoded = [np.asarray(Image.open(path)) for path in some.paths]
    images = {how: np.stack([resized(image, 64, how) for image in decoded]) for how in ("bilinear", "nearest")}
    for epoch in (0, 1, 2):
        matrices = drawn(Augmentation(), len(decoded), seed=0, epoch=epoch).affine(64, 64)
        images[epoch] = np.stack([warped(*pair) for pair in zip(images["bilinear"], matrices, strict=True)])
    return images


def worst_difference(images: np.ndarray, expected: np.ndarray) -> float:
    """The mean absolute difference of the image that differs most, in levels of 255."""
    return float(np.abs(255.0 * unit(images) - expected).mean((1, 2, 3)).max())


# Levels of 255, mean over an image. Every library but Pillow is off by its own rounding: TensorFlow's default JPEG
# transform is the fast one (0.95 measured, augmented or not), OpenCV rounds each of resize and warp to whole levels and
# coordinates to 1/32 pixel (0.32 measured). Another draw, or none, differs by some 39.
TOLERANCE = 1.3


@pytest.mark.parametrize("name", cases(SAME_DRAW))
def test_a_variant_with_our_draw_makes_the_images_of_the_reference(name, some, references):
    config = dataclasses.replace(VARIANTS[name], shuffle_buffer=0, batch_size=12)
    # `fit` ends an epoch before its first: a PyDataset's draws begin with those of epoch 1.
    start = 1 if config.loader == "py_dataset" else 0
    for epoch, (images, labels) in enumerate(build_fed(config, some, epochs=2), start=start):
        assert worst_difference(images, references[epoch]) < TOLERANCE
        np.testing.assert_array_equal(labels, some.labels)
    assert worst_difference(references[0] / 255, references[1]) > 20 * TOLERANCE


# Without augmentation they are as another is.
UNAUGMENTED = (
    *("generator-no-augment", "py-dataset-albumentations", "tf-data-batch-augment", "tf-data-albumentations"),
    *("tf-data-device-augment", "tf-data-no-augment"),
)


@pytest.mark.parametrize(
    "name", cases([name for name in VARIANTS if VARIANTS[name].decode == "full"], (*IN_NUMBERS, *UNAUGMENTED))
)
def test_a_variant_without_its_augmentation_makes_the_images_of_the_reference(name, some, references):
    config = dataclasses.replace(VARIANTS[name], shuffle_buffer=0, augmentation=None, batch_size=12)
    [(images, labels)] = build_fed(config, some)
    # Keras' generators decode and resize with Pillow, and nothing is left to differ but float32.
    tolerance = 1e-4 if config.loader == "image_data_generator" else TOLERANCE
    assert worst_difference(images, references[config.interpolation]) < tolerance
    np.testing.assert_array_equal(labels, some.labels)


@pytest.mark.parametrize("loader", ["tf_data", "py_dataset", "image_data_generator"])
@pytest.mark.parametrize("interpolation", ["bilinear", "nearest"])
def test_a_loader_resizes_as_asked_or_says_that_it_does_other_work(loader, interpolation, some, references):
    config = PipelineConfig(loader=loader, augmentation=None, shuffle_buffer=0, interpolation=interpolation)
    [(images, _)] = build_fed(config, some)
    claimed = {("no augmentation",): "bilinear", ("nearest", "no augmentation"): "nearest"}
    if other_work(config) in claimed:
        assert worst_difference(images, references[claimed[other_work(config)]]) < TOLERANCE
    else:
        # More than the name of the interpolation is said where it is not that of the others.
        assert worst_difference(images, references[interpolation]) > TOLERANCE


@pytest.mark.parametrize("loader", ["tf_data", "py_dataset"])
def test_scaled_decode_shows_the_same_photos_smoothed(loader, some, references):
    config = PipelineConfig(loader=loader, augmentation=None, shuffle_buffer=0, decode="scaled")
    [(images, _)] = build_fed(config, some)
    differences = np.abs(255 * images[:, np.newaxis] - references["bilinear"]).mean((2, 3, 4))
    assert differences.argmin(1).tolist() == list(range(20))
    # Smoothing takes detail away: 16.3 levels of the image with the most of it, where other photos are 70 away.
    assert TOLERANCE < differences.diagonal().max() < 20


def test_device_augmentation_comes_as_layers_and_the_batches_without_it(some, references):
    with build(dataclasses.replace(VARIANTS["tf-data-device-augment"], shuffle_buffer=0), some) as loader:
        assert [type(layer).__name__ for layer in loader.device_layers] == ["RandomShear", "RandomZoom", "RandomFlip"]
        images, _ = whole(fed(loader.data)[0])
    assert worst_difference(images, references["bilinear"]) < TOLERANCE


COPIES, DRAWN = 100, 1000


@pytest.fixture(scope="module")
def one_image(tmp_path_factory):
    """One smooth picture, asymmetric from left to right, 100 times in each of two classes."""
    folder = tmp_path_factory.mktemp("one_image")
    y, x = np.mgrid[:64, :64]
    image = np.stack([4 * x, 2 * x + 2 * y, 127 + 127 * np.sin(x / 20) * np.cos(y / 15)], -1).astype(np.uint8)
    Image.fromarray(image).save(folder / "image.png")
    for name in ("a", "b"):
        (folder / "root" / name).mkdir(parents=True)
        for number in range(COPIES):
            (folder / "root" / name / f"{number}.png").symlink_to(folder / "image.png")
    return folder / "root", np.float64(image)


@pytest.fixture(scope="module")
def ours(one_image):
    """The picture with our draws."""
    matrices = drawn(Augmentation(), DRAWN, seed=0, epoch=0).affine(64, 64)
    return np.stack([warped(one_image[1], matrix) for matrix in matrices])


@pytest.mark.parametrize("name", [pytest.param("generator", marks=pytest.mark.slow), "generator-batch-64", "directory"])
def test_a_variant_that_draws_for_itself_draws_from_the_same_distribution(name, one_image, ours):
    folder, _ = one_image
    epochs = build_fed(VARIANTS[name], from_folder(folder), epochs=DRAWN // (2 * COPIES))
    images = 255 * np.concatenate([images for images, _ in epochs])
    assert images.shape == ours.shape == (DRAWN, 64, 64, 3)
    # The standard error of a pixel's mean: up to 74 levels / sqrt(1,000), 2.3 for each side; flips move all alike.
    assert np.abs(images.mean(0) - ours.mean(0)).mean() < 7.0
    assert np.abs(images.std(0) - ours.std(0)).mean() < 3.0
    assert ours.std(0).mean() > 30.0
    # Red grows from left to right unless flipped. Five standard errors of a share of 1,000.
    flipped = images[:, 32, 8, 0] > images[:, 32, -8, 0]
    assert flipped.mean() == pytest.approx(0.5, abs=0.08)
    # Zoom: the slope of red, 4 levels a pixel, uniform from 0.8 to 1.2 of it; its deviation is 0.4 / sqrt(12).
    slope = np.abs(images[:, 32, 40, 0] - images[:, 32, 24, 0]) / (16 * 4)
    assert slope.mean() == pytest.approx(1.0, abs=5 * 0.4 / math.sqrt(12 * DRAWN))
    assert slope.std() == pytest.approx(0.4 / math.sqrt(12), rel=0.08)
    assert 0.79 < slope.min() < 0.82 and 1.18 < slope.max() < 1.21


@pytest.mark.parametrize("loader", ["image_data_generator", "image_dataset_from_directory"])
def test_no_flip_is_something_that_keras_can_draw(loader, one_image):
    base = VARIANTS["generator" if loader == "image_data_generator" else "directory"]
    augmentation = Augmentation(shear_degrees=0, zoom_range=0, flip_probability=0)
    folder, image = one_image
    [(images, _)] = build_fed(dataclasses.replace(base, augmentation=augmentation), from_folder(folder))
    assert np.abs(255 * images - image).max() < 1e-3


# Seeds, workers, epochs


SMALL = {"batch_size": 8}


@pytest.fixture(scope="module")
def with_one_worker(some):
    epochs = {}

    def epochs_of(name):
        if name not in epochs:
            epochs[name] = build_fed(dataclasses.replace(VARIANTS[name], workers=1, **SMALL), some, 2)
        return epochs[name]

    return epochs_of


# What differs between them is done to the one image at hand.
ONE_IMAGE = ("tf-data-uint8", "tf-data-scaled-decode")
BY_WORKERS = (
    *("tf-data", "tf-data-autotune", "tf-data-cache", "tf-data-cache-disk", "tf-data-batch-augment"),
    *("tf-data-albumentations", *ONE_IMAGE),
)


@pytest.mark.parametrize(
    ("name", "workers"),
    [
        pytest.param(
            name,
            workers,
            marks=pytest.mark.slow if name in ONE_IMAGE or (workers != 4 and name != "tf-data-autotune") else (),
        )
        for name in BY_WORKERS
        for workers in (2, 4, "auto")
    ],
)
def test_tf_data_serves_the_same_batches_for_any_number_of_workers(name, workers, some, with_one_worker):
    config = dataclasses.replace(VARIANTS[name], workers=workers, **SMALL)
    for (images, labels), (one_image_, one_label) in zip(
        build_fed(config, some, 2), with_one_worker(name), strict=True
    ):
        np.testing.assert_array_equal(images, one_image_)
        np.testing.assert_array_equal(labels, one_label)


def test_keras_layers_in_tf_data_give_the_same_batches_for_any_number_of_workers(one_image):
    config = PipelineConfig(augment_with="keras_layers", augment_at="batch", batch_size=4, rewrites=False)
    source = from_folder(one_image[0]).take(60)
    [(expected, _)] = build_fed(config, source)
    for workers in (1, 4):
        [(images, _)] = build_fed(dataclasses.replace(config, workers=workers), source)
        np.testing.assert_array_equal(images, expected)


@pytest.mark.parametrize("name", ["tf-data-autotune", "tf-data-cache", "py-dataset"])
def test_another_seed_gives_another_order_and_other_draws(name, some):
    config = dataclasses.replace(VARIANTS[name], **SMALL)
    in_order = dataclasses.replace(config, shuffle_buffer=0)
    for base in (config, in_order):
        [(first, _)], [(other, _)] = build_fed(base, some), build_fed(dataclasses.replace(base, seed=1), some)
        assert not any(np.array_equal(*pair) for pair in zip(first, other, strict=True))


@pytest.mark.parametrize("name", ["tf-data-autotune", "tf-data-cache", "tf-data-cache-disk", "py-dataset"])
def test_two_epochs_show_the_same_photos_drawn_anew(name, some):
    config = dataclasses.replace(VARIANTS[name], **SMALL, shuffle_buffer=0)
    (first, _), (second, _) = build_fed(config, some, 2)
    assert not any(np.array_equal(*pair) for pair in zip(first, second, strict=True))
    (first, _), (second, _) = build_fed(dataclasses.replace(config, augmentation=None), some, 2)
    np.testing.assert_array_equal(first, second)


# Real photographs


@pytest.mark.parametrize("name", ["generator", "py-dataset", "directory", "tf-data-scaled-decode"])
def test_real_photographs_are_served_with_their_labels(name, real_photos):
    source = from_folder(real_photos / "test").take(20)
    [(images, labels)] = build_fed(VARIANTS[name], source)
    assert images.shape == (20, 64, 64, 3)
    assert sorted(labels.tolist()) == [0] * 10 + [1] * 10
    assert 0.2 < images.mean() < 0.8 and images.std() > 0.15
