"""A session for children of the tests. It imports next to nothing, so that they start at once."""

from __future__ import annotations

import os
import pathlib
import signal
import stat
import struct
import subprocess
import sys
import time


class Planted:
    """Ends, hangs or fails as it is asked, with a worker of its own where it is told a file for the worker's number."""

    def __init__(self, worker: str = "") -> None:
        if worker:
            process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            pathlib.Path(worker).write_text(str(process.pid))

    def number(self) -> int:
        return os.getpid()

    def fails(self) -> None:
        raise ValueError("it is broken\nand more")

    def leaves(self) -> None:
        sys.exit("no photos in /home/anna/photos")

    def ends(self, code: int, words: str) -> None:
        print(words, flush=True)
        os._exit(code)

    def dies(self, name: str) -> None:
        os.kill(os.getpid(), signal.Signals[name])

    def hangs(self) -> None:
        time.sleep(600)

    def half(self) -> None:
        """Dies within an answer."""
        descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
        [pipe] = [number for number in descriptors if os.path.exists(f"/proc/self/fd/{number}") and is_socket(number)]
        os.write(pipe, struct.pack("!i", 1000) + b"half")
        os._exit(7)

    def forks(self) -> None:
        """Dies while a worker holds its end of the connection open."""
        if os.fork() == 0:
            time.sleep(600)
        os._exit(7)

    def surroundings(self) -> tuple[dict[str, str], list[str], str, str]:
        return dict(os.environ), sys.path, os.getcwd(), sys.stdin.read()

    def close(self) -> None:
        print("closed", flush=True)


def is_socket(descriptor: int) -> bool:
    return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
