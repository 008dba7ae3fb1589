"""Tests that need a library are skipped without the library, and fail where the run is for that library."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

TWO_TESTS = """
import pytest

@pytest.mark.needs({library!r})
def test_with_it():
    pass

def test_without_any():
    pass
"""


@pytest.fixture
def run(pytester: pytest.Pytester):
    def run(library: str, *words: str) -> pytest.RunResult:
        pytester.makepyfile(TWO_TESTS.format(library=library))
        return pytester.runpytest_inprocess("-p", "tests.libraries", "-p", "no:cacheprovider", *words)

    return run


@pytest.mark.parametrize(
    ("library", "words", "outcomes"),
    [
        ("json", [], {"passed": 2}),
        ("json.no_such_module", [], {"passed": 1, "skipped": 1}),
        ("no_such_library.io", [], {"passed": 1, "skipped": 1}),
        ("json", ["--libraries", "json"], {"passed": 1, "deselected": 1}),
        ("no_such_library", ["--libraries", "no_such_library"], {"errors": 1, "deselected": 1}),
    ],
)
def test_a_missing_library_skips_its_tests_or_fails_them_where_it_was_named(run, library, words, outcomes):
    run(library, *words).assert_outcomes(**outcomes)


def test_a_library_that_no_test_needs_is_refused(run):
    result = run("json", "--libraries", "json,trch")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--libraries: no test needs trch"])
