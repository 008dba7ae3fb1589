"""Reads a dataset in a thread, so that whoever waits for its elements need not wait longer than they want to."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import tensorflow as tf

from unstall.pipeline.errors import UnavailableError
from unstall.pipeline.service.tf_private import Reader, is_missing_function

Element = TypeVar("Element")

# Elements that lie ready behind TensorFlow's own buffer.
_READY = 2
_END_TIMEOUT_S = 5.0


class Stream(Generic[Element]):
    """The elements of a dataset, as they come.

    The thread builds the dataset, too: a dispatcher that is gone, or waits for a worker that is, lets a client wait.

    Args:
      make_dataset: builds the dataset of a service.
      of_element: makes of the parts of a dataset's element, tensors, what `next` returns. Is called by the thread.
    """

    def __init__(self, make_dataset: Callable[[], tf.data.Dataset], of_element: Callable[..., Element]) -> None:
        self._make_dataset, self._of_element = make_dataset, of_element
        self._read: Reader | None = None
        self._ready: queue.Queue[tuple[Element | None, Exception | None]] = queue.Queue(_READY)
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._receive, name="unstall service", daemon=True)
        self._thread.start()

    def _receive(self) -> None:
        try:
            with tf.device("/CPU:0"):
                read = Reader(self._make_dataset())
            with self._lock:
                self._read = read
            while not self._closed.is_set():
                self._put(self._of_element(*read()), None)
        except Exception as error:
            self._put(None, error)
        finally:
            if self._read is not None:
                self._read.close()

    def _put(self, element: Element | None, error: Exception | None) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._ready.put((element, error), timeout=0.1)
                return

    def next(self, *, wait_ns: int) -> Element | None:
        """Returns the next element; None if none comes in time.

        Raises:
          UnavailableError: if a worker cannot run the pipeline.
          tf.errors.OutOfRangeError: behind the last element.
        """
        try:
            element, error = self._ready.get(timeout=wait_ns / 1e9) if wait_ns > 0 else self._ready.get_nowait()
        except queue.Empty:
            return None
        if error is not None:
            raise _explained(error) from error
        return element

    def close(self) -> None:
        """Ends the read and closes the connections. A thread that still waits for the dispatcher ends after it."""
        self._closed.set()
        with self._lock:
            if self._read is not None:
                self._read.cancel()
        self._thread.join(_END_TIMEOUT_S if self._read is not None else 0.0)


def _explained(error: Exception) -> Exception:
    if is_missing_function(error):
        return UnavailableError(
            "a worker serves another pipeline: it lacks a Python function of this one. Start all workers with the same "
            "version of unstall, settings and files"
        )
    return error
