"""Remedies as plain data: what each changes, what it does to the data, and how the code reads with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from unstall.profiles.stages.places import Place

# The name of the contender without any remedy.
AS_WRITTEN = "as written"
# What a remedy does to the data of an epoch, from nothing to most: the same batches; the same samples in another order;
# samples that differ by rounding; samples that are drawn anew, where random operations make them.
Effect = Literal["identical", "other order", "close", "other draws"]
EFFECTS: tuple[Effect, ...] = ("identical", "other order", "close", "other draws")
# A buffer of two batches hides loading behind training where both take equally long on average.
PREFETCH = 2
# What can hold up the end of an epoch, of which a part of an epoch shows too little.
TUNER = "tf.data's tuner"
# What a loader can lose to training, and what a remedy is called for by. `drawn once` is a cache behind random
# operations, which costs no time and spoils what the model learns.
Need = Literal["waiting", "interference", "edges", "drawn once"]
NEEDS: tuple[Need, ...] = ("waiting", "interference", "edges", "drawn once")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One edit of a user's code.

    Attributes:
      place: the call to edit.
      kind: "argument" gives the call an argument; "behind" puts a further call behind it; "option" sets an option of
        tf.data behind it; "before" puts a statement before the statement that the call is in; "define" puts a class or
        function before all that the call is in; "remove" leaves the method's call out; "swap" exchanges two calls of
        methods; "feed" gives a call of `fit` other data.
      text: "num_parallel_calls=2", where "{dataset}" stands for the code of that argument of the call; ".prefetch(2)",
        "autotune.enabled = False", "loader.workers = 2"; to feed, "{data}.repeat()", where the braces stand for what
        `fit` was given, "{batch_size}" for the code of that argument; "" to remove and to swap.
      other: the call to swap with; None otherwise.
    """

    place: Place
    kind: Literal["argument", "behind", "option", "before", "define", "remove", "swap", "feed"]
    text: str = ""
    other: Place | None = None

    @property
    def places(self) -> tuple[Place, ...]:
        """The calls that are edited."""
        return (self.place,) if self.other is None else (self.place, self.other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One change of the data that a model is fed with.

    Attributes:
      name: such as "parallel"; unique among the remedies of the same data.
      text: what it changes, as a clause: "`load` in 2 parallel calls".
      code: what to write, in short: ".prefetch(2)". `Contender.code` has the user's lines.
      effect: what it does to the data.
      place: "train.py:31", where the code is to be changed; None where that is not known.
      edits: of the user's code; empty where it is too involved for an edit by machine.
      memory_bytes, disk_bytes: what it needs.
      warms_up: whether the first epoch differs from the others, because a cache is filled.
      better_with: names of remedies that may gain only along with this one.
      ends_edges: whether no epoch loses at its edges what tf.data's tuner, or workers that start anew, take there.
    """

    name: str
    text: str
    code: str
    effect: Effect
    place: str | None = None
    edits: tuple[Edit, ...] = ()
    memory_bytes: int = 0
    disk_bytes: int = 0
    warms_up: bool = False
    better_with: tuple[str, ...] = ()
    ends_edges: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Untried:
    """A remedy that is not measured, and why.

    Attributes:
      name: of the remedy; "all" where none was measured.
      reason: why, and where something can be done about it, what.
      budget_s: the budget in seconds with which it would be measured; None where the budget is not the reason.
    """

    name: str
    reason: str
    budget_s: int | None = None
