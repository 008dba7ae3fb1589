"""What is held of a `fit` or a loop that has ended: neither a model nor a batch, and the data of one `fit` at most."""

from __future__ import annotations

import gc
import itertools
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from unstall.profiles.data import DataKind, Use, adapter
from unstall.profiles.data.torch import DataLoaders
from unstall.profiles.remedies import NEEDS
from unstall.profiles.script import profiler
from unstall.profiles.script.loops import Loops
from unstall.profiles.script.monitor import StallMonitor
from unstall.profiles.script.profiler import Profiler
from unstall.profiles.trial import ceilings

IMAGES, LABELS = np.zeros((64, 4), np.float32), np.zeros((64,), np.float32)


class ByIndex(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return IMAGES[index * 8 : index * 8 + 8], LABELS[index * 8 : index * 8 + 8]


DATA: dict[str, Callable[[], Any]] = {
    "tf.data": lambda: tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).batch(8),
    "arrays": IMAGES.copy,
    "PyDataset": ByIndex,
}


class Ends(keras.callbacks.Callback):
    """Leaves `fit` in its second epoch, between two steps."""

    def __init__(self, error: type[BaseException] | None) -> None:
        super().__init__()
        self.error = error
        self.epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (self.epoch, batch) == (1, 3):
            if self.error is not None:
                raise self.error
            self.model.stop_training = True


ENDS: dict[str, list[Any]] = {
    "by itself": [],
    "early": [None],
    "by an error": [ValueError],
    "by Ctrl-C": [KeyboardInterrupt],
    "by SystemExit": [SystemExit],
}


def endings(*before: Any) -> list[Any]:
    """Parameters with each end of a `fit`; two that are like another run with `-m slow`."""
    slow = ("early", "by SystemExit")
    return [pytest.param(*before, ends, marks=pytest.mark.slow if ends in slow else ()) for ends in ENDS]


def a_fit(data: Any, ends: str = "by itself", *callbacks: Any, steps: int = 1) -> weakref.ref[Any]:
    """Trains a model of its own for three epochs. Returns a reference to it that does not hold it."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=steps)
    with suppress(ValueError, KeyboardInterrupt, SystemExit):
        labels = LABELS if isinstance(data, np.ndarray) else None
        own = [Ends(error) for error in ENDS[ends]]
        model.fit(
            data,
            labels,
            batch_size=8 if labels is not None else None,
            epochs=3,
            verbose=0,
            callbacks=[*callbacks, *own],
        )
    return weakref.ref(model)


def holds(start: Any, wanted: Any) -> bool:
    """Whether one object keeps another alive. TensorFlow holds each PyDataset: a weak reference to it tells nothing."""
    seen, waiting = {id(start)}, [start]
    while waiting:
        one = waiting.pop()
        if one is wanted:
            return True
        found = [one.__closure__, one.__dict__] if isinstance(one, types.FunctionType) else gc.get_referents(one)
        for other in found:
            if id(other) not in seen and not isinstance(other, (type, types.ModuleType)):
                seen.add(id(other))
                waiting.append(other)
    return False


def alive(*references: weakref.ref[Any]) -> list[bool]:
    gc.collect()
    return [reference() is not None for reference in references]


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the windows of the model alone short. Several steps in a call take a second to trace: one case has them."""
    monkeypatch.setattr(ceilings, "READY_WINDOW_S", 0.02)
    monkeypatch.setattr(ceilings, "_MOST_ROUNDS", 3)  # beside other tests no round is quiet
    monkeypatch.setattr(ceilings, "_LONGEST_STEP_TOGETHER_S", 0.0)


@pytest.fixture
def watched() -> Iterator[Profiler]:
    one = Profiler(ceilings=ceilings.measure_ceilings, max_steps=None)
    one.attach()
    yield one
    one.detach()


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "ends"),
    [
        *endings("tf.data"),
        *(("arrays", ends) for ends in ("by itself", "by Ctrl-C")),
        *(("PyDataset", ends) for ends in ("by itself", "by an error")),
    ],
)
def test_models_and_the_data_of_all_but_the_longest_fit_are_let_go(
    watched: Profiler, monkeypatch: pytest.MonkeyPatch, kind: str, ends: str
) -> None:
    together = (kind, ends) == ("tf.data", "by itself")
    if together:
        monkeypatch.setattr(ceilings, "_LONGEST_STEP_TOGETHER_S", 60.0)  # also where other programs have the cores
    data = [DATA[kind]() for _ in range(2)]
    models = [a_fit(one, ends) for one in data]
    assert len(watched.fits) == 2
    assert [fit.ceilings.step_ns is not None for fit in watched.fits] == [together] * 2
    assert alive(*models) == [False] * 2
    held = [holds(watched, one) for one in data]
    assert sum(held) == (0 if kind == "arrays" else 1)
    if kind == "tf.data":
        references = [weakref.ref(one) for one in data]
        del data
        assert alive(*references) == held


def test_it_is_the_data_of_the_longest_fit_that_is_held(watched: Profiler, monkeypatch: pytest.MonkeyPatch) -> None:
    watched._ceilings = False  # which take seconds where other programs have the cores
    times_ns = iter((5, 3, 9, 1))
    monkeypatch.setattr(profiler, "_took_ns", lambda watch: next(times_ns))
    references = []
    held = []
    for _ in range(4):
        data = DATA["tf.data"]()
        references.append(weakref.ref(data))
        a_fit(data)
        del data
        held.append(alive(*references))
    assert held[1:] == [[True, False], [False, False, True], [False, False, True, False]]
    names = [fit.name for fit in watched.fits]
    assert {name: one is not None for name, one in watched.readable_data.items()} == dict(
        zip(names, held[-1], strict=True)
    )


def test_data_that_the_script_holds_can_be_read_at_its_end_three_at_most(watched: Profiler) -> None:
    watched._ceilings = False  # which take seconds where other programs have the cores
    data = [DATA["tf.data"]() for _ in range(4)]
    for one in data:
        a_fit(one)
    a_fit(IMAGES)
    assert len(watched.fits) == 5
    readable = [one for one in watched.readable_data.values() if one is not None]
    assert len(watched.readable_data) == 4 and len(readable) == 3
    assert all(any(one is its for its in data) for one in readable)


@pytest.mark.parametrize("ends", endings())
def test_batches_are_let_go_whoever_keeps_the_watch(
    watched: Profiler, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    watches = []
    note = watched._note
    monkeypatch.setattr(watched, "_note", lambda *a, **k: (watches.append((a[3], len(a[3].kept))), note(*a, **k)))
    a_fit(DATA["tf.data"](), ends)
    ((watch, kept),) = watches
    assert (kept, len(watch.kept)) == (3, 0)


@pytest.mark.parametrize(("steps", "ends"), [*endings(1), (2, "by itself"), (2, "by an error")])
def test_a_monitor_that_the_script_keeps_holds_neither_model_nor_data(steps: int, ends: str) -> None:
    monitor = StallMonitor()
    data = DATA["tf.data"]()
    references = a_fit(data, ends, monitor, steps=steps), weakref.ref(data)
    del data
    assert alive(*references) == [False, False]
    assert monitor.summary()["images_per_sec"] != "unknown"


@pytest.mark.parametrize(("limit", "steps"), [(5, [5]), (30, [24, 6])])
def test_a_script_is_left_after_so_many_steps_of_all_its_fits(limit: int, steps: list[int]) -> None:
    """Each `fit` would make three epochs of eight steps."""
    models = []

    def script() -> None:
        for _ in steps:
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            models.append(model)
            model.fit(DATA["tf.data"](), epochs=3, verbose=0)

    profiled = Profiler(ceilings=None, max_steps=limit)
    profiled.attach()
    try:
        with pytest.raises(SystemExit) as left:
            script()
    finally:
        profiled.detach()
    assert left.value.code == 0
    assert [int(model.optimizer.iterations) for model in models] == steps


class DataLoader:
    """Of PyTorch: what a watched loop asks of it."""

    num_workers = 0

    def __init__(self, dataset: list[np.ndarray]) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(self.dataset)


class Dataset(list):
    """Can be referred to without being held."""


@pytest.fixture
def loader_class(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The `DataLoader` of a stand-in for PyTorch."""
    torch = types.SimpleNamespace(
        is_grad_enabled=lambda: True, cuda=types.SimpleNamespace(is_initialized=lambda: False)
    )
    data_module = types.SimpleNamespace(DataLoader=type("DataLoader", (DataLoader,), {"__iter__": DataLoader.__iter__}))
    for name, module in (("torch", torch), ("torch.utils", torch), ("torch.utils.data", data_module)):
        monkeypatch.setitem(sys.modules, name, module)
    return data_module.DataLoader


def test_of_loops_that_each_have_data_of_their_own_those_of_few_are_held(loader_class: Any) -> None:
    loops = Loops(max_steps=None, tries=True)
    detach = DataLoaders().attach(loops)
    made = []
    for _ in range(8):
        loader = loader_class(Dataset([np.zeros((8, 4))]))
        made.append(weakref.ref(loader.dataset))
        for _ in loader:
            pass
        del loader
    detach()
    gc.collect()
    assert sum(alive(*made)) <= 2 and loops.fits
    assert sum(data is not None for data in loops.readable_data.values()) <= 2


@pytest.mark.parametrize("ends", ["by itself", "early", "by an error"])
def test_loops_hold_neither_loader_nor_data_nor_batches(loader_class: Any, ends: str) -> None:
    loops = Loops(max_steps=None)
    DataLoaders().attach(loops)

    def a_loop() -> list[weakref.ref[Any]]:
        loader = loader_class(Dataset(np.zeros((8, 4)) for _ in range(6)))
        with suppress(ValueError):
            for number, _ in enumerate(itertools.chain(loader, loader)):
                if number == 3 and ends == "early":
                    break
                if number == 3 and ends == "by an error":
                    raise ValueError
        return [weakref.ref(one) for one in (loader, loader.dataset, loader.dataset[0], loader.dataset[3])]

    first, second = a_loop(), a_loop()
    assert alive(*first, *second) == [False] * 8
    assert loops.fits


def test_a_fit_whose_model_is_not_measured_alone_is_held_for_its_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its step may take too long for a rate of the model alone, and its data may cost much all the same.

    A longer `fit` that an error has ended is not held, and does not keep another from being held.
    """
    monkeypatch.setattr(ceilings, "_plan", lambda step_s, limit_s, kept: 0)
    took_ns = iter((2_000, 1_000))
    monkeypatch.setattr(profiler, "_took_ns", lambda watch: next(took_ns))
    watched = Profiler(ceilings=ceilings.measure_ceilings, max_steps=None, tries=True)
    watched.attach()
    try:
        a_fit(DATA["tf.data"](), "by an error")
        assert watched.longest is None
        model = a_fit(DATA["tf.data"]())
    finally:
        watched.detach()
    assert "too few fit into" in str(watched.fits[1].ceilings.reason)
    assert watched.longest is not None and watched.longest.model is model()


def test_a_fit_is_held_for_its_remedies_also_where_one_has_replaced_its_data() -> None:
    """What the script gave is held, although `fit` was given data of another kind."""
    replaced = DATA["tf.data"]()
    applied = types.SimpleNamespace(to_fit=lambda place, call, arguments: {"x": replaced})
    watched = Profiler(ceilings=ceilings.measure_ceilings, max_steps=None, tries=True, applies=applied)
    watched.attach()
    try:
        given = ByIndex()
        model = a_fit(given)
    finally:
        watched.detach()
    assert (watched.fits[0].facts.data, watched.fits[0].facts.kind) == ("a tf.data.Dataset", DataKind.TF_DATA)
    assert watched.longest is not None
    assert watched.longest.arguments["x"] is given and watched.longest.model is model()
    assert (watched.longest.name, watched.longest.epochs) == (watched.fits[0].name, 3)


@pytest.mark.parametrize(("limit", "epochs"), [(None, 3), (4, 30)])
def test_a_fit_that_is_left_early_is_held_with_all_the_epochs_that_were_asked_for(
    limit: int | None, epochs: int
) -> None:
    watched = Profiler(ceilings=None, max_steps=limit, tries=True)
    watched.attach()
    try:
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(loss="mse")
        data = tf.data.Dataset.from_tensor_slices(np.ones((24, 3), "float32")).map(halves).batch(8)
        with suppress(SystemExit):
            model.fit(data, epochs=epochs, verbose=0)
    finally:
        watched.detach()
    assert watched.longest is not None and watched.longest.epochs == epochs


def halves(row: Any) -> Any:
    return row[:2], row[2]


@pytest.mark.parametrize("anew", [True, False], ids=["made anew for each fit", "made once"])
def test_data_that_are_made_anew_for_each_fit_have_no_use_for_a_cache(anew: bool) -> None:
    watched = Profiler(ceilings=None, max_steps=None, tries=True)
    watched.attach()
    try:
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(loss="mse")
        data = [tf.data.Dataset.from_tensor_slices(np.ones((64, 3), "float32")).map(halves).batch(8) for _ in "ab"]
        for number in range(3):
            model.fit(data[number % 2 if anew else 0], epochs=1, verbose=0)
    finally:
        watched.detach()
    assert len(watched.fits) == 1 and watched.longest is not None and watched.longest.anew is anew
    seen = watched.longest
    use = Use(arguments=seen.arguments, anew=seen.anew, epoch_batches=seen.epoch_batches)
    held = adapter(seen.arguments["x"]).rebuilt(seen.arguments["x"], use, NEEDS)
    offered = {remedy.name for remedy in held.remedies}
    assert ("cache" not in offered) is anew and "repeat" not in offered
    assert any("makes these data anew" in one.reason for one in held.untried) is anew
