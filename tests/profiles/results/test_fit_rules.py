"""The account of a `fit`, and the rules of a whole `fit`, with exact numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import MS, a_result, a_sample
from unstall.profiles.machine.strain import Strain
from unstall.profiles.results.account import Account, later_call
from unstall.profiles.results.fit_rules import fit_findings
from unstall.profiles.samples import Sample

S = 10**9


def an_account(**seconds: Any) -> Account:
    """Returns the account of a `fit` of 100 s whose parts take these seconds, and the rest compute."""
    parts = {f"{name}_ns": round(value * S) for name, value in seconds.items()}
    rest_ns = 100 * S - sum(value for name, value in parts.items() if name != "retracing_ns")
    return Account(wall_ns=100 * S, compute_ns=rest_ns, epochs=10, validations=10, steps=1000, **parts)


def rules_of(account: Account, result: Any = None) -> dict[str, float | None]:
    """Returns the gain of each rule that found something."""
    return {
        finding.rule: None if finding.gain is None else round(finding.gain.ratio, 3)
        for finding in fit_findings(account, result)
    }


def test_parts_sum_to_the_wall_time() -> None:
    account = an_account(set_up=5, tracing=10, waiting=20, edges=3, callbacks=1)
    assert (account.rest_ns, account.unexplained, account.ratio("waiting_ns", "edges_ns")) == (0, False, 0.23)


@pytest.mark.parametrize(("seconds", "unexplained"), [(97.9, True), (98.1, False), (101.9, False), (102.1, True)])
def test_parts_that_do_not_sum_to_the_wall_time_are_flagged(seconds: float, unexplained: bool) -> None:
    account = Account(wall_ns=100 * S, compute_ns=round(seconds * S), epochs=1)
    assert account.unexplained is unexplained


def test_calls_of_fit_add_up_and_what_a_later_call_traces_is_traced_again() -> None:
    first = Account(wall_ns=10, tracing_ns=4, compute_ns=6, epochs=1, traces={"the first step": 1})
    both = first + later_call(first)
    assert (both.wall_ns, both.tracing_ns, both.retracing_ns, both.epochs) == (20, 8, 4, 2)
    assert both.traces == {"the first step": 2}


def test_waiting_that_is_unknown_once_is_unknown_in_the_sum() -> None:
    both = Account(wall_ns=10, waiting_ns=None, compute_ns=10) + Account(wall_ns=10, waiting_ns=4, compute_ns=6)
    assert (both.waiting_ns, both.rest_ns) == (None, 4)


def test_a_fit_whose_parts_are_cheap_has_no_finding() -> None:
    account = an_account(validation_edges=9, validation_waiting=4, validation_compute=6, retracing=9)
    assert rules_of(account) == {}


@pytest.mark.parametrize(
    ("seconds", "rule", "gain"),
    [
        ({"validation_edges": 12}, "validation edges", 1.136),
        ({"validation_waiting": 20}, "validation waits", 1.25),
        ({"validation_compute": 40}, "validation in every epoch", 1.25),
        ({"tracing": 25, "retracing": 20}, "retracing", 1.25),
    ],
)
def test_each_costly_part_has_a_rule_with_a_gain(seconds: dict[str, float], rule: str, gain: float) -> None:
    assert rules_of(an_account(**seconds))[rule] == gain


@pytest.mark.parametrize(
    ("step_ms", "gain"),
    [((50, 20), 1.429), ((50, 42), None), ((20, 50), None), (None, None)],  # of 1,000 steps
)
def test_several_steps_in_a_call_gain_what_they_gained_without_the_loader(
    step_ms: tuple[int, int] | None, gain: float | None
) -> None:
    step_ns = None if step_ms is None else (step_ms[0] * MS, step_ms[1] * MS)
    account = replace(an_account(waiting=20), step_ns=step_ns)
    assert rules_of(account).get("steps per execution") == gain
    assert (account + an_account()).step_ns == (an_account() + account).step_ns == step_ns


def test_a_validation_that_is_rare_already_is_not_to_be_rarer() -> None:
    account = Account(wall_ns=100, validation_compute_ns=40, compute_ns=60, epochs=10, validations=5)
    assert rules_of(account) == {}


def test_steps_that_hide_their_waiting_are_said_to() -> None:
    account = Account(wall_ns=100, waiting_ns=None, compute_ns=100, epochs=1, steps_per_execution=4)
    assert rules_of(account) == {"hidden by steps per execution": None}


def epochs(*ms: float, **parts: Any) -> list[Sample]:
    return [a_sample(ms=value, round=number, **parts) for number, value in enumerate(ms)]


def test_epochs_that_get_slower_are_found_with_what_grew() -> None:
    waits = [a_sample(ms=10 + number, wait_ms=2 + number, round=number) for number in range(9)]
    (finding,) = fit_findings(an_account(), a_result(train=waits))
    assert finding.rule == "slower epochs" and "100% of it is waiting for batches" in finding.text
    assert finding.gain is not None and finding.gain.ratio == pytest.approx(17 / 11)


def test_other_programs_that_take_cores_in_the_last_epochs_are_named() -> None:
    train = [a_sample(ms=10 + number, round=number, others_ratio=number / 10) for number in range(9)]
    (finding,) = fit_findings(an_account(), a_result(train=train))
    assert "100% of it is the steps themselves; other programs took 60% more of the cores by then" in finding.text


@pytest.mark.parametrize(
    ("first", "last", "seen"),
    [
        ({"read_bytes": 0}, {"read_bytes": 300_000_000}, "read 300 MB from storage by then, 0 MB at first: the page"),
        ({"memory_bytes": 2 * 10**9}, {"memory_bytes": 6 * 10**9}, "the process grew from 2.0 to 6.0 GB of memory"),
        ({"throttled_ratio": 0.1}, {"throttled_ratio": 0.4}, "the CPU quota stopped the process in 30% more"),
        ({"read_bytes": 2_000_000}, {"read_bytes": 9_000_000}, None),
    ],
)
def test_what_changed_beside_slower_epochs_is_named(
    first: dict[str, Any], last: dict[str, Any], seen: str | None
) -> None:
    unknown = {"read_bytes": None, "memory_bytes": None, "throttled_ratio": None}
    train = [
        a_sample(ms=10 + number, round=number, strain=Strain(**{**unknown, **(first if number < 4 else last)}))
        for number in range(9)
    ]
    (finding,) = fit_findings(an_account(), a_result(train=train))
    assert finding.text.endswith("100% of it is the steps themselves") if seen is None else seen in finding.text


@pytest.mark.parametrize(
    "ms",
    [
        (10, 11, 12, 13, 14),  # too few epochs
        (10, 10.1, 10.2, 10.3, 10.4, 10.5, 10.6),  # a small fall
        (10, 14, 9, 15, 10, 13, 12, 11),  # noise
        (18, 17, 16, 15, 14, 13, 12),  # faster
    ],
)
def test_epochs_that_do_not_get_slower_are_no_finding(ms: tuple[float, ...]) -> None:
    assert rules_of(an_account(), a_result(train=epochs(*ms))) == {}
