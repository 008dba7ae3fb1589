"""Packages that only some commands need: whether they can be imported, and how to install those that cannot."""

from __future__ import annotations

import importlib.util
import sys

from unstall.commands import pip_install

# The packages of the extra `tensorflow`: the name under which each is imported, and what installs it. albumentations
# 2.0.8 is the last release under its licence.
DISTRIBUTIONS = {
    "tensorflow": "tensorflow",
    "keras": "keras",
    "tensorflow_datasets": "tensorflow-datasets",
    "PIL": "pillow",
    "albumentations": "albumentations==2.0.8",
    "cv2": "opencv-python-headless",
}
# What our pipelines of photos need, whichever is measured.
PHOTOS = ("tensorflow", "keras", "PIL", "cv2")


def missing(who: str, *packages: str) -> str | None:
    """Returns one line that says what cannot be imported, and what installs it; None where everything can.

    Args:
      who: what needs the packages, such as "unstall tune" or "`augment_with`".
      packages: names of `DISTRIBUTIONS`.
    """
    absent = [package for package in packages if not _can_be_imported(package)]
    if not absent:
        return None
    *most, last = absent
    names = f"{', '.join(most)} and {last}" if most else last
    # Keras alone computes nothing; beside another build of TensorFlow the extra would install a second one.
    all_of_it = {"tensorflow", "keras"} & set(absent) and not _can_be_imported("tensorflow")
    wanted = ["unstall[tensorflow]"] if all_of_it else [DISTRIBUTIONS[package] for package in absent]
    return f"{who} needs {names}, which cannot be imported here. To install: {pip_install(*wanted)}"


def _can_be_imported(package: str) -> bool:
    """Whether Python finds a package, whatever has brought it; a folder without code is none."""
    if package in sys.modules:
        return sys.modules[package] is not None
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None
