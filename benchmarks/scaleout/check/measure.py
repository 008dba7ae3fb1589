"""Measures the pools of a check, one after the other, each right after what its prediction is made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.progress import Progress

from benchmarks.lab.child import Child, ChildDied, JobRefused
from benchmarks.lab.command import new_log, read_source
from benchmarks.lab.options import UserError
from benchmarks.lab.ports import free_port
from benchmarks.scaleout.check.hosts import Cores, EmulatedHosts
from benchmarks.scaleout.check.plan import CONSTANTS_CONFIG, CheckedPool, CheckPlan
from benchmarks.scaleout.check.results import CheckDocument
from benchmarks.scaleout.check.samples import CheckSamples, MeasuredPool
from benchmarks.scaleout.measure import SESSION
from benchmarks.scaleout.samples import Constants
from pipeline import ImageSource
from pipeline.service import Place
from profiles import Device
from profiles.provenance import machine
from profiles.report import Document, LeftOut, now

_TRAINER = "benchmarks.scaleout.check.child:TrainerSession"
_CPU = Device(kind="cpu", name="cpu")
_TIMEOUT_S = 600.0


def open_run(plan: CheckPlan, progress: Progress, errors: Console) -> Run:
    """Opens the photos, and gets ready to measure."""
    return Run(plan, read_source(plan.data, progress, errors, skip_list=plan.skip_list), progress)


class Run:
    """Measures what a plan asks for."""

    def __init__(self, plan: CheckPlan, source: ImageSource, progress: Progress) -> None:
        self._plan, self._source, self._progress = plan, source, progress
        self._created, self._provenance = now(), machine()
        self._constants: Constants | None = None
        self._measured: dict[str, MeasuredPool] = {}
        self._left_out: list[LeftOut] = []
        self._log = new_log(plan.out / "child.log")
        self._child: Child | None = None
        self._hosts: EmulatedHosts | Cores | None = None

    def document(self, *, complete: bool) -> CheckDocument:
        """Returns the document of what was measured so far."""
        return Document(
            command="scaleout check",
            created=self._created,
            complete=complete,
            provenance=self._provenance,
            plan=self._plan.asked,
            dataset=self._source.to_dict(),
            samples=CheckSamples(constants=self._constants, pools=tuple(self._measured.values())),
            left_out=tuple(self._left_out),
        )

    def measure(self, after_round: Callable[[], object]) -> None:
        """Measures the constants, then for every pool costs with all cores of this host, and the pool with its quotas.

        The speed of a machine that others use as well changes within minutes: costs of a pool's own time count.

        Raises:
          UserError: if the constants cannot be measured.
        """
        asked = self._plan.asked
        task = self._progress.add_task("what an image costs here", total=len(asked.pools))
        self._progress.refresh()
        self._measure_constants()
        for pool in asked.pools:
            self._progress.update(task, description=pool.name, refresh=True)
            try:
                self._measure_costs(pool)
                self._measure_pool(pool)
            except (ChildDied, JobRefused) as error:
                self._left_out.append(LeftOut(who=pool.name, reason=str(error)))
                self._measured.pop(pool.name, None)
            finally:
                self.close()
            self._progress.update(task, advance=1, refresh=True)
            after_round()
        self._progress.remove_task(task)
        if not self._left_out:
            self._log.unlink(missing_ok=True)

    def _measure_constants(self) -> None:
        """Measures the constants of sending and receiving, on a pipeline that no pool has."""
        self._child = Child(SESSION, _CPU, self._log, _CPU, self._source)
        try:
            self._constants = self._ask("constants", CONSTANTS_CONFIG)
        except (ChildDied, JobRefused) as error:
            raise UserError(f"scaleout: {error}", exit_code=3) from error
        finally:
            self.close()

    def _measure_costs(self, pool: CheckedPool) -> None:
        self._child = Child(SESSION, _CPU, self._log, _CPU, self._source)
        cut = self._ask("cut", pool.config)
        loader_us = 0.0 if pool.worker_cores else self._ask("loader_us", pool.config)
        self._measured[pool.name] = MeasuredPool(name=pool.name, cut=cut, loader_us=loader_us)
        self.close()

    def _measure_pool(self, pool: CheckedPool) -> None:
        count, link = 1 + len(pool.worker_cores), pool.link_bytes_per_sec
        hosts = Cores(count, link, pool.delay_s) if self._plan.asked.loopback else EmulatedHosts(count, link)
        self._hosts = hosts
        self._child = Child(_TRAINER, _CPU, self._log, pool, self._source, prefix=hosts.prefix(0))
        numbers = range(1, 1 + len(pool.worker_cores))
        self._ask(
            "start",
            hosts.address(0),
            tuple(_place(hosts, number) for number in numbers),
            tuple(hosts.prefix(number) for number in numbers),
        )
        hosts.give((pool.trainer_cores, *pool.worker_cores))
        for _ in range(self._plan.asked.rounds):
            measured = self._measured[pool.name]
            self._measured[pool.name] = replace(measured, windows=(*measured.windows, self._ask("window")))

    def _ask(self, method: str, *arguments: Any) -> Any:
        assert self._child is not None
        return self._child.ask(method, *arguments, timeout_s=_TIMEOUT_S)

    def close(self) -> None:
        """Ends the child, then the hosts that it runs on."""
        if self._child is not None:
            self._child.close()
        if self._hosts is not None:
            self._hosts.close()
        self._child = self._hosts = None

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
        self.close()


def _place(hosts: EmulatedHosts | Cores, number: int) -> Place:
    """Returns where the worker of a host listens."""
    if isinstance(hosts, EmulatedHosts):
        return Place(dispatcher="", host=hosts.address(number), open_to_others=True)
    if hosts.relay is None:
        return Place(dispatcher="")
    port = free_port()
    hosts.relay.lead_to(port)
    return Place(dispatcher="", port=port, seen_as=f"{hosts.address(number)}:{hosts.relay.port}")
