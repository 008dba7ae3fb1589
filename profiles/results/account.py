"""The account of a `fit`: where its wall time went, from the call to the return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

# The parts, each with its words, in the order of the report.
PART_TEXTS: Mapping[str, str] = {
    "set_up_ns": "set-up of fit",
    "tracing_ns": "tracing and compiling",
    "waiting_ns": "training: waiting for batches",
    "compute_ns": "training: compute",
    "edges_ns": "training: epoch edges",
    "validation_waiting_ns": "validation: waiting for batches",
    "validation_compute_ns": "validation: compute",
    "validation_edges_ns": "validation: its edges",
    "callbacks_ns": "callbacks",
}
# Steps in a call, where several are tried. As many leave a sixteenth of what a call costs beside its steps.
STEPS_TOGETHER = 16
VALIDATION = ("validation_waiting_ns", "validation_compute_ns", "validation_edges_ns")
# The parts sum to the wall within this ratio of it; otherwise the account is not trusted.
UNEXPLAINED_RATIO = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Where the wall time of one or several calls of `fit` went, in nanoseconds. Each part was timed by itself.

    Attributes:
      wall_ns: from each call to its return, by one clock, without `watch_ns`.
      watch_ns: what the profiler took for its readings at the ends of epochs and validations, on top of `wall_ns`.
      set_up_ns: before the first epoch and behind the last, without callbacks: Keras builds the model and its iterator.
      tracing_ns: what steps that traced or compiled took longer than other steps, in training and in validation.
      waiting_ns: of training steps for their batches while the device had nothing to compute; None if unknown.
      compute_ns: training steps without waiting, tracing and callbacks, and Keras' own work between the steps; with the
        waiting where that is unknown.
      edges_ns: of epochs: before the first step, and behind the last.
      validation_waiting_ns, validation_compute_ns, validation_edges_ns: as for training.
      callbacks_ns: in the hooks of callbacks, such as those that write checkpoints.
      epochs, validations: how many there were.
      traces: how many steps traced or compiled, by the cause.
      retracing_ns: part of `tracing_ns` behind the first epoch of the first call.
      steps: of training.
      steps_per_execution: how many steps Keras makes in a call of the train function.
      step_ns: of a step in `fit` of the model alone: (one a call, `STEPS_TOGETHER` a call); None where not measured.
    """

    wall_ns: int = 0
    watch_ns: int = 0
    set_up_ns: int = 0
    tracing_ns: int = 0
    waiting_ns: int | None = 0
    compute_ns: int = 0
    edges_ns: int = 0
    validation_waiting_ns: int | None = 0
    validation_compute_ns: int = 0
    validation_edges_ns: int = 0
    callbacks_ns: int = 0
    epochs: int = 0
    validations: int = 0
    traces: Mapping[str, int] = field(default_factory=dict)
    retracing_ns: int = 0
    steps: int = 0
    steps_per_execution: int = 1
    step_ns: tuple[int, int] | None = None

    def __add__(self, more: Account) -> Account:
        """Returns the account of the time of both."""
        sums: dict[str, int | None] = {}
        for part in fields(self):
            if part.name in ("traces", "steps_per_execution", "step_ns"):
                continue
            ours, theirs = getattr(self, part.name), getattr(more, part.name)
            sums[part.name] = None if ours is None or theirs is None else ours + theirs
        traces = dict(self.traces)
        for cause, count in more.traces.items():
            traces[cause] = traces.get(cause, 0) + count
        return Account(
            traces=traces,
            steps_per_execution=self.steps_per_execution,
            step_ns=self.step_ns or more.step_ns,
            **sums,  # type: ignore[arg-type]
        )

    @property
    def parts(self) -> dict[str, int]:
        """The known parts, in nanoseconds, by their names."""
        return {name: value for name in PART_TEXTS if (value := getattr(self, name)) is not None}

    @property
    def rest_ns(self) -> int:
        """What no part accounts for. Negative where parts overlap."""
        return self.wall_ns - sum(self.parts.values())

    def ratio(self, *names: str) -> float:
        """Returns the share of the wall time that parts have together; unknown parts count as none."""
        return sum(getattr(self, name) or 0 for name in names) / self.wall_ns if self.wall_ns else 0.0

    @property
    def unexplained(self) -> bool:
        """Whether the parts do not sum to the wall time."""
        return abs(self.rest_ns) > UNEXPLAINED_RATIO * self.wall_ns

    @property
    def validation_ratio(self) -> float:
        """The share of validation in the wall time, without its tracing and its callbacks."""
        return self.ratio(*VALIDATION)

    def to_dict(self) -> dict[str, Any]:
        """Returns the figures that other tools read from a results file: seconds and shares of the wall time."""
        parts = {**self.parts, "rest_ns": self.rest_ns}
        return {
            "wall_s": self.wall_ns / 1e9,
            "watch_s": self.watch_ns / 1e9,
            "seconds": {name.removesuffix("_ns"): value / 1e9 for name, value in parts.items()},
            "ratios": {name.removesuffix("_ns"): self.ratio(name) for name in parts},
            "epochs": self.epochs,
            "validations": self.validations,
            "traces": dict(self.traces),
        }


def later_call(account: Account) -> Account:
    """Returns the account of a call that was not the first: all its tracing repeats what an earlier call has done."""
    return replace(account, retracing_ns=account.tracing_ns)
