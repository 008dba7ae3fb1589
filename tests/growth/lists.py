"""Makes lists of any length from a few photos: copies in a scratch folder, and as many links to them as needed."""

from __future__ import annotations

import itertools
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unstall.pipeline import ImageSource

# The copies take at most this much: a thousand photos of 500 kB.
_MOST_BYTES = 500_000_000
# The mean size of this many photos, spread over the list, stands for the mean size of all photos.
_SIZED_PHOTOS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Photos:
    """Copies of some of a source's photos: their paths, their labels, and the names of the classes."""

    paths: tuple[Path, ...]
    labels: tuple[int, ...]
    class_names: tuple[str, ...]


def copy_photos(source: ImageSource, most: int, folder: Path) -> Photos:
    """Copies at most `most` photos, spread over the list, with at least one photo of each class.

    The links must not point to the user's own files: each hard link changes the link count of its file.

    Raises:
      ValueError: if there are more classes than `most`, or too little room.
    """
    paths = source.paths
    if len(source.class_names) > most:
        raise ValueError(f"{len(source.class_names)} classes need a list of as many files at least. Received: {most}.")
    mean_bytes = float(np.mean([os.path.getsize(path) for path in source.take(_SIZED_PHOTOS).paths]))
    most = max(len(source.class_names), min(most, source.images, int(_MOST_BYTES / mean_bytes)))
    chosen = _spread(source.labels, most)
    folder.mkdir(parents=True)
    free_bytes = shutil.disk_usage(folder).free
    if len(chosen) * mean_bytes > 0.5 * free_bytes:
        raise ValueError(
            f"copies of {len(chosen)} photos need {len(chosen) * mean_bytes / 1e6:.0f} MB, "
            f"and {free_bytes / 1e6:.0f} MB are free."
        )
    copies = []
    for number, index in enumerate(chosen):
        copies.append(folder / f"{number:06d}{os.path.splitext(paths[index])[1]}")
        shutil.copyfile(paths[index], copies[-1])
    labels = tuple(int(label) for label in source.labels[chosen])
    return Photos(paths=tuple(copies), labels=labels, class_names=source.class_names)


def _spread(labels: np.ndarray, most: int) -> np.ndarray:
    """Returns at most `most` indexes, ascending: the first of each class, and others spread over the list."""
    firsts = np.unique(labels, return_index=True)[1]
    rest = np.setdiff1d(np.arange(len(labels)), firsts)
    wanted = min(most - len(firsts), len(rest))
    others = rest[np.linspace(0, len(rest) - 1, wanted).round().astype(int)] if wanted else rest[:0]
    return np.sort(np.concatenate([firsts, others]))


def link_files(photos: Photos, files: int, folder: Path) -> Path:
    """Makes a folder of class folders with `files` links to the photos, in turn."""
    for name in photos.class_names:
        (folder / name).mkdir(parents=True)
    linked = itertools.islice(itertools.cycle(zip(photos.paths, photos.labels, strict=True)), files)
    for index, (path, label) in enumerate(linked):
        link = folder / photos.class_names[label] / f"{index:08d}{path.suffix}"
        try:
            os.link(path, link)
        except OSError:  # a file system without hard links, or with too few for one file (ext4: 65,000)
            link.symlink_to(path)
    return folder
