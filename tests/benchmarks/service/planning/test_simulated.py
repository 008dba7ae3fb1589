"""The closed form against what a simulation of the same fleets, batch by batch, came to."""

from __future__ import annotations

import pytest

from tests.builders import a_costs
from unstall.benchmarks.service.planning import model
from unstall.benchmarks.service.planning.model import PAYLOAD_RATIO, Hosts

# Images/sec without workers, and with one, two and four for each trainer's host, by accelerators, those of a host,
# bytes/sec of each link, and of the storage. The simulation took 300 steps; the time to make a batch varied by a tenth.
# Source: `unstall capacity`, before the closed form replaced it (docs/evidence/service-plan.md).
SIMULATED = {
    (4, 2, None, None): (1990, 1990, 3810, 3810),
    (4, 2, None, 200e6): (1315, 1315, 2000, 2000),
    (4, 2, None, 2e9): (1896, 1896, 3782, 3810),
    (4, 2, 20e6, None): (1990, 1923, 2000, 2000),
    (64, 8, None, None): (7966, 7966, 15962, 31941),
    (64, 8, None, 200e6): (2000, 2000, 2000, 2000),
    (64, 8, None, 2e9): (7518, 7518, 14748, 19982),
    (64, 8, 20e6, None): (7966, 7689, 8000, 8000),
    (64, 1, None, None): (63340, 60952, 60952, 60952),
    (64, 1, None, 200e6): (2000, 2000, 2000, 2000),
    (64, 1, None, 2e9): (19968, 19968, 19975, 20008),
    (64, 1, 20e6, None): (63340, 60914, 60952, 60952),
}


@pytest.mark.parametrize("fleet", SIMULATED, ids=str)
def test_the_closed_form_comes_to_what_a_simulation_came_to(fleet):
    accelerators, per_host, link, storage = fleet
    hosts = Hosts(
        worker_cores=4.0,
        trainer_cores=4.0,
        link_bytes_per_sec=None if link is None else link / PAYLOAD_RATIO,
        accelerators=accelerators,
        per_host=per_host,
        storage_bytes_per_sec=storage,
    )
    pools = [model.alone(a_costs(), hosts)]
    pools += [model.pool(a_costs(), hosts, "batches", [4.0] * workers) for workers in (1, 2, 4)]
    assert [pool.images_per_sec for pool in pools] == pytest.approx(SIMULATED[fleet], rel=0.05)
