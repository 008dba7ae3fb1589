"""The troubles that a file or a folder of images can have, what each means for a training, and the findings of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from unstall.profiles.machine import ReaderRate


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A class of trouble.

    Attributes:
      stops: whether a training with our loaders or Keras' own would stop, wait for ever, or learn wrong labels.
      quarantined: whether the file is put on the skip list.
      meaning: what happens in a training, in a few words.
    """

    stops: bool
    quarantined: bool
    meaning: str


def _stops(meaning: str, *, quarantined: bool = True) -> Trouble:
    return Trouble(stops=True, quarantined=quarantined, meaning=meaning)


def _harmless(meaning: str, *, quarantined: bool = False) -> Trouble:
    return Trouble(stops=False, quarantined=quarantined, meaning=meaning)


# The worst first, as reports list them. docs/doctor.md explains each; a test checks that it has all.
TROUBLES = {
    "crashes": _stops("a decoder ends the whole process"),
    "hangs": _stops("a decoder does not come back"),
    "undecodable": _stops("a decoder raises an error"),
    "zero bytes": _stops("there is nothing to decode"),
    "not an image": _stops("named like an image, and none"),
    "over the limit": _stops("a decoder would take gigabytes of memory"),
    "unreadable": _stops("cannot be opened"),
    "broken link": _stops("links to nothing"),
    "link loop": _stops("links to itself"),
    "not a file": _stops("a FIFO, socket or device: reading it may wait for ever"),
    "name is not UTF-8": _stops("stock Keras loaders stop at it; ours read it", quarantined=False),
    "unreadable folder": _stops("nothing in it can be listed", quarantined=False),
    "empty class": _stops("a class folder without an image that can be used", quarantined=False),
    "splits differ": _stops("the same label would mean another class", quarantined=False),
    "truncated": _harmless("the image has no end; our loaders leave it out", quarantined=True),
    "warnings": _harmless("decodes, but is damaged: a part may be grey or shifted", quarantined=True),
    "in two splits": _harmless("the same bytes in two splits: a test that the training has seen"),
    "in two classes": _harmless("the same bytes with two labels"),
    "duplicate": _harmless("the same bytes more than once"),
    "imbalance": _harmless("classes of very different sizes"),
    "refused by loaders": _harmless("they leave themselves out of a comparison, and say so"),
    "wrong suffix": _harmless("decoders go by content, but loaders choose files by suffix"),
    "animated": _harmless("the first frame is used, where a decoder takes it at all"),
    "CMYK": _harmless("each decoder turns it into RGB in its own way"),
    "grey": _harmless("becomes RGB with three equal channels"),
    "alpha": _harmless("transparency is dropped"),
    "16 bit": _harmless("cut to 8 bits; Pillow clips grey ones to white"),
    "palette": _harmless("becomes RGB"),
    "EXIF-rotated": _harmless("no loader turns it; a viewer does"),
    "not JFIF": _harmless("TensorFlow Datasets drops such files from cats_vs_dogs; decoders do not mind"),
    "odd name": _harmless("control or direction characters, which terminals obey"),
    "not listed": _harmless("no image, and not named like one: no loader takes it"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One trouble of one file or folder.

    Attributes:
      path: below the examined folder, as the system names it; "" for the folder itself.
      trouble: a key of `TROUBLES`.
      detail: in words.
    """

    path: str
    trouble: str
    detail: str

    def __post_init__(self) -> None:
        if self.trouble not in TROUBLES:
            raise ValueError(f"`trouble` must be a key of `TROUBLES`. Received: trouble={self.trouble!r}.")

    @property
    def stops(self) -> bool:
        return TROUBLES[self.trouble].stops

    @property
    def quarantined(self) -> bool:
        return TROUBLES[self.trouble].quarantined


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminedFile:
    """What was found out about one file.

    Attributes:
      path: below the examined folder, as the system names it.
      format: Pillow's name of the format, for an image that the loaders would accept by its header; else None.
      bytes, sha256: the size and the digest of its content; None if the content was not read.
      findings: what is odd about it.
    """

    path: str
    format: str | None
    bytes: int | None
    sha256: str | None
    findings: tuple[Finding, ...]

    @property
    def quarantined(self) -> bool:
        return any(finding.quarantined for finding in self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageReading:
    """How fast the files of a folder are read.

    Attributes:
      text: the kind of storage; None where it is not known.
      rates: by numbers of readers, from the storage itself; empty where `reason` says why.
      memory_bytes_per_sec: of one reader, from the page cache: what a copy in memory would give; None without rates.
      reason: why the rates were not measured; None where they were.
    """

    text: str | None
    rates: tuple[ReaderRate, ...] = ()
    memory_bytes_per_sec: float | None = None
    reason: str | None = None

    def sentences(self) -> tuple[str, ...]:
        """Says where the files lie, how fast they are read, and what more readers or a copy in memory would gain."""
        lines = [f"The files lie on {self.text}."] if self.text else []
        if not self.rates:
            return (*lines, f"How fast they are read was not measured: {self.reason}.")
        one = self.rates[0]
        most = max(self.rates, key=lambda rate: rate.bytes_per_sec)
        readers = "; ".join(
            f"{rate.readers} reader{'' if rate.readers == 1 else 's'} {rate.bytes_per_sec / 1e6:,.0f} MB/s "
            f"({rate.files_per_sec:,.0f} files/s)"
            for rate in self.rates
        )
        memory = self.memory_bytes_per_sec or 0.0
        lines.append(f"From there: {readers}. From memory: {memory / 1e6:,.0f} MB/s.")
        by_readers, by_memory = (rate / one.bytes_per_sec for rate in (most.bytes_per_sec, memory))
        lines.append(
            f"The best, with {most.readers}, is {by_readers:.1f} times as fast as one reader, and memory is "
            f"{by_memory:.1f} times as fast: no loader gains more by more readers, or by a copy."
        )
        return tuple(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What was found out about a folder and its files.

    Attributes:
      classes: names of the class folders, by the name of their split; by "" where there are no splits.
      examined: how many files.
      seconds: how long the examination took.
      files: only those with findings.
      findings: about the folder as a whole, and about folders in it.
      storage: how fast its files are read; None where that was not asked for.
    """

    classes: Mapping[str, tuple[str, ...]]
    examined: int
    seconds: float
    files: tuple[ExaminedFile, ...]
    findings: tuple[Finding, ...]
    storage: StorageReading | None = None


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Returns findings sorted as reports list them: the worst first, then by path."""
    rank = {name: position for position, name in enumerate(TROUBLES)}
    return sorted(findings, key=lambda finding: (rank[finding.trouble], finding.path))
