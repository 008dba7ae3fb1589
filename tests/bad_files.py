"""Every kind of bad, odd or dangerous file that a folder of photos can hold, each made from one photograph."""

from __future__ import annotations

import io
import os
import pathlib
import socket
import zipfile
import zlib
from collections.abc import Callable

import cv2
import numpy as np
from PIL import Image

from unstall.pipeline.sources import photographs
from unstall.profiles.provenance import version_of

# TensorFlow reads WebP since 2.20, and OpenCV GIF since 4.12. The version is read without importing TensorFlow, because
# children that must not have TensorFlow import this module, too.
READS_WEBP = tuple(map(int, version_of("tensorflow").split(".")[:2])) >= (2, 20)
READS_ANIMATIONS = hasattr(cv2, "imdecodeanimation")

PHOTO = photographs.encode_photo(0, 0)


def picture(mode: str = "RGB", size: tuple[int, int] = (96, 80), seed: int = 0) -> Image.Image:
    """Returns a picture of a smooth gradient with noise, so that no format compresses it to a few bytes."""
    noise = np.random.default_rng(seed).integers(0, 40, (size[1], size[0], 3), np.uint8)
    slope = np.linspace(0, 200, size[0], dtype=np.uint8)[np.newaxis, :, np.newaxis]
    return Image.fromarray(noise + slope).convert(mode)


def encoded(image: Image.Image, file_format: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, file_format, **options)
    return stream.getvalue()


def cut(ratio: float) -> bytes:
    return PHOTO[: int(len(PHOTO) * ratio)]


def _animated(file_format: str) -> bytes:
    frames = [picture(seed=seed) for seed in range(3)]
    return encoded(frames[0], file_format, save_all=True, append_images=frames[1:])


def _turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(picture(), "JPEG", exif=exif)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return len(content).to_bytes(4) + kind + content + zlib.crc32(kind + content).to_bytes(4)


def png_claiming(width: int, height: int) -> bytes:
    """Returns a PNG whose header claims this size, without any pixels."""
    header = width.to_bytes(4) + height.to_bytes(4) + bytes([8, 2, 0, 0, 0])
    begin = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header)
    return begin + _chunk(b"IDAT", zlib.compress(b"")) + _chunk(b"IEND", b"")


def scan_begin(jpeg: bytes) -> int:
    """Returns where a baseline JPEG's compressed data begin: after its start-of-scan segment (ITU-T T.81, B.2.3)."""
    marker = jpeg.index(b"\xff\xda")
    return marker + 2 + int.from_bytes(jpeg[marker + 2 : marker + 4])


def _without_segment(jpeg: bytes, marker: bytes) -> bytes:
    begin = jpeg.index(marker)
    return jpeg[:begin] + jpeg[begin + 2 + int.from_bytes(jpeg[begin + 2 : begin + 4]) :]


def _with_adobe_marker() -> bytes:
    """Returns a JPEG with Adobe's APP14 segment (transform 1: YCbCr) in place of JFIF's APP0."""
    bare = _without_segment(PHOTO, b"\xff\xe0")
    return bare[:2] + b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x01" + bare[2:]


def _bad_huffman_table() -> bytes:
    """Returns a JPEG with a Huffman table of more codes than there can be (ITU-T T.81, C.2)."""
    at = PHOTO.index(b"\xff\xc4") + 5
    return PHOTO[:at] + b"\xff" * 16 + PHOTO[at + 16 :]


def _damaged_data() -> bytes:
    """Returns a JPEG with other bytes in the middle of its compressed data; they form no marker. The end is whole."""
    begin, size = scan_begin(PHOTO), len(PHOTO)
    middle = (begin + size) // 2
    return PHOTO[:middle] + bytes([0x5A] * 64) + PHOTO[middle + 64 :]


def _extraneous_bytes() -> bytes:
    return PHOTO[:-2] + b"\x12" * 228 + PHOTO[-2:]


def _damaged_png() -> bytes:
    png = bytearray(encoded(picture(), "PNG"))
    png[len(png) // 2] ^= 0xFF
    return bytes(png)


def _zip() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("../outside.jpg", PHOTO)
    return stream.getvalue()


def _arithmetic() -> bytes:
    """Returns the photo with the frame marker of arithmetic coding in the place of Huffman coding's."""
    return PHOTO.replace(b"\xff\xc0", b"\xff\xc9", 1)


_HTML = b"<!DOCTYPE html><html><body><script>alert(1)</script>404 Not Found</body></html>\n" * 20

# Kinds of regular files: the suffix of the name, and a function that returns the content.
CONTENTS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "zero bytes": (".jpg", lambda: b""),
    "one byte": (".jpg", lambda: b"\xff"),
    "header only": (".jpg", lambda: PHOTO[: scan_begin(PHOTO)]),
    "cut at 25 %": (".jpg", lambda: cut(0.25)),
    "cut at 50 %": (".jpg", lambda: cut(0.50)),
    "cut at 95 %": (".jpg", lambda: cut(0.95)),
    "cut at 99 %": (".jpg", lambda: cut(0.99)),
    "end marker only": (".jpg", lambda: cut(0.5) + b"\xff\xd9"),
    "trailing bytes": (".jpg", lambda: PHOTO + bytes(500)),
    "extraneous bytes": (".jpg", _extraneous_bytes),
    "damaged data": (".jpg", _damaged_data),
    "bad Huffman table": (".jpg", _bad_huffman_table),
    "damaged PNG": (".png", _damaged_png),
    "cut PNG": (".png", lambda: encoded(picture(), "PNG")[:-40]),
    "cut GIF": (".gif", lambda: encoded(picture(), "GIF")[:-400]),
    "cut BMP": (".bmp", lambda: encoded(picture(), "BMP")[:-400]),
    "cut WebP": (".webp", lambda: encoded(picture(), "WEBP")[:-400]),
    "PNG named .jpg": (".jpg", lambda: encoded(picture(), "PNG")),
    "BMP named .jpg": (".jpg", lambda: encoded(picture(), "BMP")),
    "GIF named .jpg": (".jpg", lambda: encoded(picture(), "GIF")),
    "WebP named .jpg": (".jpg", lambda: encoded(picture(), "WEBP")),
    "text named .jpg": (".jpg", lambda: b"a list of cats\n" * 40),
    "HTML named .jpg": (".jpg", lambda: _HTML),
    "zip named .jpg": (".jpg", _zip),
    "photo named .txt": (".txt", lambda: PHOTO),
    "text": (".txt", lambda: b"notes\n"),
    "CMYK": (".jpg", lambda: encoded(picture("CMYK"), "JPEG")),
    "grey": (".jpg", lambda: encoded(picture("L"), "JPEG")),
    "16 bit": (".png", lambda: encoded(Image.fromarray(np.arange(7680, dtype=np.uint16).reshape(80, 96) * 8), "PNG")),
    "RGBA": (".png", lambda: encoded(picture("RGBA"), "PNG")),
    "palette": (".png", lambda: encoded(picture("P"), "PNG")),
    "animated GIF": (".gif", lambda: _animated("GIF")),
    "animated WebP": (".webp", lambda: _animated("WEBP")),
    "1 x 1": (".jpg", lambda: encoded(picture(size=(1, 1)), "JPEG")),
    "65,500 x 1": (".jpg", lambda: encoded(Image.new("RGB", (65500, 1), (9, 99, 199)), "JPEG")),
    "30,000 x 30,000": (".png", lambda: png_claiming(30_000, 30_000)),
    "progressive": (".jpg", lambda: encoded(picture(), "JPEG", progressive=True)),
    "arithmetic coding": (".jpg", _arithmetic),
    "Adobe, not JFIF": (".jpg", _with_adobe_marker),
    **{f"EXIF {turn}": (".jpg", lambda turn=turn: _turned(turn)) for turn in range(2, 9)},
}

# Odd names, as bytes, of files whose content is a good photo.
NAMES: dict[str, bytes] = {
    "newline": b"two\nlines.jpg",
    "no UTF-8": b"latin-\xff.jpg",
    "255 bytes": b"x" * 251 + b".jpg",
    "right to left": "gpj.\u202ecats.jpg".encode(),
    "escape": b"\x1b[31mred\x1b[0m.jpg",
    "markup": b"<img src=x onerror=alert(1)>.jpg",
    "rich markup": b"[bold red]cat[link=file:] :boom:.jpg",
    "formula": b"=HYPERLINK(1).jpg",
}


def write_contents(
    folder: pathlib.Path, kinds: dict[str, tuple[str, Callable[[], bytes]]] = CONTENTS
) -> dict[str, str]:
    """Writes one file of each kind. Returns their names below the folder's parent, by kind."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for kind, (suffix, make) in kinds.items():
        name = kind.replace(" ", "-").replace(",", "").replace("%", "percent") + suffix
        (folder / name).write_bytes(make())
        written[kind] = f"{folder.name}/{name}"
    return written


def write_names(folder: pathlib.Path) -> dict[str, str]:
    """Writes a photograph under each odd name; their contents differ, so that none is a copy."""
    written = {}
    for number, (kind, name) in enumerate(NAMES.items()):
        (folder / os.fsdecode(name)).write_bytes(PHOTO + number.to_bytes(2))
        written[kind] = f"{folder.name}/{os.fsdecode(name)}"
    return written


def write_specials(folder: pathlib.Path) -> dict[str, str]:
    """Creates files that are not regular: links, FIFOs, a socket. Returns their names by kind."""
    (folder / "dangling.jpg").symlink_to(folder / "nowhere.jpg")
    (folder / "loop.jpg").symlink_to(folder / "loop.jpg")
    os.mkfifo(folder / "fifo.jpg")
    os.mkfifo(folder / "pipe")
    here = os.getcwd()
    os.chdir(folder)  # a socket's whole path may have 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("socket.jpg")
    finally:
        os.chdir(here)
    names = {"dangling link": "dangling.jpg", "link loop": "loop.jpg", "FIFO": "fifo.jpg", "socket": "socket.jpg"}
    return {kind: f"{folder.name}/{name}" for kind, name in (names | {"unnamed FIFO": "pipe"}).items()}


def write_all(root: pathlib.Path, good: int = 4) -> dict[str, str]:
    """Writes a folder of two classes with good photos in both, and every kind of bad file in the class `bad`.

    Returns the names of the bad files, by kind.
    """
    for name in ("bad", "good"):
        (root / name).mkdir(parents=True)
    for index in range(2 * good):
        (root / ("bad", "good")[index % 2] / f"whole-{index}.jpg").write_bytes(photographs.encode_photo(index + 1, 0))
    return write_contents(root / "bad") | write_names(root / "bad") | write_specials(root / "bad")
