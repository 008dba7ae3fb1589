"""Prints and renders whether a pool of workers pays, how many there must be, and where to cut the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from unstall.benchmarks.lab.tables import Table, page, print_end, print_table
from unstall.benchmarks.scaleout.model import LIMITS, Hosts, Pool
from unstall.benchmarks.scaleout.plan import Asked
from unstall.benchmarks.scaleout.results import CutResult, Results, ScaleoutDocument, derive
from unstall.benchmarks.scaleout.samples import Costs, CutCosts, Measurements
from unstall.profiles.report import Kind

CUT_COLUMNS = ("workers send", "worker us", "trainer us", "KB", "img/s a worker", "needed", "by TensorFlow")
POOL_COLUMNS = ("workers send", "workers", "img/s", "device", "network", "a million", "limit")
_WHAT = {"files": "files", "images": "decoded images", "batches": "whole batches"}


def name_of(pool: Pool) -> str:
    """Returns what workers send, in words."""
    return _WHAT[pool.served] if pool.served else "no workers"


def cut_cells(cut: CutCosts, result: CutResult) -> tuple[str, ...]:
    return (
        _WHAT[cut.served],
        f"{cut.worker_us:,.0f}",
        f"{cut.trainer_us:,.0f}",
        f"{cut.bytes_per_image / 1e3:,.1f}",
        f"{result.worker_images_per_sec:,.0f}",
        str(result.smallest.workers) if result.smallest else "none",
        str(result.by_tensorflow),
    )


def pool_cells(pool: Pool, mark: str = "") -> tuple[str, ...]:
    return (
        name_of(pool) + mark,
        str(pool.workers),
        f"{pool.images_per_sec:,.0f}",
        f"{pool.device_ratio:.0%}",
        rate_text(pool.network_bytes_per_sec) if pool.served else "-",
        "-" if pool.price is None else f"{pool.price:,.3g}",
        pool.limit,
    )


def rate_text(bytes_per_sec: float) -> str:
    """Returns the rate of a link, such as 1.2 Gbit/s."""
    megabits = bytes_per_sec * 8 / 1e6
    return f"{megabits / 1e3:,.1f} Gbit/s" if megabits >= 1e3 else f"{megabits:,.0f} Mbit/s"


def counted(number: float, noun: str) -> str:
    """Returns a number and what it counts, such as 2 workers."""
    return f"{number:g} {noun}{'' if number == 1 else 's'}"


def rows_of(results: Results) -> list[tuple[str, ...]]:
    """Returns the pools worth a look: no workers; of each cut the first, those around the smallest, and the last."""
    assert results.alone is not None
    rows = [pool_cells(results.alone, _mark(results.alone, results))]
    for cut in results.cuts:
        last = cut.pools[-1].workers
        least = cut.smallest.workers if cut.smallest else last
        shown = sorted({1, max(1, least - 1), least, min(last, least + 1), last})
        rows += [pool_cells(cut.pools[number - 1], _mark(cut.pools[number - 1], results)) for number in shown]
    return rows


def _mark(pool: Pool, results: Results) -> str:
    marks = [name for name, other in (("chosen", results.chosen), ("cheapest", results.cheapest)) if pool == other]
    return f" ({', '.join(marks)})" if marks else ""


def sentences(document: ScaleoutDocument, results: Results) -> list[str]:
    """Returns the answer, and what the prediction assumes."""
    asked, alone, chosen = document.plan, results.alone, results.chosen
    assert alone is not None
    lines = []
    if chosen is None and alone.device_ratio >= asked.goal_ratio:
        lines.append(
            f"Does not pay: the trainer alone uses its device {alone.device_ratio:.0%}, and more than "
            f"{asked.goal_ratio:.0%} is not asked for."
        )
    elif chosen is None:
        lines.append(f"Does not pay: no pool raises the rate by 5 % or more. {_why_not(results)}")
    else:
        gain = chosen.images_per_sec / alone.images_per_sec
        s = "s" if chosen.workers == 1 else ""
        what = f"{counted(chosen.workers, 'worker')} that send{s} {name_of(chosen)} make{s}"
        line = f"{results.verdict.capitalize()}: {what} "
        line += f"{gain:.2f} times the images/sec"
        if chosen.price is not None and alone.price:
            line += f", at {chosen.price / alone.price:.2f} times the price of an image"
        lines.append(f"{line}; the device is used {chosen.device_ratio:.0%}, alone {alone.device_ratio:.0%}.")
        if chosen.device_ratio < asked.goal_ratio:
            why = "the hand-over of batches takes the rest" if chosen.limit == "device" else LIMITS[chosen.limit]
            lines.append(f"No pool uses the device {asked.goal_ratio:.0%}: {why}.")
    lines.append(
        "Assumed: cores like those here, one worker a host and no other work there, photos as near to the workers as "
        "to this host. Predicted, not measured: start the pool (unstall service), and unstall service local --service "
        "measures it."
    )
    return lines


def _why_not(results: Results) -> str:
    last = max((cut.pools[-1] for cut in results.cuts), key=lambda pool: pool.images_per_sec)
    return f"With workers, {LIMITS[last.limit]}."


def _title(document: ScaleoutDocument) -> str:
    asked, hosts = document.plan, document.plan.hosts
    return (
        f"{asked.model} on {asked.device.name}, batches of {asked.config.batch_size}; trainer with "
        f"{counted(hosts.trainer_cores, 'core')}, workers with {hosts.worker_cores:g}{_network(hosts)}"
    )


def _network(hosts: Hosts) -> str:
    return "" if hosts.link_bytes_per_sec is None else f", links of {rate_text(hosts.link_bytes_per_sec)}"


_LEGEND = (
    "worker us, trainer us: microseconds of a core for an image on either side of the cut, measured here. needed: "
    "workers that use the model's device as far as the goal; by TensorFlow: the same by its own formula, the device's "
    "rate over a worker's. a million: price of a million images."
)


def _cuts(document: ScaleoutDocument, results: Results) -> Table:
    rows = [cut_cells(cut, result) for cut, result in zip(_costs(document).cuts, results.cuts, strict=True)]
    return Table(columns=CUT_COLUMNS, rows=rows)


def _pools(results: Results) -> Table:
    return Table(columns=POOL_COLUMNS, rows=rows_of(results), words=("limit",))


def _costs(document: ScaleoutDocument) -> Costs:
    if document.samples.costs is None:
        raise ValueError("no costs were measured")
    return document.samples.costs


def _constants(document: ScaleoutDocument) -> str:
    constants = _costs(document).constants
    return (
        f"Sending costs a worker {constants.send_ms_per_megabyte:.2f} ms of a core a megabyte and "
        f"{constants.send_ms_per_batch:.2f} ms a batch; receiving costs the trainer "
        f"{constants.receive_ms_per_megabyte:.2f} and {constants.receive_ms_per_batch:.2f} ms."
    )


def _print(console: Console, document: ScaleoutDocument, results: Results) -> None:
    console.print(Text(_title(document), style="bold"))
    print_table(console, _cuts(document, results))
    console.print(Text(_constants(document)))
    console.print()
    print_table(console, _pools(results))
    console.print()
    print_end(console, document, sentences=sentences(document, results), legend=[_LEGEND])


def _page(document: ScaleoutDocument, results: Results) -> str:
    return page(
        "Workers on other hosts",
        document,
        about=_title(document),
        tables=[_cuts(document, results), _pools(results)],
        sentences=[*sentences(document, results), _constants(document)],
        legend=[_LEGEND],
        facts={
            "samples": "results.json holds every cost that the prediction is made from",
            "photos": document.plan.data,
        },
    )


def _copies(document: ScaleoutDocument, results: Results) -> dict[str, Any]:
    return {"results": results}


def _rows(results: Results) -> Sequence[Mapping[str, Any]]:
    pools = [results.alone, *(pool for cut in results.cuts for pool in cut.pools)]
    return [asdict(pool) for pool in pools if pool is not None]


KIND = Kind(plan=Asked, samples=Measurements, derive=derive, copies=_copies, report=_page, print=_print, rows=_rows)
