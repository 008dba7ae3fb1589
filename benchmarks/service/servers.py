"""Starts a dispatcher or a worker in this process, and says what the user does next. Runs until a signal stops it."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import tensorflow as tf
from rich.console import Console

import unstall
from unstall.benchmarks.lab.command import check_files
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.service.plan import ServerPlan
from unstall.pipeline import SourceError, open_source, read_skip_list
from unstall.pipeline.commands import Stopped
from unstall.pipeline.errors import UnavailableError
from unstall.pipeline.service import LOOPBACK_HOST, Address, Place, server
from unstall.pipeline.service.handshake import check_reachable
from unstall.pipeline.service.tf_private import named_functions
from unstall.pipeline.service.worker import Serving, serve_dataset
from unstall.pipeline.service.worker import serve as serve_source

_OPEN = "open to other hosts: whoever reaches this port can run code here as you, as the service asks for no password"
_CLOSED = (
    "for this host only, but for all of its users: who reaches this port can run code here as you; --open lets other "
    "hosts connect"
)


def serve(plan: ServerPlan, console: Console, errors: Console) -> int:
    """Starts the server, and waits for a signal. Does not return but ends the process.

    Raises:
      UserError: if the server cannot start.
    """
    try:
        held = _dispatcher(plan, console) if plan.dispatcher is None else _worker(plan, plan.dispatcher, console)
    except (UnavailableError, SourceError) as error:
        raise UserError(f"{error}.", exit_code=3) from error
    errors.print(f"{_OPEN if plan.open_to_others else _CLOSED}. Stop it with Ctrl+C.", soft_wrap=True)
    return _serve_until_stopped(held, errors)


def _serve_until_stopped(held: object, errors: Console) -> int:
    """Keeps a server until a signal stops it, and then ends the process."""
    try:
        threading.Event().wait()
    except Stopped as stopped:
        errors.print("stopped")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(stopped.exit_code)  # TensorFlow's servers would first wait for their clients
    return 0


def _dispatcher(plan: ServerPlan, console: Console) -> Any:
    if plan.journal is not None:
        plan.journal.mkdir(parents=True, exist_ok=True)
    started = server.start_dispatcher(plan.port, journal=plan.journal, open_to_others=plan.open_to_others)
    console.print(f"dispatcher ready at port {plan.port}")
    here = LOOPBACK_HOST if not plan.open_to_others else "THIS_HOST"
    for line in (
        f"workers:  unstall service worker --dispatcher {here}:{plan.port} --data DIR{' --open' * plan.open_to_others}",
        f"does it help: unstall service local --data DIR --service {here}:{plan.port}",
    ):
        console.print(line, soft_wrap=True)
    return started


def _worker(plan: ServerPlan, dispatcher: Address, console: Console) -> Serving:
    check_reachable(dispatcher)
    host = plan.host or server.own_address(dispatcher.host, dispatcher.port)
    place = Place(dispatcher=dispatcher.text, host=host, port=plan.port, open_to_others=plan.open_to_others)
    serving = _of_function(plan.pipeline, place) if plan.pipeline is not None else _of_photos(plan, place)
    facts = serving.facts
    console.print(f"worker {facts.worker} ready for {dispatcher.text}, {facts.cores} cores")
    if facts.costs_us:
        costs = ", ".join(f"{stage} {cost:,.0f}" for stage, cost in facts.costs_us.items())
        rate = facts.cores * 1e6 / facts.costs_us["all"]
        console.print(f"us of a core an image: {costs}; at most {rate:,.0f} img/s", soft_wrap=True)
    return serving


def _of_photos(plan: ServerPlan, place: Place) -> Serving:
    assert plan.data is not None and plan.config is not None
    source = open_source(plan.data, skip_list=read_skip_list(plan.skip_list))
    check_files(source, plan.data)
    return serve_source(source, plan.config, place)


def _of_function(text: str, place: Place) -> Serving:
    """Calls the user's function, so that this process has the Python functions of its pipeline."""
    try:
        with named_functions() as functions:
            dataset = unstall.of_users(text)()
    except Exception as error:
        raise UserError(f"--pipeline {text} fails: {type(error).__name__}: {error}") from error
    if not isinstance(dataset, tf.data.Dataset):
        raise UserError(f"--pipeline {text} must return a tf.data.Dataset. Received: {type(dataset).__name__}.")
    return serve_dataset(dataset, functions, place)
