"""Applies a random draw, as an affine map, to an image: by OpenCV, or by albumentations, which uses OpenCV.

No TensorFlow here: worker processes import this module.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np

from unstall.pipeline.augmentation import Augmentation

# (image (height, width, 3), matrix (2, 3) from output to input pixels, array of the image's shape and dtype to fill).
Warp = Callable[[np.ndarray, np.ndarray, np.ndarray], None]

BORDER = {"nearest": cv2.BORDER_REPLICATE, "reflect": cv2.BORDER_REFLECT, "constant": cv2.BORDER_CONSTANT}

# OpenCV's own thread pool would compete with the loader's workers.
cv2.setNumThreads(0)


class OpenCVWarp:
    def __init__(self, augmentation: Augmentation) -> None:
        self._border = BORDER[augmentation.fill_mode]

    def __call__(self, image: np.ndarray, matrix: np.ndarray, target: np.ndarray) -> None:
        height, width = image.shape[:2]
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        cv2.warpAffine(image, matrix, (width, height), target, flags, self._border)


class AlbumentationsWarp:
    """Warps by an albumentations `Compose` whose transform takes our draw instead of drawing for itself.

    The `Compose` is built once, not per image. It is safe in threads, because no random state is used.
    """

    def __init__(self, augmentation: Augmentation) -> None:
        self._augmentation = augmentation
        self._compose = _compose(BORDER[augmentation.fill_mode])

    def __call__(self, image: np.ndarray, matrix: np.ndarray, target: np.ndarray) -> None:
        target[...] = self._compose(image=image, output_to_input=matrix)["image"]

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process that is not forked builds its own `Compose`.
        return AlbumentationsWarp, (self._augmentation,)


def _compose(border: int) -> Any:
    # Version 2.0.8 asks the package index for a newer release at import unless told not to.
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    import albumentations

    class DrawnAffine(albumentations.Affine):
        @property
        def targets_as_params(self) -> list[str]:
            return ["output_to_input"]

        def get_params_dependent_on_data(self, params: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
            forward = cv2.invertAffineTransform(data["output_to_input"])
            matrix = np.vstack([forward, [0.0, 0.0, 1.0]])
            return {"matrix": matrix, "bbox_matrix": matrix, "output_shape": params["shape"][:2]}

    return albumentations.Compose([DrawnAffine(border_mode=border, p=1.0)])


WARPS: dict[str, Callable[[Augmentation], Warp]] = {"opencv": OpenCVWarp, "albumentations": AlbumentationsWarp}
