"""What every loader is given: the images of a data set, and which of its files are left out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.sources.stored import MappedImages, Records
from pipeline.text import shown

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
        """Its name as it is safe to show."""
        return shown(self.file)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ImageSource:
    """Labelled images that can be read again and again: files below a root, arrays in memory, or files that hold many.

    Attributes:
      kind: "folder", "tfds", "generated", "arrays", or of a prepared copy "resized", "records" or "raw".
      name: what the user asked for.
      class_names: sorted; a label is an index into them.
      labels: (images,) int64.
      root: the folder that `files` are relative to; None where an image is no file of its own.
      files: paths in sorted order, one an image; empty for arrays. Where there is no `root`, they are but names.
      formats: Pillow's name of each format found, sorted.
      skipped: files left out.
      stale_skips: entries of the skip list that no longer apply, and why.
      jpeg_sizes: (images, 2) int64, height and width in the header of each JPEG file; 0 for anything else.
      fingerprint: of names, sizes and modification times, or of the arrays' bytes.
      arrays: (images, height, width, 3) uint8 in memory, or mapped into it (float32 in a loader's own cache); or None.
      records: encoded images in TFRecord shards, or None.
    """

    kind: str
    name: str
    class_names: tuple[str, ...]
    labels: np.ndarray = field(repr=False)
    root: Path | None = None
    files: tuple[str, ...] = field(default=(), repr=False)
    formats: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = field(default=(), repr=False)
    stale_skips: tuple[Skipped, ...] = field(default=(), repr=False)
    fingerprint: str = ""
    arrays: np.ndarray | MappedImages | None = field(default=None, repr=False)
    records: Records | None = field(default=None, repr=False)
    jpeg_sizes: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int64), repr=False)

    @property
    def images(self) -> int:
        return len(self.labels)

    @property
    def paths(self) -> list[str]:
        """Absolute paths, in the order of `labels`."""
        return [os.path.join(self.root, file) for file in self.files] if self.root else []

    def to_dict(self) -> dict[str, Any]:
        """Returns what a results file says of the source; no paths but those of skipped files."""
        counts = Counter(self.labels.tolist())
        stale = [{"path": one.path, "reason": one.reason} for one in self.stale_skips]
        return {
            "kind": self.kind,
            "name": self.name,
            "images": self.images,
            "skipped": len(self.skipped),
            "skipped_files": [{"path": one.path, "reason": one.reason} for one in self.skipped],
            **({"stale_skips": stale} if stale else {}),
            "classes": {shown(name): counts.get(label, 0) for label, name in enumerate(self.class_names)},
            "formats": list(self.formats),
            "fingerprint": self.fingerprint,
        }

    def left_out(self, where: str) -> list[str]:
        """Says which files are left out, and which entries of a skip list are not, a sentence each.

        Args:
          where: all of them are named.
        """
        total = self.images + len(self.skipped)
        said = [
            (f"skipped {len(self.skipped)} of {total} files", self.skipped),
            (f"{len(self.stale_skips)} of the skip list's entries no longer apply", self.stale_skips),
        ]
        more = {what: f" and {len(files) - 1} more" if len(files) > 1 else "" for what, files in said}
        return [f"{what}: {files[0].path} ({files[0].reason}){more[what]}; {where}" for what, files in said if files]

    def take(self, images: int) -> ImageSource:
        """Returns a source of at most `images`, spread evenly over the list and so over the classes."""
        if images >= self.images:
            return self
        return self.part(np.linspace(0, self.images - 1, images).round().astype(int), str(images))

    def part(self, chosen: np.ndarray, name: str) -> ImageSource:
        """Returns a source of some of the images.

        Args:
          chosen: (images,) indices, in the order in which they are to be listed.
          name: added to the fingerprint: tells this part from any other of the same source.
        """
        arrays = self.arrays.part(chosen) if isinstance(self.arrays, MappedImages) else self.arrays
        return replace(
            self,
            labels=self.labels[chosen],
            files=tuple(self.files[index] for index in chosen) if self.files else (),
            arrays=arrays[chosen] if isinstance(arrays, np.ndarray) else arrays,
            records=self.records.part(chosen) if self.records is not None else None,
            jpeg_sizes=self.jpeg_sizes[chosen] if len(self.jpeg_sizes) else self.jpeg_sizes,
            fingerprint=f"{self.fingerprint}-{name}",
        )
