"""Measures pools of emulated hosts, and what their predictions are made from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from tests.benchmarks.service.pools.hosts import Cores, EmulatedHosts
from tests.benchmarks.service.pools.pools import CONSTANTS_CONFIG, CheckedPool
from tests.benchmarks.service.pools.results import PoolRound
from unstall.benchmarks.lab.child import Child, kill_all
from unstall.benchmarks.lab.ports import free_port
from unstall.benchmarks.service.planning.samples import Constants, CutCosts
from unstall.pipeline import ImageSource
from unstall.pipeline.service import Place
from unstall.profiles.devices import CPU

_CHILDREN = "tests.benchmarks.service.pools.trainer"
ROUNDS = 5
_TIMEOUT_S = 600.0
# Runs of each cost in a round: some periods of a quota.
_RUNS = 2


class Check:
    """Measures pools, one after the other, in processes on hosts that are emulated.

    Args:
      log: to which the children's output is appended.
      loopback: whether the hosts are cores of this one, and the link a relay; else namespaces with quotas and rates.
    """

    def __init__(self, source: ImageSource, log: Path, *, loopback: bool) -> None:
        self._source, self._log, self._loopback = source, log, loopback
        self._children: list[Child] = []
        self._hosts: EmulatedHosts | Cores | None = None

    def constants(self) -> Constants:
        """Measures the constants of sending and receiving, on a pipeline that no pool has.

        Raises:
          ChildDied, JobRefused: if they cannot be measured.
        """
        with self._ended():
            child = self._new_child("CostsSession", CPU, self._source)
            constants: Constants = child.ask("constants", CONSTANTS_CONFIG, timeout_s=_TIMEOUT_S)
            return constants

    def rounds_of(self, pool: CheckedPool, rounds: int = ROUNDS) -> list[PoolRound]:
        """In each round, measures what an image costs on one more host, like the pool's, then a window of the pool.

        The speed of a shared machine changes within minutes. And a quota costs time: the CPU's caches are cold after
        each of its pauses.

        Raises:
          ChildDied, JobRefused: if the pool cannot be measured.
          HostsError: if this system cannot emulate its hosts.
        """
        with self._ended():
            workers = range(1, 1 + len(pool.worker_cores))
            hosts = self._new_hosts(2 + len(workers), pool)
            costs = self._new_child("CostsSession", CPU, self._source, prefix=hosts.prefix(1 + len(workers)))
            trainer = self._new_child("TrainerSession", pool, self._source, prefix=hosts.prefix(0))
            costs.ask("backend", timeout_s=_TIMEOUT_S)  # TensorFlow is imported before there are quotas
            places = tuple(_place(hosts, number) for number in workers)
            prefixes = tuple(hosts.prefix(number) for number in workers)
            trainer.ask("start", hosts.address(0), places, prefixes, timeout_s=_TIMEOUT_S)

            def ask_with(cores: float, method: str) -> Any:
                hosts.give((pool.trainer_cores, *pool.worker_cores, cores))
                return costs.ask(method, pool.config, _RUNS, timeout_s=_TIMEOUT_S)

            measured = []
            for _ in range(rounds):
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
                window = trainer.ask("window", timeout_s=_TIMEOUT_S)
                measured.append(PoolRound(cut=cut, loader_us=loader_us, window=window))
            return measured

    def _new_hosts(self, count: int, pool: CheckedPool) -> EmulatedHosts | Cores:
        link = pool.link_bytes_per_sec
        self._hosts = Cores(count, link, pool.delay_s) if self._loopback else EmulatedHosts(count, link)
        return self._hosts

    def _new_child(self, session: str, *arguments: Any, prefix: tuple[str, ...] = ()) -> Child:
        child = Child(f"{_CHILDREN}:{session}", CPU, self._log, *arguments, prefix=prefix)
        self._children.append(child)
        return child

    @contextlib.contextmanager
    def _ended(self) -> Iterator[None]:
        """Ends the children at its end, at once after an error; then the hosts that they run on."""
        try:
            yield
        except BaseException:
            kill_all(self._children)
            raise
        else:
            for child in self._children:
                child.close()
        finally:
            if self._hosts is not None:
                self._hosts.close()
            self._children, self._hosts = [], None


def _place(hosts: EmulatedHosts | Cores, number: int) -> Place:
    """Returns where the worker of a host listens."""
    if isinstance(hosts, EmulatedHosts):
        return Place(dispatcher="", host=hosts.address(number), open_to_others=True)
    if hosts.relay is None:
        return Place(dispatcher="")
    port = free_port()
    hosts.relay.lead_to(port)
    return Place(dispatcher="", port=port, seen_as=f"{hosts.address(number)}:{hosts.relay.port}")
