"""This project's own ratios, which must hold on any machine: three cases of the pytest plugin."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import tensorflow as tf

from unstall.benchmarks.evidence.peers.loaders.parts import decoding
from unstall.benchmarks.gate.child import IMAGES
from unstall.benchmarks.lab.options import DATA, MODEL
from unstall.models import open_model
from unstall.pipeline import VARIANTS, build, open_source
from unstall.profiles.gate import anchors
from unstall.profiles.gate.feed import Feed
from unstall.profiles.provenance import usable_threads
from unstall.profiles.script.monitor import StallMonitor

pytest_plugins = ["pytester"]

_PHOTOS = "generated:512"


@functools.cache
def of_variant(name: str) -> Any:
    """Opens one of our pipelines on as many images as the gate measures. Returns its batches."""
    source = open_source(DATA)
    loader = build(VARIANTS[name], source.take(IMAGES), whole=source)
    return loader.data


def decode_alone() -> int:
    """Decodes photos from memory on all cores, scaled as loaders do, and nothing else. Returns the number of photos."""
    shares, images = _decoding()
    shares.run(epochs=1)
    return images


@functools.cache
def _decoding() -> tuple[Any, int]:
    source = open_source(_PHOTOS)
    return decoding(source, threads=usable_threads()), source.images


def monitor_off() -> int:
    """Trains for an epoch. Returns the number of images."""
    return _trained()


def monitor_on() -> int:
    """Trains for an epoch, which `StallMonitor` watches. Returns the number of images."""
    return _trained(StallMonitor())


def _trained(*callbacks: Any) -> int:
    model, data, images = _training()
    model.fit(data, epochs=1, verbose=0, callbacks=list(callbacks))
    return images


@functools.cache
def _training() -> tuple[Any, Any, int]:
    options = tf.data.Options()
    options.autotune.enabled = False  # with autotune, the end of an epoch can take a second, by chance
    loader = build(VARIANTS["tf-data-cache"], open_source(_PHOTOS))
    return open_model(MODEL, classes=2), loader.data.with_options(options), loader.images


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """B must serve at least `at_least` times the images/sec of A, in steady steps and in whole epochs.

    Attributes:
      a, b: return what is measured, of which the plugin opens B.
      recorded: the ratio of the steady rates on the machine where the ratio was recorded.
      at_least: the floor of both figures, low enough for machines with other cores: about half of what was recorded,
        or, where A and B do the same work, the ratio at which a person would notice a loss.
    """

    a: Callable[[], Any]
    b: Callable[[], Any]
    recorded: float
    at_least: float


# Recorded: docs/evidence/checks.md, two cores, 2026-11-22.
RATIOS = {
    "tuned-against-generator": Ratio(
        a=functools.partial(of_variant, "generator"),
        b=functools.partial(of_variant, "tf-data-composed"),
        recorded=7.7,
        at_least=3.0,
    ),
    "cold-path-against-decode-ceiling": Ratio(
        a=lambda: decode_alone,
        b=functools.partial(of_variant, "tf-data-composed"),
        recorded=0.73,
        at_least=0.30,
    ),
    "monitor-on-against-off": Ratio(a=lambda: monitor_off, b=lambda: monitor_on, recorded=1.0, at_least=0.90),
}
TEST = """
import pytest
from tests.benchmarks.gate.test_ratios import RATIOS

RATIO = RATIOS[{name!r}]


@pytest.mark.images_per_sec(at_least=RATIO.at_least)
def test_the_ratio_holds(images_per_sec):
    images_per_sec(RATIO.b())
"""


def test_every_recorded_ratio_is_well_above_its_floor():
    assert all(ratio.at_least < 0.95 * ratio.recorded for ratio in RATIOS.values())


@pytest.mark.slow  # up to 24 pairs of windows
@pytest.mark.parametrize("name", RATIOS)
def test_a_recorded_ratio_holds(name, pytester, monkeypatch, record_property):
    """A is the anchor of the test that the plugin runs.

    An anchor has one rate, so that both figures of B are held against the higher one of A's two.
    """
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    a = Feed(RATIOS[name].a())
    monkeypatch.setattr(anchors, "decode", lambda: max(a.rates().values()))
    pytester.makepyfile(TEST.format(name=name))
    ran = pytester.runpytest_inprocess("-p", "unstall.profiles.pytest_plugin", "-rs")
    outcomes = ran.parseoutcomes()
    found = re.search(r"(same|regression|inconclusive): .*rounds\)", ran.stdout.str())
    record_property("measured", f"{name}: {found and found[0]}")
    if outcomes.get("skipped") and found:
        pytest.skip(found[0])
    assert outcomes.get("passed") == 1 and set(outcomes) <= {"passed", "warnings"}, found
