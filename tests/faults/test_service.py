"""A service of real processes to which faults are done: with our client each batch of an epoch comes exactly once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.faults.service_epochs import CASES, LIMIT_S, LONGEST_WAIT_S, MOMENTS, OURS, POLICIES, Case, Epoch
from tests.faults.service_pool import KINDS
from unstall.benchmarks.lab.child import Child, ChildDied, JobRefused
from unstall.pipeline import open_source
from unstall.profiles.devices import CPU

_SESSION = "tests.faults.service_epochs:FaultSession"
_IMAGES = 3200
# Starting three processes that import TensorFlow, and a case that waits for its limit.
_TIMEOUT_S = 300.0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Case], Epoch]]:
    """Runs a case on a service that is whole, in a process that serves all cases until one of them has ended it."""
    log = tmp_path_factory.mktemp("faults") / "child.log"
    source = open_source(f"generated:{_IMAGES}")
    children: list[Child] = []

    def run(case: Case) -> Epoch:
        if not children:
            children.append(Child(_SESSION, CPU, log, source))
        try:
            epoch: Epoch = children[0].ask("run", case, timeout_s=_TIMEOUT_S)
        except (ChildDied, JobRefused):
            children.pop().kill()
            raise
        return epoch

    yield run
    for child in children:
        child.close()


@pytest.mark.slow  # a quarter of an hour in all
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fault_costs_our_client_no_batch_and_no_long_wait(case, run, record_property):
    """tf.data service alone promises nothing: its epochs end by themselves, or are still waiting at the limit."""
    epoch = run(case)
    record_property("measured", f"{case.name}: {epoch}")
    assert len(epoch.deliveries) == _IMAGES / 32
    if case.policy == OURS:
        assert not epoch.broken, epoch
    else:
        assert epoch.end in ("complete", "waited") and epoch.longest_wait_s < LIMIT_S + 5, epoch


def test_every_kind_of_fault_meets_every_policy_at_every_moment():
    assert (len(KINDS), len(POLICIES), len(MOMENTS), len(CASES)) == (5, 3, 3, 45)
    assert {(case.kind, case.policy, case.moment) for case in CASES} == set(itertools.product(KINDS, POLICIES, MOMENTS))
    assert len({case.name for case in CASES}) == 45
    assert all(0 <= moment < 1 for moment in MOMENTS.values())


def an_epoch(*deliveries: int, policy: str = OURS, longest_wait_s: float = 1.5, end: str = "complete") -> Epoch:
    return Epoch(policy=policy, deliveries=deliveries, repaired=0, dropped=0, end=end, longest_wait_s=longest_wait_s)


def test_batches_came_once_more_often_or_never():
    epoch = an_epoch(1, 1, 0, 2, 5, 0, 0)
    assert (epoch.once, epoch.more, epoch.never) == (2, 2, 3)


def test_our_client_kept_its_promise():
    assert not an_epoch(1, 1, 1, longest_wait_s=LONGEST_WAIT_S).broken


BROKEN = {
    "a batch is lost": ((1, 0, 1), {}),
    "a batch is repeated": ((1, 2, 1), {}),
    "the wait is long": ((1, 1, 1), {"longest_wait_s": LONGEST_WAIT_S + 1e-9}),
    "the epoch was ended from outside": ((1, 1, 1), {"end": "waited"}),
    "the epoch failed": ((1, 1, 1), {"end": "the dispatcher is gone"}),
}


@pytest.mark.parametrize("how", BROKEN)
def test_our_client_broke_its_promise(how):
    deliveries, changes = BROKEN[how]
    assert an_epoch(*deliveries, **changes).broken


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy != OURS])
@pytest.mark.parametrize("how", BROKEN)
def test_the_service_alone_promises_nothing(how, policy):
    deliveries, changes = BROKEN[how]
    assert not an_epoch(*deliveries, policy=policy, **changes).broken
