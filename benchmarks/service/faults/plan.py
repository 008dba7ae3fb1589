"""The faults that are planted in a service, listed first: every kind, under every policy, at every moment."""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass
from pathlib import Path

from unstall.benchmarks.lab.options import UserError, check_least, split_names

# What is done to the service, and what happens then.
KINDS: dict[str, str] = {
    "killed": "a worker is killed, and stays away",
    "added": "a worker is added",
    "stopped": "a worker stands still for 10 s, and goes on",
    "restarted": "the dispatcher is killed, and comes back from its journal after 2 s",
    "cut off": "the link to a worker is down for 10 s",
}
# Who promises what.
POLICIES: dict[str, str] = {
    "off": "tf.data service alone: each worker makes all batches",
    "dynamic": "tf.data service alone: each batch goes to one worker",
    "exactly once": "our client over dynamic sharding: it makes missing batches itself",
}
OURS = "exactly once"
# The share of an epoch's batches that the trainer has when the fault comes.
MOMENTS: dict[str, float] = {"first": 0.0, "middle": 0.5, "end": 0.9}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A fault: its kind, under a policy, at a moment of an epoch."""

    kind: str
    policy: str
    moment: str

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.policy}/{self.moment}"


CASES = tuple(
    Case(kind=kind, policy=policy, moment=moment)
    for kind, policy, moment in itertools.product(KINDS, POLICIES, MOMENTS)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultsAsked:
    """What was asked; kept in the document of a run.

    Attributes:
      cases: which faults.
      images: of an epoch.
      batch_size: images a batch.
      step_s: how long the trainer takes for a batch.
      limit_s: how long a policy is given after the fault; then the client is ended from outside.
    """

    cases: tuple[Case, ...]
    images: int
    batch_size: int
    step_s: float
    limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultsPlan:
    """A run over cases; `out` is the folder for the results."""

    asked: FaultsAsked
    out: Path


def read_faults(arguments: argparse.Namespace, out: Path) -> FaultsPlan:
    """Chooses the cases.

    Raises:
      UserError: if there is no such case, or there are too few images.
    """
    cases = CASES
    if arguments.only is not None:
        texts = split_names(arguments.only, "--only")
        cases = tuple(case for case in CASES if {case.kind, case.policy, case.moment, case.name} & set(texts))
        if not cases:
            raise UserError(
                f"--only {arguments.only}: there is no such kind ({', '.join(KINDS)}), policy ({', '.join(POLICIES)}), "
                f"moment ({', '.join(MOMENTS)}) or case, such as {CASES[0].name}."
            )
    asked = FaultsAsked(cases=cases, images=arguments.images, batch_size=32, step_s=0.02, limit_s=15.0)
    check_least(10 * asked.batch_size, images=arguments.images)
    return FaultsPlan(asked=asked, out=out)
