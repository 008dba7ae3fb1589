"""Garbage in forked processes: what ends a hang of Keras' workers on TensorFlow.

The garbage of a process may be an iterator of tf.data. Its end waits for threads of TensorFlow, of which a fork copies
none: a forked process that collects it waits for ever. So do the workers of Keras, mostly in the second `fit` of a
script (docs/training-hangs.md).
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import threading
from collections.abc import Iterator

# The line by which a script without us keeps its forked workers from waiting for ever: they collect no garbage at all.
LINE = "os.register_at_fork(before=gc.disable, after_in_parent=gc.enable)"


class _Fork(threading.local):
    """Of a thread that forks: whether garbage is collected, and whether its children keep what they inherit."""

    collects, keeps = True, True


_fork = _Fork()


@functools.cache
def keep_inherited_garbage() -> None:
    """From now on no process that this one forks collects the garbage that it inherits. For processes of our own.

    It registers hooks, which nothing can remove: nobody but a command that runs a script, or measures, calls this.
    """
    if hasattr(os, "register_at_fork"):  # Windows forks no process
        os.register_at_fork(
            before=_pause_collecting, after_in_parent=_resume_collecting, after_in_child=_keep_what_is_inherited
        )


def _pause_collecting() -> None:
    _fork.collects = gc.isenabled()
    gc.disable()


def _resume_collecting() -> None:
    if _fork.collects:
        gc.enable()


def _keep_what_is_inherited() -> None:
    if _fork.keeps:
        gc.freeze()
    _resume_collecting()


@contextlib.contextmanager
def not_collecting() -> Iterator[None]:
    """Collects no garbage within: a process that is forked here does not either, until it says otherwise."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def collect_garbage() -> bool:
    """Whether a process that is forked here would collect the garbage that it inherits if we did not keep it from it.

    A process is forked to see that: the script that runs may have `LINE`, or one to the same end.

    Raises:
      OSError: if no process can be forked.
    """
    frozen = gc.get_freeze_count()
    _fork.keeps = False
    try:
        child = os.fork()
        if not child:
            os._exit(gc.isenabled() and gc.get_freeze_count() <= frozen)
    finally:
        _fork.keeps = True
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
