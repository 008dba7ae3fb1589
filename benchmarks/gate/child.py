"""Measures one subject for the gate in a fresh process.

A variant is this unstall's own. A function of the user's is imported by name from the subject's folder, which may be a
worktree of a revision; both sides of a comparison are measured by the same code of ours.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import unstall
from unstall.benchmarks.gate.processes import Setting, Subject
from unstall.benchmarks.gate.samples import Process
from unstall.benchmarks.gate.worktrees import repository_of
from unstall.benchmarks.lab.backend import Refused
from unstall.models import behind, open_model
from unstall.pipeline import VARIANTS, build, open_source, read_skip_list
from unstall.pipeline.config import config_from_toml
from unstall.profiles.gate import Feed, anchors, backend_here, inspect
from unstall.profiles.machine import Others
from unstall.profiles.measure import FitData

if TYPE_CHECKING:
    from unstall.pipeline.building import Loader

# Number of images in an epoch of the measurement: as many as in the main job's.
IMAGES = 768


class GateSession:
    """Measures one subject.

    Args:
      here: the user's working folder, from which the user's own model can be imported for one of our variants. Of a
        revision nothing may be loaded from the checkout in which it lies.
    """

    def __init__(self, subject: Subject, setting: Setting, here: Path) -> None:
        logging.getLogger("tensorflow").setLevel(logging.ERROR)
        sys.path[:0] = map(str, _folders(subject))
        if not subject.revision:
            sys.path.append(str(here))
        self._subject, self._setting, self._here = subject, setting, here

    def measure(self, windows: int, anchored: bool, inspected: bool) -> Process:
        return measure(self._subject, self._setting, self._here, windows, anchored=anchored, inspected=inspected)

    def close(self) -> None:
        """Does nothing: `measure` has closed what it opened."""


def measure(
    subject: Subject, setting: Setting, here: Path, windows: int, *, anchored: bool, inspected: bool
) -> Process:
    """Measures a subject in this process.

    Args:
      here: the user's working folder.
      anchored: whether the anchors are measured beside each window.
      inspected: whether the invariants, which have no noise, are read after the windows.
    Raises:
      Refused: if the code that was loaded is not the code that is to be measured.
    """
    repeated = None
    # A function is imported before imports that take seconds, so that a missing function is refused at once.
    if subject.kind == "function":
        loader, feed = None, unstall.of_users(subject.text)
        model = open_model(setting.model, classes=2) if setting.measure == "train" else None
    else:
        loader, model = _loader(subject, setting)
        feed = loader.data
        if "steps_per_epoch" in loader.fit_arguments:
            repeated = FitData(arguments=loader.fit_arguments)
    try:
        _check_origin(subject, here)
        if loader is not None or model is not None:
            from unstall.profiles.measure.backends import check_device

            check_device(setting.device)
        parallel_batches = None if loader is None else loader.parallel_batches
        opened = Feed(feed, model=model, device=setting.device, parallel_batches=parallel_batches, repeated=repeated)
        process = _measured(opened, windows, anchored=anchored, inspected=inspected)
        _check_origin(subject, here)  # again, for modules that the subject imported only when it was called
        return process
    finally:
        if loader is not None:
            loader.close()


def _measured(opened: Feed, windows: int, *, anchored: bool, inspected: bool) -> Process:
    beside = anchors.runnable() if anchored else {}
    others = Others()
    rates: list[dict[str, float]] = []
    anchor_rates: dict[str, list[float]] = {name: [] for name in beside}
    for number in range(windows):
        # The order is anchors, window, window, anchors, so that a drift of the machine affects both equally.
        if number % 2 == 0:
            _measure_anchors(beside, anchor_rates)
        rates.append(opened.rates())
        if number % 2:
            _measure_anchors(beside, anchor_rates)
    others_ratio = others.ratio()
    # Only a baseline must know, and what `fit` reads; a function of PyTorch's need not wait for Keras.
    backend, gpus = backend_here() if anchored or opened.reading == "fit" else ("", [])
    return Process(
        rates={figure: tuple(window[figure] for window in rates) for figure in rates[0]},
        anchors={name: tuple(values) for name, values in anchor_rates.items()},
        invariants=inspect(opened) if inspected else None,
        backend=backend,
        reading=opened.reading,
        gpus=tuple(gpus),
        others_ratio=others_ratio,
    )


def _folders(subject: Subject) -> list[Path]:
    """Returns the folders from which a subject's modules are imported: its own, of a revision also the topmost."""
    tops = [subject.root, repository_of(subject.root) if subject.revision else None]
    folders = [folder for top in dict.fromkeys(tops) if top is not None for folder in (top, top / "src")]
    return [folder for folder in folders if folder.is_dir()]


def _check_origin(subject: Subject, here: Path) -> None:
    """Checks that the measured code was loaded from the revision: an installed copy would be the same on both sides.

    Raises:
      Refused: if the subject's package, or another module that the revision has, was loaded from another folder, or
        any module from the user's checkout.
    """
    if not subject.revision:
        return
    own = (repository_of(subject.root) or subject.root).resolve()
    package = subject.text.partition(":")[0].partition(".")[0]
    of_revision = {
        path.stem
        for folder in _folders(subject)
        for path in folder.glob("*")
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    } - sys.stdlib_module_names
    checkout = repository_of(here.resolve())
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        # AutoGraph writes its modules into the folder for temporary files.
        if file is None or name.startswith("__autograph_generated"):
            continue
        if (path := Path(file).resolve()).is_relative_to(own):
            continue
        if name == package or name in of_revision or (checkout is not None and _is_part(path, checkout)):
            raise Refused(
                f"{name!r} was loaded from {path.parent.name}, not from the revision: both sides would be the same "
                "code. Name a function of the repository, which lies in it or in its folder src; no installed package "
                "and no PYTHONPATH may lead to your checkout"
            )


def _is_part(path: Path, checkout: Path) -> bool:
    """Whether a file is a part of a checkout: of no environment, and of no other repository but a submodule, in it."""
    environments = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]
    in_environment = any(path.is_relative_to(folder) and not checkout.is_relative_to(folder) for folder in environments)
    if in_environment or "site-packages" in path.parts:
        return False
    top = repository_of(path)
    return top == checkout or (top is not None and (top / ".git").is_file() and top.is_relative_to(checkout))


def _measure_anchors(beside: dict[str, Callable[[], float]], rates: dict[str, list[float]]) -> None:
    """Measures each anchor once, and appends the rate to the anchor's rates."""
    for name, anchor in beside.items():
        rates[name].append(anchor())


def _loader(subject: Subject, setting: Setting) -> tuple[Loader, Any]:
    """Builds a pipeline of ours, and, if training is measured, opens the model that the pipeline feeds."""
    config = VARIANTS[subject.text] if subject.kind == "variant" else config_from_toml(subject.text)
    skip_list = None if setting.skip_list is None else read_skip_list(Path(setting.skip_list))
    source = open_source(setting.data, skip_list=skip_list)
    model = None
    if setting.measure == "train":
        model = open_model(setting.model, classes=len(source.class_names))
        height, width = model.input_shape[1:3]
        config = replace(config, image_size=(height, width))
    loader = build(config, source.take(IMAGES), whole=source)
    if model is not None and loader.device_layers:
        model = behind(loader.device_layers, model, dtype=config.output_dtype)
    return loader, model
