"""The gate: compares rates with a recorded baseline, and inspects those properties of a pipeline that have no noise."""

from typing import TYPE_CHECKING

from unstall.late import names_of
from unstall.profiles.gate.verdicts import EPOCH, FAILED, IMPROVED, INCONCLUSIVE, REGRESSION, SAME, STEADY

if TYPE_CHECKING:
    from unstall.profiles.gate import anchors
    from unstall.profiles.gate.baseline import (
        RECORDED,
        Baseline,
        MeasuredRates,
        check,
        judge_invariants,
        looks,
        machine_of,
        new_baseline,
        not_comparable,
        not_comparable_here,
        structure_note,
    )
    from unstall.profiles.gate.decision import (
        PAIRS,
        THRESHOLD_RATIO,
        Claims,
        Decision,
        JudgedFigure,
        Look,
        change,
        figures_of,
        floor,
        judge,
        paired,
        plan,
        rate_of,
    )
    from unstall.profiles.gate.evidence import Evidence, Paired, check_rates
    from unstall.profiles.gate.feed import Feed
    from unstall.profiles.gate.files import BaselineError, check_writable, path_of, read, write
    from unstall.profiles.gate.inspection import inspect
    from unstall.profiles.gate.invariants import Invariants, differences, losses, mark_varying, unread_stages
    from unstall.profiles.gate.rates import backend_here
    from unstall.profiles.gate.verdicts import EPOCH, STEADY

__all__ = [
    "EPOCH",
    "FAILED",
    "IMPROVED",
    "INCONCLUSIVE",
    "PAIRS",
    "RECORDED",
    "REGRESSION",
    "SAME",
    "STEADY",
    "THRESHOLD_RATIO",
    "Baseline",
    "BaselineError",
    "Claims",
    "Decision",
    "Evidence",
    "Feed",
    "Invariants",
    "JudgedFigure",
    "Look",
    "MeasuredRates",
    "Paired",
    "anchors",
    "backend_here",
    "change",
    "check",
    "check_rates",
    "check_writable",
    "differences",
    "figures_of",
    "floor",
    "inspect",
    "judge",
    "judge_invariants",
    "looks",
    "losses",
    "machine_of",
    "mark_varying",
    "new_baseline",
    "not_comparable",
    "not_comparable_here",
    "paired",
    "path_of",
    "plan",
    "rate_of",
    "read",
    "structure_note",
    "unread_stages",
    "write",
]

# Imported when they are asked for: the words of a verdict need neither NumPy nor SciPy.
__getattr__ = names_of(
    __name__,
    {
        "Baseline": "baseline",
        "BaselineError": "files",
        "Claims": "decision",
        "Decision": "decision",
        "Evidence": "evidence",
        "Feed": "feed",
        "Invariants": "invariants",
        "JudgedFigure": "decision",
        "Look": "decision",
        "MeasuredRates": "baseline",
        "PAIRS": "decision",
        "Paired": "evidence",
        "RECORDED": "baseline",
        "THRESHOLD_RATIO": "decision",
        "backend_here": "rates",
        "change": "decision",
        "check": "baseline",
        "check_rates": "evidence",
        "check_writable": "files",
        "differences": "invariants",
        "figures_of": "decision",
        "floor": "decision",
        "inspect": "inspection",
        "judge": "decision",
        "judge_invariants": "baseline",
        "structure_note": "baseline",
        "looks": "baseline",
        "losses": "invariants",
        "machine_of": "baseline",
        "mark_varying": "invariants",
        "new_baseline": "baseline",
        "not_comparable": "baseline",
        "not_comparable_here": "baseline",
        "paired": "decision",
        "path_of": "files",
        "plan": "decision",
        "rate_of": "decision",
        "read": "files",
        "unread_stages": "invariants",
        "write": "files",
    },
)
