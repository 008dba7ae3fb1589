"""The child process around a session: its own group and log, the other devices hidden, requests answered one by one."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import re
import signal
import sys
import threading
import traceback
import warnings
from multiprocessing.connection import Connection
from typing import Any

import unstall
from benchmarks.lab.backend import Refused
from pipeline.text import printable
from profiles import Device
from profiles.devices import NO_GPU

# What TensorFlow, Pillow and OpenCV say of an image that they cannot decode, and not of which.
_UNDECODABLE = re.compile(
    r"(?:jpeg::Uncompress|Invalid (?:JPEG|PNG|GIF|BMP)|Unknown image file|WebP|Input size should match)"
    r"|(?:image file is truncated|broken data stream|cannot identify image|cannot be decoded)"
)


def serve(connection: Connection, session: str, device: Device, log: str, arguments: tuple[Any, ...]) -> None:
    """The main function of every child: settles the process, then makes the session and answers by its methods.

    The session's module is imported here and not by the parent: it may import TensorFlow, which looks for devices once.

    Args:
      connection: this end of the pipe to the parent.
      session: "module:Class". Where the class has a method `work`, the main thread runs that, and another one answers.
      device: what is measured; other devices are hidden.
      log: where the process' output goes.
      arguments: of the class.
    """
    settle(device, log)
    made = unstall.of_ours(session)(*arguments)
    if not hasattr(made, "work"):
        answer(connection, made)
        return
    threading.Thread(target=answer, args=(connection, made), daemon=True).start()
    made.work()


def answer(connection: Connection, session: Any) -> None:
    """Answers requests `(method, arguments)` by the session's methods until told to close, then closes it.

    A reply is `(kind, value)`: "ok" and the value, "refused" and the reason, or "failed" and the error in one line.
    """
    try:
        while True:
            method, arguments = connection.recv()
            if method == "close":
                break
            try:
                reply = ("ok", getattr(session, method)(*arguments))
            except Refused as error:
                reply = ("refused", str(error))
            except Exception as error:  # a variant that fails must not take the run with it
                traceback.print_exc()
                reply = ("failed", one_line(error))
            connection.send(reply)
    except (EOFError, KeyboardInterrupt):
        pass
    finally:
        session.close()
        with contextlib.suppress(OSError):
            connection.send(("ok", None))


def one_line(error: Exception) -> str:
    """Returns what an error says, in one line."""
    # Without TensorFlow's node names, and without the folders of paths.
    text = re.sub(r"(?<!\w)/(?:[^\s/:]+/)+", "", re.sub(r"\{\{.*?\}\}", "", str(error)))
    lines = text.strip().splitlines() or [""]
    if "OOM" in str(error) or isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return f"out of memory ({type(error).__name__})"
    first = printable(lines[0].strip()[:200])
    hint = " (python -m benchmarks.doctor names the file)" if _UNDECODABLE.search(first) else ""
    named = first if first.split(":")[0].endswith(("Error", "Exception")) else f"{type(error).__name__}: {first}"
    return named + hint


def settle(device: Device, log: str) -> None:
    """Sets up the process: its own group, its output to the log, devices hidden."""
    os.setsid()
    # A spawned process would hand "spawn" on to the worker pools of Keras; its users have the platform's own default.
    multiprocessing.set_start_method(None, force=True)
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.signal(signal.SIGTERM, _leave)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
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


def _die_with_parent() -> None:
    """Asks Linux to kill this process when its parent dies."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
