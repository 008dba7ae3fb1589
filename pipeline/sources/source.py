"""`ImageSource`, which every loader takes: the labelled images of a data set, and the files that are left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from unstall.pipeline.sources.names import FileNames
from unstall.pipeline.sources.stored import MappedImages, Records
from unstall.text import printable

# Called with (done, in all).
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A file that is left out, and why.

    Attributes:
      file: below the source's root, as the system names it.
      reason: in words.
    """

    file: str
    reason: str

    @property
    def path(self) -> str:
        """The file's path, safe to print."""
        return printable(self.file)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ImageSource:
    """Labelled images that can be read again and again: files below a root, arrays in memory, or files that hold many.

    Attributes:
      kind: "folder", "tfds", "generated" or "arrays"; for a prepared copy "resized", "records" or "raw".
      name: what the user asked for.
      class_names: sorted; a label is an index into them.
      labels: (images,) int64.
      root: the folder that `files` are relative to; None if images have no files of their own.
      files: sorted paths, one per image; only names if there is no `root`; empty for arrays.
      formats: Pillow's names of the files' formats, sorted.
      skipped: files that are left out.
      stale_skips: entries of the skip list that no longer apply, and why.
      jpeg_sizes: (images, 2) int32, height and width in the header of each JPEG file; 0 for anything else.
      fingerprint: digest of names, sizes and modification times, or of the arrays' bytes.
      arrays: (images, height, width, 3) uint8 in memory, or mapped into it (float32 in a loader's own cache); or None.
      records: encoded images in TFRecord shards, or None.
    """

    kind: str
    name: str
    class_names: tuple[str, ...]
    labels: np.ndarray = field(repr=False)
    root: Path | None = None
    files: FileNames = field(default_factory=FileNames, repr=False)
    formats: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = field(default=(), repr=False)
    stale_skips: tuple[Skipped, ...] = field(default=(), repr=False)
    fingerprint: str = ""
    arrays: np.ndarray | MappedImages | None = field(default=None, repr=False)
    records: Records | None = field(default=None, repr=False)
    jpeg_sizes: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int32), repr=False)

    @property
    def images(self) -> int:
        return len(self.labels)

    @property
    def paths(self) -> FileNames:
        """Absolute paths, in the order of `labels`."""
        return self.files.below(self.root) if self.root else FileNames()

    def to_dict(self) -> dict[str, Any]:
        """Returns what a results file says of the source, with the paths of skipped files only."""
        counts = Counter(self.labels.tolist())
        stale = [{"path": entry.path, "reason": entry.reason} for entry in self.stale_skips]
        return {
            "kind": self.kind,
            "name": self.name,
            "images": self.images,
            "skipped": len(self.skipped),
            "skipped_files": [{"path": file.path, "reason": file.reason} for file in self.skipped],
            **({"stale_skips": stale} if stale else {}),
            "classes": {printable(name): counts.get(label, 0) for label, name in enumerate(self.class_names)},
            "formats": list(self.formats),
            "fingerprint": self.fingerprint,
        }

    def left_out(self, where: str) -> list[str]:
        """Returns a sentence on the files that are left out, and another on stale entries of the skip list.

        Args:
          where: says where all files are named; the end of each sentence.
        """
        total = self.images + len(self.skipped)
        groups = [
            (f"skipped {len(self.skipped)} of {total} files", self.skipped),
            (f"{len(self.stale_skips)} of the skip list's entries no longer apply", self.stale_skips),
        ]
        sentences = []
        for what, files in groups:
            if files:
                more = f" and {len(files) - 1} more" if len(files) > 1 else ""
                sentences.append(f"{what}: {files[0].path} ({files[0].reason}){more}; {where}")
        return sentences

    def take(self, images: int) -> ImageSource:
        """Returns a source of at most `images`, spread evenly over the list and so over the classes."""
        if images >= self.images:
            return self
        return self.part(np.linspace(0, self.images - 1, images).round().astype(int), str(images))

    def shard(self, number: int, count: int) -> ImageSource:
        """Returns one of `count` parts of the images, for one of as many processes that train one model.

        Part k holds the images k, k + count, k + 2 count and so on: parts have no image in common, and hold all of
        them together. All parts have the same number of images, so that all processes make the same number of steps:
        where `count` does not divide the images, the parts that would be one shorter hold their first image twice.
        Give each process a `seed` of its own in the config: with one seed all have the same order and draws.

        Args:
          number: of the part, from 0.
          count: how many parts there are, at most as many as images.
        Raises:
          ValueError: if there is no such part.
        """
        if not 1 <= count <= self.images:
            raise ValueError(f"`count` must be from 1 to the {self.images} images. Received: count={count}.")
        if not 0 <= number < count:
            raise ValueError(f"`number` must be from 0 to {count - 1}, below `count`. Received: number={number}.")
        chosen = np.arange(number, self.images, count)
        if len(chosen) * count < self.images:
            chosen = np.append(chosen, number)
        return self.part(chosen, f"{number}-of-{count}")

    def part(self, chosen: np.ndarray, name: str) -> ImageSource:
        """Returns a source of some of the images.

        Args:
          chosen: (images,) indices, in the order of the new source.
          name: added to the fingerprint; must differ from that of any other part of the same source.
        """
        arrays = self.arrays.part(chosen) if isinstance(self.arrays, MappedImages) else self.arrays
        return replace(
            self,
            labels=self.labels[chosen],
            files=self.files.part(chosen) if self.files else self.files,
            arrays=arrays[chosen] if isinstance(arrays, np.ndarray) else arrays,
            records=self.records.part(chosen) if self.records is not None else None,
            jpeg_sizes=self.jpeg_sizes[chosen] if len(self.jpeg_sizes) else self.jpeg_sizes,
            fingerprint=f"{self.fingerprint}-{name}",
        )
