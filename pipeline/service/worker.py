"""A worker process of a service: reads from its input what to serve, and serves it.

The loader that started it holds the other end of the input: the worker ends when that closes, so also when the loader's
process is killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import tensorflow as tf

from unstall.pipeline.address import Place
from unstall.pipeline.config import PipelineConfig, config_from_dict, config_to_dict
from unstall.pipeline.errors import UnavailableError, first_line
from unstall.pipeline.service.account import Ledger, WorkerFacts, usable_cores
from unstall.pipeline.service.costs import stage_costs
from unstall.pipeline.service.handshake import answering
from unstall.pipeline.service.numbered import BatchMaker, chunks, numbered_batches
from unstall.pipeline.service.server import start_worker
from unstall.pipeline.service.tf_private import named_functions
from unstall.pipeline.sources.names import FileNames
from unstall.pipeline.sources.source import ImageSource

READY = "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A worker that serves; it ends with this object.

    Attributes:
      facts: what the worker says of itself.
      held: its server, and the pipelines that it must keep for its Python functions to stay.
    """

    facts: WorkerFacts
    held: tuple[Any, ...]


def serve(source: ImageSource, config: PipelineConfig, place: Place) -> Serving:
    """Builds the pipeline, so that this process has its Python functions, measures it, and starts to serve it.

    Raises:
      UnavailableError: if the port is taken.
    """
    ledger = Ledger()
    maker = BatchMaker(source, config, ledger)
    with named_functions() as functions:
        dataset = numbered_batches(chunks(0), maker)
    facts = WorkerFacts(
        worker=ledger.worker,
        cores=usable_cores(),
        images=source.images,
        batches=maker.batches,
        functions=tuple(functions),
        parts=maker.parts,
        costs_us=stage_costs(source, config),
    )
    return Serving(facts=facts, held=(*_start(facts, place), dataset))


def serve_dataset(dataset: tf.data.Dataset, functions: list[str], place: Place) -> Serving:
    """Serves a pipeline that a user's function has built, under `named_functions`."""
    facts = WorkerFacts(worker=Ledger().worker, cores=usable_cores(), images=0, batches=0, functions=tuple(functions))
    return Serving(facts=facts, held=(*_start(facts, place), dataset))


def _start(facts: WorkerFacts, place: Place) -> tuple[Any, ...]:
    about = answering(facts)
    return start_worker(place), about


def order_for(source: ImageSource, config: PipelineConfig, place: Place) -> str:
    """Returns the line that tells a worker process what to serve.

    Raises:
      UnavailableError: if the images are not files, which the worker could read for itself.
    """
    if source.root is None or not source.files:
        raise UnavailableError("a service reads folders of files only: its workers list and read them for themselves")
    return json.dumps(
        {
            "config": config_to_dict(config),
            "place": {name: getattr(place, name) for name in Place.__slots__},
            "source": {
                "kind": source.kind,
                "name": source.name,
                "class_names": source.class_names,
                "root": os.path.abspath(source.root),
                "files": list(source.files),
                "labels": source.labels.tolist(),
                "formats": source.formats,
                "jpeg_sizes": source.jpeg_sizes.tolist(),
                "fingerprint": source.fingerprint,
            },
        }
    )


def _read_order(line: str) -> tuple[ImageSource, PipelineConfig, Place]:
    order = json.loads(line)
    values = order["source"]
    source = ImageSource(
        kind=values["kind"],
        name=values["name"],
        class_names=tuple(values["class_names"]),
        root=Path(values["root"]),
        files=FileNames.of(values["files"]),
        labels=np.array(values["labels"], np.int64),
        formats=tuple(values["formats"]),
        jpeg_sizes=np.array(values["jpeg_sizes"], np.int32).reshape(-1, 2),
        fingerprint=values["fingerprint"],
    )
    return source, config_from_dict(order["config"]), Place(**order["place"])


def main(orders: TextIO, answers: TextIO) -> int:
    """Serves what the first line of `orders` says, until there is no more to read."""
    line = orders.readline()
    if not line.strip():
        return 0
    try:
        source, config, place = _read_order(line)
        serving = serve(source, config, place)
    except Exception as error:
        answers.write(f"{type(error).__name__}: {first_line(error)}\n")
        answers.flush()
        return 3
    answers.write(f"{READY} {serving.facts.worker}\n")
    answers.flush()
    orders.read()  # waits until the loader's end is closed
    return 0


def run() -> None:
    """The main function of a worker process. What libraries print goes where errors go."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the loader's process decides
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    code = 1
    try:
        code = main(sys.stdin, answers)
        answers.flush()
    finally:
        os._exit(code)  # TensorFlow's worker would first wait for its clients
