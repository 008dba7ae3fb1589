"""The size of a JPEG file, read from its header by loaders that have no decoder at hand."""

import io

import pytest
from PIL import Image

from benchmarks.peers.loaders.opencv import jpeg_size


def jpeg(**options) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (333, 77)).save(stream, "JPEG", **options)
    return stream.getvalue()


def exif(size_bytes: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x010E] = "x" * size_bytes
    return tags


@pytest.mark.parametrize(
    "encoded",
    [
        jpeg(),
        jpeg(progressive=True),
        jpeg(optimize=True, quality=5),
        jpeg(subsampling=0),
        jpeg(exif=exif(60_000)),
        jpeg(icc_profile=bytes(150_000)),
        jpeg(comment=b"\xff\xc0 no frame"),
        jpeg().replace(b"\xff\xc0", b"\xff\xff\xff\xc0"),  # fill bytes in front of a marker are allowed
        jpeg(restart_marker_rows=1),
    ],
    ids=["plain", "progressive", "optimised", "4:4:4", "exif", "icc", "comment", "fill", "restart"],
)
def test_the_size_of_a_jpeg_is_read_from_its_frame_header(encoded):
    assert jpeg_size(encoded) == (77, 333)


@pytest.mark.parametrize(
    "encoded", [b"", b"\xff\xd8", b"\x89PNG\r\n\x1a\n" + bytes(40), jpeg()[:160], b"\xff\xd8" + bytes(40)]
)
def test_what_has_no_frame_header_has_no_size(encoded):
    assert jpeg_size(encoded) is None
