"""FFCV on a .beton file of raw pixels.

Configured after FFCV's documentation: `os_cache=True` and `OrderOption.RANDOM` for a dataset that fits in memory
("Tuning Guide"), the crop in the decoder (`RandomResizedCropRGBImageDecoder`), as many workers as cores or fewer
("Consider using the actual number of cores"). Its order is over several epochs, so that it reads from one epoch into
the next, as other loaders do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.basics import IntDecoder
from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader as Beton
from ffcv.loader import OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor
from ffcv.traversal_order.base import TraversalOrder
from ffcv.writer import DatasetWriter

from unstall.benchmarks.evidence.peers.loaders.work import (
    BATCH,
    CROP_AREA,
    CROP_ASPECT,
    FLIP_PROBABILITY,
    SIDE,
    AllEpochs,
    Job,
    Loader,
)


class Rows:
    def __init__(self, job: Job) -> None:
        self._array, self._labels = np.load(job.array, mmap_mode="r"), job.labels

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.array(self._array[index]), self._labels[index]


class OverEpochs(TraversalOrder):
    """A random order for each of several epochs, one after another."""

    epochs = 1

    def sample_order(self, epoch: int) -> np.ndarray:
        random = np.random.default_rng()
        return np.concatenate([random.permutation(self.indices) for _ in range(self.epochs)])


def prepared(job: Job) -> Loader:
    path = Path(job.folder) / "images.beton"
    if not path.exists():
        fields = {"image": RGBImageField(write_mode="raw", max_resolution=SIDE), "label": IntField()}
        DatasetWriter(str(path), fields, num_workers=1).from_indexed_dataset(Rows(job))
    images: list[Any] = [
        RandomResizedCropRGBImageDecoder((SIDE, SIDE), scale=CROP_AREA, ratio=CROP_ASPECT),
        RandomHorizontalFlip(FLIP_PROBABILITY),
    ]
    if job.dtype == "float32":
        images.append(NormalizeImage(np.zeros(3), np.full(3, 255.0), np.float32))
    beton = Beton(
        str(path),
        batch_size=BATCH,
        num_workers=int(job.workers or 1),
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=False,
        pipelines={"image": [*images, ToTensor()], "label": [IntDecoder(), ToTensor(), Squeeze(1)]},
    )
    # The argument `order` takes no order of one's own: FFCV 1.0.2 asks whether the class is an instance of itself.
    beton.traversal_order = order = OverEpochs(beton)

    def batches(epochs: int) -> Iterator[tuple[Any, Any]]:
        order.epochs = epochs
        beton.first_traversal_order = beton.next_traversal_order()  # its length is that of the iteration
        yield from beton

    return AllEpochs(batches)
