"""Runs a session in a child process: hides devices, answers requests in their order, and ends with the parent.

The child of a peer runs under an interpreter that may have only NumPy, psutil and the peer's library. So this file, and
the files that it imports, must import no other library.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import sys
import threading
import traceback
import warnings
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

import unstall
from unstall import forks
from unstall.benchmarks.lab.backend import Refused
from unstall.profiles import Device
from unstall.profiles.devices import NO_GPU

# Messages of TensorFlow, Pillow and OpenCV about an image that cannot be decoded. They do not name its file.
_UNDECODABLE = re.compile(
    r"(?:jpeg::Uncompress|Invalid (?:JPEG|PNG|GIF|BMP)|Unknown image file|WebP|Input size should match)"
    r"|(?:image file is truncated|broken data stream|cannot identify image|cannot be decoded)"
)

# Received requests that are not answered yet, still pickled: unpickling a request may import modules, and some
# libraries expect to be imported in the main thread.
Requests = queue.SimpleQueue[bytes]


def main() -> None:
    """The main function of every child: sets up the process, makes the session, and answers requests by its methods.

    The parent sends the import path (None: the interpreter's own), then the session's class as "module:Class", the
    device to measure and the arguments of the class, then requests. The session's module may import TensorFlow, which
    looks for devices only once: so the module is imported here, after `settle`. If the class has a method `work`, the
    main thread runs this method, and another thread answers requests.
    """
    connection = _connection()
    path = connection.recv()
    if path is not None:
        sys.path[:] = path
    name, device, arguments = connection.recv()
    requests: Requests = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, requests), daemon=True).start()
    settle(device)
    session = unstall.of_ours(name)(*arguments)
    if not hasattr(session, "work"):
        answer(connection, requests, session)
        return
    threading.Thread(target=answer, args=(connection, requests, session), daemon=True).start()
    session.work()


def _connection() -> Connection:
    """Returns the connection to the parent, which is this process' standard input; then empties standard input."""
    connection = Connection(os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return connection


def _receive(connection: Connection, requests: Requests) -> None:
    """Queues requests. When the parent has ended, kills this process, even if it hangs, and those that it started."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            requests.put(connection.recv_bytes())
    os.killpg(0, signal.SIGKILL)


def answer(connection: Connection, requests: Requests, session: Any) -> None:
    """Answers requests `(method, arguments)` by the session's methods until the request "close"; closes the session.

    A reply is `(kind, value)`: "ok" and the value, "refused" and the reason, or "failed" and the error in one line.
    """
    closing = False
    try:
        while not closing:
            method, arguments = ForkingPickler.loads(requests.get())
            if method == "close":
                closing = True
                continue
            try:
                reply = ("ok", getattr(session, method)(*arguments))
            except Refused as error:
                reply = ("refused", str(error))
            except (Exception, SystemExit) as error:  # what fails, or calls `sys.exit`, must not end the run
                traceback.print_exc()
                reply = ("failed", one_line(error))
            connection.send(reply)
    except KeyboardInterrupt:
        pass
    finally:
        session.close()
        if closing:
            with contextlib.suppress(OSError):
                connection.send(("ok", None))


def without_folders(text: str) -> str:
    """Returns a text with the last part of each absolute path alone: folders may bear the user's name."""
    return re.sub(r"(?<!\w)/(?:[^\s/:]+/)+", "", text)


def one_line(error: BaseException) -> str:
    """Returns the message of an error in one line that is safe to print."""
    text = without_folders(re.sub(r"\{\{.*?\}\}", "", str(error)))  # and without TensorFlow's node names
    lines = text.strip().splitlines() or [""]
    if "OOM" in str(error) or isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return f"out of memory ({type(error).__name__})"
    first = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in lines[0].strip()[:200]
    )
    hint = " (unstall doctor names the file)" if _UNDECODABLE.search(first) else ""
    named = first if first.split(":")[0].endswith(("Error", "Exception")) else f"{type(error).__name__}: {first}"
    return named + hint


def settle(device: Device) -> None:
    """Sets up the process: handles signals, hides GPUs unless a GPU is measured, and quiets libraries."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the child
    signal.signal(signal.SIGTERM, _leave)
    forks.keep_inherited_garbage()  # Keras forks workers here, and leaves iterators
    warnings.simplefilter("ignore", UserWarning)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
    if device.kind == "gpu":
        os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    else:
        os.environ.update(NO_GPU)


def _leave(*_: Any) -> None:
    raise KeyboardInterrupt
