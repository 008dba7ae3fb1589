"""Measures the pools of a check, one after the other, and what their predictions are made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import mean
from typing import Any

from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.lab.child import Child, ChildDied, JobRefused, kill_all
from unstall.benchmarks.lab.command import new_log, read_files
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.lab.ports import free_port
from unstall.benchmarks.lab.run import LabRun
from unstall.benchmarks.scaleout.check.hosts import Cores, EmulatedHosts
from unstall.benchmarks.scaleout.check.plan import CONSTANTS_CONFIG, CheckAsked, CheckedPool, CheckPlan
from unstall.benchmarks.scaleout.check.samples import CheckSamples, MeasuredPool, PoolRound
from unstall.benchmarks.scaleout.measure import SESSION
from unstall.benchmarks.scaleout.samples import Constants, CutCosts
from unstall.pipeline import ImageSource
from unstall.pipeline.service import Place
from unstall.profiles.devices import CPU
from unstall.profiles.report import LeftOut

_TRAINER = "benchmarks.scaleout.check.child:TrainerSession"
_TIMEOUT_S = 600.0
# Runs of each cost in a round: some periods of a quota.
_RUNS = 2


def open_run(plan: CheckPlan, progress: Progress, errors: Console) -> Run:
    """Opens the photos, and gets ready to measure.

    Raises:
      UserError: if the photos are not files.
    """
    return Run(plan, read_files(plan.data, progress, errors, skip_list=plan.skip_list), progress)


class Run(LabRun[CheckAsked, CheckSamples]):
    """Measures what a plan asks for."""

    command = "scaleout check"

    def __init__(self, plan: CheckPlan, source: ImageSource, progress: Progress) -> None:
        super().__init__(plan.asked, progress, source.to_dict())
        self._source = source
        self._constants: Constants | None = None
        self._measured: dict[str, MeasuredPool] = {}
        self._log = new_log(plan.out / "child.log")
        self._children: list[Child] = []
        self._hosts: EmulatedHosts | Cores | None = None

    def samples(self) -> CheckSamples:
        return CheckSamples(constants=self._constants, pools=tuple(self._measured.values()))

    def measure(self, after_round: Callable[[], object]) -> None:
        """Measures the constants, then every pool.

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
                self._measure_pool(pool)
            except (ChildDied, JobRefused) as error:
                self._left_out.append(LeftOut(who=pool.name, reason=str(error)))
                self._measured.pop(pool.name, None)
            self.close()
            self._progress.update(task, advance=1, refresh=True)
            after_round()
        self._progress.remove_task(task)
        if not self._left_out:
            self._log.unlink(missing_ok=True)

    def _measure_constants(self) -> None:
        """Measures the constants of sending and receiving, on a pipeline that no pool has."""
        child = self._new_child(SESSION, CPU, self._source)
        try:
            self._constants = child.ask("constants", CONSTANTS_CONFIG, timeout_s=_TIMEOUT_S)
        except (ChildDied, JobRefused) as error:
            raise UserError(f"scaleout: {error}", exit_code=3) from error
        self.close()

    def _measure_pool(self, pool: CheckedPool) -> None:
        """In each round, measures what an image costs on one more host, like the pool's, then a window of the pool.

        The speed of a shared machine changes within minutes. And a quota costs time: the CPU's caches are cold after
        each of its pauses.
        """
        workers = range(1, 1 + len(pool.worker_cores))
        hosts = self._new_hosts(2 + len(workers), pool)
        costs_child = self._new_child(SESSION, CPU, self._source, prefix=hosts.prefix(1 + len(workers)))
        trainer_child = self._new_child(_TRAINER, pool, self._source, prefix=hosts.prefix(0))
        costs_child.ask("backend", timeout_s=_TIMEOUT_S)  # TensorFlow is imported before there are quotas
        places = tuple(_place(hosts, number) for number in workers)
        prefixes = tuple(hosts.prefix(number) for number in workers)
        trainer_child.ask("start", hosts.address(0), places, prefixes, timeout_s=_TIMEOUT_S)

        def ask_with(cores: float, method: str) -> Any:
            hosts.give((pool.trainer_cores, *pool.worker_cores, cores))
            return costs_child.ask(method, pool.config, _RUNS, timeout_s=_TIMEOUT_S)

        for _ in range(self._asked.rounds):
            cut, loader_us = None, None
            if workers:
                worker_us, bytes_per_image = ask_with(mean(pool.worker_cores), "worker")
                cut = CutCosts(
                    served=pool.config.served,
                    worker_us=worker_us,
                    trainer_us=ask_with(pool.trainer_cores, "trainer_us"),
                    bytes_per_image=bytes_per_image,
                )
            else:
                loader_us = ask_with(pool.trainer_cores, "loader_us")
            window = trainer_child.ask("window", timeout_s=_TIMEOUT_S)
            round_ = PoolRound(cut=cut, loader_us=loader_us, window=window)
            measured = self._measured.get(pool.name, MeasuredPool(name=pool.name))
            self._measured[pool.name] = replace(measured, rounds=(*measured.rounds, round_))

    def _new_hosts(self, count: int, pool: CheckedPool) -> EmulatedHosts | Cores:
        link = pool.link_bytes_per_sec
        self._hosts = Cores(count, link, pool.delay_s) if self._asked.loopback else EmulatedHosts(count, link)
        return self._hosts

    def _new_child(self, session: str, *arguments: Any, prefix: tuple[str, ...] = ()) -> Child:
        child = Child(session, CPU, self._log, *arguments, prefix=prefix)
        self._children.append(child)
        return child

    def close(self) -> None:
        """Ends the children, then the hosts that they run on."""
        for child in self._children:
            child.close()
        if self._hosts is not None:
            self._hosts.close()
        self._children, self._hosts = [], None

    def kill(self) -> None:
        kill_all(self._children)
        self._children = []
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
