"""The words of the gate: verdicts and their exit codes, figures, and how often a verdict may be wrong."""

from __future__ import annotations

IMPROVED, SAME, REGRESSION = "improved", "same", "regression"
INCONCLUSIVE, NOT_COMPARABLE, FAILED = "inconclusive", "not comparable", "failed"
EXIT_CODES = {IMPROVED: 0, SAME: 0, REGRESSION: 1, NOT_COMPARABLE: 3, FAILED: 3, INCONCLUSIVE: 4}

# The probability, over all looks, of "regression" where nothing changed, and that of "improved" where nothing changed.
# The design of this project promises at most 1 %.
ALARM_ERROR = 0.01
# The two figures of a process or a round: images/sec in steady steps, and in whole epochs, edges included. A function
# that does its work in one call and returns the number of images has no steady steps, and so the second figure alone.
STEADY, EPOCH = "steady", "epoch"
