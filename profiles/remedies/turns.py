"""Measures remedies in turns: the data as written and each contender, round by round, within a budget of time.

Over 400 lines: what is measured next depends on all that was measured before, and on the time that is left.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from unstall.profiles import clock
from unstall.profiles.measure.schedule import TRAIN_WINDOW_S, epochs_for
from unstall.profiles.remedies.data import Data, Failed
from unstall.profiles.remedies.edits import reads_as
from unstall.profiles.remedies.equality import BatchComparison, Broken
from unstall.profiles.remedies.gains import EQUAL_RATIO, gains_of, loading_of
from unstall.profiles.remedies.remedy import AS_WRITTEN, EFFECTS, Remedy, Untried
from unstall.profiles.remedies.trial import Contender, Trial
from unstall.profiles.samples import Sample
from unstall.profiles.text import error_text

# Rounds of a stage of the trial: fewer give no useful interval, more gain little.
_LEAST_ROUNDS, _MOST_ROUNDS = 3, 8
# Rounds in which the chosen contender is measured again beside the data as written.
_ROUNDS_AGAIN = 5
# Further first epochs of the chosen contender, where that one fills a cache: two, and where they are short, for which a
# hiccup of the machine counts much, up to six in so many seconds.
_FIRSTS_AGAIN, _MOST_FIRSTS_AGAIN, _FIRSTS_AGAIN_S = 2, 6, 2.0
# The part of the budget that the remedies by themselves may take; the rest is for those that help, together and again.
_ALONE_RATIO = 0.6
# The part of the budget after which the best is chosen; the rest is for measuring it again.
_CHOSEN_RATIO = 0.8
# An epoch of the measurement lasts about so long, and has at least so many batches.
_EPOCH_S, _LEAST_BATCHES = 0.8, 12
# Whole epochs are measured where one takes no more than this part of the budget: what tf.data's tuner costs at the end
# of an epoch grows with its length, so that a part of an epoch shows too little of it.
_WHOLE_RATIO = 0.02
# The shortest window of a round, in whole epochs.
_WINDOW_S = TRAIN_WINDOW_S
# A contender whose epoch takes this many times that of the data as written is measured no further.
_HOPELESS_RATIO = 3.0
# A measured epoch has at least this many times the batches that can lie ready. They are made while the model waits for
# its first batch, and at the end the model runs beside no loading: an epoch of little else is too fast.
_TIMES_AHEAD = 3
# Epochs of warm-up of each contender. The first one may fill a cache; where none does and it takes this long, it is the
# only one.
_WARMUPS, _LONG_S = 2, 1.0

# What is measured as a loader that costs nothing.
_IN_MEMORY = "batches in memory"
# The share of loading is known well enough if its interval is no wider.
_NARROW = 0.15

# Measures training on data for some epochs, as a window of a name, in a round; no epoch may take longer than a limit.
Measure = Callable[[Any, int, str, int, float], Sample]


class Turns:
    """Measures the remedies of one data within a budget.

    Args:
      data: of the script.
      measure: times training on what `data` builds.
      budget_s: how long all may take. A window that has begun is ended.
      began_ns: when the trial began, if that is not now; what was done since then is part of it.
      epochs: how many the script trains for; None where that is not known.
      edges_s, script_s: seconds per image that the script's own epochs lost at their edges, and that they took; None
        where that is not known.
      seen_epochs: of how many epochs these are means.
      only: the remedies that are measured, all together; all that the data have, apart and together, unless given.
      decides: whether to measure batches in memory as well, because the script's own epochs do not tell what loading
        costs.
      say: called with a text before each part of the work.
    """

    def __init__(
        self,
        data: Data,
        measure: Measure,
        *,
        budget_s: float,
        began_ns: int | None = None,
        epochs: int | None = None,
        edges_s: float | None = None,
        script_s: float | None = None,
        seen_epochs: int | None = None,
        only: tuple[str, ...] = (),
        decides: bool = False,
        say: Callable[[str], object] = lambda text: None,
    ) -> None:
        self._data = data
        self._measure = measure
        self._budget_s = budget_s
        self._only = only
        self._decides = decides
        self._in_memory: list[Sample] | None = None
        self._say = say
        self._began_ns = clock.now_ns() if began_ns is None else began_ns
        self._built: dict[str, Any] = {}
        self._epochs: dict[str, int] = {}
        self._epoch_s: dict[str, float] = {}
        self._contenders: dict[str, Contender] = {}
        self._entered: set[tuple[str, ...]] = set()
        self._dropped: list[Untried] = []
        self._notes: list[str] = []
        self._effects: dict[str, Remedy] = {remedy.name: remedy for remedy in data.remedies}
        self._order = random.Random()
        self._numbers = itertools.count()
        self._batches = 0
        self._round_s = 0.0
        self._chosen_first: str | None = None
        self._script_epochs = epochs
        self._script_edges_s = edges_s
        self._script_s = script_s
        self._seen_epochs = seen_epochs
        self._ended = False

    def trial(self) -> Trial:
        """Returns what was measured so far."""
        data = self._data
        return Trial(
            remedies=tuple(self._effects.values()),
            untried=(*data.untried, *self._dropped),
            contenders=tuple(self._contenders.values()),
            in_memory=tuple(self._in_memory or ()),
            applied=self._only,
            chosen_first=self._chosen_first,
            stages=data.stages,
            epoch_images=data.epoch_images,
            scaled=data.scaled,
            batches=self._batches or None,
            epoch_batches=data.epoch_batches,
            script_edges_s=self._script_edges_s if data.edges_by else None,
            script_epochs=self._seen_epochs,
            script_s=self._script_s,
            edges_by=data.edges_by,
            epochs=self._script_epochs,
            notes=(*data.notes, *self._notes),
            seconds=self._gone_s(),
            ended=self._ended,
        )

    def run(self) -> Iterator[Trial]:
        """Measures, and yields all that was measured so far whenever there is more of it.

        Raises:
          Failed: if the data as written cannot be measured.
        """
        unknown = [name for name in self._only if name not in self._effects]
        if unknown:
            raise Failed(f"there is no remedy {unknown[0]} for these data. Known: {', '.join(self._effects) or 'none'}")
        if self._effects or self._decides:
            yield from self._run()
            yield from self._narrow_down()
        if not self._effects and not self._data.untried:
            self._drop("all", "no known remedy for data of this kind helps against what is lost here")
        self._ended = True
        yield self.trial()

    def _run(self) -> Iterator[Trial]:
        self._say("reading the data as written")
        self._batches, built, first = self._find_batches()
        self._warm_up(AS_WRITTEN, (), built=built, first=first)
        if self._decides:
            self._enter_in_memory()
        for names in self._apart():
            if self._allows(names):
                self._say(f"{' + '.join(names)}: building, comparing, first epochs")
                self._enter(names)
                self._hold_to_promise(names)
                yield self.trial()
        alone = self._that_fit([name for name in self._contenders if name != AS_WRITTEN])
        if not alone:
            return
        yield from self._rounds([AS_WRITTEN, *alone], self._until(_ALONE_RATIO))
        best = gains_of(self.trial()).chosen
        joined = [AS_WRITTEN, *([best.name] if best else [])]
        for names in self._together():
            if self._affords_together(names, joined):
                name = " + ".join(names)
                self._say(f"{name}: building, comparing, first epochs")
                self._enter(names)
                joined += [name] if name in self._contenders else []
        if len(joined) > 1 + (best is not None):
            yield from self._rounds(joined, self._until(_CHOSEN_RATIO))
        for ratio in (_CHOSEN_RATIO, 1.0):
            # Epochs that differ much, such as by what tf.data's tuner takes of some of them, need more rounds.
            likely = [gain.name for gain in gains_of(self.trial()).all[1:] if gain.against[0] > 1 + EQUAL_RATIO]
            if likely and gains_of(self.trial()).chosen is None:
                yield from self._rounds([AS_WRITTEN, *likely], self._until(ratio), least=0)
        chosen = gains_of(self.trial()).chosen
        if chosen is None:
            return
        if self._gone_s() + self._rounds_s([AS_WRITTEN, chosen.name]) > self._budget_s:
            return
        # The fastest of several owes its place to noise as well, so that the rounds that chose it overestimate it.
        self._chosen_first = chosen.name
        self._fill_again(chosen.name)
        yield from self._rounds([AS_WRITTEN, chosen.name], self._until(1.0), again=True)

    def _fill_again(self, name: str) -> None:
        """Measures further first epochs of a contender whose first one fills a cache in memory, within the budget."""
        contender = self._contenders[name]
        remedies = [self._effects[one] for one in contender.remedies]
        if (
            contender.first is None
            or not any(one.warms_up for one in remedies)
            or any(one.disk_bytes for one in remedies)
        ):
            return
        fit_in = int(_FIRSTS_AGAIN_S / max(contender.first.epoch_ns / 1e9, 1e-3))
        for number in range(1, 1 + min(max(_FIRSTS_AGAIN, fit_in), _MOST_FIRSTS_AGAIN)):
            needed_s = contender.first.epoch_ns / 1e9 + self._rounds_s([AS_WRITTEN, name])
            if self._gone_s() + needed_s > self._budget_s:
                return
            self._say(f"{name}: another first epoch")
            try:
                built = self._data.built(contender.remedies, self._length(contender.remedies))
                first = self._measure(built, 1, "warmup", number, self._budget_s)
            except Exception as error:  # as in `_enter`
                self._notes.append(f"{name} could not be built again: {_failure(error)}.")
                return
            contender = self._contenders[name] = replace(contender, firsts=(*contender.firsts, first))

    def _enter_in_memory(self) -> None:
        """Warms up training on batches in memory, whose rounds are those of the data as written."""
        try:
            batches = self._built[_IN_MEMORY] = self._data.in_memory(self._batches)
            sample = self._measure(batches, 1, "warmup", 0, max(self._budget_s - self._gone_s(), 1.0))
        except Exception as error:  # as in `_enter`
            self._notes.append(f"Batches in memory could not be trained on: {_failure(error)}.")
            return
        self._epoch_s[_IN_MEMORY], self._epochs[_IN_MEMORY] = sample.epoch_ns / 1e9, epochs_for(sample, _WINDOW_S)
        self._in_memory = []

    def _narrow_down(self) -> Iterator[Trial]:
        """Measures further rounds on batches in memory and on the data as written, until they tell what loading costs.

        Whoever trains on such a machine wants an answer more than the time that is left of the budget.
        """
        while self._in_memory is not None:
            loading = loading_of(self.trial())
            is_narrow = loading is not None and loading[1] is not None and loading[1][1] - loading[1][0] <= _NARROW
            if is_narrow or self._gone_s() + self._rounds_s([AS_WRITTEN]) / _LEAST_ROUNDS > self._budget_s:
                return
            yield from self._rounds([AS_WRITTEN], self._until(1.0), most=1)

    def _find_batches(self) -> tuple[int, Any, Sample | None]:
        """Finds how many batches an epoch of the measurement needs: more and more are timed until it is known.

        Returns:
          (the batches, data of so many as written, their first epoch if they had one by then).
        """
        batches = least = max(_LEAST_BATCHES, self._length(()))
        while True:
            built = self._data.built((), batches)
            sample = self._measure(built, 1, "warmup", 0, self._budget_s / 4)
            epoch_s = sample.epoch_ns / 1e9
            if self._data.is_whole(batches):
                return batches, built, sample
            if epoch_s > _EPOCH_S / 4:
                whole = self._data.epoch_batches
                if whole is not None and whole * epoch_s / batches <= _WHOLE_RATIO * self._budget_s:
                    wanted = math.ceil(whole)
                else:
                    wanted = max(least, round(batches * _EPOCH_S / epoch_s))
                return (batches, built, sample) if wanted == batches else (wanted, self._data.built((), wanted), None)
            batches *= 4

    def _length(self, names: tuple[str, ...]) -> int:
        """Returns how many batches a measured epoch with these remedies has: those that work ahead read on."""
        length, whole = max(self._batches, _TIMES_AHEAD * self._data.ahead(names)), self._data.epoch_batches
        return length if whole is None else min(length, math.ceil(whole))

    def _allows(self, names: tuple[str, ...]) -> bool:
        """Whether the budget suffices for one more contender; notes it as not tried if not.

        The new one may take as long as the data as written; the further batches that it needs to work ahead take as
        long as it promises. The first and most promising one may take all of the budget: what is not chosen from
        several need not be measured again.
        """
        as_written_s = self._epoch_s[AS_WRITTEN]
        of_length_s = as_written_s * self._length(names) / self._length(())
        epoch_s = max(as_written_s, of_length_s / self._data.most_gain(names))
        warm_up_s = self._warm_ups(names, epoch_s) * epoch_s
        return self._affords(names, epoch_s, warm_up_s, f"take {of_length_s:.1f} s as written")

    def _affords(self, names: tuple[str, ...], epoch_s: float, warm_up_s: float, takes: str) -> bool:
        """Whether one more contender fits into the budget; notes it as not tried if not.

        Its rounds have to fit, or those of the fastest of the others, with those of the data as written: where all
        together take too long, the first epochs say whose rounds are left out.

        Args:
          epoch_s, warm_up_s: of the contender: an epoch, and what is left of its warm-up.
          takes: says how long its batches take.
        """
        as_written, *others = self._contenders
        ratio = _ALONE_RATIO if others else 1.0
        own_s = _own_rounds_s(epoch_s)
        before_s = self._gone_s() + warm_up_s
        fastest_s = min((_own_rounds_s(self._epoch_s[name]) for name in others), default=0.0)
        needed_s = before_s + self._rounds_s([as_written]) + max(own_s, fastest_s)
        if needed_s <= ratio * self._budget_s:
            return True
        left = len(self._apart()) - len(others)
        for_all_s = before_s + self._rounds_s(self._contenders) + left * (warm_up_s + own_s) - warm_up_s
        self._drop_for_budget(names, takes, for_all_s / ratio)
        return False

    def _that_fit(self, names: list[str]) -> list[str]:
        """Returns the contenders whose rounds fit into the budget: those with the fastest first epochs."""
        fit: list[str] = []
        as_written_s = self._s_per_batch(AS_WRITTEN)
        for_all_s = (self._gone_s() + self._rounds_s([AS_WRITTEN, *names])) / _ALONE_RATIO
        for name in sorted(names, key=self._s_per_batch):
            if not fit or self._gone_s() + self._rounds_s([AS_WRITTEN, *fit, name]) <= self._until(_ALONE_RATIO):
                fit.append(name)
                continue
            times = as_written_s / self._s_per_batch(name)
            contender = self._contenders.pop(name)
            self._drop_for_budget(contender.remedies, f"were {times:.2f} times as fast in a first epoch", for_all_s)
        return [name for name in names if name in fit]

    def _s_per_batch(self, name: str) -> float:
        """Returns the seconds of a batch in the last first epoch of a contender."""
        return self._epoch_s[name] / self._length(self._contenders[name].remedies)

    def _affords_together(self, names: tuple[str, ...], others: Sequence[str]) -> bool:
        """Whether rounds of remedies together, along with others, fit into what is left of the budget.

        They may take all of it: what they gain together is worth more than measuring again what one gains alone.
        """
        epoch_s = min(self._epoch_s.get(name, self._epoch_s[AS_WRITTEN]) for name in names)
        more_s = self._warm_ups(names, epoch_s) * epoch_s + _own_rounds_s(epoch_s)
        needed_s = self._gone_s() + more_s + self._rounds_s(others)
        if needed_s <= self._budget_s:
            return True
        self._drop_for_budget(names, f"take {epoch_s:.1f} s with one of them", needed_s)
        return False

    def _rounds_s(self, names: Iterable[str]) -> float:
        """Returns how long the fewest rounds of these contenders take, in seconds."""
        return sum(_own_rounds_s(self._epoch_s[name]) for name in self._in_turns(names))

    def _in_turns(self, names: Iterable[str]) -> list[str]:
        """Returns what is measured in a round of these contenders."""
        return [*names, *([] if self._in_memory is None else [_IN_MEMORY])]

    def _drop_for_budget(self, names: tuple[str, ...], takes: str, needed_s: float) -> None:
        budget_s = math.ceil(needed_s)
        reason = f"{self._length(names)} batches {takes}"
        self._dropped.append(Untried(name=" + ".join(names), reason=reason, budget_s=budget_s))

    def _hold_to_promise(self, names: tuple[str, ...]) -> None:
        """Measures a contender no further that is slower than it promised, where the budget does not suffice then."""
        name = " + ".join(names)
        contender = self._contenders.pop(name, None)
        if contender is None:
            return
        epoch_s = self._epoch_s[name]
        if self._data.most_gain(names) == 1 or self._affords(names, epoch_s, 0.0, f"take {epoch_s:.1f} s so"):
            self._contenders[name] = contender

    def _enter(self, remedies: tuple[str, ...]) -> None:
        """Builds, compares and warms up a contender; drops one that fails, breaks its claim, or is far too slow."""
        name = " + ".join(remedies)
        self._entered.add(remedies)
        self._dropped = [untried for untried in self._dropped if untried.name != name]  # now the budget allows it
        try:
            comparison = self._data.compared(remedies)
            difference = self._hold_to_claim(remedies, comparison)
            self._warm_up(name, remedies, difference)
        except (Failed, Broken) as error:
            self._drop(name, str(error))
        except MemoryError:
            self._drop(name, "it did not fit into memory")
        except Exception as error:  # the user's code and the framework can raise anything; it costs this contender only
            self._drop(name, _failure(error))

    def _hold_to_claim(self, remedies: tuple[str, ...], comparison: BatchComparison) -> float | None:
        """Checks what the data show against what the remedies claim.

        Returns:
          The largest difference of a value.
        Raises:
          Broken: if the data differ by more than is claimed.
        """
        claimed = max((self._effects[name].effect for name in remedies), key=EFFECTS.index)
        if EFFECTS.index(comparison.effect) <= EFFECTS.index(claimed):
            return comparison.difference
        raise Broken(f"it claims {claimed} batches, and {comparison.text}: it is thrown out")

    def _warm_ups(self, remedies: tuple[str, ...], epoch_s: float) -> int:
        """Returns how many epochs of warm-up a contender needs whose epoch takes so long."""
        fills = any(self._effects[name].warms_up for name in remedies)
        return _WARMUPS if fills or epoch_s < _LONG_S else 1

    def _warm_up(
        self,
        name: str,
        remedies: tuple[str, ...],
        difference: float | None = None,
        *,
        built: Any = None,
        first: Sample | None = None,
    ) -> None:
        """Builds a contender and measures its first epochs.

        Args:
          built: the contender's data, where these are built already.
          first: the first epoch of these data, where there was one.
        """
        self._built[name] = self._data.built(remedies, self._length(remedies)) if built is None else built
        limit_s = max(self._budget_s - self._gone_s(), 1.0)
        if first is None:
            first = self._measure(self._built[name], 1, "warmup", 0, limit_s)
        last = first
        for number in range(1, self._warm_ups(remedies, first.epoch_ns / 1e9)):
            last = self._measure(self._built[name], 1, "warmup", number, limit_s)
        self._epoch_s[name] = last.epoch_ns / 1e9
        slower = self._epoch_s[name] / self._epoch_s[AS_WRITTEN] * self._length(()) / self._length(remedies)
        if slower > _HOPELESS_RATIO:
            del self._built[name]
            raise Failed(f"an epoch takes {slower:.1f} times as long")
        self._epochs[name] = epochs_for(last, _WINDOW_S)
        self._contenders[name] = Contender(
            name=name, remedies=remedies, first=first, difference=difference, code=self._code_of(remedies)
        )

    def _code_of(self, remedies: tuple[str, ...]) -> str | None:
        """Returns how the user's statements read with remedies; None where that is not known."""
        edits = [self._effects[name].edits for name in remedies]
        return reads_as([edit for some in edits for edit in some]) if all(edits) else None

    def _rounds(
        self,
        names: list[str],
        until_s: float,
        *,
        again: bool = False,
        least: int = _LEAST_ROUNDS,
        most: int = _MOST_ROUNDS,
    ) -> Iterator[Trial]:
        """Measures rounds, in an order that is drawn for each, until a time: from `least` to `most` of them."""
        for number in range(_ROUNDS_AGAIN if again else most):
            began_s = self._gone_s()
            if number >= least and began_s + self._round_s > until_s:
                return
            self._say(f"round {number + 1}: {', '.join(names[1:] or [_IN_MEMORY])}")
            round_ = next(self._numbers)
            in_turns = names if again else self._in_turns(names)
            for name in self._order.sample(in_turns, len(in_turns)):
                try:
                    limit_s = max(10.0, 5 * self._epoch_s[name])
                    sample = self._measure(
                        self._built[name], self._epochs[name], "again" if again else "train", round_, limit_s
                    )
                except Exception as error:  # as in `_enter`
                    if name == AS_WRITTEN:
                        raise Failed(f"the data as written failed: {_failure(error)}") from error
                    if name == _IN_MEMORY:
                        self._notes.append(f"Batches in memory were trained on no more: {_failure(error)}.")
                        self._in_memory = None
                        continue
                    self._drop(name, _failure(error))
                    self._contenders.pop(name)
                    names = [other for other in names if other != name]
                    continue
                if name == _IN_MEMORY:
                    if self._in_memory is not None:
                        self._in_memory.append(sample)
                    continue
                contender = self._contenders[name]
                if again:
                    self._contenders[name] = replace(contender, again=(*contender.again, sample))
                else:
                    self._contenders[name] = replace(contender, samples=(*contender.samples, sample))
            yield self.trial()
            self._round_s = self._gone_s() - began_s
            if len(names) == 1:
                return

    def _apart(self) -> list[tuple[str, ...]]:
        """Returns the remedies one by one, each followed by those that may gain only along with it."""
        if self._only:
            return [self._only]
        apart: list[tuple[str, ...]] = []
        for name, remedy in self._effects.items():
            along = [self._joined((name,), (other,)) for other in remedy.better_with if other in self._effects]
            apart += [(name,), *(names for names in along if self._data.fits(names))]
        return apart

    def _together(self) -> list[tuple[str, ...]]:
        """Returns combinations of what helps, of those that were not measured yet.

        The best is combined with the best two others that go with it, the second best with the best one; and all that
        go together are combined, the best first.
        """
        gains = gains_of(self.trial()).all
        helped = sorted((gain for gain in gains[1:] if gain.against[0] > 1.02), key=lambda gain: -gain.against[0])
        sets = [gain.contender.remedies for gain in helped]
        combined: list[tuple[str, ...]] = []
        for most, names in zip((2, 1), sets, strict=False):
            pairs = dict.fromkeys(self._joined(names, others) for others in sets)
            combined += [pair for pair in pairs if self._data.fits(pair) and pair not in self._entered][:most]
        everything: tuple[str, ...] = ()
        for names in sets:
            more = self._joined(everything, names)
            if not everything or self._data.fits(more):
                everything = more
        return [names for names in dict.fromkeys([*combined, everything]) if names and names not in self._entered]

    def _joined(self, names: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
        """Returns the remedies of both, in the order in which they were offered."""
        chosen = {*names, *others}
        return tuple(name for name in self._effects if name in chosen)

    def _drop(self, name: str, reason: str) -> None:
        self._dropped.append(Untried(name=name, reason=reason))

    def _gone_s(self) -> float:
        return (clock.now_ns() - self._began_ns) / 1e9

    def _until(self, ratio: float) -> float:
        return ratio * self._budget_s


def _own_rounds_s(epoch_s: float) -> float:
    """Returns how long the fewest rounds of one contender take, in seconds."""
    return _LEAST_ROUNDS * max(epoch_s, _WINDOW_S)


def _failure(error: Exception) -> str:
    return f"it failed ({error_text(error)})"
