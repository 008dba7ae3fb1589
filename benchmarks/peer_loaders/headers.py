"""What the first bytes of a file tell, without decoding it."""

from __future__ import annotations


def jpeg_size(encoded: bytes) -> tuple[int, int] | None:
    """Returns (height, width) from a JPEG's frame header, or None for anything else. Source: ITU-T T.81, B.2.2."""
    if encoded[:2] != b"\xff\xd8":
        return None
    at = 2
    while at + 9 < len(encoded):
        if encoded[at] != 0xFF:
            return None
        marker = encoded[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(encoded[at + 5 : at + 7]), int.from_bytes(encoded[at + 7 : at + 9])
        at += 2 if marker == 0xFF else 2 + int.from_bytes(encoded[at + 2 : at + 4])
    return None
