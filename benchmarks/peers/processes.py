"""The parent's side of a peer's process: asks, waits, and ends it with all that it started."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from profiles import clock
from profiles.devices import NO_GPU

# A process rests when it took less than a tenth of a core for so long; the kernel counts in ticks of 10 ms.
_REST_MS, _REST_CPU_MS, _REST_TRIES = 100, 10, 30
_TERMINATE_S = 1.0
# What a process may take to import a library, to write a prepared format, or to compile.
OPEN_TIMEOUT_S = 300.0
# What children import of this project.
_PACKAGES = ("benchmarks", "pipeline", "profiles", "unstall.py")


class PeerFailed(Exception):
    """A peer said no, or is gone.

    Attributes:
      missing: whether it could not be imported.
      gone: whether its process is.
    """

    def __init__(self, reason: str, *, missing: bool = False, gone: bool = False) -> None:
        super().__init__(reason)
        self.missing, self.gone = missing, gone


class PeerProcess:
    """A process in a session of its own, so that it can be ended with all its workers.

    Args:
      python: the interpreter.
      folder: where it may write.
      modules: the folder of links made by `link_packages`.
      log: where its own output goes.
    """

    def __init__(self, python: str, folder: Path, modules: Path, log: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = [str(modules)]
        if python == sys.executable and os.environ.get("PYTHONPATH"):
            path.append(os.environ["PYTHONPATH"])
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path),
            **NO_GPU,
            "NO_ALBUMENTATIONS_UPDATE": "1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "UNSTALL_CACHE": str(folder),
        }
        self._log = log
        self._buffer = b""
        self._released = False
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [python, "-m", "benchmarks.peers.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                cwd=modules,
                start_new_session=True,
            )

    def ask(self, method: str, *arguments: Any, timeout_s: float) -> Any:
        """Asks for one thing and waits for the answer.

        Raises:
          PeerFailed: if it says no, is gone, or does not answer in time.
        """
        self.send(method, *arguments)
        return self.receive(timeout_s=timeout_s)

    def send(self, method: str, *arguments: Any) -> None:
        """Asks for one thing."""
        assert self._process.stdin is not None
        if self._released:
            raise PeerFailed("the process has been ended", gone=True)
        try:
            self._process.stdin.write(json.dumps({"method": method, "arguments": arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self._died() from error

    def receive(self, *, timeout_s: float) -> Any:
        """Waits for the answer."""
        answer = json.loads(self._line(timeout_s))
        if "error" in answer:
            raise PeerFailed(answer["error"], missing=answer["missing"])
        return answer["ok"]

    def _line(self, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline_ns = clock.now_ns() + int(timeout_s * 1e9)
        while b"\n" not in self._buffer:
            left_s = (deadline_ns - clock.now_ns()) / 1e9
            if left_s <= 0:
                self.kill()
                raise PeerFailed(f"no answer within {timeout_s:.0f} s: it hung and was ended", gone=True)
            ready, _, _ = select.select([descriptor], [], [], min(left_s, 1.0))
            chunk = os.read(descriptor, 65536) if ready else b""
            self._buffer += chunk
            # A worker that outlives its parent may hold the pipe open.
            if not chunk and (ready or self._process.poll() is not None):
                raise self._died()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _died(self) -> PeerFailed:
        self.kill()
        code = self._process.returncode
        how = f"of signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"with exit code {code}"
        last = ""
        with contextlib.suppress(OSError):
            lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
            last = f": {lines[-1][:200]}" if lines else ""
        return PeerFailed(f"the process ended {how}{last}", gone=True)

    def rest(self) -> bool:
        """Waits until the process and its workers use no CPU any more. Returns whether they came to that."""
        for _ in range(_REST_TRIES):
            before_ns = clock.tree_cpu_ns(self._process.pid)
            clock.sleep_until_ns(clock.now_ns() + _REST_MS * 10**6)
            if clock.tree_cpu_ns(self._process.pid) - before_ns <= _REST_CPU_MS * 10**6:
                return True
        return False

    def kill(self) -> None:
        end_all([self])

    @property
    def is_released(self) -> bool:
        """Whether it has been ended, and its number may be another's by now."""
        return self._released

    def signal(self, number: int) -> bool:
        """Sends a signal to the process and all that it started. Returns whether any of them is left."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def wait(self, timeout_s: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)

    def release(self) -> None:
        self._released = True
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def end_all(processes: Sequence[PeerProcess]) -> None:
    """Ends processes and their workers, all at once: asked first, so that what they shared is given back."""
    left = [process for process in processes if not process.is_released]
    for process in left:
        process.signal(signal.SIGTERM)
    deadline_ns = clock.now_ns() + int(_TERMINATE_S * 1e9)
    for process in left:
        process.wait(max(0.0, (deadline_ns - clock.now_ns()) / 1e9))
    # Python's resource tracker outlives its process for a moment, to remove shared memory.
    while any(process.signal(0) for process in left) and clock.now_ns() < deadline_ns:
        clock.sleep_until_ns(clock.now_ns() + 20_000_000)
    for process in left:
        process.signal(signal.SIGKILL)
        process.wait(_TERMINATE_S)
        process.release()


class Launcher:
    """Starts processes in folders of their own, and ends them all.

    Args:
      scratch: the folder of these folders.
      modules: the folder of links made by `link_packages`.
      pythons: another interpreter, by peer.
      python: the interpreter of the other peers.
    """

    def __init__(self, scratch: Path, modules: Path, pythons: Mapping[str, str], python: str) -> None:
        self._scratch, self._modules, self._pythons, self._python = scratch, modules, pythons, python
        self._running: list[PeerProcess] = []
        self._started = 0

    def start(self, name: str) -> tuple[PeerProcess, Path]:
        """Starts a peer's process. Returns the process and its folder."""
        self._started += 1
        folder = self._scratch / f"{self._started:03d}"
        python = self._pythons.get(name, self._python)
        process = PeerProcess(python, folder, self._modules, folder.with_suffix(".log"))
        self._running.append(process)
        return process, folder

    def end(self) -> None:
        end_all(self._running)
        self._running.clear()


def link_packages(folder: Path) -> Path:
    """Makes a folder of links to this project's packages: on another interpreter's path, it shows nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    parent = Path(__file__).resolve().parents[2]
    for name in _PACKAGES:
        (folder / name).symlink_to(parent / name)
    return folder
