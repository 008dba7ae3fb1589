"""Looks at a tf.data pipeline for what can be changed in it, and how the user's code reads with each change.

Over 400 lines: each remedy is found in one method, and all share what is known of nodes, stages and places in the code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from unstall.profiles import clock
from unstall.profiles.remedies.edits import gives_elements_only, passes
from unstall.profiles.remedies.equality import compare
from unstall.profiles.remedies.remedy import PREFETCH, Edit, Effect, Need, Remedy, Untried
from unstall.profiles.remedies.room import Room
from unstall.profiles.remedies.tf.tf_part import EpochPart
from unstall.profiles.stages import (
    BATCHING,
    Node,
    batch_size_of,
    nodes,
    python_in,
    random_before_cache,
    random_in,
    rebuilt,
    shuffle_buffer_of,
    shuffle_settings,
    source_of,
    user_code,
)
from unstall.profiles.stages.places import Place, place_of
from unstall.profiles.stages.tf_model import written

# A stage that waits takes more calls than there are cores, up to this number.
_MOST_CALLS = 32
# A stage waits if its waiting is this part of its time or more, and matters if its time is this part of all.
_WAITS_RATIO, _MATTERS_RATIO = 0.5, 0.02
# Where an element takes less, other programs make it wait.
_LEAST_WAIT_S = 2e-4
# tf.data needs more than twice the size of a cache on disk for a moment. Source: tensorflow#28860.
_DISK_RATIO = 2.5
# Transformations that run a function of the user's.
_WITH_FUNCTION = ("map", "interleave", "flat_map")
# How long a node is read to see what it costs, and of how many batches at most.
_MOMENT_NS, _TIMED_BATCHES = 250_000_000, 16
# Elements whose mean size predicts the size of a cache.
_SIZED_ELEMENTS = 8
# So many elements of Python code are made twice, for so long each time, to see whether the code draws.
_PROBED, _PROBED_NS = 64, 1_000_000_000
# Names of the remedies that put a cache somewhere.
CACHES = ("cache", "cache-on-disk", "cache-before-drawing")


@dataclass(frozen=True, slots=True)
class _Cost:
    """Seconds for an element: on the clock, and of CPU time."""

    wall_s: float = 0.0
    cpu_s: float = 0.0

    def __add__(self, other: _Cost) -> _Cost:
        return _Cost(self.wall_s + other.wall_s, self.cpu_s + other.cpu_s)

    def __sub__(self, other: _Cost) -> _Cost:
        return _Cost(max(self.wall_s - other.wall_s, 0.0), max(self.cpu_s - other.cpu_s, 0.0))

    def __truediv__(self, elements: int) -> _Cost:
        return _Cost(self.wall_s / elements, self.cpu_s / elements)

    @property
    def waits_ratio(self) -> float:
        """The part of the time without CPU time."""
        return max(1 - self.cpu_s / self.wall_s, 0.0) if self.wall_s else 0.0

    @property
    def waits(self) -> bool:
        return self.wall_s >= _LEAST_WAIT_S and self.waits_ratio >= _WAITS_RATIO


@dataclass(slots=True, kw_only=True)
class Found:
    """Where a pipeline can be changed: positions of nodes.

    Attributes:
      sequential: maps and interleaves without parallel calls.
      waiting: those that mostly wait, and `pool_calls`, how many calls at once keep the cores busy then.
      cache_at: the node to put a cache behind; None where there is none.
      moved: shuffles in front of `cache_at` that go behind the cache.
      shuffled: the largest buffer of the shuffle behind the cache, 0 where none is needed; `shuffled_as` its seed and
        the like.
      from_disk: whether each epoch would read a cache on disk from the disk, since memory cannot hold its pages.
      late_shuffles: shuffles of what the pipeline has made, which can stand at its source; `late_as` as above.
      pairs: maps whose function takes batches as well, with the `batch` that each stands in front of.
      frozen: (the cache behind random operations, nodes in front of it, position among these of the first that draws).
    """

    sequential: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    pool_calls: int = 0
    cache_at: int | None = None
    moved: list[int] = field(default_factory=list)
    shuffled: int = 0
    shuffled_as: dict[str, Any] = field(default_factory=dict)
    from_disk: bool = False
    late_shuffles: list[int] = field(default_factory=list)
    late_as: dict[str, Any] = field(default_factory=dict)
    pairs: dict[int, int] = field(default_factory=dict)
    frozen: tuple[int, list[Node], int] | None = None


class Finder:
    """Finds the remedies of a pipeline.

    Args:
      dataset: the pipeline; `pipeline` are its nodes, and `part` how it is cut.
      room: what the remedies may take.
      pool_calls: how many calls at once each map may take; as its waiting calls for unless given.
      fit_place: the call of `fit`; None where it is not known.

    Attributes:
      found: where the pipeline can be changed. Complete once `remedies` has returned.
      calls: how many calls at once the cores can take.
      untried: remedies that cannot be tried, and why.
    """

    def __init__(
        self,
        dataset: Any,
        pipeline: list[Node],
        part: EpochPart,
        *,
        room: Room,
        uncached: str | None,
        pool_calls: int | None,
        fit_place: Place | None,
    ) -> None:
        self.found = Found()
        self._fit_place = fit_place
        self.untried: list[Untried] = []
        self._dataset = dataset
        self._nodes = pipeline
        self._part = part
        self._room = room
        self._uncached = uncached
        self._given_calls = pool_calls
        self._costs: dict[int, _Cost] = {}
        self._last = len(pipeline) - 1
        self.calls = room.calls
        # Positions behind the cut, in the order in which an element passes them.
        self._chain = list(range(part.at + 1, len(pipeline)))
        # How many elements of a function in Python were the same when they were made again.
        self._drew_nothing: dict[str, int] = {}
        self._again: dict[int, bool] = {}

    def remedies(self, needs: Sequence[Need], *, batches: float | None, only: Sequence[str] = ()) -> tuple[Remedy, ...]:
        """Returns the remedies that the needs call for, the most promising first: those of the largest need.

        Args:
          needs: what the pipeline loses, the largest loss first.
          only: names of the remedies that are looked for; all unless given. What they gain is known: stages are timed
            for the place of a cache alone.
          batches: of an epoch, if `fit` may be told so many steps; None if not, or where they are not known.
        """
        ranks: dict[Need, float] = {need: rank for rank, need in enumerate(needs)}
        if "edges" in ranks and self._part.scales:
            # The epoch waits for its first batch until what the stages make fills a shuffle buffer.
            ranks["waiting"] = min(ranks.get("waiting", math.inf), ranks["edges"] - 0.5)
        if ranks.keys() & {"waiting", "interference"} and not self._costs and (not only or {*only} & {*CACHES}):
            self._costs = self._timed()
        of_loading: tuple[Need, ...] = ("waiting", "interference")
        finders: tuple[tuple[Callable[[], Remedy | None], Sequence[str], tuple[Need, ...]], ...] = (
            (self._cache_before_drawing, CACHES, ("drawn once", *of_loading)),
            # What costs nothing is tried first, where the budget does not suffice for all.
            (self._parallel, ("parallel",), ("waiting",)),
            (self._pool, ("pool",), ("waiting",)),
            (self._prefetch, ("prefetch",), ("waiting",)),
            (self._cache, CACHES, of_loading),
            (self._batches_first, ("batches-first",), of_loading),
            (self._shuffle_first, ("shuffle-first",), ("edges", "waiting")),
            (self._tuner_off, ("tuner-off",), ("edges",)),
            (lambda: self._repeat(batches), ("repeat",), ("edges",)),
        )
        called = [
            (min(ranks[need] for need in served if need in ranks), find)
            for find, names, served in finders
            if ranks.keys() & {*served} and (not only or {*only} & {*names})
        ]
        finds = [find for _, find in sorted(called, key=lambda one: one[0])]
        # Order by readiness gains least of all.
        finds += [self._any_order] if "waiting" in ranks and (not only or "any-order" in only) else []
        return tuple(remedy for find in finds if (remedy := find()) is not None)

    def _settings_of(self, shuffles: Sequence[int]) -> dict[str, Any]:
        """Returns the seed and the like of the largest of some shuffles, for the one that takes their place."""
        largest = self._nodes[max(shuffles, key=self.size_of)].dataset
        settings, place = shuffle_settings(largest), place_of(largest)
        if place is not None and not hasattr(tf.data.Dataset, place.called) and not passes(place, "seed"):
            settings.pop("seed", None)  # a library drew it
        return settings

    def size_of(self, at: int) -> int:
        """Returns the buffer size of a shuffle: no more than there are elements."""
        size = shuffle_buffer_of(self._nodes[at].dataset)
        return size if size > 0 else int(min(self._part.elements, 2**31))

    def on_batches(self, at: int, calls: int | None) -> Any:
        """Returns what maps a dataset of batches by the function of a node, with its parallel calls unless given."""
        dataset = self._nodes[at].dataset
        function = user_code(dataset)
        own, _, autotuned = written(dataset)
        parallel = calls or own or (tf.data.AUTOTUNE if autotuned else None)
        return lambda batches: batches.map(function, num_parallel_calls=parallel)

    # The user's code

    def _remedy(
        self, name: str, text: str, code: str, effect: Effect, edits: Sequence[Edit], *, at: int, **more: Any
    ) -> Remedy:
        """Returns a remedy.

        Args:
          edits: of the user's code; empty where it is too involved.
          at: the node whose place in the code is named.
        """
        place = place_of(self._nodes[at].dataset)
        return Remedy(
            name=name,
            text=text,
            code=code,
            effect=effect,
            place=None if place is None else str(place),
            edits=tuple(edits),
            **more,
        )

    def _edit(self, at: int, kind: Any, text: str) -> list[Edit]:
        """Returns the edit of the call that made a node; none where it is not known, or makes other nodes too."""
        place = place_of(self._nodes[at].dataset)
        if place is None or (kind in ("argument", "remove") and not self._is_own(at)):
            return []
        if kind in ("behind", "option") and not self._ends_with(place, at):
            return []
        return [Edit(place=place, kind=kind, text=text)]

    def _ends_with(self, place: Place, at: int) -> bool:
        """Whether what stands behind a call that made a node stands behind this node, and behind no other."""
        if not hasattr(tf.data.Dataset, place.called):  # a library's, such as `image_dataset_from_directory`
            return gives_elements_only(place)
        return not _has_twin(self._nodes[at], self._nodes)

    def _edits(self, positions: Iterable[int], kind: Any, text: str) -> list[Edit]:
        return [edit for at in positions for edit in self._edit(at, kind, text)]

    def _is_own(self, at: int) -> bool:
        """Whether the user's own code calls the transformation of a node, and not a library for the user."""
        place = place_of(self._nodes[at].dataset)
        return place is None or sum(place_of(node.dataset) == place for node in self._nodes) == 1

    def _can_be_cut(self, at: int) -> bool:
        """Whether the user's code can put something behind a node."""
        place = place_of(self._nodes[at].dataset)
        readers = [node for node in self._nodes if at in node.inputs]
        return place is None or all(place_of(node.dataset) != place for node in readers)

    def _names(self, positions: Iterable[int]) -> str:
        return ", ".join(dict.fromkeys(f"`{self._nodes[at].name}`" for at in positions))

    # Stages

    def _timed(self) -> dict[int, _Cost]:
        """Returns what the maps and interleaves cost, each read alone for a moment, one thing at a time."""
        shuffles = [at for at in self._chain if self._nodes[at].kind == "shuffle"]
        serial = rebuilt(self._nodes, calls=None, behind=self._part.behind(_TIMED_BATCHES), without=shuffles)
        up_to: dict[int, _Cost] = {}

        def cost_up_to(at: int) -> _Cost:
            if at not in up_to:
                up_to[at] = _read_for_a_moment(serial[at])
                # Another program may have taken the core for a moment. A stage that waits does so again.
                if up_to[at].waits:
                    up_to[at] = min(up_to[at], _read_for_a_moment(serial[at]), key=lambda cost: cost.wall_s)
            return up_to[at]

        costs = {}
        for at, node in enumerate(self._nodes):
            if node.kind in _WITH_FUNCTION and node.inputs and self._has_several(at):
                before = sum((cost_up_to(number) for number in node.inputs), _Cost())
                elements = self._batch_size_up_to(at)
                costs[at] = (cost_up_to(at) - before) / elements
        return costs

    def _has_several(self, at: int) -> bool:
        """Whether an epoch has more than one element there: what makes the plan of an epoch at once has one."""
        return int(self._nodes[at].dataset.cardinality()) != 1

    def _batch_size_up_to(self, at: int) -> int:
        batches = [before for before in self._chain if before <= at and self._nodes[before].kind in BATCHING]
        return math.prod(batch_size_of(self._nodes[before].dataset) for before in batches)

    def _matters(self, at: int) -> bool:
        """Whether a map takes a part of the time that is worth changing; yes where that is not known."""
        all_s = sum(cost.wall_s for cost in self._costs.values())
        if not all_s:  # nothing was timed, or other programs took the cores meanwhile
            return True
        return at in self._costs and self._costs[at].wall_s > _MATTERS_RATIO * all_s

    def _waits(self, at: int) -> bool:
        if self._given_calls is not None:
            return True
        cost = self._costs.get(at, _Cost())
        return self._matters(at) and cost.waits

    def _makes_draws(self, positions: Iterable[int]) -> bool:
        return any(self._draws(at) is not None for at in positions)

    # Parallel calls, prefetch, order

    def _parallel(self) -> Remedy | None:
        calls = self.calls
        found = self.found.sequential = [
            at
            for at, node in enumerate(self._nodes)
            if node.kind in ("map", "interleave")
            and written(node.dataset) in ((None, None, False), (1, None, False))
            and self._has_several(at)
            and self._is_own(at)
            and self._matters(at)
        ]
        if not found or calls < 2:
            return None
        code = f"num_parallel_calls={calls}"
        return self._remedy(
            "parallel",
            f"{self._names(found)} in {calls} calls at once",
            code,
            "other draws" if self._makes_draws(found) else "identical",
            self._edits(found, "argument", code),
            at=found[-1],
        )

    def _pool(self) -> Remedy | None:
        found = self.found.waiting = [
            at
            for at, node in enumerate(self._nodes)
            if node.kind in ("map", "interleave") and self._has_several(at) and self._is_own(at) and self._waits(at)
        ]
        if not found:
            return None
        cores = self.calls
        waits_ratio = max((self._costs[at].waits_ratio for at in found if at in self._costs), default=0.0)
        least = cores / max(1 - waits_ratio, 0.01)
        # A power of two: what a stage waits is measured for a moment, and another moment must come to the same.
        wanted = 2 ** math.ceil(math.log2(max(2 * cores, least)))
        calls = self.found.pool_calls = self._given_calls or min(_MOST_CALLS, wanted)
        code, option = f"num_parallel_calls={calls}", f"threading.private_threadpool_size = {calls}"
        return self._remedy(
            "pool",
            f"{self._names(found)}, which waits, in {calls} calls at once, on as many threads",
            f"{code}, options.{option}",
            "other draws" if self._makes_draws(found) else "identical",
            _only_with(self._edit(self._last, "option", option), self._edits(found, "argument", code)),
            at=found[-1],
            calls=calls,
        )

    def _prefetch(self) -> Remedy | None:
        if any(self._nodes[at].kind == "prefetch" for at in (self._last, *self._nodes[self._last].inputs)):
            return None
        code = f".prefetch({PREFETCH})"
        text = "batches made while the model trains"
        return self._remedy("prefetch", text, code, "identical", self._edit(self._last, "behind", code), at=self._last)

    def _any_order(self) -> Remedy | None:
        calls = [written(node.dataset) for node in self._nodes if node.kind != "prefetch"]
        if not any(own or autotuned for own, _, autotuned in calls) or self._dataset.options().deterministic is False:
            return None
        option = "deterministic = False"
        return self._remedy(
            "any-order",
            "elements in the order in which they are ready",
            f"options.{option}",
            "other order",
            self._edit(self._last, "option", option),
            at=self._last,
        )

    def _batches_first(self) -> Remedy | None:
        """Looks for maps right in front of a `batch` whose function takes batches as well."""
        for at, node in enumerate(self._nodes):
            readers = [number for number, reader in enumerate(self._nodes) if at in reader.inputs]
            alone = len(readers) == 1 and self._nodes[readers[0]].kind == "batch"
            if node.kind != "map" or node.python or not alone or not (self._is_own(at) and self._is_own(readers[0])):
                continue
            batch = self._nodes[readers[0]].dataset
            with suppress(Exception):  # the function takes single elements only
                made = self.on_batches(at, None)(self._nodes[node.inputs[0]].dataset.batch(batch_size_of(batch)))
                if _specs(made) == _specs(batch):
                    self.found.pairs[at] = readers[0]
        if not self.found.pairs:
            return None
        (at, reader), *_ = self.found.pairs.items()
        size = batch_size_of(self._nodes[reader].dataset)
        return self._remedy(
            "batches-first",
            f"{self._names(self.found.pairs)} on whole batches",
            f".batch({size}).map({self._nodes[at].name})",
            "other draws" if random_in(self._nodes[at].dataset) else "close",
            self._swaps(),
            at=at,
        )

    def _swaps(self) -> list[Edit]:
        """Returns the edits that put each map behind its `batch`; none where a place is not known."""
        places = [[place_of(self._nodes[one].dataset) for one in pair] for pair in self.found.pairs.items()]
        edits = [
            Edit(place=of_map, kind="swap", other=of_batch)
            for of_map, of_batch in places
            if of_map is not None and of_batch is not None
        ]
        return edits if len(edits) == len(places) else []

    # Epoch edges

    def _tuner_off(self) -> Remedy | None:
        if self._dataset.options().autotune.enabled is False:
            return None
        edits: list[Edit] = []
        for at, node in enumerate(self._nodes):
            if written(node.dataset)[2] and node.kind != "prefetch":
                edits += self._edit(at, "argument", f"num_parallel_calls={self.calls}")
        option = "autotune.enabled = False"
        return self._remedy(
            "tuner-off",
            f"tf.data's tuner off, and {self.calls} parallel calls in the place of AUTOTUNE",
            f"options.{option}",
            "identical",
            _only_with(self._edit(self._last, "option", option), edits),
            at=self._last,
            ends_edges=True,
        )

    def _repeat(self, batches: float | None) -> Remedy | None:
        if batches is None or not self._part.length_known or batches != int(batches):
            return None
        steps = f"steps_per_epoch={int(batches)}"
        code, text = f".repeat(), and fit(..., {steps})", "one iterator for all epochs"
        edits = (
            ()
            if self._fit_place is None
            else (
                Edit(place=self._fit_place, kind="feed", text="{data}.repeat()"),
                Edit(place=self._fit_place, kind="argument", text=steps),
            )
        )
        return self._remedy("repeat", text, code, "identical", edits, at=self._last, ends_edges=True)

    def _shuffle_first(self) -> Remedy | None:
        """Looks for shuffles that hold what the pipeline has made, and that can stand at its source instead."""
        found = []
        for at in self._chain:
            before = [self._nodes[number].kind for number in self._chain if number < at]
            if (
                self._nodes[at].kind == "shuffle"
                and self._is_own(at)
                and "map" in before
                and not {*BATCHING} & {*before}
            ):
                found.append(at)
        if not found or not self._can_be_cut(self._part.at) or math.isinf(self._part.elements):
            return None
        self.found.late_shuffles = found
        self.found.late_as = self._settings_of(found)
        code = _shuffle_code(max(map(self.size_of, found)), self.found.late_as)
        return self._remedy(
            "shuffle-first",
            f"the shuffle in front of `{self._nodes[self._chain[0]].name}`, so that little is made before "
            "the first batch",
            f"{code} right behind the source",
            "other order",
            _only_with(self._edit(self._part.at, "behind", code), self._edits(found, "remove", "")),
            at=found[0],
        )

    # Caches

    def _cache(self) -> Remedy | None:
        """Looks for the last place in front of anything random, with everything costly in front of it."""
        if math.isinf(self._part.elements):
            self.untried.append(Untried(name="cache", reason="the pipeline has no end, or none was found"))
            return None
        if self._uncached is not None:
            self.untried.append(Untried(name="cache", reason=self._uncached))
            return None
        if self._part.held_by is not None:
            self.untried.append(Untried(name="cache", reason=f"{self._part.held_by} gives each epoch other elements"))
            return None
        place, why = self._cache_place()
        if place is None:
            if why:
                self.untried.append(Untried(name="cache", reason=why))
            return None
        self.found.cache_at = place
        shuffles = [at for at in self._chain if at < place and self._nodes[at].kind == "shuffle"]
        self.found.moved = [at for at in shuffles if self._is_own(at)]
        elements = self._elements_behind(place)
        if shuffles:
            largest = max(map(self.size_of, shuffles))
            self.found.shuffled = max(1, math.ceil(largest * elements / max(self._part.elements, 1)))
            self.found.shuffled_as = self._settings_of(shuffles)
        size_bytes = self._bytes_of(place, elements)
        limit = f"{self._room.memory_bytes / 1e6:,.0f} MB of memory"
        too_large = f"{size_bytes / 1e6:,.0f} MB behind `{self._nodes[place].name}` are more than {limit}"
        on_disk = size_bytes > self._room.memory_bytes
        if on_disk:
            no_room = _DISK_RATIO * size_bytes > self._room.disk_bytes
            more = ", and more than the disk has room for" if no_room else ""
            self.untried.append(Untried(name="cache", reason=too_large + more))
            if no_room:
                return None
        self.found.from_disk = on_disk and not self._room.holds_pages_of(size_bytes)
        calls = ['.cache("train.cache")' if on_disk else ".cache()"]
        calls += [_shuffle_code(self.found.shuffled, self.found.shuffled_as)] if shuffles else []
        about = "# Remove the files train.cache* when the data or this code change."
        edits = _only_with(
            [edit for call in calls for edit in self._edit(place, "behind", call)],
            [
                *(self._edit(place, "before", about) if on_disk else ()),
                *self._edits(self.found.moved, "remove", ""),
            ],
        )
        return self._remedy(
            "cache-on-disk" if on_disk else "cache",
            self._cache_text(place, size_bytes, shuffled=bool(shuffles)),
            f"{''.join(calls)} behind {self._nodes[place].name}",
            "other order" if shuffles else "identical",
            edits,
            at=place,
            memory_bytes=0 if on_disk else size_bytes,
            disk_bytes=size_bytes if on_disk else 0,
            warms_up=True,
        )

    def _cache_text(self, place: int, size_bytes: int, *, shuffled: bool) -> str:
        behind = [node.name for node in self._nodes[place + 1 :] if node.kind not in ("prefetch", "shuffle")]
        text = f"what is in front of `{behind[0] if behind else 'fit'}` made once, {size_bytes / 1e6:,.0f} MB"
        for name, elements in self._drew_nothing.items():
            text += f"; `{name}` runs Python code, and {elements} elements were the same when made again"
        if shuffled and any(self._nodes[at].kind in BATCHING for at in self._chain if at <= place):
            text += "; a batch keeps its samples in all epochs"
        if self.found.from_disk:
            text += "; memory cannot hold that, so that each epoch reads it from the disk, in the trial as well"
        return text

    def _cache_place(self) -> tuple[int | None, str | None]:
        """Returns (the node to put a cache behind, what draws behind it and keeps the cache from a later place)."""
        place: int | None = None
        for at in (self._part.at, *self._chain):
            node = self._nodes[at]
            why = self._draws_up_to(at) if at == self._part.at else self._draws(at)
            if why:
                return place, why
            if not self._can_be_cut(at) or node.kind in ("shuffle", "repeat"):
                continue
            # A cache stands before a prefetch, unless a library made both, as in `image_dataset_from_directory`.
            if node.kind == "prefetch" and any(map(self._can_be_cut, node.inputs)):
                continue
            works = any(before.kind in ("map", "interleave", "flat_map") for before in self._nodes[: at + 1])
            busy = place is None or any(map(self._matters, range(place + 1, at + 1)))
            # A cache of single elements is shuffled better than one of batches.
            if works and (node.kind not in BATCHING or place is None or busy):
                place = at
        return place, None

    def _draws_up_to(self, at: int) -> str | None:
        """Returns what draws in a node or in front of it, or shuffles in front of it: no cache may stand behind."""
        waiting, seen = [at], {at}
        while waiting:
            position = waiting.pop()
            node = self._nodes[position]
            if why := self._draws(position):
                return why
            if position != at and node.kind == "shuffle":
                return f"the shuffle in front of `{self._nodes[at].name}` would give all epochs the order of the first"
            waiting += [before for before in node.inputs if before not in seen]
            seen |= set(node.inputs)
        return None

    def _draws(self, at: int) -> str | None:
        """Returns what in a transformation draws random numbers, or may, and what to do; None if nothing draws.

        No cache belongs behind such a transformation: all epochs would get the draws of the first. Python code may
        draw; it counts as code that does not if its first elements are the same when they are made again.
        """
        dataset = self._nodes[at].dataset
        if drawn := random_in(dataset):
            return (
                f"{', '.join(drawn)} is random, and nothing that costs time comes before it; draw in a map of its own, "
                "behind the decoding"
            )
        python = python_in(dataset)
        if not python or self._comes_again(at):
            return None
        return (
            f"{', '.join(python)}, which draws: a cache would keep the first epoch's draws for all that follow; draw "
            "in a map of its own, behind the cache"
        )

    def _comes_again(self, at: int) -> bool:
        """Whether the first elements of a node are the same when they are made again."""
        if at not in self._again:
            self._again[at] = self._made_twice(at)
        return self._again[at]

    def _made_twice(self, at: int) -> bool:
        readings: list[list[Any]] = []
        for _ in range(2):
            until_ns = clock.now_ns() + _PROBED_NS
            readings.append([])
            for element in self._up_to(at, _PROBED).take(_PROBED):
                readings[-1].append(as_arrays(element))
                if clock.now_ns() > until_ns:
                    break
        count = min(map(len, readings))
        if compare(readings[0][:count], readings[1][:count]).effect != "identical":
            return False
        self._drew_nothing[self._nodes[at].name] = count
        return True

    def _up_to(self, at: int, batches: int) -> Any:
        """Returns the data up to a node, of the elements of so many batches, in an order that comes again."""
        shuffles = (number for number, node in enumerate(self._nodes) if node.kind == "shuffle")
        buffers = {number: shuffle_buffer_of(self._nodes[number].dataset) for number in shuffles}
        buffers |= self._part.buffers(batches)
        return rebuilt(self._nodes, calls="as written", behind=self._part.behind(batches), buffers=buffers)[at]

    def _elements_behind(self, at: int) -> int:
        return math.ceil(self._part.elements / self._batch_size_up_to(at))

    def _bytes_of(self, at: int, elements: int) -> int:
        """Predicts the size of a cache behind a node from some of its elements."""
        sizes = []
        for element in self._up_to(at, _SIZED_ELEMENTS).take(_SIZED_ELEMENTS):
            sizes.append(sum(_size_bytes(part) for part in tf.nest.flatten(element, expand_composites=True)))
        return int(np.mean(sizes) * elements) if sizes else 0

    def _cache_before_drawing(self) -> Remedy | None:
        """Looks for a cache behind random operations, which can stand in front of them."""
        frozen = random_before_cache(self._dataset)
        if not frozen:
            return None
        name = "cache-before-drawing"
        caches = [at for at, node in enumerate(self._nodes) if node.kind == "cache" and not node.inputs]
        inner: list[Node] = []
        drawing: list[int] = []
        if caches:
            inner = nodes(source_of(self._nodes[caches[0]].dataset), needs="trying remedies needs")
            drawing = [number for number, node in enumerate(inner) if random_in(node.dataset)]
        first = min(drawing, default=0)
        if not first or any(node.kind not in ("map", "shuffle", "prefetch") for node in inner[first:]):
            reason = (
                f"{frozen[0]} is frozen by the cache behind it, and only a chain of maps between them is understood"
            )
            self.untried.append(Untried(name=name, reason=reason))
            return None
        at = caches[0]
        self.found.frozen = (at, inner, first)
        before = place_of(inner[first - 1].dataset)
        edits = self._edit(at, "remove", "")
        if edits and before is not None and not _has_twin(inner[first - 1], inner):
            edits = [*edits, Edit(place=before, kind="behind", text=".cache()")]
        else:
            edits = []
        return self._remedy(
            name,
            f"the cache in front of `{inner[first].name}`, so that each epoch draws anew",
            f".cache() in front of {inner[first].name}",
            "other draws",
            edits,
            at=at,
            warms_up=True,
        )


def _has_twin(node: Node, pipeline: Sequence[Node]) -> bool:
    """Whether the call of the user's that made a node has made another such node, as in a loop or in a function."""
    place = place_of(node.dataset)
    return sum(other.kind == node.kind and place_of(other.dataset) == place for other in pipeline) > 1


def _only_with(needed: list[Edit], others: Iterable[Edit]) -> list[Edit]:
    """Returns all edits; none where the needed ones cannot be written, without which the others are another change."""
    return [*others, *needed] if needed else []


def _shuffle_code(size: int, settings: Mapping[str, Any]) -> str:
    return f".shuffle({', '.join([str(size), *(f'{name}={value!r}' for name, value in settings.items())])})"


def as_arrays(element: Any) -> Any:
    """Returns an element or a batch of tf.data's with NumPy's arrays in the place of tensors."""
    return tf.nest.map_structure(
        lambda part: part.numpy() if hasattr(part, "numpy") else part, element, expand_composites=True
    )


def _read_for_a_moment(dataset: Any) -> _Cost:
    """Returns what an element of a dataset costs; without the first one, before which the dataset is made."""
    elements = iter(dataset)
    next(elements, None)
    count, began_ns, cpu_ns = 0, clock.now_ns(), clock.cpu_ns()
    for _ in elements:
        count += 1
        if clock.now_ns() - began_ns > _MOMENT_NS:
            break
    wall_s = (clock.now_ns() - began_ns) / 1e9
    return _Cost(wall_s, (clock.cpu_ns() - cpu_ns) / 1e9) / max(count, 1)


def _specs(dataset: Any) -> list[Any]:
    return [(spec.dtype, spec.shape.rank) for spec in tf.nest.flatten(dataset.element_spec, expand_composites=True)]


def _size_bytes(part: Any) -> int:
    array = np.asarray(part.numpy() if hasattr(part, "numpy") else part)
    return sum(len(text) + 33 for text in array.ravel()) if array.dtype == object else array.nbytes
