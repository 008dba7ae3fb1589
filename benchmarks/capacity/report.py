"""Prints and renders the hosts of a training, and how well the simulation reproduces small runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from unstall.benchmarks.capacity.plan import Asked
from unstall.benchmarks.capacity.results import MOST_WORKERS, CapacityDocument, Fleet, Results, SmallRun, derive
from unstall.benchmarks.capacity.samples import Measurements
from unstall.benchmarks.lab.tables import Table, page, print_end, print_table
from unstall.benchmarks.scaleout.check.results import NEAR_RATIO
from unstall.benchmarks.scaleout.report import counted, rate_text
from unstall.profiles.report import Kind

RUN_COLUMNS = ("small run", "simulated", "measured", "ratio")
FLEET_COLUMNS = ("workers a host", "in all", "their cores", "img/s", "devices", "link", "1st epoch", "hours", "price")


def run_cells(run: SmallRun) -> tuple[str, ...]:
    return (
        run.name,
        f"{run.simulated_images_per_sec:,.0f}",
        f"{run.images_per_sec:,.0f}",
        f"{run.ratio:.2f}{' !' if run.missed else ''}",
    )


def fleet_cells(fleet: Fleet, document: CapacityDocument, results: Results) -> tuple[str, ...]:
    in_all = fleet.workers * results.trainer_hosts
    mark = " (chosen)" if fleet == results.chosen else ""
    return (
        (str(fleet.workers) if fleet.workers else "own cores") + mark,
        f"{in_all:,}",
        f"{in_all * document.plan.hosts.worker_cores:,.0f}",
        f"{fleet.images_per_sec:,.0f}",
        f"{fleet.device_ratio:.0%}",
        "-" if fleet.link_ratio is None else f"{fleet.link_ratio:.0%}",
        f"{document.plan.images / fleet.cold_images_per_sec / 60:,.1f} min",
        f"{fleet.hours:,.1f}",
        "-" if fleet.price is None else f"{fleet.price:,.0f}",
    )


def sentences(document: CapacityDocument, results: Results) -> list[str]:
    """Returns the demand, the answer, network, storage and caches, and what is assumed."""
    asked, alone, chosen = document.plan, results.alone, results.chosen
    assert alone is not None and document.samples.cut is not None
    per_host = results.demand_images_per_sec / results.trainer_hosts
    lines = [
        f"{counted(asked.accelerators, 'accelerator')} on {counted(results.trainer_hosts, 'host')} "
        f"consume{'s' if asked.accelerators == 1 else ''} {results.demand_images_per_sec:,.0f} images/sec, "
        f"{per_host:,.0f} a host; an epoch of {asked.images:,} images takes "
        f"{asked.images / results.demand_images_per_sec / 60:.1f} minutes at best.",
        f"Files: {results.dataset_bytes / 1e9:,.0f} GB an epoch, read at "
        f"{rate_text(results.demand_images_per_sec * document.samples.file_bytes)} at best.",
        _answer(document, results),
    ]
    fleet = None if alone.device_ratio >= asked.goal_ratio else chosen or results.fleets[-1]
    if fleet is not None:
        received = fleet.images_per_sec * document.samples.cut.bytes_per_image / results.trainer_hosts
        lines.append(f"Batches come at {rate_text(received)} a trainer's host.")
    if fleet is not None and asked.memory_bytes:
        held = "holds all files" if fleet.cached else "does not hold all files, so that every epoch reads the storage"
        lines.append(f"The memory of the workers' hosts {held}.")
    lines.append(
        "Assumed: cores like those here, photos like those measured, one worker a host that does nothing else, each "
        "trainer's host with workers of its own, steps that all accelerators begin together, steps of the stated rate "
        "whatever the batch, no time for gradients to cross the network."
    )
    return lines


def _answer(document: CapacityDocument, results: Results) -> str:
    asked, alone, chosen = document.plan, results.alone, results.chosen
    assert alone is not None
    if alone.device_ratio >= asked.goal_ratio:
        return (
            f"The cores of the trainers' hosts, {asked.hosts.trainer_cores:g} each, use the accelerators "
            f"{alone.device_ratio:.0%}: no workers are needed."
        )
    if chosen is None:
        return f"No number of workers uses the accelerators {asked.goal_ratio:.0%}: {_why_none(document, results)}."
    in_all = chosen.workers * results.trainer_hosts
    return (
        f"{counted(chosen.workers, 'worker')} of {counted(asked.hosts.worker_cores, 'core')} for each trainer's host, "
        f"{in_all:,} in all: the accelerators are used {chosen.device_ratio:.0%}; by the trainers' own cores, "
        f"{asked.hosts.trainer_cores:g} each, {alone.device_ratio:.0%}."
    )


def _why_none(document: CapacityDocument, results: Results) -> str:
    asked, constants, last = document.plan, document.samples.constants, results.fleets[-1]
    assert constants is not None and asked.device.images_per_sec is not None
    step_s = asked.config.batch_size / asked.device.images_per_sec
    most_ratio = step_s / (step_s + constants.hand_over_ms_per_batch / 1e3)
    if most_ratio < asked.goal_ratio:
        return f"while a batch that is ready is handed over they wait, and are used {most_ratio:.0%} at best"
    if last.workers >= MOST_WORKERS:
        return f"more than {MOST_WORKERS} workers a host would be needed, which are not simulated"
    if last.link_ratio is not None and last.link_ratio > 1 - NEAR_RATIO:
        return "the trainers' links are full"
    return "the storage, the trainers' cores, or the thread that receives batches is the limit"


def run_sentence(results: Results) -> str:
    if not results.runs:
        return "Not held against small runs: unstall scaleout --check measures them, and --runs FILE names them."
    near = len(results.runs) - len(results.missed)
    return f"The simulation reproduces {near} of {len(results.runs)} small runs within {NEAR_RATIO:.0%}."


def _title(document: CapacityDocument) -> str:
    asked = document.plan
    height, width = asked.config.image_size
    return f"{asked.accelerators} x {asked.device.name}, {height}x{width} px, batches of {asked.config.batch_size}"


_LEGEND = (
    "devices: how far the accelerators are used. link: how far each trainer's link is used. 1st epoch: with all files "
    "read from the storage. hours, price: of the whole training. Simulated, not measured."
)


def _runs(results: Results) -> Table:
    rows = [run_cells(run) for run in results.runs]
    return Table(title="Small runs, simulated and measured", columns=RUN_COLUMNS, rows=rows)


def _fleets(document: CapacityDocument, results: Results) -> Table:
    if results.alone is None:
        raise ValueError("no costs were measured")
    rows = [fleet_cells(fleet, document, results) for fleet in (results.alone, *results.fleets)]
    return Table(columns=FLEET_COLUMNS, rows=rows)


def _print(console: Console, document: CapacityDocument, results: Results) -> None:
    if results.runs:
        print_table(console, _runs(results))
    console.print(Text(run_sentence(results)))
    console.print()
    console.print(Text(_title(document), style="bold"))
    print_table(console, _fleets(document, results))
    console.print()
    print_end(console, document, sentences=sentences(document, results), legend=[_LEGEND])


def _page(document: CapacityDocument, results: Results) -> str:
    return page(
        "Hosts of a training",
        document,
        about=_title(document),
        tables=[_fleets(document, results), *([_runs(results)] if results.runs else [])],
        sentences=[*sentences(document, results), run_sentence(results)],
        legend=[_LEGEND],
        facts={
            "samples": "results.json holds every cost that the simulation is made from",
            "photos": document.plan.data,
        },
    )


def _copies(document: CapacityDocument, results: Results) -> dict[str, Any]:
    return {"results": results}


def _rows(results: Results) -> Sequence[Mapping[str, Any]]:
    fleets = [results.alone, *results.fleets]
    return [asdict(fleet) for fleet in fleets if fleet is not None]


KIND = Kind(plan=Asked, samples=Measurements, derive=derive, copies=_copies, report=_page, print=_print, rows=_rows)
