"""The libraries of the augmentation table: how each library applies an operation, and in which placements.

Every subject is given photos as uint8 and serves float32, both in [0, 255]; what an operation needs from outside of the
photo is filled with the nearest pixel. That all libraries do the same with the same draw is proven by a test.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from unstall.benchmarks.evidence.augmentation import operations as ops
from unstall.benchmarks.evidence.augmentation.operations import GEOMETRIC, OPERATIONS
from unstall.pipeline import Augmentation

# In a library of tensors, (images, draws) -> images, for one image or for a batch; in others, (image, draw) -> image.
Apply = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """One library.

    Attributes:
      kind: "tensors" runs in a TensorFlow graph; "arrays" is called from a graph by `numpy_function`; "python" runs
        without tf.data, in Python threads as Keras' own workers do.
      placements: where the library can be used: "element", "batch", "model".
      without: operations that have no row in this library.
      build: makes `Apply` from (operation, side in pixels, placement).
    """

    kind: str
    placements: tuple[str, ...]
    without: tuple[str, ...] = ()
    build: Callable[[str, int, str], Apply]


def _keras_generator(operation: str, size: int, placement: str) -> Apply:
    """Makes `Apply` from Keras' `ImageDataGenerator`, with fixed parameters instead of drawn ones.

    The generator shears about the middle and shrinks y by the angle's cosine: a shift and a zoom undo both.
    """
    from tensorflow.keras.preprocessing.image import ImageDataGenerator

    tangent = math.tan(math.radians(ops.SHEAR_DEGREES))
    cosine = math.cos(math.radians(ops.SHEAR_DEGREES))
    parameters: dict[str, dict[str, Any]] = {
        "none": {},
        "flip": {"flip_horizontal": True},
        "shear": {"shear": ops.SHEAR_DEGREES, "zy": 1 / cosine, "tx": -tangent * (size - 1) / 2},
        "zoom": {"zx": ops.ZOOM_RATIO, "zy": ops.ZOOM_RATIO},
        "rotation": {"theta": ops.ROTATION_DEGREES},
        "shift": {"tx": -ops.SHIFT_RIGHT_PX, "ty": -ops.SHIFT_DOWN_PX},
        "brightness": {"channel_shift_intensity": ops.BRIGHTNESS_RATIO * 255},
    }
    generator = ImageDataGenerator(fill_mode="nearest")
    transform = parameters[operation]
    return lambda image, draw: generator.apply_transform(image.astype(np.float32), transform)


def _keras_layers(operation: str, size: int, placement: str) -> Apply:
    """Makes `Apply` from Keras' layer for an operation, with a range of a single value where the layer has a range.

    Flip, crop and the sign of the shear are drawn: their time, as that of every layer, holds their own draw.
    """
    import keras

    layers = keras.layers
    side = ops.crop_box(size)[2]
    tangent = math.tan(math.radians(ops.SHEAR_DEGREES))
    right, down = ops.SHIFT_RIGHT_PX / size, ops.SHIFT_DOWN_PX / size
    zoom, turn = ops.ZOOM_RATIO - 1, ops.ROTATION_DEGREES / 360
    # RandomContrast draws from 1 - lower to 1 + upper.
    contrast = ops.CONTRAST_RATIO - 1
    makers: dict[str, Callable[[], Any]] = {
        "flip": lambda: layers.RandomFlip("horizontal", seed=1),
        "shear": lambda: layers.RandomShear(x_factor=(tangent, tangent), fill_mode="nearest", seed=1),
        "zoom": lambda: layers.RandomZoom((zoom, zoom), (zoom, zoom), fill_mode="nearest", seed=1),
        "rotation": lambda: layers.RandomRotation((turn, turn), fill_mode="nearest", seed=1),
        "shift": lambda: layers.RandomTranslation((down, down), (right, right), fill_mode="nearest", seed=1),
        "crop": lambda: layers.RandomCrop(side, side, seed=1),
        "brightness": lambda: layers.RandomBrightness((ops.BRIGHTNESS_RATIO,) * 2, seed=1),
        "contrast": lambda: layers.RandomContrast((-contrast, contrast), seed=1),
    }
    layer = makers[operation]()
    if placement != "model":
        return lambda images, draws: layer(images, training=True)
    model = keras.Sequential([keras.Input((size, size, 3)), layer])
    return lambda images, draws: model(images, training=True)


def _tf_ops(operation: str, size: int, placement: str) -> Apply:
    """Makes `Apply` from TensorFlow's own ops; in a batch, each image has its own draw."""
    import tensorflow as tf

    side = ops.crop_box(size)[2]

    def affine(images: Any, draws: Any) -> Any:
        return tf.raw_ops.ImageProjectiveTransformV3(
            images=images,
            transforms=tf.pad(draws, [[0, 0], [0, 2]]),
            output_shape=(size, size),
            fill_value=0.0,
            interpolation="BILINEAR",
            fill_mode="NEAREST",
        )

    def flip(images: Any, draws: Any) -> Any:
        return tf.where(draws[:, :, tf.newaxis, tf.newaxis] > 0, tf.reverse(images, [2]), images)

    def crop(images: Any, draws: Any) -> Any:
        # In a box of `crop_and_resize`, 0 is the middle of the first pixel, and 1 the middle of the last.
        boxes = tf.concat([draws, draws + (side - 1)], axis=1) / (size - 1)
        return tf.image.crop_and_resize(images, boxes, tf.range(tf.shape(images)[0]), (side, side))

    def brighten(images: Any, draws: Any) -> Any:
        return tf.clip_by_value(images + draws[:, :, tf.newaxis, tf.newaxis], 0.0, 255.0)

    def contrast(images: Any, draws: Any) -> Any:
        mean = tf.reduce_mean(images, axis=[1, 2], keepdims=True)
        return tf.clip_by_value((images - mean) * draws[:, :, tf.newaxis, tf.newaxis] + mean, 0.0, 255.0)

    batched: dict[str, Apply] = {
        "none": lambda images, draws: images,
        **dict.fromkeys(GEOMETRIC, affine),
        "flip": flip,
        "crop": crop,
        "brightness": brighten,
        "contrast": contrast,
    }
    # For a single image, the functions of tf.image, as far as it has any.
    single: dict[str, Apply] = {
        "none": lambda image, draw: image,
        **dict.fromkeys(GEOMETRIC, lambda image, draw: affine(image[tf.newaxis], draw[tf.newaxis])[0]),
        "flip": lambda image, draw: tf.cond(draw[0] > 0, lambda: tf.image.flip_left_right(image), lambda: image),
        "crop": lambda image, draw: tf.image.crop_to_bounding_box(
            image, tf.cast(draw[0], tf.int32), tf.cast(draw[1], tf.int32), side, side
        ),
        "brightness": lambda image, draw: tf.clip_by_value(tf.image.adjust_brightness(image, draw[0]), 0.0, 255.0),
        "contrast": lambda image, draw: tf.clip_by_value(tf.image.adjust_contrast(image, draw[0]), 0.0, 255.0),
    }
    chosen = (single if placement == "element" else batched)[operation]
    return lambda images, draws: chosen(tf.cast(images, tf.float32), draws)


def _warped(warp: Callable[[np.ndarray, np.ndarray, np.ndarray], None]) -> Apply:
    """Returns a function that gives the warped image in a new array."""

    def apply(image: np.ndarray, draw: np.ndarray) -> np.ndarray:
        target = np.empty_like(image)
        warp(image, draw.reshape(2, 3), target)
        return target

    return apply


def _opencv(operation: str, size: int, placement: str) -> Apply:
    import cv2

    from unstall.pipeline.stages.warp import OpenCVWarp

    warp = OpenCVWarp(Augmentation(fill_mode="nearest"))
    side = ops.crop_box(size)[2]

    def crop(image: np.ndarray, draw: np.ndarray) -> np.ndarray:
        top, left = int(draw[0]), int(draw[1])
        return image[top : top + side, left : left + side].copy()

    def contrast(image: np.ndarray, draw: np.ndarray) -> np.ndarray:
        ratio = float(draw[0])
        mean = np.array(cv2.mean(image)[:3])
        return cv2.transform(image, np.column_stack([ratio * np.eye(3), (1 - ratio) * mean]))

    appliers: dict[str, Apply] = {
        "none": lambda image, draw: image,
        **dict.fromkeys(GEOMETRIC, _warped(warp)),
        "flip": lambda image, draw: cv2.flip(image, 1),
        "crop": crop,
        # The second argument is a colour, which OpenCV takes though its type stubs do not say so.
        "brightness": lambda image, draw: cv2.add(image, (float(draw[0]),) * 3 + (0.0,)),  # type: ignore[call-overload]
        "contrast": contrast,
    }
    return appliers[operation]


def _albumentations(operation: str, size: int, placement: str) -> Apply:
    """Makes `Apply` from albumentations' transforms inside a `Compose`, as users of the library call them."""
    # Version 2.0.8 asks the package index for a newer release at import unless told not to.
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    import albumentations
    import cv2

    from unstall.pipeline.stages.warp import AlbumentationsWarp

    class MeanContrast(albumentations.RandomBrightnessContrast):
        """Albumentations' contrast about the mean of each channel; the original scales all channels about black."""

        def get_params_dependent_on_data(self, params: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
            ratio = ops.CONTRAST_RATIO
            return {"alpha": ratio, "beta": [(1 - ratio) * mean for mean in cv2.mean(data["image"])[:3]]}

        def apply(self, img: np.ndarray, alpha: float, beta: list[float], **params: Any) -> np.ndarray:
            # Channel by channel: if values differ by channel, the table look-up fails on uint8 (albucore 0.0.24).
            applied = super().apply
            return cv2.merge([applied(img[:, :, channel], alpha, value) for channel, value in enumerate(beta)])

    if operation in GEOMETRIC:
        warp = AlbumentationsWarp(Augmentation(fill_mode="nearest"))
        return _warped(warp)
    top, left, side = ops.crop_box(size)
    brighter = (ops.BRIGHTNESS_RATIO, ops.BRIGHTNESS_RATIO)
    makers: dict[str, Callable[[], Any]] = {
        "flip": lambda: albumentations.HorizontalFlip(p=1),
        "crop": lambda: albumentations.Crop(left, top, left + side, top + side, p=1),
        "brightness": lambda: albumentations.RandomBrightnessContrast(
            brightness_limit=brighter, contrast_limit=(0, 0), p=1
        ),
        "contrast": lambda: MeanContrast(p=1),
    }
    compose = albumentations.Compose([makers[operation]()])
    return lambda image, draw: compose(image=image)["image"]


LIBRARIES: dict[str, Library] = {
    # In Python, image by image. Its brightness is `channel_shift_range`, which adds as the others do, but stops at the
    # photo's own brightest level; `brightness_range` multiplies. It has no crop and no contrast.
    "keras_generator": Library(
        kind="python", placements=("element",), without=("crop", "contrast"), build=_keras_generator
    ),
    # RandomCrop draws one box for a whole batch.
    "keras_layers": Library(
        kind="tensors", placements=("element", "batch", "model"), without=("none",), build=_keras_layers
    ),
    # In a batch each image has its own draw: there crop is `crop_and_resize`.
    "tf_ops": Library(kind="tensors", placements=("element", "batch"), build=_tf_ops),
    # Its Affine with our map. Its contrast is about black by itself, here about the mean.
    "albumentations": Library(kind="arrays", placements=("element", "batch"), without=("none",), build=_albumentations),
    # With its own threads off.
    "opencv": Library(kind="arrays", placements=("element", "batch"), build=_opencv),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is measured: an operation in a library, in one placement."""

    operation: str
    library: str
    placement: str

    @property
    def label(self) -> str:
        return f"{self.operation}, {self.library}, {self.placement}"


def subjects_of(operations: tuple[str, ...], libraries: tuple[str, ...]) -> tuple[Subject, ...]:
    """Returns all subjects of these operations and libraries, in the order of `OPERATIONS` and `LIBRARIES`."""
    return tuple(
        Subject(operation=operation, library=name, placement=placement)
        for operation in OPERATIONS
        for name, library in LIBRARIES.items()
        if operation in operations and name in libraries and operation not in library.without
        for placement in library.placements
    )
