"""PyTorch's DataLoader, with Pillow, with OpenCV and albumentations, with OpenCV alone, and on a prepared array.

Every loader reads from one epoch into the next, as ours do: its sampler gives the indices of several epochs. Configured
after PyTorch's Performance Tuning Guide ("Enable asynchronous data loading"), the notes on
`torch.utils.data` (persistent workers; a custom `collate_fn`; whole batches from the dataset, "Disable automatic
batching", where reading in bulk is cheaper), Pillow's notes on `draft` and `reducing_gap`, and albumentations'
performance guide (uint8 until the end, few pixels first, OpenCV for reading, OpenCV's own threads off in workers).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from unstall.benchmarks.evidence.peers.loaders.work import BATCH, SIDE, AllEpochs, Job, Loader, draw_affine, to_output

# Width of the border around an image, in pixels: the largest zoom and shear read up to 7 pixels outside of the image.
_MARGIN = 8

# The random generator of this process; each worker process has its own.
_random = np.random.default_rng()


class Photos:
    """A map-style dataset of files; an item is (image (64, 64, 3) uint8, label)."""

    def __init__(self, job: Job, load: Callable[[str], np.ndarray]) -> None:
        self._paths, self._labels, self._load = job.paths, job.labels, load

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self._load(self._paths[index]), self._labels[index]


class Collate:
    """Makes a batch in the worker process, so that pixels are converted once for a batch, not once for each image."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self, items: Sequence[tuple[np.ndarray, int]]) -> tuple[Any, Any]:
        images = to_output(np.stack([image for image, _ in items]), self._job)
        return torch.from_numpy(images), torch.tensor([label for _, label in items])


class Rows:
    """A dataset of a memory-mapped array that is asked for whole batches of indices."""

    def __init__(self, job: Job) -> None:
        self._job, self._labels = job, torch.tensor(job.labels)
        self._array = np.load(job.array, mmap_mode="r")

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, indices: list[int]) -> tuple[Any, Any]:
        from unstall.benchmarks.evidence.peers.loaders.opencv import crop

        images = np.empty((len(indices), SIDE, SIDE, 3), np.uint8)
        for row, index in enumerate(indices):
            images[row] = crop(self._array[index], _random)
        return torch.from_numpy(to_output(images, self._job)), self._labels[indices]


class Numbered:
    """A dataset that is asked for whole batches by their numbers, and makes them as `make` does."""

    def __init__(self, make: Callable[[int], tuple[np.ndarray, np.ndarray]]) -> None:
        self._make = make

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        images, labels = self._make(number)
        return torch.from_numpy(images), torch.from_numpy(labels)


class OverEpochs:
    """A sampler over several epochs.

    Args:
      of_epoch: returns what an epoch gives; called with the epoch's number, which goes on from one `feed` to the next.
    """

    def __init__(self, of_epoch: Callable[[int], Iterable[Any]]) -> None:
        self._of_epoch = of_epoch
        self._begun, self.epochs = 0, 1

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.epochs):
            self._begun += 1
            yield from self._of_epoch(self._begun - 1)


def pillow(job: Job) -> Loader:
    return _photos(job, _load_pillow)


def opencv(job: Job) -> Loader:
    return _photos(job, _load_opencv)


def albumentations(job: Job) -> Loader:
    return _photos(job, _Albumentations())


def prepared(job: Job) -> Loader:
    dataset = Rows(job)
    batches = BatchSampler(RandomSampler(dataset), BATCH, drop_last=False)
    return _loader(job, dataset, "sampler", lambda _: batches, batch_size=None)


def two_resamplings(job: Job) -> Loader:
    return _remedied(job, one_resampling=False)


def one_resampling(job: Job) -> Loader:
    return _remedied(job, one_resampling=True)


def _remedied(job: Job, *, one_resampling: bool) -> Loader:
    from unstall.benchmarks.evidence.peers.loaders.remedied import Batches

    # PyTorch's own threads would wait for work by turning round and round, in the time of the processes that load: with
    # two of them, on 2 cores, loaders had 0.26 to 0.63 of their rate.
    torch.set_num_threads(1)
    make = Batches(job, one_resampling=one_resampling)
    return _loader(job, Numbered(make), "sampler", make.of_epoch, finish=_as_floats(job), batch_size=None)


def _as_floats(job: Job) -> Callable[[Any], Any]:
    """Returns what turns uint8 images into those that the work wants, in the process that trains."""
    if job.dtype == "uint8":
        return lambda images: images
    return lambda images: images.to(torch.float32).mul_(1 / 255)


def _photos(job: Job, load: Callable[[str], np.ndarray]) -> Loader:
    dataset = Photos(job, load)
    batches = BatchSampler(RandomSampler(dataset), BATCH, drop_last=False)
    return _loader(job, dataset, "batch_sampler", lambda _: batches, collate_fn=Collate(job))


def _loader(
    job: Job,
    dataset: Any,
    sampler: str,
    of_epoch: Callable[[int], Iterable[Any]],
    finish: Callable[[Any], Any] | None = None,
    **options: Any,
) -> Loader:
    """Returns a loader.

    Args:
      sampler: the argument of `DataLoader` that takes the sampler.
      of_epoch: what the sampler gives in an epoch, by the epoch's number.
      finish: applied to each batch's images in the process that trains.
    """
    workers = int(job.workers or 0)
    over = OverEpochs(of_epoch)
    options[sampler] = over
    loader = DataLoader(
        dataset, num_workers=workers, persistent_workers=workers > 0, worker_init_fn=_seed_worker, **options
    )

    def batches(epochs: int) -> Iterator[tuple[Any, Any]]:
        over.epochs = epochs
        for images, labels in loader:
            yield (images if finish is None else finish(images)), labels

    return AllEpochs(batches)


def _seed_worker(_: int) -> None:
    """Seeds a forked worker: otherwise all workers would repeat the parent's random draws, and so each other's."""
    import cv2

    global _random
    cv2.setNumThreads(0)
    _random = np.random.default_rng(torch.initial_seed())
    dataset = torch.utils.data.get_worker_info().dataset
    load = getattr(dataset, "_load", None)
    if isinstance(load, _Albumentations):
        load.seed(torch.initial_seed() % 2**32)


def _load_pillow(path: str) -> np.ndarray:
    with Image.open(path) as image:
        image.draft("RGB", (SIDE, SIDE))
        small = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR, reducing_gap=2.0)
    # Pillow's own transforms leave black outside of the image, so the image's edge is first repeated in a border.
    wide = np.empty((SIDE + 2 * _MARGIN, SIDE + 2 * _MARGIN, 3), np.uint8)
    middle = slice(_MARGIN, SIDE + _MARGIN)
    wide[middle, middle] = np.asarray(small)
    wide[middle, :_MARGIN] = wide[middle, _MARGIN, None]
    wide[middle, -_MARGIN:] = wide[middle, -_MARGIN - 1, None]
    wide[:_MARGIN] = wide[_MARGIN]
    wide[-_MARGIN:] = wide[-_MARGIN - 1]
    (xx, xy, x), (yx, yy, y) = draw_affine(_random)
    # In Pillow's coordinates 0 is the corner of the first pixel, in those of the map the middle of that pixel.
    x += _MARGIN + 0.5 - (xx + xy) / 2
    y += _MARGIN + 0.5 - (yx + yy) / 2
    coefficients = (xx, xy, x, yx, yy, y)
    moved = Image.fromarray(wide).transform(
        (SIDE, SIDE), Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR
    )
    return np.asarray(moved)


def _load_opencv(path: str) -> np.ndarray:
    from unstall.benchmarks.evidence.peers.loaders.opencv import augment, load

    return augment(load(path), _random)


class _Albumentations:
    def __init__(self) -> None:
        os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
        import albumentations as alb
        import cv2

        self._transform = alb.Compose(
            [
                alb.HorizontalFlip(p=0.5),
                alb.Affine(
                    scale={"x": (0.8, 1.2), "y": (0.8, 1.2)},
                    shear={"x": (-0.2, 0.2), "y": (0.0, 0.0)},
                    border_mode=cv2.BORDER_REPLICATE,
                    p=1.0,
                ),
            ]
        )

    def seed(self, seed: int) -> None:
        self._transform.set_random_seed(seed)

    def __call__(self, path: str) -> np.ndarray:
        from unstall.benchmarks.evidence.peers.loaders.opencv import load

        return self._transform(image=load(path))["image"]
