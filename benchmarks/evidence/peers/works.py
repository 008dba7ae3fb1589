"""The works at which loaders are compared."""

from __future__ import annotations

# Name -> what is read, what is served, and the steps between; every peer of a work does exactly these steps.
WORKS = {
    "cold": "JPEG files to float32 in [0, 1]: read, decode, 64x64, shear and zoom, flip",
    "prepared": "a prepared file of 64x64 uint8 to uint8: random resized crop, flip",
    "prepared-float": "the same file to float32 in [0, 1]: random resized crop, flip",
}
