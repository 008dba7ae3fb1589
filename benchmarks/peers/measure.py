"""Runs the peers of one work: checked, their workers chosen by trial, then round by round, one at a time.

A peer's process lives through all rounds, so that starting up stays out of its windows. That the others are idle while
one measures is kept in three ways: a window reads whole epochs to their end; a loader without an end keeps full buffers
at most, which it takes out before its next window; and after each window the parent waits until the peer's process and
its workers use no CPU any more. A peer that does not come to rest is flagged.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.equal_work import differences
from benchmarks.peers.loaders.work import WORKS, Job, job_to_json
from benchmarks.peers.plan import Peer, worker_choices, workers_text
from benchmarks.peers.processes import PeerFailed, PeerProcess, end_all
from pipeline import ImageSource, PipelineConfig
from pipeline.config import config_to_dict

# A window lasts about so long, in whole epochs, and a trial of one number of workers half of it.
WINDOW_S, TRIAL_S = 1.0, 0.5
# Each number of workers is tried as often, in turns, and counts with its best: one slow moment decides nothing.
TRIALS = 2
# Imports, writing a prepared format, compiling.
_OPEN_TIMEOUT_S = 300.0
# A window that takes this many times as long as foreseen, and at least so long, hangs.
_HANG_RATIO, _HANG_LEAST_S = 30.0, 60.0
# Images that are looked at one by one.
IDENTITY_IMAGES = 256
# What the others' work is held against: our own pipeline with everything in full, and the prepared work in a loop.
_REFERENCE = PipelineConfig(loader="tf_data", workers="auto")
_UNAUGMENTED = replace(_REFERENCE, augmentation=None, shuffle_buffer=0)
_DESCRIBED = ("benchmarks.peers.loaders.described", "described")
_PLAIN = ("benchmarks.peers.loaders.plain", "prepared")

Tell = Callable[[str], None]


@dataclass(slots=True)
class PeerResult:
    """What a peer of a work came to so far.

    Attributes:
      versions: of its packages.
      workers: those chosen, in words.
      trials: images/sec by workers.
      first_batch_s: from making the loader to its first batch, its worker processes included; None without batches.
      survey, identity: what its process saw; empty for a part of the work.
      other_work: in what its work differs; empty if in nothing.
      samples: its windows, one a round.
      flags: what a reader must doubt.
    """

    peer: Peer
    work: str
    versions: dict[str, str] = field(default_factory=dict)
    workers: str = ""
    trials: dict[str, float] = field(default_factory=dict)
    first_batch_s: float | None = None
    survey: dict[str, Any] = field(default_factory=dict)
    identity: dict[str, Any] = field(default_factory=dict)
    other_work: tuple[str, ...] = ()
    samples: list[dict[str, int]] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)

    @property
    def rates(self) -> list[float]:
        """Images per second, one a round."""
        return [sample["images"] / sample["wall_ns"] * 1e9 for sample in self.samples]

    @property
    def version(self) -> str:
        return next(iter(self.versions.values()), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    work: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What all peers of a run are given.

    Attributes:
      source: the images.
      sample: those that are looked at one by one.
      plain: the file of the sample's images, unaugmented.
      array: the file that prepared formats are made from, or "".
      array_labels: one an image of that file.
      references: what an epoch of each work must look like.
    """

    source: ImageSource
    sample: ImageSource
    plain: str
    array: str = ""
    array_labels: tuple[int, ...] = ()
    references: dict[str, dict[str, Any]] = field(default_factory=dict)

    def job(self, work: str, folder: Path) -> Job:
        if work == "cold":
            return _file_job(work, self.source, self.source.labels.tolist(), folder)
        labels = self.array_labels
        return Job(work=work, images=len(labels), labels=labels, array=self.array, folder=str(folder / "whole"))

    def numbered(self, work: str, folder: Path) -> Job:
        """Returns a job whose labels are the numbers of its images."""
        numbers = tuple(range(self.sample.images))
        if work == "cold":
            return _file_job(work, self.sample, numbers, folder)
        return Job(work=work, images=len(numbers), labels=numbers, array=self.plain, folder=str(folder / "sample"))


def _file_job(work: str, source: ImageSource, labels: Sequence[int], folder: Path) -> Job:
    return Job(
        work=work,
        images=source.images,
        labels=tuple(labels),
        paths=tuple(source.paths),
        formats=source.formats,
        jpeg_sizes=tuple((height, width) for height, width in source.jpeg_sizes.tolist()),
        folder=str(folder),
    )


class Launcher:
    """Starts processes in folders of their own, and ends them all."""

    def __init__(self, scratch: Path, modules: Path, pythons: Mapping[str, str], python: str) -> None:
        self._scratch, self._modules, self._pythons, self._python = scratch, modules, pythons, python
        self._running: list[PeerProcess] = []
        self._started = 0

    def start(self, name: str) -> tuple[PeerProcess, Path]:
        self._started += 1
        folder = self._scratch / f"{self._started:03d}"
        python = self._pythons.get(name, self._python)
        process = PeerProcess(python, folder, self._modules, folder.with_suffix(".log"))
        self._running.append(process)
        return process, folder

    def end(self) -> None:
        end_all(self._running)
        self._running.clear()


def make_material(
    source: ImageSource, launcher: Launcher, folder: Path, *, works: Sequence[str], least: int
) -> Material:
    """Decodes and resizes what prepared formats and checks are made from, and surveys the reference of each work.

    Args:
      least: images that a prepared file holds at least; photos come again until it does.
    Raises:
      PeerFailed: if that cannot be done.
    """
    sample = source.take(IDENTITY_IMAGES)
    material = Material(source=source, sample=sample, plain=str(folder / "plain.npy"))
    process, own = launcher.start("reference")
    _load(process, _DESCRIBED)
    _collect(process, sample, own / "sample", material.plain)
    if any(work != "cold" for work in works):
        array = str(folder / "whole.npy")
        _collect(process, source, own / "whole", array)
        images = np.load(array)
        rows = np.arange(max(least, len(images))) % len(images)
        np.save(array, images[rows])
        material = replace(material, array=array, array_labels=tuple(source.labels[rows].tolist()))
    for work in works:
        job = material.job(work, own)
        if work == "cold":
            job = replace(job, config=config_to_dict(_REFERENCE))
        _load(process, _DESCRIBED if work == "cold" else _PLAIN)
        process.ask("open", job_to_json(job), timeout_s=_OPEN_TIMEOUT_S)
        material.references[work] = process.ask("survey", timeout_s=max(_OPEN_TIMEOUT_S, job.images / 20))
    launcher.end()
    return material


def _load(process: PeerProcess, function: tuple[str, str]) -> None:
    process.ask("load", *function, [], timeout_s=_OPEN_TIMEOUT_S)


def _collect(process: PeerProcess, source: ImageSource, folder: Path, path: str) -> None:
    job = _file_job("cold", source, source.labels.tolist(), folder)
    process.ask("open", job_to_json(replace(job, config=config_to_dict(_UNAUGMENTED))), timeout_s=_OPEN_TIMEOUT_S)
    process.ask("collect", path, timeout_s=max(_OPEN_TIMEOUT_S, source.images / 20))


class PeerRun:
    """All peers of one work.

    Args:
      workers: numbers to try instead of each peer's own.
      tell: called with what is being done.
    """

    def __init__(
        self,
        work: str,
        peers: Sequence[Peer],
        material: Material,
        launcher: Launcher,
        *,
        cores: int,
        workers: tuple[int, ...] = (),
        tell: Tell = lambda text: None,
    ) -> None:
        self.work = work
        self.results: list[PeerResult] = []
        self.left_out: list[LeftOut] = []
        self._peers, self._material, self._launcher = list(peers), material, launcher
        self._cores, self._workers, self._tell = cores, workers, tell
        self._images = material.job(work, Path()).images
        self._processes: dict[str, PeerProcess] = {}
        self._order = random.Random()
        self._folders: dict[str, Path] = {}
        self._epochs: dict[str, int] = {}

    def prepare(self, done: Tell = lambda name: None) -> None:
        """Checks every peer and chooses its workers; leaves out whoever cannot."""
        results = [PeerResult(peer, self.work) for peer in self._peers]
        # All import at the same time, while nobody is timed.
        self._tell("importing")
        started = [result for result in results if self._keep(result, self._start)]
        for result in [result for result in started if self._keep(result, self._imported)]:
            self._tell(result.peer.name)
            if self._keep(result, self._prepare):
                self.results.append(result)
            done(result.peer.name)

    def _keep(self, result: PeerResult, step: Callable[[PeerResult], None]) -> bool:
        """Takes a step with a peer. Returns whether it went well; leaves the peer out if not."""
        try:
            step(result)
        except PeerFailed as error:
            self._leave_out(result, error)
            return False
        return True

    def measure(self, number: int, done: Tell = lambda name: None) -> None:
        """Measures one window of each peer, in an order that is drawn anew."""
        for result in self._order.sample(self.results, len(self.results)):
            name = result.peer.name
            if result.other_work:
                done(name)
                continue
            self._tell(name)
            process, epochs = self._processes[name], self._epochs[name]
            foreseen_s = epochs * self._images / max(result.trials.values())
            try:
                sample = process.ask("window", epochs, timeout_s=max(_HANG_LEAST_S, _HANG_RATIO * foreseen_s))
            except PeerFailed as error:
                self.results.remove(result)
                self._leave_out(result, error)
            else:
                result.samples.append({"round": number, **sample})
                self._rest(result)
            done(name)

    def end(self) -> None:
        for process in self._processes.values():
            with contextlib.suppress(PeerFailed):
                process.ask("close", timeout_s=2.0)
        self._launcher.end()
        self._processes.clear()

    def _prepare(self, result: PeerResult) -> None:
        choices = worker_choices(result.peer, self._cores, self._workers)
        rates: dict[tuple[int | None, bool], float] = {}
        failures: dict[tuple[int | None, bool], PeerFailed] = {}
        for choice in choices * TRIALS:
            if choice in failures:
                continue
            text = workers_text(*choice)
            self._tell(f"{result.peer.name}, {text}")
            try:
                rates[choice] = max(rates.get(choice, 0.0), self._try(result, *choice))
            except PeerFailed as error:
                failures[choice] = error
                rates.pop(choice, None)
                if error.gone:
                    self._start(result)
                    self._imported(result)
        if not rates:
            raise next(iter(failures.values()))
        result.trials = {workers_text(*choice): rate for choice, rate in rates.items()}
        result.flags += [f"{workers_text(*choice)}: {error}" for choice, error in failures.items()]
        (workers, processes), rate = max(rates.items(), key=lambda tried: tried[1])
        result.workers = workers_text(workers, processes)
        if not result.peer.part:  # else its loader, of the only choice of workers, is open
            self._check(result, workers, processes)
        self._epochs[result.peer.name] = max(1, math.ceil(WINDOW_S * rate / self._images))
        self._rest(result)
        if result.other_work:
            self._processes.pop(result.peer.name).kill()

    def _check(self, result: PeerResult, workers: int | None, processes: bool) -> None:
        """Opens the loader that is timed, and compares what it serves with the reference."""
        process, folder = self._processes[result.peer.name], self._folders[result.peer.name]
        self._open(result, self._material.numbered(self.work, folder / "numbered"), workers, processes)
        result.identity = process.ask("identify", self._material.plain, timeout_s=_OPEN_TIMEOUT_S)
        self._open(result, self._material.job(self.work, folder), workers, processes)
        result.survey = process.ask("survey", timeout_s=_OPEN_TIMEOUT_S)
        result.first_batch_s = result.survey.pop("first_batch_s")
        dtype = "uint8" if self.work == "prepared" else "float32"
        result.other_work = differences(result.survey, result.identity, self._material.references[self.work], dtype)

    def _start(self, result: PeerResult) -> None:
        """Starts the peer's process, which goes on to import its library."""
        peer = result.peer
        process, folder = self._launcher.start(peer.name)
        self._processes[peer.name], self._folders[peer.name] = process, folder
        process.send("load", peer.module, peer.functions[self.work], list(peer.packages))

    def _imported(self, result: PeerResult) -> None:
        result.versions = self._processes[result.peer.name].receive(timeout_s=_OPEN_TIMEOUT_S)

    def _open(self, result: PeerResult, job: Job, workers: int | None, processes: bool) -> None:
        config = result.peer.configs.get(self.work)
        described = replace(
            job, workers=workers, processes=processes, config=config_to_dict(config) if config is not None else None
        )
        self._processes[result.peer.name].ask("open", job_to_json(described), timeout_s=_OPEN_TIMEOUT_S)

    def _try(self, result: PeerResult, workers: int | None, processes: bool) -> float:
        """Returns the images/sec of a short window."""
        self._open(result, self._material.job(self.work, self._folders[result.peer.name]), workers, processes)
        process = self._processes[result.peer.name]
        # Two windows: the first is spent on what a loader does once, and says how many epochs the second needs.
        sample = process.ask("window", 1, timeout_s=_OPEN_TIMEOUT_S)
        process.rest()
        epochs = max(1, math.ceil(TRIAL_S * 1e9 / max(1, sample["wall_ns"])))
        sample = process.ask("window", epochs, timeout_s=_OPEN_TIMEOUT_S)
        process.rest()
        return float(sample["images"] / max(1, sample["wall_ns"]) * 1e9)

    def _rest(self, result: PeerResult) -> None:
        process = self._processes[result.peer.name]
        if not process.rest() and (flag := "does not rest between its windows") not in result.flags:
            result.flags.append(flag)

    def _leave_out(self, result: PeerResult, error: PeerFailed) -> None:
        reason = str(error)
        if error.missing:
            what = "not installed" if reason.startswith("ModuleNotFoundError") else "cannot be imported"
            reason = f"{what} ({reason}); {result.peer.install}"
        self.left_out.append(LeftOut(work=result.work, name=result.peer.name, reason=reason))
        process = self._processes.pop(result.peer.name, None)
        if process is not None:
            process.kill()


def result_to_json(result: PeerResult) -> dict[str, Any]:
    return {
        "work": result.work,
        "peer": result.peer.name,
        "versions": result.versions,
        "workers": result.workers,
        "trials_images_per_sec": result.trials,
        "first_batch_s": result.first_batch_s,
        "equal_work": not result.peer.part and not result.other_work,
        "other_work": list(result.other_work),
        "survey": result.survey,
        "identity": result.identity,
        "samples": result.samples,
        "flags": result.flags,
        "note": result.peer.note,
    }


def work_text(work: str) -> str:
    return f"{work}: {WORKS[work]}"
