"""Lists a folder of images, finds what is odd about it as a whole, and lists the files that are to be left out."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from unstall.benchmarks.doctor.results import ExaminedFile, Finding, in_order
from unstall.pipeline import SourceError
from unstall.pipeline.building import READS
from unstall.pipeline.prepared import is_prepared
from unstall.pipeline.sources import Entry, class_folders, files_below, split_folders, subfolders
from unstall.text import printable

# Classes are imbalanced if the largest has this many times the images of the smallest. Of two classes, the smaller then
# has a fifth of all images; Google's course calls a data set with a smaller share moderately imbalanced:
# developers.google.com/machine-learning.
IMBALANCE_RATIO = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder that is to be examined, and its files.

    Attributes:
      root: the folder.
      classes: names of the class folders, by the name of their split; by "" where there are no splits.
      files: paths below `root` of everything that is no folder.
      findings: folders that could not be listed.
    """

    root: Path
    classes: dict[str, tuple[str, ...]]
    files: tuple[str, ...]
    findings: tuple[Finding, ...]

    def place(self, file: str) -> tuple[str, str]:
        """Returns a file's split and class."""
        parts = PurePosixPath(file).parts
        return ("", parts[0]) if "" in self.classes else (parts[0], parts[1])


def list_folder(root: Path) -> Folder:
    """Lists a folder of class folders, or a folder of splits.

    Raises:
      SourceError: if the folder is neither.
    """
    if not root.is_dir():
        problem = "is not a folder" if root.exists() else "does not exist"
        raise SourceError(f"{printable(root)} {problem}. Give a folder that holds one folder of images per class.")
    if is_prepared(root):
        raise SourceError(f"{printable(root)} is a prepared copy. Give the folder of images that it was made from.")
    try:
        splits = split_folders(root)
        # Splits with different classes are listed here, and are a finding; loaders refuse them.
        classes = {split: tuple(subfolders(root / split)) for split in splits} or {"": tuple(class_folders(root))}
    except OSError as error:
        raise SourceError(f"{printable(root)} cannot be read: {error.strerror}.") from error
    files: list[str] = []
    findings: list[Finding] = []

    def failed(error: OSError) -> None:
        path = os.path.relpath(error.filename, root)
        findings.append(Finding(path=path, trouble="unreadable folder", detail=error.strerror or str(error)))

    for split, names in classes.items():
        for name in names:
            below = files_below(root / split / name, failed=failed)
            files += (os.path.relpath(path, root) for path in below)
    return Folder(root=root, classes=classes, files=tuple(files), findings=tuple(findings))


def findings_of(folder: Folder, examined: Sequence[ExaminedFile]) -> list[Finding]:
    """Returns what is odd about a folder as a whole."""
    usable = [file for file in examined if file.format is not None and not file.quarantined]
    images: dict[str, Counter[str]] = {split: Counter() for split in folder.classes}
    for file in usable:
        split, name = folder.place(file.path)
        images[split][name] += 1
    return [
        *folder.findings,
        *_empty(folder, images),
        *_differing(folder),
        *_imbalance(images),
        *_refusing(usable),
        *_copies(folder, usable),
    ]


def _empty(folder: Folder, images: dict[str, Counter[str]]) -> Iterable[Finding]:
    for split, names in folder.classes.items():
        for name in names:
            if not images[split][name]:
                yield Finding(path=os.path.join(split, name), trouble="empty class", detail="no image can be used")


def _differing(folder: Folder) -> Iterable[Finding]:
    everywhere = sorted({name for names in folder.classes.values() for name in names})
    for split, names in folder.classes.items():
        missing = [printable(name) for name in everywhere if name not in names]
        if missing:
            yield Finding(path=split, trouble="splits differ", detail=f"has no {', '.join(missing)}")


def _imbalance(images: dict[str, Counter[str]]) -> Iterable[Finding]:
    for split, counts in images.items():
        if not counts:
            continue
        [(most, largest), *_, (least, smallest)] = [*counts.most_common(), counts.most_common()[-1]]
        if largest >= IMBALANCE_RATIO * smallest:
            sizes = f"{printable(most)} {largest:,}, {printable(least)} {smallest:,}"
            yield Finding(path=split, trouble="imbalance", detail=f"{sizes}: {largest / smallest:.1f} times")


def _refusing(usable: Sequence[ExaminedFile]) -> Iterable[Finding]:
    formats = Counter(file.format for file in usable if file.format is not None)
    for loader, reads in READS.items():
        missing = {name: count for name, count in sorted(formats.items()) if name not in reads}
        if missing:
            detail = ", ".join(f"{count:,} {name}" for name, count in missing.items())
            yield Finding(path="", trouble="refused by loaders", detail=f"{loader} cannot read {detail}")


def _copies(folder: Folder, usable: Sequence[ExaminedFile]) -> Iterable[Finding]:
    alike: dict[str | None, list[str]] = defaultdict(list)
    for file in sorted(usable, key=lambda file: file.path):
        alike[file.sha256].append(file.path)
    for first, *others in alike.values():
        for other in others:
            (split, name), (split_there, name_there) = folder.place(first), folder.place(other)
            trouble = "duplicate"
            if name != name_there:
                trouble = "in two classes"
            elif split != split_there:
                trouble = "in two splits"
            yield Finding(path=other, trouble=trouble, detail=f"same content as {printable(first)}")


def entries(examined: Sequence[ExaminedFile]) -> list[Entry]:
    """Returns the files that are to be left out."""
    return [
        Entry(path=file.path, reason=_reason(file), bytes=file.bytes, sha256=file.sha256)
        for file in examined
        if file.quarantined
    ]


def _reason(file: ExaminedFile) -> str:
    """Returns why a file is to be left out, in one line."""
    findings = (finding for finding in in_order(file.findings) if finding.quarantined)
    return "; ".join(f"{finding.trouble}: {printable(finding.detail)}" for finding in findings)
