"""A pytest plugin: tests of a project can demand images/sec, relative to an anchor or to a recorded baseline.

Pytest loads this plugin in every run, wherever this project is installed. So the module imports nothing but pytest
until a test uses the fixture.
"""

from __future__ import annotations

import hashlib
import math
import re
import shlex
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from unstall.profiles.gate.decision import Decision, Lack
    from unstall.profiles.gate.rates import Budget

_MARKER = (
    "images_per_sec(at_least=None, anchor='decode', baseline=None, threshold=0.1, budget_s=90): what the fixture of "
    "that name demands: `at_least` times the rate of the anchor ('decode': photos decoded on all cores; 'copy': "
    "copies of 64 MiB); without `at_least`, no slower than recorded as `baseline` (the test's own name unless given) "
    "by more than `threshold`; `budget_s`: how long its rounds may take on a noisy machine"
)
_MARKER_ARGUMENTS = ("anchor", "at_least", "baseline", "threshold", "budget_s")
_ANCHORS = ("decode", "copy")
# Under this name a test's report, and JUnit's file, have what was measured.
_PROPERTY = "images_per_sec"
# The loss that counts against a recorded baseline, and how long the rounds may take: sixty of 1 to 1.5 s.
_THRESHOLD_RATIO, _BUDGET_S = 0.1, 90.0
# A round may take so much longer than those before.
_MARGIN_RATIO = 1.2
# The part of pytest-timeout's limit that a test may use: after its last round it still has to end.
_OF_TIMEOUT = 0.8
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
    from unstall.profiles import clock

    demands, began_ns = _demands(request), clock.now_ns()

    def measure(feed: Any) -> None:
        with warnings.catch_warnings():
            # The `fit` that measures the anchor causes this warning; the test cannot do anything about it.
            warnings.filterwarnings("ignore", message=".*`shuffle=True` was passed", category=UserWarning)
            decision = _decide(feed, request, demands, _budget(request, demands, began_ns))
        text = _text_of(decision, request, demands)
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


def _budget(request: pytest.FixtureRequest, demands: dict[str, Any], began_ns: int) -> Budget:
    """Returns the time that the test allows: its `budget_s`, within what pytest-timeout leaves of it."""
    from unstall.profiles.gate.rates import Budget

    timeout_s = _timeout_s(request)
    until_ns = began_ns + _OF_TIMEOUT * 1e9 * timeout_s if timeout_s else math.inf
    return Budget(rounds_s=demands.get("budget_s", _BUDGET_S), until_ns=until_ns)


def _timeout_s(request: pytest.FixtureRequest) -> float:
    """Returns the limit that pytest-timeout sets the test, in seconds; 0 where there is none."""
    plugin = request.config.pluginmanager.getplugin("timeout")
    if plugin is None:
        return 0.0
    marker = request.node.get_closest_marker("timeout")
    limit = None
    if marker is not None:
        limit = marker.args[0] if marker.args else marker.kwargs.get("timeout")
    if limit is None:
        limit = plugin.get_env_settings(request.config).timeout
    return float(limit or 0)


def _decide(feed: Any, request: pytest.FixtureRequest, demands: dict[str, Any], budget: Budget) -> Decision:
    from unstall.profiles.gate import rates

    if "at_least" in demands:
        anchor = demands.get("anchor", "decode")
        if refusal := rates.why_not(anchor):
            pytest.fail(f"images/sec: {refusal}", pytrace=False)
        return rates.at_least(feed, demands["at_least"], anchor, budget)
    overwrite = request.config.getoption("--images-per-sec-overwrite")
    return rates.no_slower(
        feed,
        request.config.rootpath / Path(request.config.getini("images_per_sec_baselines")),
        demands.get("baseline") or _name_of(request.node.nodeid),
        threshold=demands.get("threshold", _THRESHOLD_RATIO),
        record=overwrite or request.config.getoption("--images-per-sec-record"),
        overwrite=overwrite,
        budget=budget,
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
    if not demands.get("budget_s", 1) > 0:
        raise pytest.UsageError(f"`budget_s` must be above 0. Received: {demands['budget_s']}.")
    if not 0 < demands.get("threshold", 0.5) < 1:
        raise pytest.UsageError(f"`threshold` must be above 0 and below 1. Received: {demands['threshold']}.")
    return demands


def _text_of(decision: Decision, request: pytest.FixtureRequest, demands: dict[str, Any]) -> str:
    reasons = [decision.reason] if decision.reason else []
    if (judged := decision.judged) is not None:
        low, high = judged.interval
        if "at_least" in demands:
            of, allowed = f"the anchor {demands.get('anchor', 'decode')}", demands["at_least"]
        else:
            of, allowed = "what was recorded", 1 - demands.get("threshold", _THRESHOLD_RATIO)
        reasons.append(
            f"{decision.words} {judged.ratio:.3g}x of {of} ({judged.confidence:.1%}: {low:.3g} to {high:.3g}; "
            f"{decision.pairs} rounds), allowed {allowed:.3g}x"
        )
    if decision.lack is not None:
        from unstall.profiles.gate.lacks import text_of

        again = f"pytest --images-per-sec-overwrite {shlex.quote(request.node.nodeid)}"
        option = _option(decision.lack, request)
        reasons.append(text_of(decision.lack, decision.pairs, unit="rounds", option=option, again=again))
    reasons += [f"note: {decision.note}"] if decision.note else []
    return ": ".join(filter(None, [decision.verdict, "; ".join(reasons)]))


def _option(lack: Lack, request: pytest.FixtureRequest) -> str:
    """Returns what to give a test for as many rounds as it lacks, in whole ten seconds; empty where it lacks others."""
    if lack.rounds is None or lack.round_s is None:
        return ""
    budget_s = 10 * math.ceil(lack.rounds * max(1.0, _MARGIN_RATIO * lack.round_s) / 10)
    timeout_s = _timeout_s(request)
    least_s = 10 * math.ceil(budget_s / _OF_TIMEOUT / 10)
    more = f" and a timeout above {least_s} s" if 0 < timeout_s < least_s else ""
    return f"@pytest.mark.images_per_sec(budget_s={budget_s}){more}"


def _end(decision: Decision, text: str, *, strict: bool) -> None:
    """Passes, fails or skips the running test; `strict` fails where the decision is to skip."""
    if decision.exit_code == 0:
        return
    if decision.exit_code == 1 or strict:
        pytest.fail(f"images/sec: {text}", pytrace=False)
    pytest.skip(f"images/sec: {text}")
