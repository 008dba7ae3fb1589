"""Examines one file: its kind, its name, its header, and what each decoder says about it. Nothing is changed."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from PIL import Image

from unstall.benchmarks.doctor.decoders import DECODERS, Verdict
from unstall.benchmarks.doctor.results import ExaminedFile, Finding
from unstall.pipeline.sources import FORMATS, MAX_BYTES, Unusable, inspect

# The suffixes by which Keras' two loaders choose files, as far as our loaders read the formats; and WebP's.
SUFFIXES = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".bmp": "BMP", ".gif": "GIF", ".webp": "WEBP"}
# So many bytes from the beginning of a file are enough to recognise a web page or an archive.
_SNIFFED_BYTES = 16
_ORIENTATION = 0x0112  # TIFF's tag 274
# The position of the byte with the bits per channel in a PNG's header. Source: the PNG specification, 11.2.1.
_PNG_DEPTH_AT = 24
_KINDS = {stat.S_ISFIFO: "FIFO", stat.S_ISSOCK: "socket", stat.S_ISCHR: "device", stat.S_ISBLK: "device"}

Judge = Callable[[str, bytes], Verdict]


def examine(root: Path, file: str, judge: Judge, fatal: Mapping[str, Finding] | None = None) -> ExaminedFile:
    """Examines one file.

    Args:
      root: the examined folder.
      file: the path below it.
      judge: returns the verdict of a decoder, given its name, on some bytes.
      fatal: the decoders that crashed or hung an earlier child on this file, and the finding for each; they are not
        called again.
    """
    path = root / file
    troubles: list[tuple[str, str]] = list(_of_name(file))
    content: bytes | None = None
    header = inspect(path)
    named = Path(file).suffix.lower() in SUFFIXES
    if isinstance(header, Unusable) and header.kind == "over the limit":
        troubles.append((header.kind, header.reason))
    elif isinstance(header, Unusable) and header.kind != "truncated":
        trouble, detail = _of_no_image(path, header)
        troubles.append((trouble, detail) if named else ("not listed", detail))
    else:
        try:
            content = _read(path)
        except OSError as error:
            troubles.append(("unreadable", error.strerror or str(error)))
    if content is not None:
        if isinstance(header, Unusable):
            troubles.append((header.kind, "no end marker"))
        troubles += _of_header(file, content)
    findings = [Finding(path=file, trouble=trouble, detail=detail) for trouble, detail in troubles]
    if content is not None:
        findings += _of_decoders(file, content, judge, fatal or {})
    return ExaminedFile(
        path=file,
        format=None if isinstance(header, Unusable) else header.format,
        bytes=None if content is None else len(content),
        sha256=None if content is None else hashlib.sha256(content).hexdigest(),
        findings=tuple(findings),
    )


def _read(path: Path, most_bytes: int = MAX_BYTES) -> bytes:
    # O_NONBLOCK: if the file has been replaced by a FIFO, opening it would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        return file.read(most_bytes)


def _of_name(file: str) -> Iterable[tuple[str, str]]:
    try:
        os.fsencode(file).decode("utf-8")
    except UnicodeDecodeError as error:
        yield "name is not UTF-8", f"byte {error.object[error.start]:#04x}"
        return
    odd = next((letter for letter in file if not letter.isprintable()), None)
    if odd is not None:
        yield "odd name", f"holds U+{ord(odd):04X}"


def _of_no_image(path: Path, header: Unusable) -> tuple[str, str]:
    """Returns the trouble of a file that is no image, and a detail: broken links and special files are named."""
    if header.kind == "unreadable" and path.is_symlink():
        try:
            path.stat()
        except OSError as error:
            trouble = {errno.ELOOP: "link loop", errno.ENOENT: "broken link"}.get(error.errno or 0, "unreadable")
            return trouble, error.strerror or header.reason
    if header.kind == "not a file":
        mode = path.stat().st_mode
        return header.kind, next((name for is_kind, name in _KINDS.items() if is_kind(mode)), "no regular file")
    if header.kind == "not an image":
        return header.kind, f"begins with {_read(path, _SNIFFED_BYTES).decode('latin-1')!r}"
    return header.kind, header.detail


def _of_header(file: str, content: bytes) -> Iterable[tuple[str, str]]:
    """Yields what Pillow's reading of the header shows, such as a wrong suffix or transparency."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(io.BytesIO(content), formats=tuple(FORMATS)) as image:
                yield from _of_image(file, content, image)
        except Exception:  # the decoders, called later, say what is wrong with the file
            return


def _of_image(file: str, content: bytes, image: Image.Image) -> Iterable[tuple[str, str]]:
    file_format = "JPEG" if image.format == "MPO" else image.format
    suffix = Path(file).suffix.lower()
    if SUFFIXES.get(suffix) != file_format:
        yield "wrong suffix", f"{file_format}, named {suffix or 'without a suffix'}"
    if image.mode == "CMYK":
        yield "CMYK", f"{file_format} of 4 inks"
    if image.mode in ("1", "L", "LA") or image.mode.startswith("I"):
        yield "grey", f"{file_format} of 1 channel"
    if image.mode in ("LA", "RGBA", "PA") or "transparency" in image.info:
        yield "alpha", f"{file_format} with transparency"
    if file_format == "PNG" and content[_PNG_DEPTH_AT] == 16:
        yield "16 bit", "PNG of 16 bits a channel"
    if image.mode in ("P", "PA") and file_format != "GIF":  # a GIF always has one
        yield "palette", f"{file_format} with a palette"
    if file_format == "JPEG" and "jfif" not in image.info:
        yield "not JFIF", "JPEG without a JFIF segment"
    if "exif" in image.info and (turned := image.getexif().get(_ORIENTATION, 1)) in range(2, 9):
        yield "EXIF-rotated", f"orientation {turned}"
    if file_format != "JPEG" and getattr(image, "n_frames", 1) > 1:
        yield "animated", f"{file_format} of {getattr(image, 'n_frames', 1)} frames"


def _of_decoders(file: str, content: bytes, judge: Judge, fatal: Mapping[str, Finding]) -> Iterable[Finding]:
    yield from fatal.values()
    verdicts = {name: judge(name, content) for name in DECODERS if name not in fatal}
    errors = {name: verdict.error for name, verdict in verdicts.items() if verdict.error is not None}
    if errors:
        why = "; ".join(f"{name}: {error}" if len(errors) > 1 else f"{error}" for name, error in errors.items())
        yield Finding(path=file, trouble="undecodable", detail=f"by {', '.join(errors)} ({why})")
    lines = [line for verdict in verdicts.values() for line in verdict.warnings]
    if lines:
        yield Finding(path=file, trouble="warnings", detail="; ".join(dict.fromkeys(lines)))
