"""A pytest plugin: tests of a project can demand images/sec, relative to an anchor or to a recorded baseline.

Pytest loads this plugin in every run, wherever this project is installed. So the module imports nothing but pytest
until a test uses the fixture.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from unstall.profiles.gate.decision import Decision

_MARKER = (
    "images_per_sec(at_least=None, anchor='decode', baseline=None, threshold=0.1): what the fixture of that name "
    "demands: `at_least` times the rate of the anchor ('decode': photos decoded on all cores; 'copy': copies of "
    "64 MiB); without `at_least`, no slower than recorded as `baseline` (the test's own name unless given) by more "
    "than `threshold`"
)
_MARKER_ARGUMENTS = ("anchor", "at_least", "baseline", "threshold")
_ANCHORS = ("decode", "copy")
# Under this name a test's report, and JUnit's file, have what was measured.
_PROPERTY = "images_per_sec"
# The longest name that a baseline may have.
_NAME_CHARACTERS = 100


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("images per second")
    group.addoption(
        "--images-per-sec-record",
        action="store_true",
        help="tests that demand 'no slower than recorded' and have no baseline yet record one",
    )
    group.addoption("--images-per-sec-overwrite", action="store_true", help="the others replace theirs, too")
    parser.addini(
        "images_per_sec_baselines", "folder of the recorded baselines, from rootdir", default="benchmarks_baseline"
    )
    parser.addini(
        "images_per_sec_strict", "fail where nothing can be told, in place of skipping", "bool", default=False
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def images_per_sec(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    """Returns a function that measures images/sec of its argument, and passes, fails or skips the test.

    The argument can be batches of (images, labels) (a tf.data.Dataset, a PyDataset, any iterable that can be read
    again), a function that returns such batches, or a function that does the work and returns the number of images.
    """
    demands = _demands(request)

    def measure(feed: Any) -> None:
        with warnings.catch_warnings():
            # The `fit` that measures the anchor causes this warning; the test cannot do anything about it.
            warnings.filterwarnings("ignore", message=".*`shuffle=True` was passed", category=UserWarning)
            decision = _decide(feed, request, demands)
        text = _text_of(decision)
        request.node.user_properties.append((_PROPERTY, text))
        _end(decision, text, strict=request.config.getini("images_per_sec_strict"))

    return measure


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints a line for each test that has measured and passed; pytest itself prints why others have not."""
    reports = [report for report in terminalreporter.stats.get("passed", ()) if report.when == "call"]
    lines = [
        f"{report.nodeid}: {text}" for report in reports for name, text in report.user_properties if name == _PROPERTY
    ]
    if lines:
        terminalreporter.section("images/sec")
    for line in lines:
        terminalreporter.write_line(line)


def _decide(feed: Any, request: pytest.FixtureRequest, demands: dict[str, Any]) -> Decision:
    from unstall.profiles.gate import rates

    if "at_least" in demands:
        anchor = demands.get("anchor", "decode")
        if refusal := rates.why_not(anchor):
            pytest.fail(f"images/sec: {refusal}", pytrace=False)
        return rates.at_least(feed, demands["at_least"], anchor)
    overwrite = request.config.getoption("--images-per-sec-overwrite")
    return rates.no_slower(
        feed,
        request.config.rootpath / Path(request.config.getini("images_per_sec_baselines")),
        demands.get("baseline") or _name_of(request.node.nodeid),
        threshold=demands.get("threshold"),
        record=overwrite or request.config.getoption("--images-per-sec-record"),
        overwrite=overwrite,
    )


def _name_of(nodeid: str) -> str:
    """Returns the name of a test's own baseline: "tests.test_a.test_b" for "tests/test_a.py::test_b"."""
    plain = nodeid.replace(".py::", ".").replace("::", ".").replace("/", ".")
    name = re.sub(r"[^A-Za-z0-9._-]", "-", plain).lstrip(".")
    if name == plain and len(name) <= _NAME_CHARACTERS:
        return name
    # Two tests may differ only in characters that were replaced or cut off.
    digest = hashlib.sha256(nodeid.encode()).hexdigest()[:8]
    return f"{name[: _NAME_CHARACTERS - 9]}-{digest}"


def _demands(request: pytest.FixtureRequest) -> dict[str, Any]:
    marker = request.node.get_closest_marker("images_per_sec")
    if marker is None:
        return {}
    if marker.args or set(marker.kwargs) - set(_MARKER_ARGUMENTS):
        raise pytest.UsageError(f"@pytest.mark.images_per_sec takes {', '.join(_MARKER_ARGUMENTS)}, by name.")
    demands = {name: value for name, value in marker.kwargs.items() if value is not None}
    if "anchor" in demands and "at_least" not in demands:
        raise pytest.UsageError("`anchor` is what `at_least` is times of; a baseline is held against all of them.")
    if demands.get("anchor", "decode") not in _ANCHORS:
        raise pytest.UsageError(f"`anchor` must be one of {', '.join(_ANCHORS)}. Received: {demands['anchor']!r}.")
    if not demands.get("at_least", 1) > 0:
        raise pytest.UsageError(f"`at_least` must be above 0. Received: {demands['at_least']}.")
    if not 0 < demands.get("threshold", 0.5) < 1:
        raise pytest.UsageError(f"`threshold` must be above 0 and below 1. Received: {demands['threshold']}.")
    return demands


def _text_of(decision: Decision) -> str:
    reasons = [decision.reason] if decision.reason else []
    if decision.judged is not None:
        low, high = decision.judged.interval
        reasons.append(
            f"{decision.words} {decision.judged.ratio:.3g} ({low:.3g} to {high:.3g}; {decision.pairs} rounds)"
        )
    reasons += [f"note: {decision.note}"] if decision.note else []
    return ": ".join(filter(None, [decision.verdict, "; ".join(reasons)]))


def _end(decision: Decision, text: str, *, strict: bool) -> None:
    """Passes, fails or skips the running test; `strict` fails where the decision is to skip."""
    if decision.exit_code == 0:
        return
    if decision.exit_code == 1 or strict:
        pytest.fail(f"images/sec: {text}", pytrace=False)
    pytest.skip(f"images/sec: {text}")
