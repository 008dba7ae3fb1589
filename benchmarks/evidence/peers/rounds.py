"""Measures the peers of one work: chooses each peer's workers by trials, checks an epoch, takes windows round by round.

A peer's process lives through all rounds, so that no window includes the start of the process. While one peer is
measured, the others must be idle. Three rules ensure that: a window reads whole epochs to their end; a loader without
an end works only until its buffers are full, and these are emptied before its next window; and after each window the
parent waits until the peer's process and its workers use no CPU any more. A peer that keeps using CPU is flagged.
"""

from __future__ import annotations

import collections
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from unstall.benchmarks.evidence.peers.catalogue import Peer, worker_choices, workers_text
from unstall.benchmarks.evidence.peers.loaders.work import Job
from unstall.benchmarks.evidence.peers.material import Material
from unstall.benchmarks.evidence.peers.processes import Launcher, rest
from unstall.benchmarks.evidence.peers.samples import MeasuredPeer, MeasuredWork, Sample
from unstall.benchmarks.lab.child import (
    HANG_LEAST_S,
    HANG_RATIO,
    OPEN_TIMEOUT_S,
    Child,
    ChildDied,
    JobRefused,
    images_timeout_s,
)

# Target duration of a window, which is made of whole epochs, and of a trial of one number of workers.
WINDOW_S, TRIAL_S = 1.0, 0.5
# Each number of workers is tried this many times, in turns, and its best rate counts: one slow moment cannot decide.
TRIALS = 2
_RESTLESS = "does not rest between its windows"

Tell = Callable[[str], None]
# (number of workers, whether they are processes); the number is None where the library decides.
Choice = tuple[int | None, bool]


class PeerRun:
    """Measures all peers at one work.

    Args:
      workers: numbers of workers to try, instead of the usual numbers of each peer.
      tell: called with a text that says what is being done.
    Attributes:
      measured: what was measured so far, by peer; without the peers that are left out.
      left_out: why a peer failed, or how what it serves differs from what was asked for, by peer.
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
        self.measured: dict[str, MeasuredPeer] = {}
        self.left_out: dict[str, str] = {}
        self._peers = {peer.name: peer for peer in peers}
        self._material, self._launcher = material, launcher
        self._cores, self._workers, self._tell = cores, workers, tell
        self._images = material.job(work, Path()).images
        self._processes: dict[str, Child] = {}
        self._folders: dict[str, Path] = {}
        self._versions: dict[str, dict[str, str]] = {}
        self._epochs: dict[str, int] = {}
        self._order = random.Random()

    @property
    def measured_work(self) -> MeasuredWork:
        """All that was measured so far, as the document keeps it."""
        return MeasuredWork(work=self.work, images=self._images, peers=tuple(self.measured.values()))

    def prepare(self, done: Tell = lambda name: None) -> None:
        """Checks every peer and chooses its workers; leaves out peers that fail."""
        # All processes import their libraries at the same time, because nothing is timed yet.
        self._tell("importing")
        started = [peer for peer in self._peers.values() if self._keep(peer, self._start)]
        for peer in [peer for peer in started if self._keep(peer, self._imported)]:
            self._tell(peer.name)
            self._keep(peer, self._prepare)
            done(peer.name)

    def _keep(self, peer: Peer, step: Callable[[Peer], None]) -> bool:
        """Runs a step for a peer, and leaves the peer out if the step fails. Returns whether the step succeeded."""
        try:
            step(peer)
        except (ChildDied, JobRefused) as error:
            self._leave_out(peer, str(error))
            return False
        return True

    def measure(self, number: int, done: Tell = lambda name: None) -> None:
        """Measures one window of each peer, in a random order that is drawn for each round.

        Args:
          number: the round's number, from 0.
          done: called with each peer's name after its window.
        """
        for name in self._order.sample(list(self.measured), len(self.measured)):
            self._tell(name)
            self._keep(self._peers[name], lambda peer: self._window(peer.name, number))
            done(name)

    def _window(self, name: str, number: int) -> None:
        measured, epochs = self.measured[name], self._epochs[name]
        foreseen_s = epochs * self._images / max(measured.trials.values())
        timeout_s = max(HANG_LEAST_S, HANG_RATIO * foreseen_s)
        sample = Sample(round=number, **self._processes[name].ask("window", epochs, timeout_s=timeout_s))
        if sample.images != epochs * self._images:
            raise JobRefused(f"{sample.images:,} images in {epochs} epochs of {self._images:,}")
        self.measured[name] = replace(measured, samples=(*measured.samples, sample))
        self._rest(name)

    def end(self) -> None:
        self._launcher.end()
        self._processes.clear()

    def _prepare(self, peer: Peer) -> None:
        """Chooses the peer's workers, and checks what its loader serves."""
        rates, failures = self._trials(peer)
        if not rates:
            raise next(iter(failures.values()))
        choice, rate = max(rates.items(), key=lambda tried: tried[1])
        measured = MeasuredPeer(
            peer=peer.name,
            versions=self._versions[peer.name],
            workers=workers_text(*choice),
            trials={workers_text(*tried): tried_rate for tried, tried_rate in rates.items()},
            flags=tuple(f"{workers_text(*tried)}: {error}" for tried, error in failures.items()),
        )
        if not peer.part:  # a part has one choice of workers, whose loader is still open from the trial
            measured = replace(measured, first_batch_s=self._first_batch_s(peer, choice))
        self.measured[peer.name] = measured
        self._epochs[peer.name] = max(1, math.ceil(WINDOW_S * rate / self._images))
        self._rest(peer.name)

    def _trials(self, peer: Peer) -> tuple[dict[Choice, float], dict[Choice, ChildDied | JobRefused]]:
        """Returns the images/sec of each choice of workers, and the error of each choice that failed."""
        rates: dict[Choice, float] = {}
        failures: dict[Choice, ChildDied | JobRefused] = {}
        for choice in worker_choices(peer, self._cores, self._workers) * TRIALS:
            if choice in failures:
                continue
            self._tell(f"{peer.name}, {workers_text(*choice)}")
            try:
                rates[choice] = max(rates.get(choice, 0.0), self._try(peer, choice))
            except (ChildDied, JobRefused) as error:
                failures[choice] = error
                rates.pop(choice, None)
                if isinstance(error, ChildDied):
                    self._start(peer)
                    self._imported(peer)
        return rates, failures

    def _first_batch_s(self, peer: Peer, choice: Choice) -> float:
        """Checks an epoch, and returns when its first batch came; the loader that the windows will time stays open."""
        job = self._material.job(self.work, self._folders[peer.name])
        self._open(peer, job, choice)
        served = self._processes[peer.name].ask("check", timeout_s=images_timeout_s(self._images))
        if differences := served.differences(collections.Counter(job.labels), job.dtype):
            raise JobRefused(f"other work: {', '.join(differences)}")
        return float(served.first_batch_s)

    def _start(self, peer: Peer) -> None:
        """Starts the peer's process and asks the process to import the library, without waiting for the answer."""
        process, folder = self._launcher.start(peer.name, gpu=peer.gpu)
        self._processes[peer.name], self._folders[peer.name] = process, folder
        process.send("load", peer.module, peer.functions[self.work], list(peer.packages))

    def _imported(self, peer: Peer) -> None:
        try:
            self._versions[peer.name] = self._processes[peer.name].receive(timeout_s=OPEN_TIMEOUT_S)
        except JobRefused as error:
            what = "not installed" if str(error).startswith("ModuleNotFoundError") else "cannot be imported"
            raise JobRefused(f"{what} ({error}); {peer.install}") from error

    def _open(self, peer: Peer, job: Job, choice: Choice) -> None:
        workers, processes = choice
        job = replace(job, workers=workers, processes=processes, config=peer.configs.get(self.work))
        self._processes[peer.name].ask("open", job, timeout_s=OPEN_TIMEOUT_S)

    def _try(self, peer: Peer, choice: Choice) -> float:
        """Returns the images/sec of a short window."""
        self._open(peer, self._material.job(self.work, self._folders[peer.name]), choice)
        process, timeout_s = self._processes[peer.name], images_timeout_s(self._images)
        # The first window includes what a loader does only once, and shows how many epochs the second window needs.
        sample = process.ask("window", 1, timeout_s=timeout_s)
        rest(process)
        epochs = max(1, math.ceil(TRIAL_S * 1e9 / max(1, sample["wall_ns"])))
        sample = process.ask("window", epochs, timeout_s=timeout_s)
        rest(process)
        return float(sample["images"] / max(1, sample["wall_ns"]) * 1e9)

    def _rest(self, name: str) -> None:
        """Waits until the peer's processes use no CPU; flags the peer if they do not stop in time."""
        measured = self.measured[name]
        if not rest(self._processes[name]) and _RESTLESS not in measured.flags:
            self.measured[name] = replace(measured, flags=(*measured.flags, _RESTLESS))

    def _leave_out(self, peer: Peer, reason: str) -> None:
        self.left_out[peer.name] = reason
        self.measured.pop(peer.name, None)
        process = self._processes.pop(peer.name, None)
        if process is not None:
            process.kill()
