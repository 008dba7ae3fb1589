"""No package that comes with this one has a licence that would bind its users: AGPL and GPL; LGPL is none of them."""

import configparser
import importlib.metadata as metadata
import re

import pytest
from packaging.requirements import Requirement

from tests import PROJECT_ROOT

# Of texts that begin with neither: "GNU GPL v3", "AGPL-3.0-only", "GNU General Public License".
_COPYLEFT = re.compile(r"\bA?GPL|(?:affero )?general public licen[cs]e", re.IGNORECASE)
_LESSER = re.compile(
    r"\bLGPL[\w.+-]*|(?:lesser|library) general public licen[cs]e(?: v[\d.]+)?( or later)?( \(.*?\))?", re.IGNORECASE
)
# Of a licence's own text, where a package says nothing else.
_TITLE_LINES = 5


def requirements(extras: tuple[str, ...] = ()) -> list[str]:
    """What setup.cfg asks for."""
    config = configparser.ConfigParser()
    config.read(PROJECT_ROOT / "setup.cfg")
    lines = config["options"]["install_requires"].splitlines()
    for extra in extras:
        lines += config["options.extras_require"][extra].splitlines()
    return [line for line in lines if line.strip()]


def closure(lines: list[str]) -> dict[str, metadata.Distribution]:
    """All installed packages that are asked for, by themselves or by another of them."""
    found: dict[str, metadata.Distribution] = {}
    left = [(Requirement(line), ("",)) for line in lines]
    while left:
        requirement, extras = left.pop()
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in found:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            others = metadata.packages_distributions().get(name)
            if not others:
                continue  # optional, or of another platform: not installed
            found[name] = metadata.distribution(others[0])  # another build, such as tensorflow-cpu
        inner = tuple(requirement.extras) or ("",)
        left += [(Requirement(line), inner) for line in found[name].requires or ()]
    return found


def licences(distribution: metadata.Distribution) -> list[str]:
    """What a package says of its licence: expression, classifiers, the old field; or how the text of it begins."""
    said = distribution.metadata
    classifiers = [one for one in said.get_all("Classifier") or () if one.startswith("License ::")]
    old = (said.get("License") or "").strip().splitlines()[:1]
    found = [one for one in (said.get("License-Expression"), *classifiers, *old) if one]
    if not found:
        files = [
            file for file in distribution.files or () if ".dist-info" in str(file) and "LICEN" in file.name.upper()
        ]
        found = ["\n".join(file.read_text().splitlines()[:_TITLE_LINES]) for file in files]
    return found


def binds(texts: list[str]) -> bool:
    """Whether a licence is AGPL or GPL, with no other one to choose."""
    cleaned = [_LESSER.sub("", text) for text in texts]
    return any(_COPYLEFT.search(text) for text in cleaned) and not any(re.search(r"\bOR\b", text) for text in cleaned)


PACKAGES = closure(requirements(("test", "gpu", "gpu-jax")))


def test_all_that_is_asked_for_is_among_the_packages():
    assert {"tensorflow", "keras", "pillow", "albumentations", "opencv-python-headless", "rich"} <= set(PACKAGES)
    assert len(PACKAGES) > 40


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_a_package_is_neither_gpl_nor_agpl(name):
    texts = licences(PACKAGES[name])
    assert texts, f"{name} says nothing of its licence"
    assert not binds(texts), texts


def test_the_agpl_successor_of_albumentations_is_not_asked_for():
    """It has the same import name."""
    assert not any(name.startswith("albumentationsx") for name in PACKAGES)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["AGPL-3.0-only"], True),
        (["GPL-3.0-or-later"], True),
        (["License :: OSI Approved :: GNU General Public License v3 (GPLv3)"], True),
        (["License :: OSI Approved :: GNU Affero General Public License v3"], True),
        (["GNU GPL"], True),
        (["MIT OR GPL-2.0-only"], False),
        (["LGPL-2.1-only"], False),
        (["License :: OSI Approved :: GNU Lesser General Public License v3 or later (LGPLv3+)"], False),
        (["Apache-2.0"], False),
        (["MPL-2.0 AND MIT"], False),
    ],
)
def test_a_licence_is_told_by_its_words(texts, expected):
    assert binds(texts) is expected
