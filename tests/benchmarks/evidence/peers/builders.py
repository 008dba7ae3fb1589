"""Made-up peers, what was measured of them, and what was seen of what they serve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.benchmarks.evidence.documents import document_of
from tests.benchmarks.evidence.peers.seen import Identity, Survey
from unstall.benchmarks.evidence.peers.catalogue import Peer
from unstall.benchmarks.evidence.peers.plan import Asked
from unstall.benchmarks.evidence.peers.results import PeersDocument
from unstall.benchmarks.evidence.peers.samples import MeasuredPeer, MeasuredWork, Measurements, Sample, Served


def planted_peer(function: str, **options: Any) -> Peer:
    """Returns a peer of the planted library."""
    functions = dict.fromkeys(("prepared", "prepared-float"), function)
    return Peer(
        name=function,
        module="tests.benchmarks.evidence.peers.planted_peer",
        functions=functions,
        renditions=dict.fromkeys(functions, "bilinear"),
        packages=("numpy",),
        **options,
    )


def small_photos(images: int) -> np.ndarray:
    """Returns images that differ in brightness and are not their own mirror image."""
    random = np.random.default_rng(0)
    ramp = np.linspace(0, 60, 64)[None, None, :, None]
    level = random.uniform(20, 180, (images, 1, 1, 3))
    return np.clip(level + ramp + random.uniform(-5, 5, (images, 64, 64, 3)), 0, 255).astype(np.uint8)


def a_survey(**changes: Any) -> Survey:
    """Returns the survey of one epoch of a peer: what its batches contained."""
    values: dict[str, Any] = {
        "first_batch_s": 0.25,
        "images": 64,
        "dtype": "float32",
        "shape": (64, 64, 3),
        "full_batches": True,
        "range": (0.0, 1.0),
        "mean": (0.5, 0.45, 0.4),
        "std": (0.25, 0.25, 0.25),
        "labels": {"0": 32, "1": 32},
        "class_means": {"0": 0.45, "1": 0.45},
    }
    return Survey(**(values | changes))


def an_identity(**changes: Any) -> Identity:
    """Returns how the order and the draws of two epochs of a peer differed, which numbered images show."""
    values: dict[str, Any] = {"images": 64, "once": True, "served": 128, "distinct": 64, "shuffled": True}
    return Identity(**(values | {"changed_ratio": 1.0, "flipped_ratio": 0.5, "pairing": 0.98} | changes))


def a_served(**changes: Any) -> Served:
    """Returns the form of an epoch of 64 images."""
    values: dict[str, Any] = {
        "first_batch_s": 0.25,
        "images": 64,
        "dtypes": ("float32",),
        "shapes": ((64, 64, 3),),
        "full_batches": True,
        "labels": {0: 32, 1: 32},
    }
    return Served(**(values | changes))


def a_peer(name: str, **changes: Any) -> Peer:
    values: dict[str, Any] = {"module": "m", "functions": {"cold": "f"}, "packages": ("p",)}
    values["renditions"] = {"cold": "full decode, bilinear"}
    return Peer(name=name, **(values | changes))


def a_measured_peer(name: str, rates: Sequence[float], **changes: Any) -> MeasuredPeer:
    """Returns a peer that served these images/sec in rounds 0, 1, and so on."""
    values: dict[str, Any] = {
        "versions": {"p": "1.2"},
        "workers": "auto",
        "trials": {"auto": 1000.0},
        "first_batch_s": 0.25,
        "samples": tuple(
            Sample(
                round=number, epochs=1, images=1000, batches=32, wall_ns=round(1e12 / rate), first_batch_ns=1_000_000
            )
            for number, rate in enumerate(rates)
        ),
    }
    return MeasuredPeer(peer=name, **(values | changes))


def a_peers_document(*measured: MeasuredPeer, peers: Sequence[Peer] = (), **changes: Any) -> PeersDocument:
    """Returns the document of a run of the cold work.

    Args:
      peers: the peers that are to differ from what `a_peer` returns for their name.
    """
    named = {peer.name: peer for peer in peers}
    asked = Asked(
        works=("cold",),
        peers=tuple(named.get(measured_peer.peer, a_peer(measured_peer.peer)) for measured_peer in measured),
        rounds=3,
        workers=(),
        cores=2,
        prepared_images=10_000,
        other_pythons=(),
        data="photos",
    )
    work = MeasuredWork(work="cold", images=1600, peers=measured)
    return document_of("peers", asked, Measurements(works=(work,)), **changes)
