"""A pytest plugin: images/sec in a project's own tests, held against an anchor or against what was recorded.

It is loaded in every pytest run of whoever has installed this project: it imports nothing but pytest before a test
asks for its fixture.
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
    from profiles.gate.decision import Decision

_MARKER = (
    "images_per_sec(at_least=None, anchor='decode', baseline=None, threshold=0.1): what the fixture of that name "
    "demands: `at_least` times the rate of the anchor ('decode': photos decoded on all cores; 'copy': copies of "
    "64 MiB); without `at_least`, no slower than recorded as `baseline` (the test's own name unless given) by more "
    "than `threshold`"
)
_KNOWN = ("anchor", "at_least", "baseline", "threshold")
_ANCHORS = ("decode", "copy")
# As long as the name of a baseline may be.
_NAME_CHARACTERS = 100


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("images per second")
    group.addoption(
        "--images-per-sec-record",
        action="store_true",
        help="tests that demand 'no slower than recorded' and have no baseline yet record one",
    )
    group.addoption("--images-per-sec-overwrite", action="store_true", help="the others replace theirs, too")
    parser.addini("images_per_sec_baselines", "folder of the recorded baselines, from rootdir", default="baselines")
    parser.addini(
        "images_per_sec_strict", "fail where nothing can be told, in place of skipping", "bool", default=False
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def images_per_sec(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    """Returns a function that measures what it is given, and passes, fails or skips the test.

    It takes batches of (images, labels) (a tf.data.Dataset, a PyDataset, any iterable that can be read again), a
    function that returns batches, or one that does the work and returns how many images it went through.
    """
    demands = _demands(request)

    def measure(feed: Any) -> None:
        with warnings.catch_warnings():
            # Of the anchors' own `fit`: nothing that a test could mend.
            warnings.filterwarnings("ignore", message=".*`shuffle=True` was passed", category=UserWarning)
            decided = _decided(feed, request, demands)
        _end(decided, strict=request.config.getini("images_per_sec_strict"))

    return measure


def _decided(feed: Any, request: pytest.FixtureRequest, demands: dict[str, Any]) -> Decision:
    from profiles.gate import rates

    if "at_least" in demands:
        return rates.at_least(feed, demands["at_least"], demands.get("anchor", "decode"))
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
    """Returns the name of a test's own baseline: "tests.test_a.test_b" is that of "tests/test_a.py::test_b"."""
    plain = nodeid.replace(".py::", ".").replace("::", ".").replace("/", ".")
    name = re.sub(r"[^A-Za-z0-9._-]", "-", plain).lstrip(".")
    if name == plain and len(name) <= _NAME_CHARACTERS:
        return name
    digest = hashlib.sha256(nodeid.encode()).hexdigest()[:8]  # what was replaced or cut off may be all that differs
    return f"{name[: _NAME_CHARACTERS - 9]}-{digest}"


def _demands(request: pytest.FixtureRequest) -> dict[str, Any]:
    marker = request.node.get_closest_marker("images_per_sec")
    if marker is None:
        return {}
    if marker.args or set(marker.kwargs) - set(_KNOWN):
        raise pytest.UsageError(f"@pytest.mark.images_per_sec takes {', '.join(_KNOWN)}, by name.")
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


def _end(decided: Decision, *, strict: bool) -> None:
    """Passes, fails or skips the test that runs."""
    if decided.exit_code == 0:
        return
    text = f"images/sec: {decided.verdict}"
    rests_on = [decided.reason] if decided.reason else []
    if decided.judged is not None:
        low, high = decided.judged.interval
        rests_on.append(f"{decided.words} {decided.judged.ratio:.3g} ({low:.3g} to {high:.3g}; {decided.pairs} rounds)")
    text = ": ".join([text, "; ".join(rests_on)])
    if decided.exit_code == 1 or strict:
        pytest.fail(text, pytrace=False)
    pytest.skip(text)
