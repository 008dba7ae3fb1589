"""Measures the pools of a check, one after the other, each right after what its prediction is made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.progress import Progress

from benchmarks.lab.child import Child, ChildDied, JobRefused
from benchmarks.lab.command import new_log, read_source
from benchmarks.lab.lab_run import LabRun
from benchmarks.lab.options import UserError
from benchmarks.lab.ports import free_port
from benchmarks.scaleout.check.hosts import Cores, EmulatedHosts
from benchmarks.scaleout.check.plan import CONSTANTS_CONFIG, CheckAsked, CheckedPool, CheckPlan
from benchmarks.scaleout.check.samples import CheckSamples, MeasuredPool
from benchmarks.scaleout.measure import SESSION
from benchmarks.scaleout.samples import Constants
from pipeline import ImageSource
from pipeline.service import Place
from profiles import Device
from profiles.report import LeftOut

_TRAINER = "benchmarks.scaleout.check.child:TrainerSession"
_CPU = Device(kind="cpu", name="cpu")
_TIMEOUT_S = 600.0


def open_run(plan: CheckPlan, progress: Progress, errors: Console) -> Run:
    """Opens the photos, and gets ready to measure."""
    return Run(plan, read_source(plan.data, progress, errors, skip_list=plan.skip_list), progress)


class Run(LabRun[CheckAsked, CheckSamples]):
    """Measures what a plan asks for."""

    command = "scaleout check"

    def __init__(self, plan: CheckPlan, source: ImageSource, progress: Progress) -> None:
        super().__init__(plan.asked, progress, source.to_dict())
        self._source = source
        self._constants: Constants | None = None
        self._measured: dict[str, MeasuredPool] = {}
        self._log = new_log(plan.out / "child.log")
        self._child: Child | None = None
        self._hosts: EmulatedHosts | Cores | None = None

    def samples(self) -> CheckSamples:
        return CheckSamples(constants=self._constants, pools=tuple(self._measured.values()))

    def measure(self, after_round: Callable[[], object]) -> None:
        """Measures the constants, then for every pool the costs of its cut, and the pool.

        The speed of a machine that others use as well changes within minutes: costs of a pool's own time count.

        Raises:
          UserError: if the constants cannot be measured.
        """
        asked = self._asked
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
        """Measures what an image costs on a host of a worker's quota, before the cut, and of the trainer's.

        A quota has its own cost: after each pause that it makes, what was in the CPU's caches is there no more.
        """
        hosts = self._new_hosts(1)
        self._child = Child(SESSION, _CPU, self._log, _CPU, self._source, prefix=hosts.prefix(0))
        self._ask("backend")
        if pool.worker_cores:
            hosts.give((sum(pool.worker_cores) / len(pool.worker_cores),))
            cut = self._ask("cut", pool.config)
            hosts.give((pool.trainer_cores,))
            cut, loader_us = replace(cut, trainer_us=self._ask("trainer_us", pool.config)), 0.0
        else:
            hosts.give((pool.trainer_cores,))
            cut, loader_us = self._ask("cut", pool.config), self._ask("loader_us", pool.config)
        self._measured[pool.name] = MeasuredPool(name=pool.name, cut=cut, loader_us=loader_us)
        self.close()

    def _new_hosts(
        self, count: int, link_bytes_per_sec: float | None = None, delay_s: float = 0.0
    ) -> EmulatedHosts | Cores:
        loopback = self._asked.loopback
        hosts = Cores(count, link_bytes_per_sec, delay_s) if loopback else EmulatedHosts(count, link_bytes_per_sec)
        self._hosts = hosts
        return hosts

    def _measure_pool(self, pool: CheckedPool) -> None:
        hosts = self._new_hosts(1 + len(pool.worker_cores), pool.link_bytes_per_sec, pool.delay_s)
        self._child = Child(_TRAINER, _CPU, self._log, pool, self._source, prefix=hosts.prefix(0))
        numbers = range(1, 1 + len(pool.worker_cores))
        self._ask(
            "start",
            hosts.address(0),
            tuple(_place(hosts, number) for number in numbers),
            tuple(hosts.prefix(number) for number in numbers),
        )
        hosts.give((pool.trainer_cores, *pool.worker_cores))
        for _ in range(self._asked.rounds):
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
