"""Times the batch hooks of callbacks, which Keras calls before and after each step, so that they count for no step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras

from profiles import clock
from profiles.script.callback import WatchCallback
from profiles.script.watch import Watch

_HOOKS = ("on_train_batch_begin", "on_train_batch_end")


def time_hooks() -> Callable[[], None]:
    """Makes each of Keras' callback lists tell its `WatchCallback` how long the batch hooks of the list took.

    The hooks of the list are timed, because Keras waits for each step once a callback has batch hooks of its own: so
    `WatchCallback` has none.

    Returns:
      A function that restores Keras' own hooks.
    """
    owner = keras.callbacks.CallbackList
    originals = {name: vars(owner)[name] for name in _HOOKS}
    for name, original in originals.items():
        setattr(owner, name, _timed(original))

    def undo() -> None:
        for name, original in originals.items():
            setattr(owner, name, original)

    return undo


def _timed(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def hook(callbacks: Any, *arguments: Any, **options: Any) -> None:
        watch = _watch_of(callbacks)
        if watch is None:
            original(callbacks, *arguments, **options)
            return
        before_ns = clock.now_ns()
        original(callbacks, *arguments, **options)
        watch.add_hook(before_ns, clock.now_ns())

    return hook


def _watch_of(callbacks: Any) -> Watch | None:
    first = callbacks.callbacks[0] if callbacks.callbacks else None
    return first.watch if isinstance(first, WatchCallback) else None
