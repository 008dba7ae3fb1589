"""The pixels of copies are those recorded for `PIXELS_VERSION`, and the comparison sees every change of them.

A copy is used again by any later version of this program with the same `PIXELS_VERSION`: pixels may not change alone.
"""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests import golden_pixels
from tests.bad_files import READS_WEBP
from tests.golden_pixels import CASES, GOLDEN, Case, problem_with, record
from unstall.pipeline.prepared import copies
from unstall.pipeline.stages import output, read

JPEG = {"images": "jpeg", "storage": "raw"}
FLOAT = Case(**JPEG, dtype="float32")
SCALED = Case(**JPEG, decode="scaled")
MIXED = Case(images="mixed", storage="raw")
RESIZED = Case(images="jpeg", storage="resized")
# One of the mixed images is a WebP.
reads_all = pytest.mark.skipif(not READS_WEBP, reason="TensorFlow before 2.20 reads no WebP")


@pytest.fixture(scope="module")
def golden():
    return json.loads(GOLDEN.read_text())


@pytest.mark.long
def test_copies_have_the_pixels_of_their_version(golden):
    problem = problem_with(golden, [case for case in CASES if READS_WEBP or case.images != "mixed"])
    assert problem is None, problem
    assert golden["pixels"].keys() == {case.name for case in CASES}


def test_every_combination_that_makes_other_pixels_has_its_own(golden):
    texts = [json.dumps(pixels) for pixels in golden["pixels"].values()]
    assert len(texts) == len(set(texts)) == 2 + 3 * 2 * 2 * (2 + 1)


# Changes of our code, planted


def other_decode(**options):
    def plant(patch):
        decode_jpeg = tf.io.decode_jpeg

        def changed(encoded, **others):
            return decode_jpeg(encoded, **(others | options))

        patch.setattr(tf.io, "decode_jpeg", changed)

    return plant


def other_resize(**options):
    def plant(patch):
        resize = tf.image.resize

        def changed(image, size, **others):
            return resize(image, size, **(others | options))

        patch.setattr(tf.image, "resize", changed)

    return plant


def without_half_pixel_centres(patch):
    def changed(image, config):
        return tf.compat.v1.image.resize_bilinear(image[tf.newaxis], config.image_size)[0]

    patch.setattr(read, "resize", changed)


def levels_cut_off(patch):
    patch.setattr(output, "whole_levels", lambda images: tf.cast(tf.clip_by_value(images, 0.0, 255.0), tf.uint8))


def halves_rounded_up(patch):
    patch.setattr(
        output, "whole_levels", lambda images: tf.cast(tf.floor(tf.clip_by_value(images, 0.0, 255.0) + 0.5), tf.uint8)
    )


def smaller_fraction(patch):
    decode = read.decode_scaled
    patch.setattr(read, "decode_scaled", lambda encoded, size: decode(encoded, (size[0] // 2, size[1] // 2)))


def alpha_blended(patch):
    decode = read.decode

    def blended(encoded):
        image = tf.cast(tf.io.decode_png(encoded, channels=4), tf.float32)
        return tf.cast(image[..., :3] * image[..., 3:] / 255, tf.uint8)

    def changed(encoded, source, config):
        is_png = tf.strings.substr(encoded, 1, 3) == "PNG"
        return tf.cond(is_png, lambda: blended(encoded), lambda: decode(encoded, source, config))

    patch.setattr(read, "decode", changed)


def other_quality(**options):
    def plant(patch):
        encode_jpeg = tf.io.encode_jpeg

        def changed(image, **others):
            return encode_jpeg(image, **(others | options))

        patch.setattr(tf.io, "encode_jpeg", changed)

    return plant


PLANTED = {
    "an accurate DCT": (FLOAT, other_decode(dct_method="INTEGER_ACCURATE")),
    "an accurate DCT, in whole levels": (Case(**JPEG), other_decode(dct_method="INTEGER_ACCURATE")),
    "an accurate DCT at a fraction": (SCALED, other_decode(dct_method="INTEGER_ACCURATE")),
    "plain upscaling of colours": (FLOAT, other_decode(fancy_upscaling=False)),
    "fancy upscaling of colours at a fraction": (SCALED, other_decode(fancy_upscaling=True)),
    "another fraction": (SCALED, smaller_fraction),
    "nearest for bilinear": (FLOAT, other_resize(method="nearest")),
    "nearest for bilinear, in whole levels": (MIXED, other_resize(method="nearest")),
    "bilinear for nearest": (Case(**JPEG, interpolation="nearest"), other_resize(method="bilinear")),
    "bicubic": (FLOAT, other_resize(method="bicubic")),
    "antialiasing": (MIXED, other_resize(antialias=True)),
    "no half-pixel centres": (FLOAT, without_half_pixel_centres),
    "levels cut off, not rounded": (Case(**JPEG), levels_cut_off),
    "halves rounded up, not to even": (Case(**JPEG), halves_rounded_up),
    "alpha blended": (MIXED, alpha_blended),
    "JPEG at quality 94": (RESIZED, other_quality(quality=94)),
    "JPEG with 4:2:0": (RESIZED, other_quality(chroma_downsampling=True)),
}


@pytest.mark.parametrize(
    "change", [pytest.param(name, marks=reads_all if case is MIXED else ()) for name, (case, _) in PLANTED.items()]
)
def test_a_change_of_the_pixels_is_noticed(change, golden, monkeypatch):
    case, plant = PLANTED[change]
    plant(monkeypatch)
    problem = problem_with(golden, [case])
    assert problem is not None
    assert case.name in problem and "levels apart" in problem
    assert problem.endswith(
        (
            "If that is meant, raise PIXELS_VERSION in pipeline/prepared/copies.py and record again: "
            "python -m tests.golden_pixels",
            "If our code changed too, raise PIXELS_VERSION in pipeline/prepared/copies.py first.",  # other libraries
        )
    )


@pytest.mark.parametrize(
    "case", [FLOAT, SCALED, pytest.param(MIXED, marks=reads_all), RESIZED], ids=lambda case: case.name
)
def test_the_last_bits_of_another_processor_are_no_change(case, golden, monkeypatch):
    """TensorFlow has a second kernel of the same mathematics, which adds in another order."""
    other_bits = []

    def resize(image, size, method):
        scale = tf.cast(size, tf.float32) / tf.cast(tf.shape(image)[:2], tf.float32)
        resized = tf.raw_ops.ScaleAndTranslate(
            images=tf.cast(image, tf.float32)[tf.newaxis],
            size=size,
            scale=scale,
            translation=[0.0, 0.0],
            kernel_type="triangle",
            antialias=False,
        )[0]
        other_bits.append(method)
        return resized

    monkeypatch.setattr(tf.image, "resize", resize)
    assert problem_with(golden, [case]) is None
    assert other_bits == ["bilinear"]


# What to do then


def test_a_raised_version_asks_for_its_pixels(golden, monkeypatch):
    monkeypatch.setattr(copies, "PIXELS_VERSION", golden["pixels_version"] + 1)
    problem = problem_with(golden, [FLOAT])
    assert problem is not None and problem.endswith("Record them again: python -m tests.golden_pixels")


def test_other_libraries_are_named_beside_the_pixels_that_they_changed(golden, monkeypatch):
    without_half_pixel_centres(monkeypatch)
    monkeypatch.setattr(golden_pixels, "LIBRARIES", {"tensorflow": "2.99.0", "numpy": np.__version__})
    problem = problem_with(golden, [FLOAT])
    assert problem is not None and "'tensorflow': '2.99.0'" in problem and "If only the libraries changed" in problem


def test_changed_pixels_are_recorded_only_under_another_number(tmp_path, monkeypatch):
    path = tmp_path / "pixels.json"
    assert record(path, [FLOAT]) is None
    before = path.read_text()
    assert json.loads(before)["pixels"][FLOAT.name] == json.loads(GOLDEN.read_text())["pixels"][FLOAT.name]
    without_half_pixel_centres(monkeypatch)
    refused = record(path, [FLOAT])
    assert refused is not None and "raise PIXELS_VERSION" in refused
    assert path.read_text() == before
    monkeypatch.setattr(copies, "PIXELS_VERSION", copies.PIXELS_VERSION + 1)
    assert record(path, [FLOAT]) is None
    assert problem_with(json.loads(path.read_text()), [FLOAT]) is None
