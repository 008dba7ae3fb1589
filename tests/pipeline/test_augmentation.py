"""The draw, and that every library which applies it makes the same images.

Over 400 lines: one table of libraries runs through all of it.
"""

import dataclasses
import math
import pickle

import cv2
import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import ndimage, stats

from unstall.pipeline import Augmentation, PipelineConfig
from unstall.pipeline.augmentation import FILL_MODES
from unstall.pipeline.draws import Draw, LongOrder, drawn, epoch_order
from unstall.pipeline.stages.augment import _numpy as numpy_apply
from unstall.pipeline.stages.augment import _tf_ops as tf_ops_apply
from unstall.pipeline.stages.augment import keras_layers
from unstall.pipeline.stages.warp import WARPS

SIDE = 64
STRONG = Augmentation(shear_degrees=20.0, zoom_range=0.4)
legacy = tf.keras.preprocessing.image


def one_draw(shear_degrees: float, zoom_x: float, zoom_y: float, flip: bool) -> Draw:
    return Draw(
        shear_degrees=np.array([shear_degrees]),
        zoom_x=np.array([zoom_x]),
        zoom_y=np.array([zoom_y]),
        flip=np.array([flip]),
        crop=np.array([[0.0, 0.0, 1.0, 1.0]]),
    )


DRAWS = {
    "nothing": one_draw(0.0, 1.0, 1.0, False),
    "flip": one_draw(0.0, 1.0, 1.0, True),
    "shear": one_draw(15.0, 1.0, 1.0, False),
    "shear-and-flip": one_draw(-20.0, 1.0, 1.0, True),
    "zoom-in": one_draw(0.0, 0.7, 0.9, False),
    "zoom-out": one_draw(0.0, 1.3, 1.1, False),
    "everything": one_draw(0.2, 1.2, 0.8, True),
    "everything-strong": one_draw(-12.0, 0.75, 1.25, True),
}


def smooth(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Waves of at most 4 levels a pixel, so that a fraction of a pixel is a fraction of 4 levels: float32, 0 to 255."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    image = np.zeros((height, width, 3))
    for channel in range(3):
        for _ in range(4):
            along, across = random.uniform(-0.1, 0.1, 2)
            image[..., channel] += np.sin(along * x + across * y + random.uniform(0, 2 * np.pi))
    return (127.5 + 127.5 * image / 4).astype(np.float32)


def reference(image: np.ndarray, matrix: np.ndarray, mode: str = "nearest") -> np.ndarray:
    """Applies an output-to-input map of (x, y, 1) with SciPy, which counts (row, column)."""
    matrix = np.float64(matrix)
    swapped, offset = matrix[::-1, 1::-1], matrix[::-1, 2]
    channels = [
        ndimage.affine_transform(image[..., channel], swapped, offset, order=1, mode=mode)
        for channel in range(image.shape[-1])
    ]
    return np.stack(channels, axis=-1)


def mean_difference(image: np.ndarray, other: np.ndarray) -> float:
    assert image.shape == other.shape
    return float(np.abs(np.float64(image) - other).mean())


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"shear_degrees": -1}, "`shear_degrees` must be at least 0 and below 90 degrees. Received: shear_degrees=-1."),
        ({"shear_degrees": 90}, "`shear_degrees` must be at least 0 and below 90 degrees. Received: shear_degrees=90."),
        (
            {"shear_degrees": math.nan},
            "`shear_degrees` must be at least 0 and below 90 degrees. Received: shear_degrees=nan.",
        ),
        ({"zoom_range": -0.1}, "`zoom_range` must be at least 0 and below 1. Received: zoom_range=-0.1."),
        ({"zoom_range": 1}, "`zoom_range` must be at least 0 and below 1. Received: zoom_range=1."),
        ({"flip_probability": -0.5}, "`flip_probability` must be from 0 to 1. Received: flip_probability=-0.5."),
        ({"flip_probability": 1.5}, "`flip_probability` must be from 0 to 1. Received: flip_probability=1.5."),
        (
            {"crop_area": (0.5, 1.1)},
            "`crop_area` must be two numbers, the lower first, above 0 and at most 1. Received: crop_area=(0.5, 1.1).",
        ),
        (
            {"crop_area": (0.0, 1.0)},
            "`crop_area` must be two numbers, the lower first, above 0 and at most 1. Received: crop_area=(0.0, 1.0).",
        ),
        (
            {"crop_aspect": (2.0, 1.0)},
            "`crop_aspect` must be two numbers, the lower first, above 0. Received: crop_aspect=(2.0, 1.0).",
        ),
        (
            {"fill_mode": "wrap"},
            "`fill_mode` must be one of nearest, reflect, constant. Received: fill_mode='wrap'.",
        ),
    ],
)
def test_an_augmentation_that_cannot_be_is_refused(values, expected):
    with pytest.raises(ValueError) as caught:
        Augmentation(**values)
    assert str(caught.value) == expected


def test_the_defaults_are_the_tutorials():
    assert dataclasses.asdict(Augmentation()) == {
        "shear_degrees": 0.2,
        "zoom_range": 0.2,
        "flip_probability": 0.5,
        "fill_mode": "nearest",
        "crop_area": (1.0, 1.0),
        "crop_aspect": (3 / 4, 4 / 3),
    }


CROPS = dataclasses.replace(STRONG, crop_area=(0.08, 0.5))


def test_a_crop_is_drawn_over_its_area_and_aspect_and_lies_in_the_image():
    left, top, width, height = drawn(CROPS, 40_000, seed=0, epoch=0).crop.T
    assert min(left.min(), top.min()) >= 0
    assert max((left + width).max(), (top + height).max()) <= 1 + 1e-12
    area, aspect = width * height, width / height
    assert 0.08 <= area.min() < 0.0802 and 0.4998 < area.max() <= 0.5 + 1e-12
    assert area.mean() == pytest.approx(0.29, abs=0.0031)  # 5 standard errors of a uniform draw
    assert aspect.min() >= 3 / 4 - 1e-9 and aspect.max() <= 4 / 3 + 1e-9
    assert np.log(aspect).mean() == pytest.approx(0, abs=0.0042)
    assert np.corrcoef(left / (1 - width), top / (1 - height))[0, 1] == pytest.approx(0, abs=0.025)


def test_a_side_of_a_crop_is_no_longer_than_the_image():
    _, _, width, height = drawn(
        Augmentation(crop_area=(0.9, 1.0), crop_aspect=(0.25, 4.0)), 1000, seed=0, epoch=0
    ).crop.T
    assert max(width.max(), height.max()) == 1.0


@pytest.mark.parametrize("box", [(0.25, 0.5, 0.5, 0.25), (0.0, 0.0, 1.0, 1.0), (0.5, 0.125, 0.375, 0.625)])
def test_a_crop_is_what_cutting_and_resizing_gives(box):
    left, top, width, height = box
    image = smooth(SIDE, SIDE)
    draw = dataclasses.replace(one_draw(0.0, 1.0, 1.0, False), crop=np.array([box]))
    rows, columns = (
        slice(int(top * SIDE), int((top + height) * SIDE)),
        slice(int(left * SIDE), int((left + width) * SIDE)),
    )
    resized = cv2.resize(image[rows, columns], (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
    cropped = reference(image, draw.affine(SIDE, SIDE)[0])
    # At its rim a cut has its own edge, and the whole image the pixel beyond it.
    np.testing.assert_allclose(cropped[4:-4, 4:-4], resized[4:-4, 4:-4], atol=0.7)


def test_a_crop_is_flipped_and_sheared_as_an_image_of_its_own():
    image = smooth(SIDE, SIDE)
    box = (0.25, 0.5, 0.5, 0.25)
    cut = dataclasses.replace(one_draw(0.0, 1.0, 1.0, False), crop=np.array([box]))
    alone = one_draw(-12.0, 0.75, 0.9, True)
    both = dataclasses.replace(alone, crop=np.array([box]))
    in_two = reference(reference(image, cut.affine(SIDE, SIDE)[0]), alone.affine(SIDE, SIDE)[0])
    in_one = reference(image, both.affine(SIDE, SIDE)[0])
    np.testing.assert_allclose(in_one[8:-8, 8:-8], in_two[8:-8, 8:-8], atol=2.0)


def test_without_a_crop_the_other_draws_are_what_they_were():
    np.testing.assert_array_equal(drawn(STRONG, 3, seed=0, epoch=0).crop, np.tile([0, 0, 1, 1], (3, 1)))


def test_the_same_seed_and_epoch_give_the_same_draw():
    first, again = (drawn(STRONG, 100, seed=3, epoch=2) for _ in range(2))
    for name in ("shear_degrees", "zoom_x", "zoom_y", "flip"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))


@pytest.mark.parametrize(("seed", "epoch"), [(3, 3), (4, 2), (2, 3)])
def test_another_seed_or_epoch_gives_another_draw(seed, epoch):
    first, other = drawn(STRONG, 100, seed=3, epoch=2), drawn(STRONG, 100, seed=seed, epoch=epoch)
    for name in ("shear_degrees", "zoom_x", "zoom_y"):
        assert not np.any(getattr(first, name) == getattr(other, name))
    assert np.any(first.flip != other.flip)


def test_no_two_images_of_an_epoch_share_a_draw():
    draw = drawn(STRONG, 10_000, seed=0, epoch=0)
    for name in ("shear_degrees", "zoom_x", "zoom_y"):
        assert len(np.unique(getattr(draw, name))) == 10_000


def test_a_row_does_not_depend_on_how_many_follow_it():
    few, many = (drawn(CROPS, images, seed=1, epoch=0) for images in (10, 1000))
    np.testing.assert_array_equal(few.affine(SIDE, SIDE), many.affine(SIDE, SIDE)[:10])


@pytest.mark.parametrize("augmentation", [STRONG, Augmentation(crop_area=(0.08, 1.0))])
def test_some_rows_are_those_of_the_whole_epoch_bit_for_bit(augmentation):
    whole = drawn(augmentation, 1000, seed=3, epoch=2).affine(SIDE, SIDE)
    for rows in (np.arange(0), np.array([999]), np.arange(5, 1000, 3), np.arange(37)):
        some = drawn(augmentation, 1000, seed=3, epoch=2, rows=rows).affine(SIDE, SIDE)
        np.testing.assert_array_equal(some, whole[rows])


def test_draws_are_uniform_over_their_range():
    images = 40_000
    draw = drawn(Augmentation(shear_degrees=10.0, zoom_range=0.2, flip_probability=0.3), images, seed=0, epoch=0)
    for values, low, high in (
        (draw.shear_degrees, -10.0, 10.0),
        (draw.zoom_x, 0.8, 1.2),
        (draw.zoom_y, 0.8, 1.2),
    ):
        assert values.dtype == np.float64 and values.shape == (images,)
        assert low <= values.min() < low + 0.001 * (high - low)
        assert high - 0.001 * (high - low) < values.max() <= high
        # Five standard errors of a uniform draw's mean: 5 / sqrt(12 * 40,000) of the range.
        assert values.mean() == pytest.approx((low + high) / 2, abs=0.0073 * (high - low))
    assert draw.flip.dtype == np.bool_
    assert draw.flip.mean() == pytest.approx(0.3, abs=0.0115)  # 5 standard errors
    assert abs(np.corrcoef(draw.zoom_x, draw.zoom_y)[0, 1]) < 0.025  # drawn apart


@pytest.mark.parametrize(("probability", "flips"), [(0, 0), (1, 1000)])
def test_a_flip_probability_of_0_or_1_is_kept_to(probability, flips):
    assert drawn(Augmentation(flip_probability=probability), 1000, seed=0, epoch=0).flip.sum() == flips


def test_an_augmentation_of_nothing_draws_the_identity():
    nothing = Augmentation(shear_degrees=0, zoom_range=0, flip_probability=0)
    np.testing.assert_array_equal(drawn(nothing, 3, seed=0, epoch=0).affine(5, 7), [[[1, 0, 0], [0, 1, 0]]] * 3)


def test_the_order_is_a_permutation_that_seed_and_epoch_decide():
    order = epoch_order(1000, seed=3, epoch=2)
    assert sorted(order.tolist()) == list(range(1000))
    np.testing.assert_array_equal(order, epoch_order(1000, seed=3, epoch=2))
    for seed, epoch in ((3, 3), (4, 2), (2, 3)):
        assert (order != epoch_order(1000, seed=seed, epoch=epoch)).mean() > 0.9


@pytest.mark.parametrize("images", [1, 2, 3, 5, 16, 17, 1000, 1024, 1025, 70_000])
def test_a_long_order_is_a_permutation_of_which_any_part_can_be_asked(images):
    order = LongOrder(images, seed=3, epoch=2)
    whole = order(np.arange(images))
    assert sorted(whole.tolist()) == list(range(images))
    chosen = np.arange(images - 1, -1, -3)
    np.testing.assert_array_equal(LongOrder(images, seed=3, epoch=2)(chosen), whole[chosen])


@pytest.mark.parametrize(("images", "epochs"), [(100, 400), (1000, 40), (1023, 40)])
def test_a_long_order_brings_each_image_to_each_place_equally_often(images, epochs):
    orders = np.stack([LongOrder(images, seed=0, epoch=epoch)(np.arange(images)) for epoch in range(epochs)])
    # Groups of places and images, so that each pair is expected often enough for the test.
    groups = min(images, 10)
    place = np.tile(np.arange(images) * groups // images, (epochs, 1))
    counts = np.histogram2d(place.ravel(), (orders * groups // images).ravel(), bins=groups)[0]
    assert stats.chi2_contingency(counts).pvalue > 0.001
    # Neighbours in an epoch are as far apart as two images chosen at random.
    far = np.abs(np.diff(orders, axis=1)).mean()
    assert far == pytest.approx((images + 1) / 3, rel=0.02)


def test_seed_and_epoch_decide_a_long_order():
    places = np.arange(1000)
    order = LongOrder(1000, seed=3, epoch=2)(places)
    for seed, epoch in ((3, 3), (4, 2), (2, 3)):
        assert (order != LongOrder(1000, seed=seed, epoch=epoch)(places)).mean() > 0.9


def test_affine_gives_one_float32_map_an_image():
    matrices = drawn(STRONG, 9, seed=0, epoch=0).affine(48, 64)
    assert matrices.shape == (9, 2, 3) and matrices.dtype == np.float32


def test_affine_of_a_flip_mirrors_the_columns_exactly():
    np.testing.assert_array_equal(DRAWS["flip"].affine(4, 6), [[[-1, 0, 5], [0, 1, 0]]])


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("side", [SIDE, 65])
def test_affine_is_what_keras_composes_from_the_same_draw(draw, side):
    image = np.random.default_rng(0).uniform(0, 255, (side, side, 3)).astype(np.float32)
    expected = legacy.ImageDataGenerator(fill_mode="nearest").apply_transform(
        image,
        {
            "shear": draw.shear_degrees[0],
            "zx": draw.zoom_x[0],
            "zy": draw.zoom_y[0],
            "flip_horizontal": bool(draw.flip[0]),
        },
    )
    # One resampling and a flip are one resampling: only float32 rounding of coordinates up to 65 is left, at most
    # 255 levels a pixel.
    ours = reference(image, draw.affine(side, side)[0])
    assert np.abs(ours - expected).max() < 1e-2
    assert mean_difference(ours, expected) < 1e-3


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_affine_keeps_the_centre_of_an_image_that_is_not_square(draw):
    # Keras itself takes the height for the width here, so that it is no reference.
    matrix = np.float64(draw.affine(48, 80)[0])
    np.testing.assert_allclose(matrix @ [39.5, 23.5, 1], [39.5, 23.5], atol=1e-5)
    np.testing.assert_array_equal(matrix[:, :2], draw.affine(64, 64)[0][:, :2])


def warped(warp, image, matrix):
    target = np.empty_like(image)
    warp(image, matrix, target)
    return target


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("library", ["tf_ops", "opencv", "albumentations"])
def test_every_library_applies_the_same_draw(library, draw):
    image = smooth(SIDE, SIDE)
    matrices = draw.affine(SIDE, SIDE)
    if library == "tf_ops":
        applied = tf_ops_apply(PipelineConfig())(image[np.newaxis], matrices)[0].numpy()
    else:
        applied = warped(WARPS[library](Augmentation()), image, matrices[0])
    assert applied.dtype == np.float32 and applied.shape == image.shape
    # Of 255 levels. OpenCV rounds coordinates to 1/32 pixel, so to 1/64 on average, of an image that changes by at most
    # 4 levels a pixel; TensorFlow computes in float32.
    tolerance = 1e-3 if library == "tf_ops" else 0.1
    assert mean_difference(applied, reference(image, matrices[0])) < tolerance


@pytest.mark.parametrize("library", ["opencv", "albumentations"])
def test_a_library_keeps_uint8_images_uint8(library):
    image = smooth(SIDE, SIDE).astype(np.uint8)
    matrix = DRAWS["everything-strong"].affine(SIDE, SIDE)[0]
    applied = warped(WARPS[library](Augmentation()), image, matrix)
    assert applied.dtype == np.uint8
    # Rounding to whole levels is 1/4 level on average, on top of the coordinates'.
    assert mean_difference(applied, reference(np.float32(image), matrix)) < 0.5


@pytest.mark.parametrize("fill_mode", FILL_MODES)
@pytest.mark.parametrize("library", ["tf_ops", "opencv", "albumentations"])
def test_every_library_fills_what_lies_outside_alike(library, fill_mode):
    image = smooth(SIDE, SIDE)
    matrices = DRAWS["zoom-out"].affine(SIDE, SIDE)
    augmentation = Augmentation(fill_mode=fill_mode)
    if library == "tf_ops":
        applied = tf_ops_apply(PipelineConfig(augmentation=augmentation))(image[np.newaxis], matrices)[0].numpy()
    else:
        applied = warped(WARPS[library](augmentation), image, matrices[0])
    # "grid-constant": black is blended with the edge within one pixel, as OpenCV and TensorFlow do.
    mode = {"nearest": "nearest", "reflect": "reflect", "constant": "grid-constant"}[fill_mode]
    assert mean_difference(applied, reference(image, matrices[0], mode)) < 0.2
    if fill_mode == "constant":
        assert not applied[0].any() and applied[SIDE // 2, SIDE // 2].all()


@pytest.mark.parametrize("library", ["opencv", "albumentations"])
def test_a_batch_of_draws_gives_each_image_its_own(library):
    images = np.stack([smooth(SIDE, SIDE, seed) for seed in range(4)])
    matrices = drawn(STRONG, 4, seed=0, epoch=0).affine(SIDE, SIDE)
    config = PipelineConfig(augment_with=library)
    applied = numpy_apply(config)(tf.constant(images), tf.constant(matrices))
    assert applied.shape == images.shape
    for image, matrix, row in zip(images, matrices, applied.numpy(), strict=True):
        assert mean_difference(row, reference(image, matrix)) < 0.1
    as_batch = tf_ops_apply(PipelineConfig())(images, matrices).numpy()
    assert mean_difference(applied.numpy(), as_batch) < 0.1


@pytest.mark.parametrize("library", WARPS)
def test_a_warp_that_was_sent_to_another_process_does_the_same(library):
    image, matrix = smooth(SIDE, SIDE), DRAWS["zoom-out"].affine(SIDE, SIDE)[0]
    warp = WARPS[library](Augmentation(fill_mode="reflect"))
    np.testing.assert_array_equal(warped(pickle.loads(pickle.dumps(warp)), image, matrix), warped(warp, image, matrix))


# Keras' layers draw for themselves: what can be compared is the distribution of many draws.

MANY = 2000


def keras_applied(augmentation: Augmentation, image: np.ndarray) -> np.ndarray:
    images = np.repeat(image[np.newaxis], MANY, axis=0)
    for layer in keras_layers(augmentation, seed=7):
        images = layer(images, training=True)
    return np.asarray(images)


def our_applied(augmentation: Augmentation, image: np.ndarray) -> np.ndarray:
    matrices = drawn(augmentation, MANY, seed=7, epoch=0).affine(*image.shape[:2])
    config = PipelineConfig(augmentation=augmentation, image_size=image.shape[:2])
    return tf_ops_apply(config)(np.repeat(image[np.newaxis], MANY, 0), matrices).numpy()


@pytest.mark.parametrize(
    "augmentation",
    [
        pytest.param(Augmentation(shear_degrees=0, zoom_range=0.2, flip_probability=0), marks=pytest.mark.slow),
        pytest.param(Augmentation(shear_degrees=0, zoom_range=0, flip_probability=0.5), marks=pytest.mark.slow),
        Augmentation(),
        Augmentation(fill_mode="reflect"),
        Augmentation(fill_mode="constant"),
    ],
    ids=["zoom", "flip", "everything", "reflect", "constant"],
)
def test_keras_layers_draw_from_the_same_distribution(augmentation):
    image = smooth(SIDE // 2, SIDE // 2)
    keras_images, our_images = keras_applied(augmentation, image), our_applied(augmentation, image)
    # Of 255 levels, per pixel and channel: the mean's standard error is its deviation (up to 70 levels) / sqrt(2,000),
    # 1.6 for each side. Keras shears about the corner: at most 0.2 pixels of up to 4 levels, and symmetric.
    assert np.abs(keras_images.mean(0) - our_images.mean(0)).mean() < 2.0
    assert np.abs(keras_images.std(0) - our_images.std(0)).mean() < 2.0
    # The augmentation does something, so that the two lines above say something.
    assert our_images.std(0).mean() > 5.0


@pytest.mark.parametrize("probability", [0.0, 0.5])
def test_keras_layers_flip_as_often_as_asked(probability):
    image = smooth(SIDE // 4, SIDE // 4)
    only_flips = Augmentation(shear_degrees=0, zoom_range=0, flip_probability=probability)
    applied = keras_applied(only_flips, image)
    flipped = np.array([np.array_equal(output, image[:, ::-1]) for output in applied])
    kept = np.array([np.array_equal(output, image) for output in applied])
    assert np.all(flipped ^ kept)
    # Five standard errors of a share of 2,000 draws.
    assert flipped.mean() == pytest.approx(probability, abs=5 * math.sqrt(probability * (1 - probability) / MANY))


def test_keras_layers_shear_by_the_same_angle():
    # A horizontal ramp: what it gains at the last row is the shear, in pixels.
    ramp = np.tile(np.arange(SIDE, dtype=np.float32)[np.newaxis, :, np.newaxis], (SIDE, 1, 3))
    applied = keras_applied(Augmentation(shear_degrees=5.0, zoom_range=0, flip_probability=0), ramp)
    gained = np.abs(applied[:, -1, SIDE // 2, 0] - applied[:, 0, SIDE // 2, 0]) / (SIDE - 1)
    assert gained.max() <= math.sin(math.radians(5.0)) + 1e-3
    assert gained.mean() == pytest.approx(math.sin(math.radians(5.0)) / 2, rel=0.1)


def test_an_augmentation_of_nothing_has_no_layers():
    assert keras_layers(Augmentation(shear_degrees=0, zoom_range=0, flip_probability=0), seed=0) == []
    names = [type(layer).__name__ for layer in keras_layers(Augmentation(), seed=0)]
    assert names == ["RandomShear", "RandomZoom", "RandomFlip"]
    assert all(isinstance(layer, keras.layers.Layer) for layer in keras_layers(Augmentation(), seed=0))


@pytest.mark.parametrize("augmentation", [STRONG, CROPS], ids=["affine", "crops"])
@pytest.mark.parametrize("first", [0, 1, 7, 300])
def test_a_part_of_an_epoch_has_the_draws_of_the_whole(augmentation, first):
    whole = drawn(augmentation, 1000, seed=3, epoch=2).affine(SIDE, SIDE)
    part = drawn(augmentation, 100, seed=3, epoch=2, first=first).affine(SIDE, SIDE)
    np.testing.assert_array_equal(part, whole[first : first + 100])
