"""Measures one thing in a fresh process: a request in JSON comes as the argument, one line of JSON goes to stdout.

This file imports our own `profiles` and `models`, whichever checkout the measured code is from, so that both sides of a
comparison are held against one ruler. What is measured comes from the request's folder, by name: of a checkout of this
project the public parts of `pipeline` and `models` alone (`open_source`, `VARIANTS`, `build`, `open_model`), so that
revisions older than this file can be measured.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import unstall
from models import open_model
from profiles.devices import parse_device
from profiles.gate import anchors
from profiles.gate.feed import Feed
from profiles.gate.inspection import inspect
from profiles.measure.backends import BACKENDS, check_backend, check_device

# Of the data, in an epoch of the measurement: as the main job's.
IMAGES = 768


def main() -> int:
    """Answers the request. Returns 0; an error is in the answer."""
    request = json.loads(sys.argv[1])
    answer_to = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what others print is no answer
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    root = Path(request["root"])
    sys.path[:0] = [str(folder) for folder in (root, root / "src") if folder.is_dir()]
    if not request["revision"]:
        sys.path.append(request["here"])  # a model of the user's own beside a variant of ours
    try:
        answer = _measure(request)
    except Exception as error:  # whatever the measured code raises becomes one line for whoever asked
        logging.exception("measuring failed")
        answer = {"error": _one_line(error)}
    answer_to.write(json.dumps(answer, allow_nan=False) + "\n")
    answer_to.flush()
    return 0


def _measure(request: dict[str, Any]) -> dict[str, Any]:
    # Before anything that takes seconds to import: what is not there is said at once.
    if request["kind"] in ("function", "own function"):
        import_ = unstall.of_users if request["kind"] == "function" else unstall.of_ours
        loader, feed = None, import_(request["text"])
        model = open_model(request["model"], classes=2) if request["measure"] == "train" else None
    else:
        loader, model = _loader(request)
        feed = loader.data
    try:
        _check_origin(request)
        measured = _measured(request, feed, model, None if loader is None else loader.parallel_batches)
        _check_origin(request)  # of what is imported only when it is called, too
        return measured
    finally:
        if loader is not None:
            loader.close()


def _measured(request: dict[str, Any], feed: Any, model: Any, parallel_batches: int | None) -> dict[str, Any]:
    device = parse_device(request["device"])
    check_device(device)
    backend = check_backend()
    opened = Feed(feed, model=model, device=device, parallel_batches=parallel_batches)
    beside: dict[str, Callable[[], float]] = {}
    if request["anchors"]:
        beside = {"decode": anchors.decode, "copy": anchors.copy, "resident": anchors.Resident()}
    rates: list[dict[str, float]] = []
    anchor_rates: dict[str, list[float]] = {name: [] for name in beside}
    for number in range(request["windows"]):
        # Anchors, window, window, anchors: a drift meets both alike.
        if number % 2 == 0:
            _measure_anchors(beside, anchor_rates)
        rates.append(opened.rates())
        if number % 2:
            _measure_anchors(beside, anchor_rates)
    return {
        "images_per_sec": {figure: [window[figure] for window in rates] for figure in rates[0]},
        "anchors": anchor_rates,
        "backend": backend,
        "gpus": BACKENDS[backend].gpus(),
        "invariants": inspect(opened).to_dict() if request["inspect"] else None,
    }


def _check_origin(request: dict[str, Any]) -> None:
    """Checks that a revision's code is its own: an installed copy would be the same code on both sides.

    Raises:
      ValueError: if what is measured, or another module that the revision has, was loaded from elsewhere.
    """
    if not request["revision"]:
        return
    root = Path(request["root"])
    subject = request["text"].partition(":")[0].partition(".")[0] if request["kind"] == "function" else "pipeline"
    of_revision = {
        path.stem
        for folder in (root, root / "src")
        for path in folder.glob("*")
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    for name in sorted({subject} | of_revision - sys.stdlib_module_names - {"unstall"}):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and not Path(file).resolve().is_relative_to(root.resolve()):
            raise ValueError(
                f"{name!r} was loaded from {Path(file).parent}, not from the revision: both sides would be the same "
                "code. Name a function of the repository, which lies in it or in its folder src"
            )


def _measure_anchors(beside: dict[str, Callable[[], float]], rates: dict[str, list[float]]) -> None:
    """Measures each anchor once, and adds what that came to to its rates."""
    for name, anchor in beside.items():
        rates[name].append(anchor())


def _loader(request: dict[str, Any]) -> tuple[Any, Any]:
    """Builds the described pipeline, and opens the model that it feeds where one is to be trained."""
    try:
        pipeline, models = importlib.import_module("pipeline"), importlib.import_module("models")
        if request["kind"] == "variant":
            config = pipeline.VARIANTS[request["text"]]
        else:
            config = importlib.import_module("pipeline.config").config_from_toml(request["text"])
        options: dict[str, Any] = {}
        if request["skip_list"] is not None:
            options["skip_list"] = pipeline.read_skip_list(Path(request["skip_list"]))
        source = pipeline.open_source(request["data"], **options)
        model = None
        if request["measure"] == "train":
            model = models.open_model(request["model"], classes=len(source.class_names))
            height, width = model.input_shape[1:3]
            config = replace(config, image_size=(height, width))
        build: Any = pipeline.build
        loader = build(config, source.take(IMAGES), whole=source)
        if model is not None and loader.device_layers:
            model = models.behind(loader.device_layers, model, dtype=config.output_dtype)
        return loader, model
    except (ImportError, AttributeError, TypeError, KeyError) as error:
        raise ValueError(
            f"this code lacks what is measured of it (pipeline.VARIANTS, open_source, build): {_one_line(error)}"
        ) from error


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0].strip()[:300]}".removesuffix(": ")


def _end_with_parent() -> None:
    """Waits until the parent closes its end, be it by dying, and ends this process and all that it started."""
    while os.read(0, 1024):
        pass
    os.killpg(os.getpgid(0), signal.SIGKILL)
