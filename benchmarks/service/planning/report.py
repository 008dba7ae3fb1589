"""Prints and renders whether a pool of workers pays, how many there must be, what limits, and where to cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from unstall.benchmarks.lab.tables import Table, page, print_end, print_table
from unstall.benchmarks.service.planning.model import LIMITS, MOST_WORKERS, PAYLOAD_RATIO, Pool
from unstall.benchmarks.service.planning.plan import Asked
from unstall.benchmarks.service.planning.results import CutResult, PlanDocument, Results, costs_of, derive
from unstall.benchmarks.service.planning.samples import Costs, CutCosts, Measurements
from unstall.profiles.report import Kind

CUT_COLUMNS = ("workers send", "worker us", "trainer us", "KB", "img/s a worker", "needed", "by TensorFlow")
POOL_COLUMNS = ("workers send", "workers", "img/s", "device", "network", "a million", "limit")
_WHAT = {"files": "files", "images": "decoded images", "batches": "whole batches"}


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


def pool_cells(pool: Pool, results: Results) -> tuple[str, ...]:
    marks = [name for name, other in (("chosen", results.chosen), ("cheapest", results.cheapest)) if pool == other]
    return (
        (_WHAT[pool.served] if pool.served else "no workers") + (f" ({', '.join(marks)})" if marks else ""),
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


def _shown(results: Results) -> list[Pool]:
    """Returns the pools worth a look: no workers; of each cut the first, those around the smallest, and the last."""
    assert results.alone is not None
    pools = [results.alone]
    for cut in results.cuts:
        last = cut.pools[-1].workers
        least = cut.smallest.workers if cut.smallest else last
        pools += [cut.pools[number - 1] for number in sorted({1, max(1, least - 1), least, min(last, least + 1), last})]
    return pools


def sentences(document: PlanDocument, results: Results) -> list[str]:
    """Returns the demand of a fleet, the answer, what it takes, and what the prediction assumes."""
    asked = document.plan
    lines = [_demand(document), *_answer(asked, results), *_takes(asked, results)]
    assumed = (
        "Assumed: cores like those here, one worker a host and no other work there, photos as near to the workers as "
        "to this host"
    )
    if asked.hosts.accelerators > 1:
        assumed += (
            ", each trainer's host with workers of its own, steps of the stated rate that all accelerators begin "
            "together, no time for gradients to cross the network"
        )
    lines.append(
        f"{assumed}. Predicted, not measured: start the pool (unstall service), and unstall service local --service "
        "measures it."
    )
    return [line for line in lines if line]


def _demand(document: PlanDocument) -> str:
    """Returns what the accelerators consume, where there are several or an epoch is stated; else nothing."""
    asked, hosts, costs = document.plan, document.plan.hosts, _costs(document)
    if hosts.accelerators == 1 and asked.images is None:
        return ""
    rate = hosts.accelerators * costs.trainer.device_images_per_sec
    line = (
        f"{counted(hosts.accelerators, 'accelerator')} on {counted(hosts.trainers, 'host')} "
        f"consume{'s' if hosts.accelerators == 1 else ''} {rate:,.0f} images/sec, {rate / hosts.trainers:,.0f} a host"
    )
    if asked.images is None:
        return f"{line}."
    return (
        f"{line}; an epoch of {asked.images:,} images takes {asked.images / rate / 60:.1f} minutes at best, and reads "
        f"{asked.images * costs.file_bytes / 1e9:,.0f} GB of files, at {rate_text(rate * costs.file_bytes)}."
    )


def _answer(asked: Asked, results: Results) -> list[str]:
    alone, chosen, many = results.alone, results.chosen, asked.hosts.accelerators > 1
    assert alone is not None
    if chosen is None and alone.device_ratio >= asked.goal_ratio:
        who = "the trainers alone use their accelerators" if many else "the trainer alone uses its device"
        return [f"Does not pay: {who} {alone.device_ratio:.0%}, and more than {asked.goal_ratio:.0%} is not asked for."]
    if chosen is None:
        last = max((cut.pools[-1] for cut in results.cuts), key=lambda pool: pool.images_per_sec)
        return [f"Does not pay: no pool raises the rate by 5 % or more. With workers, {_why(last)}."]
    s = "s" if chosen.workers == 1 and not many else ""
    workers = counted(chosen.workers, "worker")
    if many:
        workers += f" for each trainer's host, {chosen.workers * asked.hosts.trainers:,} in all,"
    line = f"{results.verdict.capitalize()}: {workers} that send{s} {_WHAT[chosen.served]} make{s} "
    line += f"{chosen.images_per_sec / alone.images_per_sec:.2f} times the images/sec"
    if chosen.price is not None and alone.price:
        line += f", at {chosen.price / alone.price:.2f} times the price of an image"
    device = "the accelerators are" if many else "the device is"
    lines = [f"{line}; {device} used {chosen.device_ratio:.0%}, alone {alone.device_ratio:.0%}."]
    if chosen.device_ratio < asked.goal_ratio:
        why = "the hand-over of batches takes the rest" if chosen.limit == "device" else _why(chosen)
        lines.append(f"No pool uses {'the accelerators' if many else 'the device'} {asked.goal_ratio:.0%}: {why}.")
    return lines


def _why(pool: Pool) -> str:
    """Returns why a pool is no faster."""
    if pool.workers == MOST_WORKERS:
        return f"more than {MOST_WORKERS} workers for a trainer are not looked at"
    return LIMITS[pool.limit]


def _takes(asked: Asked, results: Results) -> list[str]:
    """Returns how far links and memory go, and what the whole training takes, where these are stated."""
    chosen, training, hosts, lines = results.chosen, results.training, asked.hosts, []
    if chosen is not None and hosts.link_bytes_per_sec is not None:
        used = chosen.network_bytes_per_sec / PAYLOAD_RATIO / hosts.link_bytes_per_sec
        lines.append(f"The link of {'each trainer' if hosts.trainers > 1 else 'the trainer'} is used {used:.0%}.")
    if chosen is not None and hosts.memory_bytes:
        held = "holds all files" if chosen.cached else "does not hold all files, so that every epoch reads the storage"
        lines.append(f"The memory of the workers' hosts {held}.")
    if training is not None:
        price = "" if training.price is None else f", and costs {training.price:,.0f}"
        first = f"; the first epoch, which reads all files from the storage, {training.first_epoch_s / 60:,.1f} minutes"
        lines.append(
            f"{'With' if chosen else 'Without'} workers the training takes {training.hours:,.1f} hours for "
            f"{counted(asked.epochs, 'epoch')}{price}{first if hosts.storage_bytes_per_sec else ''}."
        )
    return lines


def _title(document: PlanDocument) -> str:
    asked, hosts = document.plan, document.plan.hosts
    of = "{}x{} px".format(*asked.image_size) if asked.image_size else asked.model
    many = f"{hosts.accelerators} x " if hosts.accelerators > 1 else ""
    trainers = f"{hosts.trainers} trainers" if hosts.trainers > 1 else "trainer"
    links = "" if hosts.link_bytes_per_sec is None else f", links of {rate_text(hosts.link_bytes_per_sec)}"
    return (
        f"{of} on {many}{asked.device.name}, batches of {asked.config.batch_size}; {trainers} with "
        f"{counted(hosts.trainer_cores, 'core')}, workers with {hosts.worker_cores:g}{links}"
    )


def _legend(asked: Asked) -> str:
    line = (
        "worker us, trainer us: microseconds of a core for an image on either side of the cut, measured here. needed: "
        "workers that use the model's device as far as the goal; by TensorFlow: the same by its own formula, the "
        "device's rate over a worker's. a million: price of a million images."
    )
    of_each = " workers, needed, network: of each trainer's host; img/s: of all together."
    return line + (of_each if asked.hosts.trainers > 1 else "")


def _cuts(document: PlanDocument, results: Results) -> Table:
    rows = [cut_cells(cut, result) for cut, result in zip(_costs(document).cuts, results.cuts, strict=True)]
    return Table(columns=CUT_COLUMNS, rows=rows)


def _pools(results: Results) -> Table:
    rows = [pool_cells(pool, results) for pool in _shown(results)]
    return Table(columns=POOL_COLUMNS, rows=rows, words=("limit",))


def _costs(document: PlanDocument) -> Costs:
    costs = costs_of(document)
    if costs is None:
        raise ValueError("no costs were measured")
    return costs


def _constants(document: PlanDocument) -> str:
    constants = _costs(document).constants
    return (
        f"Sending costs a worker {constants.send_ms_per_megabyte:.2f} ms of a core a megabyte and "
        f"{constants.send_ms_per_batch:.2f} ms a batch; receiving costs the trainer "
        f"{constants.receive_ms_per_megabyte:.2f} and {constants.receive_ms_per_batch:.2f} ms."
    )


def _print(console: Console, document: PlanDocument, results: Results) -> None:
    console.print(Text(_title(document), style="bold"))
    print_table(console, _cuts(document, results))
    console.print(Text(_constants(document)))
    console.print()
    print_table(console, _pools(results))
    console.print()
    print_end(console, document, sentences=sentences(document, results), legend=[_legend(document.plan)])


def _page(document: PlanDocument, results: Results) -> str:
    return page(
        "Workers on other hosts",
        document,
        about=_title(document),
        tables=[_cuts(document, results), _pools(results)],
        sentences=[*sentences(document, results), _constants(document)],
        legend=[_legend(document.plan)],
        facts={
            "samples": "results.json holds every cost that the prediction is made from",
            "photos": document.plan.data,
        },
    )


def _copies(document: PlanDocument, results: Results) -> dict[str, Any]:
    return {"results": results}


def _rows(results: Results) -> Sequence[Mapping[str, Any]]:
    pools = [results.alone, *(pool for cut in results.cuts for pool in cut.pools)]
    return [asdict(pool) for pool in pools if pool is not None]


KIND = Kind(plan=Asked, samples=Measurements, derive=derive, copies=_copies, report=_page, print=_print, rows=_rows)
