"""The results of a search: the rates of the pipelines that were measured, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unstall.benchmarks.tune.plan import Asked
from unstall.benchmarks.tune.samples import MeasuredPipeline, SearchSamples, Subject
from unstall.pipeline import PipelineConfig
from unstall.pipeline.export import packages_of
from unstall.profiles.report import Document
from unstall.profiles.samples import Sample
from unstall.profiles.statistics import Interval, geometric_mean, ratio_interval, significantly_above

NAIVE, HEURISTIC, AUTOTUNE = "naive", "heuristic", "AUTOTUNE"
# Predicted rates that differ by less count as equal, and the simpler pipeline comes first.
EQUAL_RATIO = 0.03
# Measured rates that differ by less count as equal. The choice may be 3 % slower than the best pipeline
# (docs/tuning.md); a third of that is left for simplicity, because the means of the rates are noisy as well.
_LEVEL_RATIO = 0.01
# How many of the pipelines that may be as fast as the fastest are measured in further rounds beside it.
_RIVALS = 2
_STORAGE = ("files", "records", "resized", "raw")
_CACHES = ("none", "memory", "disk")

SearchDocument = Document[Asked, SearchSamples]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The rates of a subject.

    Attributes:
      epoch_images_per_sec: of whole epochs of training, by round.
      loader_images_per_sec: of the loader alone, by round.
      steady_images_per_sec: inside an epoch, without its edges, which no prediction has, by round.
      again_images_per_sec: of whole epochs, in rounds measured after the choice, which they did not influence; empty
        where the subject was not measured again.
    """

    subject: Subject
    epoch_images_per_sec: tuple[float, ...]
    loader_images_per_sec: tuple[float, ...]
    steady_images_per_sec: tuple[float, ...]
    again_images_per_sec: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        return self.subject.name

    @property
    def config(self) -> PipelineConfig:
        return self.subject.config

    @property
    def is_exact(self) -> bool:
        return self.subject.is_exact

    @property
    def rate(self) -> float:
        """Images/sec of whole epochs, over all rounds before the choice."""
        return geometric_mean(self.epoch_images_per_sec)

    @property
    def of_prediction(self) -> float:
        """The rate inside an epoch, over the predicted one."""
        return geometric_mean(self.steady_images_per_sec) / self.subject.prediction.images_per_sec

    def against(self, other: Result) -> tuple[float, Interval | None]:
        """Returns this rate over the other's, in the rounds that both have, and the 95 % interval."""
        return ratio_interval(*shared_rounds(self.epoch_images_per_sec, other.epoch_images_per_sec))

    def again_against(self, other: Result) -> tuple[float, Interval | None] | None:
        """Returns the same as `against` from the rounds measured after the choice; None if there are none."""
        ours, theirs = self.again_images_per_sec, other.again_images_per_sec
        return ratio_interval(ours, theirs) if ours and len(ours) == len(theirs) else None

    def is_confirmed_against(self, other: Result) -> bool:
        """Whether the rounds measured after the choice show that this is faster than the other."""
        again = self.again_against(other)
        return again is not None and _is_above_one(again[1])


def _is_above_one(interval: Interval | None) -> bool:
    return interval is not None and interval[0] > 1


def shared_rounds(ours: Sequence[float], theirs: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """Returns the rates of the rounds that both have.

    A pipeline is measured in every round until it is no longer in question, so these are the first rounds of both.
    """
    rounds = min(len(ours), len(theirs))
    return ours[:rounds], theirs[:rounds]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderResults:
    """The chosen pipeline with its elements in the order in which they are ready, and the same with a fixed order."""

    any_order: Result
    in_order: Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What a search measured and chose.

    Attributes:
      results: of all subjects that were measured in a whole round; naive, heuristic and AUTOTUNE first.
      chosen: of the rivals the first that is significantly faster than each of those after it when they were measured
        again; None where nothing was measured.
      rivals: those that were measured again, in the order in which they are preferred; empty where none were, and while
        the search has not ended. See `rivals_of`.
      algorithms: AUTOTUNE with each of TensorFlow's algorithms; empty for a quick search.
      on_copy: AUTOTUNE on the copy or cache of the first of the rivals; None where that has none.
      order: None where the price of a fixed order was not measured.
      prepare_s: seconds before the first epoch, for all images; 0 where nothing is prepared.
    """

    results: tuple[Result, ...]
    chosen: Result | None
    order: OrderResults | None
    prepare_s: float
    rivals: tuple[Result, ...] = ()
    algorithms: tuple[Result, ...] = ()
    on_copy: Result | None = None

    def named(self, name: str) -> Result | None:
        return next((result for result in self.results if result.name == name), None)

    @property
    def incumbent(self) -> Result:
        """The result that others must be faster than: AUTOTUNE, or the first where AUTOTUNE could not be measured."""
        return self.named(AUTOTUNE) or self.results[0]

    @property
    def on_chosen_copy(self) -> Result | None:
        """AUTOTUNE on the copy or cache of the chosen pipeline; None where that has none, or it was not measured."""
        if self.on_copy is None or self.chosen is None:
            return None
        copies = [(result.config.storage, result.config.cache) for result in (self.on_copy, self.chosen)]
        return self.on_copy if copies[0] == copies[1] else None

    @property
    def passed_over(self) -> Result | None:
        """The fastest, where another is chosen because it is not exact: it is faster than AUTOTUNE all the same."""
        if not self.rivals or self.rivals[0] in (self.chosen, self.incumbent) or self.rivals[0].is_exact:
            return None
        return self.rivals[0] if self.rivals[0].is_confirmed_against(self.incumbent) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedResult:
    """A result against the incumbent, over the rounds that all results have, so that the figures of all rows agree."""

    result: Result
    images_per_sec: float
    ratio: float
    interval: Interval | None


def compared_results(results: Results) -> tuple[ComparedResult, ...]:
    """Returns all results in the rounds that all have, compared with the incumbent, the slowest first.

    Later rounds are of few pipelines, and the machine may be faster or slower in them.
    """
    rounds = min((len(result.epoch_images_per_sec) for result in results.results), default=0)
    rows = []
    for result in results.results:
        rates = result.epoch_images_per_sec[:rounds]
        ratio, interval = ratio_interval(*shared_rounds(rates, results.incumbent.epoch_images_per_sec))
        images_per_sec = geometric_mean(rates)
        rows.append(ComparedResult(result=result, images_per_sec=images_per_sec, ratio=ratio, interval=interval))
    return tuple(sorted(rows, key=lambda row: row.images_per_sec))


def derive(document: SearchDocument) -> Results:
    """Derives rates from the samples of a search, and chooses."""
    assert document.dataset is not None
    return results_of(document.samples, document.dataset["images"], ended=document.complete)


def results_of(samples: SearchSamples, images: int, *, ended: bool) -> Results:
    """Returns the rates of a search, and its choice.

    Args:
      images: of an epoch of the user's training.
      ended: whether the search came to its end. Before that, the rounds that measure the choice again are incomplete,
        and the choice of the first rounds is returned.
    """
    results = rates_of_subjects(samples.subjects, images)
    if not results:
        return Results(results=(), chosen=None, order=None, prepare_s=0.0)
    order = None
    if samples.order is not None:
        any_order, in_order = result_of(samples.order.any_order, images), result_of(samples.order.in_order, images)
        if any_order.epoch_images_per_sec and in_order.epoch_images_per_sec:
            order = OrderResults(any_order=any_order, in_order=in_order)
    return Results(
        results=results,
        chosen=settle(results, samples.chosen_first if ended else None),
        rivals=rivals_of(results, samples.chosen_first) if ended else (),
        order=order,
        prepare_s=samples.prepare_s_per_image * images,
        algorithms=rates_of_subjects(samples.algorithms, images),
        on_copy=None if samples.on_copy is None else result_of(samples.on_copy, images),
    )


def rates_of_subjects(subjects: Sequence[MeasuredPipeline], images: int) -> tuple[Result, ...]:
    """Returns the results of those subjects that have trained an epoch in a round."""
    results = (result_of(measured, images) for measured in subjects)
    return tuple(result for result in results if result.epoch_images_per_sec)


def result_of(measured: MeasuredPipeline, images: int) -> Result:
    return Result(
        subject=measured.subject,
        epoch_images_per_sec=rates_of(measured.samples, "train", images),
        loader_images_per_sec=rates_of(measured.samples, "loader", images),
        again_images_per_sec=rates_of(measured.samples, "again", images),
        steady_images_per_sec=tuple(1 / sample.s_per_image for sample in measured.samples if sample.window == "train"),
    )


def rates_of(samples: Sequence[Sample], window: str, images: int) -> tuple[float, ...]:
    """Returns images/sec of whole epochs, by round.

    Args:
      images: of an epoch of the user's training, over which the time of its edges is spread.
    """
    return tuple(1 / sample.whole_s_per_image(images) for sample in samples if sample.window == window)


def settle(results: Sequence[Result], chosen_first: str | None) -> Result:
    """Returns the final choice.

    Args:
      chosen_first: the name of the subject that was measured again beside its rivals, if any was. Of all these the
        first is chosen that is significantly faster in those rounds, too, than each of those after it.
    """
    rivals = rivals_of(results, chosen_first)
    if not rivals:
        return choose(results)
    return next(
        rival
        for place, rival in enumerate(rivals)
        if all(rival.is_confirmed_against(other) for other in rivals[place + 1 :])
    )


def rivals_of(results: Sequence[Result], chosen_first: str | None) -> tuple[Result, ...]:
    """Returns those that are measured again, in the order in which they are preferred; empty without a `chosen_first`.

    These are the one that the first rounds chose; if that is not exact, the best exact one, which it must beat; and
    AUTOTUNE.
    """
    if chosen_first is None:
        return ()
    by_name = {result.name: result for result in results}
    first, exact = by_name.get(chosen_first), _best_exact(results, surely=False)
    names = [chosen_first, *([exact.name] if exact and not (first and first.is_exact) else []), AUTOTUNE]
    return tuple(by_name[name] for name in dict.fromkeys(names) if name in by_name)


def choose(results: Sequence[Result], *, surely: bool = True) -> Result:
    """Returns the best result that is significantly faster than AUTOTUNE, or AUTOTUNE.

    Of those that are not significantly slower than the fastest, and no more than 1 % slower, it returns an exact one if
    there is one, and of these the simplest. One that is not exact must be significantly faster than the best exact one.

    Args:
      surely: whether these rounds must show that it is faster. If not, rounds that did not choose it must: of a single
        candidate that is one comparison, whatever the number of pipelines was.
    """
    best, exact = _best(results, surely=surely), _best_exact(results, surely=surely)
    if not surely or best.is_exact or exact is None or _is_above_one(best.against(exact)[1]):
        return best
    return exact


def _best_exact(results: Sequence[Result], *, surely: bool) -> Result | None:
    exact = [result for result in results if result.is_exact]
    return _best(exact, surely=surely) if exact else None


def _best(results: Sequence[Result], *, surely: bool) -> Result:
    """Returns what `choose` does, whether it is exact or not."""
    incumbent = next((result for result in results if result.name == AUTOTUNE), results[0])
    others = [result for result in results if result is not incumbent]
    faster = significantly_above(
        [shared_rounds(result.epoch_images_per_sec, incumbent.epoch_images_per_sec) for result in others]
    )
    better = [
        result
        for result, is_faster in zip(others, faster, strict=True)
        if is_faster or (not surely and result.against(incumbent)[0] > 1)
    ]
    if not better:
        return incumbent
    # Those in question were measured in more rounds, in which the machine may have been slower: the others are compared
    # with the fastest of these in the rounds that both have.
    most_rounds = max(len(result.epoch_images_per_sec) for result in better)
    longest = [result for result in better if len(result.epoch_images_per_sec) == most_rounds]
    fastest = max(longest, key=lambda result: result.rate)
    level = [result for result in better if _may_equal(result, fastest)]
    # Few rounds also find much slower pipelines "not significantly slower": the simplest must be near the fastest, too.
    near = [result for result in level if result is fastest or result.against(fastest)[0] >= 1 - _LEVEL_RATIO]
    return min(near, key=lambda result: (not result.is_exact, simplicity(result.config), -result.rate))


def undecided(results: Sequence[Result]) -> tuple[Result, ...]:
    """Returns the fastest result and a few that may be as fast, AUTOTUNE among them if it may; else an empty tuple."""
    fastest, *others = sorted(results, key=lambda result: -result.rate)
    level = [result for result in others if _may_equal(result, fastest)]
    rivals = level[:_RIVALS] + [result for result in level[_RIVALS:] if result.name == AUTOTUNE]
    return (fastest, *rivals) if rivals else ()


def _may_equal(result: Result, fastest: Result) -> bool:
    """Whether a result is not significantly slower than the fastest."""
    _, interval = fastest.against(result)
    return result is fastest or interval is None or interval[0] <= 1


def has_place(subject: Subject, shortlist: Sequence[Subject], places: int) -> bool:
    """Whether a subject goes onto a shortlist, of which a place is kept for an exact one, and for one without packages.

    What is not exact, or needs a package besides TensorFlow, must be faster than one that is, and needs none.

    Args:
      subject: the fastest, by prediction, that is not on the list.
      places: of the list.
    """
    wanted = [is_wanted for is_wanted in (_is_exact, _is_plain) if not any(map(is_wanted, shortlist))]
    return len(shortlist) + len(wanted) < places or any(is_wanted(subject) for is_wanted in wanted)


def _is_exact(subject: Subject) -> bool:
    return subject.is_exact


def _is_plain(subject: Subject) -> bool:
    return not packages_of(subject.config)


def simplicity(config: PipelineConfig) -> tuple[int, ...]:
    """Returns a key that sorts pipelines with the fewest packages first, then those without a copy or a cache."""
    return (
        len(packages_of(config)),
        _STORAGE.index(config.storage),
        _CACHES.index(config.cache),
        int(config.decode == "scaled") + int(config.composed),
        int(config.augment_with != "tf_ops"),
        int(config.output_dtype == "uint8"),
    )


def name_of(config: PipelineConfig) -> str:
    """Returns what a pipeline does, in a few words."""
    words = []
    if config.storage != "files":
        words.append(config.storage)
    elif config.cache == "none":
        words.append("scaled" if config.decode == "scaled" else "full")
    if config.cache != "none":
        words.append(f"{config.cache} cache")
    if config.composed:
        words.append("composed")
    elif config.augmentation is not None:
        words.append(f"{config.augment_with} a {config.augment_at}")
    if config.output_dtype == "uint8":
        words.append("uint8")
    calls = "1 call" if config.workers == 1 else f"{config.workers} calls"
    ahead = f"prefetch {config.prefetch}" + " to the device" * config.prefetch_to_device
    return ", ".join([*words, calls, ahead])
