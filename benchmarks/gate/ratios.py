"""This project's own recorded ratios: which subject must stay how much faster than another, on any machine."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unstall.benchmarks.gate.processes import Setting, Subject
from unstall.benchmarks.lab.options import DATA, MODEL
from unstall.models import open_model
from unstall.pipeline import VARIANTS, build, open_source
from unstall.profiles.devices import CPU
from unstall.profiles.provenance import usable_threads

if TYPE_CHECKING:
    from unstall.benchmarks.evidence.peers.loaders.parts import Shares

_PHOTOS = "generated:512"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """B must serve at least `at_least` times the images/sec of A, in steady steps and in whole epochs.

    Attributes:
      recorded: the ratio of the steady rates on the machine where the ratio was recorded.
      at_least: the floor of both figures, low enough for machines with other cores: about half of what was recorded,
        or, where A and B do the same work, the ratio at which a person would notice a loss.
    """

    a: Subject
    b: Subject
    recorded: float
    at_least: float


def _function(name: str) -> Subject:
    return Subject(label=name.replace("_", " "), kind="own function", text=f"benchmarks.gate.ratios:{name}")


def _variant(name: str) -> Subject:
    return Subject(label=name, kind="variant", text=name)


# How the subjects of all ratios are measured.
SETTING = Setting(data=DATA, measure="loader", model=MODEL, device=CPU)
# Recorded: docs/gate.md, two cores, 2026-11-22.
RATIOS = {
    "tuned-against-generator": Ratio(
        a=_variant("generator"), b=_variant("tf-data-composed"), recorded=7.7, at_least=3.0
    ),
    "cold-path-against-decode-ceiling": Ratio(
        a=_function("decode_alone"), b=_variant("tf-data-composed"), recorded=0.73, at_least=0.30
    ),
    "monitor-on-against-off": Ratio(a=_function("monitor_off"), b=_function("monitor_on"), recorded=1.0, at_least=0.90),
}


def decode_alone() -> int:
    """Decodes photos from memory on all cores, scaled as loaders do, and nothing else. Returns the number of photos."""
    shares, images = _decoding()
    shares.run(epochs=1)
    return images


@functools.cache
def _decoding() -> tuple[Shares, int]:
    from unstall.benchmarks.evidence.peers.loaders.parts import decoding

    source = open_source(_PHOTOS)
    return decoding(source, threads=usable_threads()), source.images


def monitor_off() -> int:
    """Trains for an epoch. Returns the number of images."""
    return _trained()


def monitor_on() -> int:
    """Trains for an epoch, which `StallMonitor` watches. Returns the number of images."""
    from unstall.profiles.script.monitor import StallMonitor

    return _trained(StallMonitor())


def _trained(*callbacks: Any) -> int:
    model, data, images = _training()
    model.fit(data, epochs=1, verbose=0, callbacks=list(callbacks))
    return images


@functools.cache
def _training() -> tuple[Any, Any, int]:
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False  # with autotune, the end of an epoch can take a second, by chance
    loader = build(VARIANTS["tf-data-cache"], open_source(_PHOTOS))
    return open_model(MODEL, classes=2), loader.data.with_options(options), loader.images
