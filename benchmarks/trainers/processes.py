"""Starts the processes of a subject, and asks all of them at the same time. Where one ends, the others are ended."""

from __future__ import annotations

from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from unstall.benchmarks.lab.child import Child, ChildDied, JobRefused, kill_all
from unstall.benchmarks.lab.command import new_log
from unstall.benchmarks.lab.ports import free_port
from unstall.benchmarks.trainers.plan import Asked
from unstall.benchmarks.trainers.subjects import SUBJECTS
from unstall.pipeline import ImageSource
from unstall.pipeline.service import LOOPBACK_HOST
from unstall.profiles.devices import CPU

_SESSION = "benchmarks.trainers.child:TrainerSession"
# Where a process ends, others soon fail with errors of their own connections: wait so long for the end of that process.
_SETTLE_S = 2.0


class TrainersFailed(Exception):
    """The processes of a subject were ended; the message says which of them failed, and why."""


class Trainers:
    """The processes of a subject.

    Args:
      name: of the subject.
      out: the folder of their logs.
    Raises:
      TrainersFailed: if a process cannot be started.
    """

    def __init__(self, name: str, asked: Asked, source: ImageSource, out: Path) -> None:
        subject = SUBJECTS[name]
        processes = asked.trainers if subject.processes else 1
        address = f"{LOOPBACK_HOST}:{free_port()}" if subject.processes else ""
        environment = subject.environment(asked.trainers)
        self._logs: list[Path] = []
        self._children: list[Child] = []
        try:
            for process in range(processes):
                self._logs.append(new_log(out / f"{name}-{process}.log"))
                arguments = (asked, source, name, process, address)
                self._children.append(Child(_SESSION, CPU, self._logs[-1], *arguments, environment=environment))
        except ChildDied as error:
            self.kill()
            raise TrainersFailed(str(error)) from error

    def ask(self, method: str, *arguments: Any, timeout_s: float) -> list[Any]:
        """Calls a method of all sessions. Returns the answers in the order of the processes.

        Without one process the others would wait for its gradients until their frameworks give up, after minutes.

        Raises:
          TrainersFailed: if a process refuses, fails, ends, or does not answer in time. All of them are ended.
        """
        with ThreadPoolExecutor(len(self._children)) as pool:
            answers = [pool.submit(child.ask, method, *arguments, timeout_s=timeout_s) for child in self._children]
            try:
                if any(answer.exception() for answer in wait(answers, return_when=FIRST_EXCEPTION).done):
                    wait(answers, timeout=_SETTLE_S)
                    raise self._error(answers)
            except BaseException:
                self.kill()
                raise
        return [answer.result() for answer in answers]

    def _error(self, answers: list[Future[Any]]) -> BaseException:
        """Returns why the answers failed: that a process has ended before what others say of it."""
        errors = [(number, answer.exception()) for number, answer in enumerate(answers) if answer.done()]
        failed = [(number, error) for number, error in errors if error is not None]
        number, error = min(failed, key=lambda item: not isinstance(item[1], ChildDied))
        if isinstance(error, ChildDied) and len(self._children) > 1:
            return TrainersFailed(f"process {number} of {len(self._children)}: {error}")
        return TrainersFailed(str(error)) if isinstance(error, ChildDied | JobRefused) else error

    def close(self) -> None:
        """Ends the processes, and removes their logs."""
        self.kill()
        for log in self._logs:
            log.unlink(missing_ok=True)

    def kill(self) -> None:
        kill_all(self._children)
