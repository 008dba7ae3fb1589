"""Tests that need a library which the README's test command does not install: PyTorch, Grain, JAX and others.

`@pytest.mark.needs("torch")` names the library of a test. Where that library is missing, the test is skipped.
`pytest --libraries torch,grain` runs only the tests of these libraries, and each of them fails where its library is
missing. So `.ci/run`, which installs them for that run, cannot pass without the tests. Tests that are marked `long` are
left out here as well, unless `-m` says otherwise.
"""

from __future__ import annotations

import importlib.util

import pytest


def _named(config: pytest.Config) -> list[str]:
    return [name for name in config.getoption("libraries").split(",") if name]


def _library_of(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker("needs")
    return None if marker is None else str(marker.args[0])


def _is_installed(library: str) -> bool:
    """Returns whether a library, or a module of one, such as `spdl.io`, can be imported."""
    top = library.partition(".")[0]
    return importlib.util.find_spec(top) is not None and importlib.util.find_spec(library) is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--libraries",
        default="",
        metavar="NAMES",
        help="run only the tests that need one of these libraries, such as torch,grain; fail where one is missing",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(name): needs a library that setup.cfg does not require")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not (names := _named(config)):
        return
    chosen = [item for item in items if _library_of(item) in names]
    if without_tests := set(names) - {_library_of(item) for item in chosen}:
        raise pytest.UsageError(f"--libraries: no test needs {', '.join(sorted(without_tests))}")
    config.hook.pytest_deselected(items=[item for item in items if _library_of(item) not in names])
    items[:] = chosen


def pytest_runtest_setup(item: pytest.Item) -> None:
    library = _library_of(item)
    if library is None or _is_installed(library):
        return
    if _named(item.config):
        pytest.fail(f"{library} is not installed", pytrace=False)
    pytest.skip(f"{library} is not installed")
