"""Tries remedies for the data of a script's longest `fit` or loop, once the script has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from unstall.profiles import clock
from unstall.profiles.code_line import CodeLine
from unstall.profiles.remedies import NEEDS, Need, Trial, Untried
from unstall.profiles.remedies.data import Data, Failed
from unstall.profiles.remedies.turns import Measure, Turns
from unstall.profiles.report.measurements import MeasurementDocument, derive
from unstall.profiles.report.screen_lines import is_short
from unstall.profiles.results.attribution import Attribution, bound_of
from unstall.profiles.results.result import Result
from unstall.profiles.script.seen import SeenFit, SeenLoop
from unstall.profiles.text import error_text
from unstall.profiles.trial.progress import TrialProgress

if TYPE_CHECKING:
    from unstall.profiles.script.loops import Loops
    from unstall.profiles.script.profiler import Profiler

# A part of an epoch from this share on calls for remedies: less than what makes loading costly, because several add up.
_CALLS_FROM = 0.04
# Beyond the budget, a window that has begun, the first epochs and the building of the data may take so long.
GRACE_S = 60.0
# The share of loading is doubtful where its range is wider.
_WIDE = 0.2


class Held(Protocol):
    """What is kept of the longest `fit` or loop of a script, until its remedies were tried.

    Attributes:
      name: of the `fit` or loop, as in the report.
      epochs: how many there were, or would have been without `--max-steps`; None where that is not known.
    """

    @property
    def name(self) -> str: ...
    @property
    def epochs(self) -> int | None: ...

    def opened(self, needs: Sequence[Need]) -> AbstractContextManager[tuple[Data, Measure]]:
        """Returns the data that can be built again, and what measures training on them; puts all back at its end.

        Raises:
          Failed: if the data cannot be built again, or the steps cannot be made apart from the script.
        """


@dataclass(frozen=True, slots=True)
class HeldSeen:
    """A `fit` or a loop that was seen, as `Held`."""

    seen: SeenFit | SeenLoop

    @property
    def name(self) -> str:
        return self.seen.name

    @property
    def place(self) -> CodeLine:
        """The line of the `fit`, or where the loop begins."""
        return self.seen.place

    @property
    def epochs(self) -> int | None:
        return self.seen.epochs

    def opened(self, needs: Sequence[Need]) -> AbstractContextManager[tuple[Data, Measure]]:
        if isinstance(self.seen, SeenLoop):
            from unstall.profiles.trial.held_loop import opened_loop

            return opened_loop(self.seen, needs)
        from unstall.profiles.trial.held_fit import opened_fit

        return opened_fit(self.seen, needs)


def needs_of(attribution: Attribution, *, frozen: bool) -> tuple[Need, ...]:
    """Returns what a `fit` or loop loses to loading, the most first; empty where loading costs little for certain.

    A cache behind random operations comes before all, because it spoils what the model learns.

    Args:
      attribution: of its epochs.
      frozen: whether random operations stand before a cache.
    """
    first: tuple[Need, ...] = ("drawn once",) if frozen else ()
    if bound_of(attribution.loading_range[1]) == "compute":
        return first
    shares = attribution.shares.map(lambda _, share: share or 0.0)
    parts: dict[Need, float] = {
        "waiting": shares.fetch_stall + shares.prep_stall,
        "interference": shares.interference,
        "edges": shares.epoch_overhead,
    }
    largest, *others = sorted(parts, key=lambda need: -parts[need])
    return (*first, largest, *(need for need in others if parts[need] >= _CALLS_FROM))


def is_doubtful(result: Result) -> bool:
    """Whether the script's own epochs leave open what loading costs: then batches in memory are measured as well."""
    low, high = result.attribution.loading_range
    return result.attribution.bound == "uncertain" or is_short(result) or min(high, 1) - max(low, 0) > _WIDE


def longest(watchers: list[Profiler | Loops]) -> HeldSeen | None:
    """Returns what is held of the `fit` or loop that took longest."""
    seen = [one for watcher in watchers if (one := watcher.longest) is not None]
    return HeldSeen(max(seen, key=lambda one: one.took_ns)) if seen else None


def with_trial(
    document: MeasurementDocument,
    held: Held,
    *,
    budget_s: float,
    named: Callable[[Trial], Trial] = lambda trial: trial.without_folders,
    epochs: int | None = None,
    only: tuple[str, ...] = (),
    begins: Callable[[float], object] = lambda limit_s: None,
    progress: TrialProgress | None = None,
) -> Iterator[MeasurementDocument]:
    """Tries the remedies that the verdict calls for, and yields the document whenever more was measured.

    Args:
      document: of the script.
      held: of the `fit` or loop whose data are tried.
      budget_s: how long measuring may take.
      named: returns a trial as its file holds it, which names no folder of the user's.
      epochs: how many the user's whole training has; those of `held` unless given.
      only: the remedies that are in place already: the data are measured with them and without.
      begins: called before any code of the user's runs again, with how long all may take.
      progress: says what is measured; None for silence.
    """
    verdict = next((one for one in derive(document) if one.result.subject.variant == held.name), None)
    if verdict is None:
        return
    result = verdict.result
    frozen = bool(result.subject.frozen_by_cache)
    needs = NEEDS if only else needs_of(result.attribution, frozen=frozen)
    if not needs:
        most = max(result.attribution.loading_range[1], 0.0)
        reason = f"loading is at most {most:.0%} of an epoch, and no data could make it much faster"
        yield _with(document, held.name, Trial(untried=(Untried(name="all", reason=reason),), ended=True))
        return
    begins(budget_s + GRACE_S)
    began_ns = clock.now_ns()
    with progress or nullcontext():
        last, turns = Trial(), None
        try:
            with held.opened(needs) as (data, measure):
                turns = Turns(
                    data,
                    measure,
                    budget_s=budget_s,
                    began_ns=began_ns,
                    epochs=epochs or held.epochs,
                    # With remedies in place, the script's epochs were not those of the data as written.
                    edges_s=None if only else result.attribution.seconds_per_image.epoch_overhead,
                    script_s=None if only else 1 / result.epoch_images_per_sec,
                    seen_epochs=len(result.explained),
                    only=only,
                    decides=not only and is_doubtful(result),
                    say=progress.say if progress else lambda what: None,
                )
                for trial in turns.run():
                    last = named(trial)
                    yield _with(document, held.name, last)
            return
        except KeyboardInterrupt:
            if turns is not None and not last.remedies:  # in the first of all
                last = named(turns.trial())
            notes = (*last.notes, "Stopped by Ctrl-C: not all remedies were tried.")
            last = replace(last, notes=notes, stopped=True)
        except Exception as error:  # an error in a user's code, or in a framework, costs the trial and no more
            reason = str(error) if isinstance(error, Failed) else f"it failed ({error_text(error)})"
            last = replace(last, untried=(*last.untried, Untried(name="all", reason=reason)))
        yield _with(document, held.name, last)


def _with(document: MeasurementDocument, name: str, trial: Trial) -> MeasurementDocument:
    return replace(document, samples=replace(document.samples, trials={**document.samples.trials, name: trial}))
