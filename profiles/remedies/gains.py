"""Derives the gain of each contender from the samples of a trial, and which of them is best."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from unstall.profiles.remedies.remedy import EFFECTS, TUNER, Effect
from unstall.profiles.remedies.trial import Contender, Trial
from unstall.profiles.samples import Sample
from unstall.profiles.statistics import (
    Interval,
    by_shared_rounds,
    geometric_mean,
    median,
    ratio_interval,
    significantly_above,
)

# How many times as fast, and its 95 % interval.
Times = tuple[float, Interval | None]
# Gains below this are as good as none.
EQUAL_RATIO = 0.03
# An epoch of the trial is unlike those of the script if it takes so much more.
_UNLIKE_RATIO = 0.15
# A contender must make the data this many times as fast to be advised.
_WORTH_IT = 1 + EQUAL_RATIO
# A contender with more remedies must be this many times as fast as one with fewer, or the one with fewer is advised.
_SIMPLER_RATIO = 1.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Beyond:
    """Seconds per image that the epochs of a script take, and those of a trial do not.

    Attributes:
      edges_s: at the boundaries of epochs.
      steps_s: in steps, and between them.
      noise_s: the same where it may be noise: no more than the slowest epoch of the trial took longer than their mean,
        or so little that two rates that differ by it count as equal.
    """

    edges_s: float
    steps_s: float
    noise_s: float = 0.0


NOTHING_BEYOND = Beyond(edges_s=0.0, steps_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The rate of a contender, and how many times as fast as the data as written it is.

    Attributes:
      by_round: images/sec of whole epochs of training, by the number of the round.
      against: (times as fast as the data as written, its 95 % interval).
      again: the same from rounds measured after the choice, which they did not influence; None without such rounds.
      first_ratio: time of its first epoch, in which a cache fills, over that of an epoch of the data as written; None
        where its first epoch is as the others.
      epochs: that the script trains for; None where that is not known.
      effect: the most that its remedies do to the data.
    """

    contender: Contender
    by_round: Mapping[int, float]
    against: Times
    again: Times | None = None
    first_ratio: float | None = None
    epochs: int | None = None
    effect: Effect = "identical"

    @property
    def name(self) -> str:
        return self.contender.name

    @property
    def rate(self) -> float:
        """Images per second: the mean whose ratios are those of `against`."""
        return geometric_mean(list(self.by_round.values()))

    @property
    def best(self) -> Times:
        """The gain of an epoch, by the rounds that did not influence the choice, where there are any."""
        return self.again or self.against

    @property
    def in_script(self) -> Times:
        """The gain over all epochs that the script trains for, the first included."""
        return self.over_epochs(self.best)

    def over_epochs(self, gain: Times) -> Times:
        """Returns the gain over all epochs of the script, of that of an epoch after the first."""
        first_ratio, epochs = self.first_ratio, self.epochs
        if first_ratio is None or epochs is None:
            return gain
        ratio, interval = gain

        def over(of_epoch: float) -> float:
            return epochs / (first_ratio + (epochs - 1) / of_epoch)

        return over(ratio), None if interval is None else (over(interval[0]), over(interval[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    """The gains of all contenders, and the choice.

    Attributes:
      all: the data as written first.
      chosen: the one that makes all epochs of the script fastest, and significantly faster than the data as written,
        also when both were measured again; with fewer remedies if more gain next to nothing beyond it. None where there
        is none.
      for_long: the one that makes a long training faster than `chosen` does; None where there is none.
    """

    all: tuple[Gain, ...]
    chosen: Gain | None
    for_long: Gain | None = None

    def helped(self) -> tuple[Gain, ...]:
        """Those that are faster by more than a trifle, the fastest first; the interval must lie above 1."""
        gains = [gain for gain in self.all[1:] if is_a_gain(gain.best)]
        return tuple(sorted(gains, key=lambda gain: -gain.best[0]))


def is_a_gain(best: Times) -> bool:
    """Whether a ratio is worth advising: its interval lies above 1, and it is not a trifle."""
    ratio, interval = best
    return interval is not None and interval[0] > 1 and ratio >= _WORTH_IT


def gains_of(trial: Trial) -> Gains:
    """Derives rates from samples, and chooses."""
    gains = _gains(trial)
    chosen = _choose(gains, Gain.over_epochs)
    if chosen is not None and trial.ended and chosen.name == trial.chosen_first:
        again = None if chosen.again is None else chosen.over_epochs(chosen.again)
        chosen = chosen if again is not None and is_a_gain(again) else None
    for_long = _choose(gains, lambda _, gain: gain)
    least = 1.0 if chosen is None else chosen.best[0]
    if for_long is None or for_long is chosen or for_long.best[0] < _SIMPLER_RATIO * least:
        for_long = None
    return Gains(all=gains, chosen=chosen, for_long=for_long)


def _gains(trial: Trial) -> tuple[Gain, ...]:
    if not trial.contenders:
        return ()
    as_written, *others = trial.contenders
    beyond = beyond_trial(trial)
    rates = _rates_as_written(as_written.samples, trial, beyond)
    if not rates:
        return ()
    gains = []
    for contender in (as_written, *others):
        ends_edges = any(trial.remedy(name).ends_edges for name in contender.remedies)
        own_beyond = replace(beyond, edges_s=0.0) if ends_edges else beyond
        own = _rates(contender.samples, trial, own_beyond)
        if not own:
            continue
        pairs = by_shared_rounds(own, rates)
        if not pairs[0]:
            continue
        again = by_shared_rounds(
            _rates(contender.again, trial, own_beyond), _rates_as_written(as_written.again, trial, beyond)
        )
        effects = [trial.remedy(name).effect for name in contender.remedies]
        gains.append(
            Gain(
                contender=contender,
                by_round=own,
                against=_ratio(contender.samples, as_written.samples, trial, (own_beyond, beyond), pairs),
                again=_ratio(contender.again, as_written.again, trial, (own_beyond, beyond), again)
                if again[0] and contender is not as_written
                else None,
                first_ratio=_first_ratio(contender, trial, own_beyond, geometric_mean(pairs[1])),
                epochs=trial.epochs,
                effect=max(effects, key=EFFECTS.index, default="identical"),
            )
        )
    return tuple(gains)


def loading_of(trial: Trial) -> Times | None:
    """Returns the share of an epoch that is loading, from 0 to 1, and its 95 % interval, as the trial shows it.

    Training on the data as written is compared with training on batches in memory, in the same rounds: both had the
    same machine, whatever else ran on it. What an epoch loses at its edges is what the script's own epochs lost, where
    that is known: a part of an epoch can lose more, as where filling a shuffle buffer takes most of it.

    Returns:
      (share, interval; None below three rounds); None without rounds on batches in memory.
    """
    if not trial.in_memory or not trial.contenders:
        return None
    steps_s = beyond_trial(trial).steps_s
    free = {sample.round: 1 / (sample.s_per_image + steps_s) for sample in trial.in_memory}
    pairs = by_shared_rounds(
        free,
        {
            sample.round: 1 / (sample.s_per_image + _edges_s(sample, trial) + steps_s)
            for sample in trial.contenders[0].samples
        },
    )
    if not pairs[0]:
        return None
    ratio, interval = ratio_interval(*pairs)
    return _share(ratio), None if interval is None else (_share(interval[0]), _share(interval[1]))


def _edges_s(sample: Sample, trial: Trial) -> float:
    """Returns the seconds per image that an epoch as written loses at its edges."""
    if trial.script_edges_s is not None:
        return trial.script_edges_s
    return _whole_s_per_image(sample, trial) - sample.s_per_image


def _share(ratio: float) -> float:
    """Returns the share of an epoch that is loading, of how many times as fast the epoch is without it."""
    return min(max(1 - 1 / ratio, 0.0), 1.0)


def _ratio(
    samples: Sequence[Sample],
    as_written: Sequence[Sample],
    trial: Trial,
    beyond: tuple[Beyond, Beyond],
    pairs: tuple[Sequence[float], Sequence[float]],
) -> Times:
    """Returns the ratio of rates, and its interval.

    It goes from none of what the script's epochs lost at their boundaries to all of it, where few epochs showed what
    the tuner takes, or where workers start again; and to the gain if what may be noise were the script's own steps.

    Args:
      samples, as_written: of the contender, and of the data as written.
      beyond: what the script's epochs took beyond these, of both.
      pairs: the rates of both, by round.
    """
    ratio, interval = ratio_interval(*pairs)
    others = []
    if beyond[1].edges_s and (trial.edges_are_doubtful or trial.edges_by != TUNER):
        others.append([replace(one, edges_s=0.0) for one in beyond])
    if beyond[1].noise_s:
        others.append([replace(one, steps_s=one.steps_s + one.noise_s) for one in beyond])
    for own, other in others if interval is not None else ():
        rates = by_shared_rounds(_rates(samples, trial, own), _rates_as_written(as_written, trial, other))
        if (ends := ratio_interval(*rates)[1]) is not None and interval is not None:
            interval = min(interval[0], ends[0]), max(interval[1], ends[1])
    return ratio, interval


def _choose(gains: Sequence[Gain], over: Callable[[Gain, Times], Times]) -> Gain | None:
    """Returns the fastest that is faster than the data as written, significantly and by `_WORTH_IT`.

    Args:
      over: returns the gain that counts, of that of an epoch.
    """
    if not gains:
        return None
    as_written, *others = gains
    faster = significantly_above([by_shared_rounds(gain.by_round, as_written.by_round) for gain in others])
    counts = [(gain, over(gain, gain.against)) for gain, is_faster in zip(others, faster, strict=True) if is_faster]
    better = [(gain, counted) for gain, counted in counts if is_a_gain(counted)]
    if not better:
        return None
    fastest = max(ratio for _, (ratio, _) in better)
    near = [(gain, ratio) for gain, (ratio, _) in better if ratio * _SIMPLER_RATIO >= fastest]
    return min(near, key=lambda one: (len(one[0].contender.remedies), -one[1]))[0]


def _first_ratio(contender: Contender, trial: Trial, beyond: Beyond, as_written: float) -> float | None:
    """Returns the time of a first epoch that fills what the others find, over that of an epoch as written."""
    warms_up = any(trial.remedy(name).warms_up for name in contender.remedies)
    if not warms_up or contender.first is None:
        return None
    # A single epoch may have been disturbed.
    firsts = [_whole_s_per_image(sample, trial, beyond) for sample in (contender.first, *contender.firsts)]
    return median(firsts) * as_written


def _rates(samples: Sequence[Sample], trial: Trial, beyond: Beyond) -> dict[int, float]:
    return {sample.round: 1 / _whole_s_per_image(sample, trial, beyond) for sample in samples}


def _rates_as_written(samples: Sequence[Sample], trial: Trial, beyond: Beyond) -> dict[int, float]:
    """Returns the same of the data as written, none slower than the script's own epochs where the trial is unlike them.

    In a part of an epoch, the filling of a shuffle buffer and the waits of tf.data's tuner can take more than their
    share. A gain that counted them would be too large.
    """
    rates = _rates(samples, trial, beyond)
    if not is_unlike(trial) or trial.script_s is None:
        return rates
    return {number: max(rate, 1 / trial.script_s) for number, rate in rates.items()}


def is_unlike(trial: Trial) -> bool:
    """Whether an epoch of the data as written takes much longer in the trial than it took in the script."""
    measured_s = as_written_s_per_image(trial)
    return trial.script_s is not None and measured_s is not None and measured_s / trial.script_s - 1 > _UNLIKE_RATIO


def beyond_trial(trial: Trial) -> Beyond:
    """Returns what the script's epochs took beyond what measured epochs show.

    At the end of an epoch tf.data's tuner holds the iterator up until it wakes next, and the time between two wakings
    doubles: a part of an epoch loses at most its own length, and a whole epoch may lose as much as it takes. What the
    last epoch of a measured `fit` loses lies behind that `fit`. The workers of a `DataLoader` start anew in each epoch,
    and what a trial starts has imported and compiled already what the script's workers import and compile each time.
    What is left is neither edge nor in the trial's own steps: callbacks, progress bars, the script's code between the
    steps. No remedy for the data takes any of that away. But an epoch of the trial may have taken as long by chance:
    then a hundredth of an epoch as written would be several epochs of a remedy that makes them 100 times as fast.
    """
    measured_s = as_written_s_per_image(trial)
    if measured_s is None:
        return NOTHING_BEYOND
    left_s = math.inf if trial.script_s is None else max(trial.script_s - measured_s, 0.0)
    edges_s = 0.0
    if trial.script_edges_s is not None:
        steady_s = [sample.s_per_image for sample in trial.contenders[0].samples]
        edges_s = max(min(trial.script_edges_s - (measured_s - sum(steady_s) / len(steady_s)), left_s), 0.0)
    if trial.script_s is None:
        return Beyond(edges_s=edges_s, steps_s=0.0)
    slowest_s = max(_whole_s_per_image(sample, trial) for sample in trial.contenders[0].samples)
    is_noise = trial.script_s <= max(slowest_s, (1 + EQUAL_RATIO) * measured_s)
    steps_s = 0.0 if is_noise else left_s - edges_s
    return Beyond(edges_s=edges_s, steps_s=steps_s, noise_s=left_s - edges_s - steps_s)


def as_written_s_per_image(trial: Trial) -> float | None:
    """Returns the seconds per image of whole epochs of the data as written; None before they were measured."""
    samples = trial.contenders[0].samples if trial.contenders else ()
    if trial.epoch_images is None or not samples:
        return None
    return sum(_whole_s_per_image(sample, trial) for sample in samples) / len(samples)


def _whole_s_per_image(sample: Sample, trial: Trial, beyond: Beyond = NOTHING_BEYOND) -> float:
    """Returns the time per image of a whole epoch in real use, with what that takes beyond the sample."""
    if trial.scaled:
        taken_s = sample.whole_s_per_image()
    elif trial.epoch_images is None:
        taken_s = sample.s_per_image
    else:
        taken_s = sample.whole_s_per_image(round(trial.epoch_images))
    # tf.data's tuner holds an epoch up for as long as it has taken, at most.
    edges_s = min(beyond.edges_s, taken_s) if trial.edges_by == TUNER else beyond.edges_s
    return taken_s + edges_s + beyond.steps_s
