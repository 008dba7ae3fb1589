"""The versions that setup.cfg requires are those that .ci/cells tests and that docs/install.md names."""

from __future__ import annotations

import configparser
import re
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests import PROJECT_ROOT
from unstall import needs

CONSTRAINTS = PROJECT_ROOT / ".ci" / "constraints"
# The project's own tools, pinned in setup.cfg: every cell installs the same ones.
TOOLS = {"ruff", "mypy"}


def asked_for(*extras: str) -> dict[str, Requirement]:
    config = configparser.ConfigParser()
    config.read(PROJECT_ROOT / "setup.cfg")
    lines = config["options"]["install_requires"].splitlines()
    for extra in extras:
        lines += config["options.extras_require"][extra].splitlines()
    requirements = [Requirement(line) for line in lines if line.strip()]
    inner = {extra for requirement in requirements if requirement.name == "unstall" for extra in requirement.extras}
    wanted = {canonicalize_name(one.name): one for one in requirements if one.name != "unstall"}
    return wanted | (asked_for(*inner) if inner else {})


def pinned(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}


def test_the_oldest_cell_has_the_lower_bounds_of_all_that_is_asked_for() -> None:
    oldest = pinned(CONSTRAINTS / "oldest.txt")
    wanted = asked_for("test")
    assert set(oldest) == set(wanted) - TOOLS
    for name, version in oldest.items():
        [bound] = wanted[name].specifier
        assert bound.operator in (">=", "=="), name
        lower, tested = Version(bound.version).release, Version(version).release
        assert tested[: len(lower)] == lower, f"{name}: {bound.version} is asked for, {version} was tested"


def test_nothing_has_an_upper_bound_but_what_cannot_be_newer() -> None:
    bounds = {
        name: {bound.operator for bound in requirement.specifier} for name, requirement in asked_for("test").items()
    }
    assert {name for name, operators in bounds.items() if operators != {">="}} == {"albumentations", *TOOLS}


def test_what_colab_has_is_recent_enough() -> None:
    colab = pinned(CONSTRAINTS / "colab.txt")
    wanted = asked_for("tensorflow")
    assert set(wanted) - set(colab) == {"line-profiler"}
    too_old = [
        name for name, requirement in wanted.items() if name in colab and colab[name] not in requirement.specifier
    ]
    assert too_old == []


def test_the_command_for_other_builds_of_tensorflow_asks_for_all_the_rest() -> None:
    text = (PROJECT_ROOT / "docs" / "install.md").read_text()
    [block] = re.findall(r"<!-- tensorflow-cpu -->(.*?)<!-- /tensorflow-cpu -->", text, re.DOTALL)
    named = {canonicalize_name(wanted.name): wanted for wanted in map(Requirement, re.findall(r'"(.+?)"', block))}
    expected = asked_for("tensorflow").keys() - asked_for().keys() - {"tensorflow"}
    assert {name: str(requirement.specifier) for name, requirement in named.items()} == {
        name: str(requirement.specifier) for name, requirement in asked_for("tensorflow").items() if name in expected
    }


def test_what_is_installed_needs_no_framework() -> None:
    assert set(asked_for()) == {"line-profiler", "numpy", "scipy", "psutil", "rich", "jinja2"}


def test_the_extra_has_the_packages_that_commands_say_are_missing() -> None:
    extra = asked_for("tensorflow").keys() - asked_for().keys()
    named = {canonicalize_name(Requirement(text).name): Requirement(text) for text in needs.DISTRIBUTIONS.values()}
    assert set(named) == extra
    assert named["albumentations"].specifier == asked_for("tensorflow")["albumentations"].specifier


@pytest.mark.parametrize("extra", ["test", "gpu", "gpu-jax", "litert", "peers"])
def test_other_extras_include_that_of_tensorflow(extra: str) -> None:
    assert asked_for("tensorflow").keys() - {"tensorflow"} <= asked_for(extra).keys()


def test_the_cells_are_named_and_others_refused() -> None:
    def cells(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", str(PROJECT_ROOT / ".ci" / "cells"), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert cells().stdout.split() == ["newest", "oldest", "colab", "python3.13", "tensorflow-cpu", "pytorch"]
    refused = cells("nightly")
    assert (refused.returncode, refused.stderr.startswith("There is no cell nightly.")) == (2, True)


def test_the_second_step_installs_what_its_tests_need_in_versions_that_setup_cfg_asks_for() -> None:
    libraries = pinned(CONSTRAINTS / "libraries.txt")
    [named] = re.findall(r"--libraries ([\w,]+)", (PROJECT_ROOT / ".ci" / "run").read_text())
    assert set(libraries) == set(named.lower().replace("_", "-").split(","))
    wanted = asked_for("peers", "gpu-jax", "notebook", "litert")
    too_old = [name for name, version in libraries.items() if version not in wanted[name].specifier]
    assert too_old == []
