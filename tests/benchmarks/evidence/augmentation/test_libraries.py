"""The libraries of the augmentation table do the same wherever they are put; the processes that measure them."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator

import keras
import numpy as np
import pytest
from PIL import Image, ImageOps

from tests.benchmarks.evidence.augmentation.builders import a_subject
from unstall.benchmarks.evidence.augmentation import operations as ops
from unstall.benchmarks.evidence.augmentation.feeds import graph_has_loop, has_loop, open_feed
from unstall.benchmarks.evidence.augmentation.libraries import LIBRARIES, Subject, subjects_of
from unstall.benchmarks.evidence.augmentation.operations import GEOMETRIC, OPERATIONS, crop_box
from unstall.benchmarks.lab.child import Child, JobRefused
from unstall.pipeline.sources import photographs
from unstall.profiles.devices import CPU

SIZE = 64
# The library with which the others are compared: OpenCV takes any affine map, and clips as a camera does.
REFERENCE_LIBRARY = "opencv"
# In levels of 255. The libraries' bilinear interpolations differ by less than 1, an operation with a wrong sign by some
# 20.
DIFFERENCE_BOUND = 6.0
ALL = subjects_of(tuple(OPERATIONS), tuple(LIBRARIES))


@pytest.fixture(scope="module")
def pair() -> np.ndarray:
    """Two photographs, as the command prepares them."""
    photos = [Image.open(io.BytesIO(photographs.encode_photo(index, 0))) for index in range(2)]
    return np.stack([np.asarray(ImageOps.fit(photo.convert("RGB"), (SIZE, SIZE))) for photo in photos])


def pictured(subject: Subject, images: np.ndarray) -> np.ndarray:
    """Returns what a subject makes of images with the draw that all subjects share: float32 in [0, 255]."""
    with pytest.MonkeyPatch.context() as patch:
        if subject.library == "keras_layers":
            pin(patch)
        return np.asarray(next(open_feed(subject, images, batch_size=len(images), calls=1)))


def pin(patch: pytest.MonkeyPatch) -> None:
    """Gives the layers that draw without a range for it the draw of the other libraries."""
    top, left, _ = crop_box(SIZE)
    tangent = math.tan(math.radians(ops.SHEAR_DEGREES))
    draws = {
        "RandomFlip": {"flips": np.ones((1, 1, 1, 1), bool)},
        "RandomShear": {"shear_factor": np.array([[-tangent, 0.0]], np.float32)},  # else it draws the sign
        "RandomCrop": (top, left),
    }
    for name, fixed in draws.items():
        layer = getattr(keras.layers, name)
        patch.setattr(layer, "get_random_transformation", lambda self, data, training=True, seed=None, f=fixed: f)


def interior_difference(image: np.ndarray, reference: np.ndarray) -> float:
    """Returns the mean absolute difference of two stacks of images, without an eighth at each edge.

    Args:
      image, reference: (images, side, side, channels), of one shape.
    """
    assert image.shape == reference.shape
    margin = image.shape[1] // 8
    inside = (slice(None), slice(margin, -margin or None), slice(margin, -margin or None))
    return float(np.mean(np.abs(image[inside].astype(np.float64) - reference[inside])))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_library_does_the_same_wherever_it_is_put(operation, pair):
    reference = pictured(a_subject(operation, REFERENCE_LIBRARY, "element"), pair)
    side = crop_box(SIZE)[2] if operation == "crop" else SIZE
    differences = {}
    for subject in subjects_of((operation,), tuple(LIBRARIES)):
        images = pictured(subject, pair)
        assert (images.shape, images.dtype) == ((2, side, side, 3), np.float32), subject.label
        assert images.min() >= 0 and images.max() <= 255, subject.label
        differences[subject.label] = interior_difference(images, reference)
    assert {label: off for label, off in differences.items() if not off < DIFFERENCE_BOUND} == {}


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name not in ("none", "crop")])
def test_every_operation_is_seen_in_the_difference(operation, pair):
    changed = pictured(a_subject(operation, REFERENCE_LIBRARY, "element"), pair)
    assert interior_difference(changed, pair) > 2 * DIFFERENCE_BOUND


@pytest.mark.parametrize("operation", ["shear", "rotation"])
def test_a_turn_to_the_other_side_is_seen_in_the_difference(operation, pair):
    mirrored = pair[:, :, ::-1].copy()
    other_side = pictured(a_subject(operation, REFERENCE_LIBRARY, "element"), mirrored)[:, :, ::-1]
    this_side = pictured(a_subject(operation, REFERENCE_LIBRARY, "element"), pair)
    assert interior_difference(other_side, this_side) > 2 * DIFFERENCE_BOUND


def test_the_crop_is_the_box_of_the_original(pair):
    top, left, side = crop_box(SIZE)
    box = pair[:, top : top + side, left : left + side]
    assert np.array_equal(pictured(a_subject("crop", "keras_layers", "element"), pair), box)


def test_a_shift_goes_right_and_down(pair):
    shifted = pictured(a_subject("shift", "keras_generator", "element"), pair)
    assert np.array_equal(shifted[:, 5:, 10:], pair[:, :-5, :-10])


def test_a_draw_of_a_geometric_operation_is_a_map():
    assert {len(OPERATIONS[name](SIZE)) for name in GEOMETRIC} == {6}
    turn = OPERATIONS["rotation"](3)
    # The middle stays; what was right of it comes from the lower right.
    assert np.reshape(turn, (2, 3)) @ (1, 1, 1) == pytest.approx((1, 1))
    assert np.reshape(turn, (2, 3)) @ (2, 1, 1) == pytest.approx((1 + math.cos(math.pi / 6), 1.5))


def test_the_difference_leaves_an_eighth_at_each_edge_out():
    black = np.zeros((1, 16, 16, 3))
    edged = black.copy()
    edged[:, :2] = edged[:, :, -2:] = 255
    assert interior_difference(edged, black) == 0.0
    assert interior_difference(edged + 3, black) == 3.0


def test_combinations_that_do_not_exist_are_no_subjects():
    assert len(ALL) == len(set(ALL))
    generator = [subject for subject in ALL if subject.library == "keras_generator"]
    assert {subject.placement for subject in generator} == {"element"}
    assert {"crop", "contrast"}.isdisjoint(subject.operation for subject in generator)
    assert {subject.library for subject in ALL if subject.placement == "model"} == {"keras_layers"}


def test_a_feed_gives_the_same_batches_with_parallel_calls(pair):
    images = np.concatenate([pair, 255 - pair, pair // 2])
    subjects = [a_subject("flip", *where) for where in (("keras_generator", "element"), (), ("tf_ops", "element"))]
    for subject in subjects:
        alone, together = (open_feed(subject, images, batch_size=4, calls=calls) for calls in (1, 3))
        for _ in range(4):
            assert np.array_equal(np.asarray(next(alone)), np.asarray(next(together))), subject.label


def graph_of(function):
    import tensorflow as tf

    return tf.function(function).get_concrete_function(tf.TensorSpec((None, 2), tf.float32)).graph.as_graph_def()


def test_a_loop_is_found_however_deep_it_lies():
    import tensorflow as tf

    def looping(x):
        return tf.map_fn(lambda row: row * 2, x)

    def hidden(x):
        return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.function(looping)(x), lambda: x)

    assert graph_has_loop(graph_of(looping))
    assert graph_has_loop(graph_of(hidden))


def test_no_loop_is_found_where_there_is_none():
    import tensorflow as tf

    def called(x):
        return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.function(lambda y: y * 2)(x), lambda: x)

    assert not graph_has_loop(graph_of(lambda x: x * 2))
    assert not graph_has_loop(graph_of(called))


def test_a_library_without_a_graph_has_no_answer_about_loops():
    assert has_loop(a_subject("flip", "opencv"), side=SIZE, batch_size=2) is None
    assert has_loop(a_subject("flip", "tf_ops"), side=SIZE, batch_size=2) is False


@pytest.fixture(scope="module")
def one_core(pair, tmp_path_factory) -> Iterator[Child]:
    """The process that measures on one core, on photos of which a float32 batch has 25 MB."""
    images = np.tile(pair, (16, 4, 4, 1))
    log = tmp_path_factory.mktemp("one") / "child.log"
    child = Child("benchmarks.evidence.augmentation.child:AugmentationSession", CPU, log, images, 32, 1)
    yield child
    child.kill()


@pytest.mark.long
def test_the_memory_that_a_row_takes_is_seen(one_core):
    assert one_core.ask("peak_memory_bytes", a_subject("none", "tf_ops"), timeout_s=120) > 20e6


@pytest.mark.long
def test_a_window_is_measured_on_one_core(one_core):
    with pytest.raises(JobRefused, match="KeyError: 'crop'"):
        one_core.ask("window", a_subject("crop", "keras_generator", "element"), 0, timeout_s=120)
    sample = one_core.ask("window", a_subject("flip"), 3, timeout_s=120)
    assert (sample.round, sample.cores, sample.images % 32) == (3, 1, 0)
    assert sample.images >= 96 and 0 < sample.cpu_ns < 1.3 * sample.wall_ns
