"""Proves that a peer does the work that the catalogue states: what it serves is compared with a reference's."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from tests import PROJECT_ROOT
from tests.benchmarks.evidence.peers.equal_work import differences, made_otherwise
from tests.benchmarks.evidence.peers.renditions import Renditions
from tests.benchmarks.evidence.peers.seen import Survey
from unstall.benchmarks.evidence.peers.catalogue import Peer
from unstall.benchmarks.evidence.peers.loaders.work import Job, dtype_of
from unstall.benchmarks.evidence.peers.material import Material, decode, file_job, make_material
from unstall.benchmarks.evidence.peers.processes import Launcher, link_packages
from unstall.benchmarks.lab.child import Child
from unstall.pipeline import ImageSource, PipelineConfig

TIMEOUT_S = 120.0
# The references: for the cold work our own pipeline, which decodes at full size and resizes and augments in separate
# steps; for the prepared works a plain loop.
_REFERENCE = PipelineConfig(loader="tf_data", workers="auto")
_DESCRIBED = ("benchmarks.evidence.peers.loaders.described", "described")
_PLAIN = ("tests.benchmarks.evidence.peers.plain", "prepared")


class ProvingLauncher(Launcher):
    """Gives each peer the process of the one before, in which it loads its own loader: a start takes a second or more.

    After a process that was ended comes a new one.
    """

    session = "tests.benchmarks.evidence.peers.seen:ProvingSession"

    def start(self, name: str, *, gpu: bool = False) -> tuple[Child, Path]:
        if not self._running or self._running[-1]._killed:
            return super().start(name, gpu=gpu)
        self._started += 1
        folder = self._scratch / f"{self._started:03d}"
        folder.mkdir()
        return self._running[-1], folder


def link_with_tests(folder: Path) -> Path:
    """Makes a folder of links to this project's package and to its tests."""
    link_packages(folder)
    (folder / "tests").symlink_to(PROJECT_ROOT / "tests")
    return folder


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What proofs stand on.

    Attributes:
      material: what all peers of a run share.
      sample: the images that are compared one by one.
      plain: the file of the sample's images, not augmented.
      references: for each work the survey with which the peers' surveys are compared.
    """

    material: Material
    sample: ImageSource
    plain: str
    references: dict[str, Survey] = field(default_factory=dict)

    @cached_property
    def renditions(self) -> Renditions:
        return Renditions(self.sample, np.load(self.plain))

    def numbered(self, work: str, folder: Path) -> Job:
        """Returns a job that serves the sample, with the numbers of the images as labels."""
        numbers = tuple(range(self.sample.images))
        if work == "cold":
            return file_job(self.sample, numbers, folder)
        return Job(work=work, images=len(numbers), labels=numbers, array=self.plain, folder=str(folder / "sample"))


def ground_of(source: ImageSource, folder: Path, *, works: tuple[str, ...], least: int) -> Ground:
    """Decodes the photos, and surveys the reference of each work.

    Args:
      least: least number of images in a prepared file.
    """
    launcher = ProvingLauncher(folder, link_with_tests(folder / "modules"), {})
    try:
        material = make_material(source, launcher, folder, works=works, least=least)
        ground = Ground(material=material, sample=source, plain=str(folder / "plain.npy"))
        decode(source, launcher, ground.plain)
        for work in works:
            process, own = launcher.start("reference")
            job = material.job(work, own)
            if work == "cold":
                job = replace(job, config=_REFERENCE)
            process.ask("load", *(_DESCRIBED if work == "cold" else _PLAIN), [], timeout_s=TIMEOUT_S)
            process.ask("open", job, timeout_s=TIMEOUT_S)
            ground.references[work] = process.ask("survey", timeout_s=TIMEOUT_S)
    finally:
        launcher.end()
    return ground


def other_work(
    peer: Peer, work: str, ground: Ground, launcher: Launcher, *, workers: int | None = None, processes: bool = False
) -> tuple[str, ...]:
    """Returns how what a peer serves differs from the reference, or is made otherwise than the catalogue states."""
    process, folder = launcher.start(peer.name, gpu=peer.gpu)
    process.ask("load", peer.module, peer.functions[work], [], timeout_s=TIMEOUT_S)
    served = folder / "served.npy"
    choice = {"workers": workers, "processes": processes, "config": peer.configs.get(work)}
    process.ask("open", replace(ground.numbered(work, folder / "numbered"), **choice), timeout_s=TIMEOUT_S)
    identity = process.ask("identify", ground.plain, str(served), timeout_s=TIMEOUT_S)
    process.ask("open", replace(ground.material.job(work, folder), **choice), timeout_s=TIMEOUT_S)
    survey = process.ask("survey", timeout_s=TIMEOUT_S)
    differing = differences(survey, identity, ground.references[work], dtype_of(work))
    # Images that differ in their form or content would only be said to differ a second time.
    return differing or made_otherwise(ground.renditions.differences(work, np.load(served)), peer.renditions[work])
