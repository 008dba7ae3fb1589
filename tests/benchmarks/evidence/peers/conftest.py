"""A workshop in which planted peers are measured in short windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.evidence.peers.builders import planted_peer, small_photos
from tests.benchmarks.evidence.peers.proof import link_with_tests
from unstall.benchmarks.evidence.peers import processes, rounds
from unstall.benchmarks.evidence.peers.catalogue import Peer
from unstall.benchmarks.evidence.peers.material import Material
from unstall.benchmarks.evidence.peers.processes import Launcher
from unstall.benchmarks.evidence.peers.rounds import PeerRun
from unstall.pipeline.sources.arrays import from_arrays

IMAGES = 100


@pytest.fixture(scope="module")
def planted_material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    """Material without photos: 60 images of one class, 40 of another."""
    folder = tmp_path_factory.mktemp("planted")
    images, labels = small_photos(IMAGES), np.arange(IMAGES) % 5 // 3
    np.save(folder / "array.npy", images)
    array = str(folder / "array.npy")
    return Material(source=from_arrays(images, labels), array=array, array_labels=tuple(labels.tolist()))


@pytest.fixture
def trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file; once it exists, some planted peers go wrong."""
    monkeypatch.setenv("PLANTED_TROUBLE", str(tmp_path / "trouble"))
    return tmp_path / "trouble"


@pytest.fixture
def launcher(tmp_path: Path, trouble: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    """A launcher whose children find the planted library; windows are short."""
    monkeypatch.setattr(rounds, "WINDOW_S", 0.02)
    monkeypatch.setattr(rounds, "TRIAL_S", 0.01)
    monkeypatch.setattr(rounds, "TRIALS", 1)
    monkeypatch.setattr(processes, "_REST_MS", 20)
    launcher = Launcher(tmp_path, link_with_tests(tmp_path / "modules"), {})
    yield launcher
    launcher.end()


@pytest.fixture
def run_of(launcher: Launcher, planted_material: Material) -> Callable[..., PeerRun]:
    """Returns a run of planted peers."""

    def run_of(*chosen: Peer | str) -> PeerRun:
        peers = [peer if isinstance(peer, Peer) else planted_peer(peer) for peer in chosen]
        return PeerRun("prepared-float", peers, planted_material, launcher, cores=2)

    return run_of
