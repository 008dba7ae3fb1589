"""How large the images are that a loader decodes with Pillow or OpenCV, and how large those are that it gives."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

from unstall.profiles.unit import pixels_in


def pixels_decoded(make: Callable[[], Any], channels_axis: int) -> tuple[float | None, int | None]:
    """Makes a batch, and returns the pixels of a mean image as it is decoded, and as the batch has it.

    Args:
      make: makes a batch in this thread.
      channels_axis: of a batch of images.
    Returns:
      None for the first where neither Pillow nor OpenCV decodes an image, for the second where the batch has no images.
    """
    with _noted() as sizes:
        batch = make()
    return sum(sizes) / len(sizes) if sizes else None, pixels_in(batch, channels_axis=channels_axis)


@contextlib.contextmanager
def _noted() -> Iterator[list[int]]:
    """Notes the pixels of each image that is decoded until the block ends."""
    sizes: list[int] = []
    replaced: list[tuple[Any, str, Any]] = []

    def by_pillow(load: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(load)
        def loading(image: Any, *arguments: Any, **options: Any) -> Any:
            if getattr(image, "tile", None):  # what is loaded already has no tiles left
                sizes.append(math.prod(image.size))
            return load(image, *arguments, **options)

        return loading

    def by_opencv(decode: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(decode)
        def decoding(*arguments: Any, **options: Any) -> Any:
            image = decode(*arguments, **options)
            if image is not None:
                sizes.append(math.prod(image.shape[:2]))
            return image

        return decoding

    pillow, opencv = sys.modules.get("PIL.ImageFile"), sys.modules.get("cv2")
    wanted: list[tuple[Any, str, Callable[..., Any]]] = [(opencv, name, by_opencv) for name in ("imread", "imdecode")]
    wanted += [(getattr(pillow, "ImageFile", None), "load", by_pillow)]
    try:
        for owner, name, wrap in wanted:
            original = getattr(owner, name, None)
            if original is None:  # not imported
                continue
            setattr(owner, name, wrap(original))
            replaced.append((owner, name, original))
        yield sizes
    finally:
        for owner, name, original in replaced:
            setattr(owner, name, original)
