"""Times the hooks of callbacks, so that their time counts for no step and for no edge of an epoch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras

from unstall.profiles import clock
from unstall.profiles.script.callback import WatchCallback
from unstall.profiles.script.watch import Watch

_HOOKS = tuple(
    f"on_{subject}_{moment}"
    for subject in ("train", "epoch", "train_batch", "test", "test_batch", "predict", "predict_batch")
    for moment in ("begin", "end")
)


def time_hooks() -> Callable[[], None]:
    """Makes each of Keras' callback lists tell its `WatchCallback` how long the hooks of the list took.

    The hooks of the list are timed, because Keras waits for each step once a callback has batch hooks of its own: so
    `WatchCallback` has none.

    Returns:
      A function that restores Keras' own hooks.
    """
    owner = keras.callbacks.CallbackList
    originals = {name: getattr(owner, name) for name in _HOOKS}
    inherited = [name for name in _HOOKS if name not in vars(owner)]
    for name, original in originals.items():
        setattr(owner, name, _timed(name, original))

    def undo() -> None:
        for name, original in originals.items():
            if name in inherited:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

    return undo


def _timed(name: str, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def hook(callbacks: Any, *arguments: Any, **options: Any) -> None:
        before_ns, watch = clock.now_ns(), _watch_of(callbacks)
        if watch is not None:
            watch.in_callbacks = True
        try:
            original(callbacks, *arguments, **options)
        finally:
            watch = _watch_of(callbacks)  # `on_train_begin` has made it
            if watch is not None:
                watch.in_callbacks = False
                watch.add_hook(name, before_ns, clock.now_ns())

    return hook


def _watch_of(callbacks: Any) -> Watch | None:
    first = callbacks.callbacks[0] if callbacks.callbacks else None
    return first.watch if isinstance(first, WatchCallback) else None
