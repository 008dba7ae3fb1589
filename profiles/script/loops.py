"""Watches the loops of a script: each pass over its data is an epoch, each batch a step.

Over 400 lines: the loops and their passes refer to each other.
"""

from __future__ import annotations

import random
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from unstall.profiles import clock
from unstall.profiles.code_line import CodeLine
from unstall.profiles.data.base import Adapter
from unstall.profiles.data.numbers import reference_to
from unstall.profiles.devices import Device
from unstall.profiles.measure.ahead import Ahead
from unstall.profiles.measure.completion import Completion
from unstall.profiles.measure.epochs import KEPT_EPOCHS, EpochRecord
from unstall.profiles.measure.steps import RAMP_STEPS, Epoch, Step, steady_part
from unstall.profiles.results.facts import Facts, Retraced
from unstall.profiles.script.computing import Computing, device_of
from unstall.profiles.script.last_data import LastData
from unstall.profiles.script.results import Ceilings, FitRecord
from unstall.profiles.script.run import wait_for_threads
from unstall.profiles.script.seen import Applies, SeenLoop
from unstall.profiles.script.tracing import traced_here
from unstall.profiles.stages.places import is_library
from unstall.profiles.stages.users_lines import LinesWithin
from unstall.profiles.unit import SAMPLE, Unit, images_in

if TYPE_CHECKING:
    from unstall.profiles.script.loop_step import StepNotes, Work

# The step of an epoch whose modules and optimizers are noted: one that is not steady, because noting takes time.
_NOTED_STEP = 1
# Of so many steps, of a loop whose remedies are tried, one is looked at for how long its thread waits for a core.
_LOOKED_AT = 8
# The data of how many loops, those that took longest, are read again for stage tables.
_MOST_READ = 3
# Under these names the modules of this package are loaded, whatever a script calls its own.
_OURS = "unstall.profiles."


class Loops:
    """Collects a record of each of a script's loops over data.

    A step is what the script does from one batch to the next; in a loop that trains, the model's forward and backward
    pass. This package cannot run such a step by itself, so that the rate of the model alone stays unknown.

    Args:
      max_steps: number of steps, over the whole script, after which the loop raises SystemExit(0); None for no limit.
      tries: whether remedies are to be tried afterwards. Then the last data of each place are held.
      applies: puts remedies in place before each loop; None where none are wanted.
    """

    def __init__(self, *, max_steps: int | None, tries: bool = False, applies: Applies | None = None) -> None:
        self._tries = tries
        self._applies = applies
        self._max_steps = max_steps
        self._steps = 0
        self._ended = False
        self._loops: dict[tuple[CodeLine, str, Hashable], _Loop] = {}
        self._running: weakref.WeakSet[Pass] = weakref.WeakSet()
        self._noting = threading.Lock()

    @property
    def fits(self) -> list[FitRecord]:
        """A record for each place in the script with a loop that made a step, in order."""
        return [record for record, _ in self._records()]

    @property
    def readable_data(self) -> Mapping[str, Any]:
        """The data of the longest loops that can be read again, as long as they are held; else None."""
        readable = [(record.name, loop) for record, loop in self._records() if loop.adapter.reads_again]
        longest = {name for name, _ in sorted(readable, key=lambda named: -named[1].took_ns)[:_MOST_READ]}
        return {name: loop.held_data() if name in longest else None for name, loop in readable}

    def _records(self) -> list[tuple[FitRecord, _Loop]]:
        loops = [loop for loop in self._loops.values() if loop.epochs]
        return [(loop.record(f"loop {number}"), loop) for number, loop in enumerate(loops, 1)]

    @property
    def longest(self) -> SeenLoop | None:
        """The loop that took longest, of those whose waiting is known; None unless remedies are to be tried."""
        candidates = [
            SeenLoop(
                name=record.name,
                place=record.place,
                took_ns=loop.took_ns,
                # How many a loop would have made that was left after so many steps is nowhere to be seen.
                epochs=None if self._max_steps is not None and self._steps >= self._max_steps else loop.begun,
                anew=loop.last.anew,
                changed=loop.last.changed,
                data=loop.given,
                record=record,
                threads=loop.step_threads,
                queued_ratio=loop.queued_ratio,
                work=loop.work,
                behind=loop.behind,
                left=loop.left and not loop.ended,
            )
            for record, loop in self._records()
            if loop.loader is not None and not loop.mixed
        ]
        return max(candidates, key=lambda loop: loop.took_ns, default=None)

    def place_of(self, frame: Any) -> CodeLine | None:
        """Returns where the script begins a loop; None if the loop is not to be watched.

        Args:
          frame: that asked for an iterator. A loop inside Keras, such as that of `fit`, is none of the script's.
        """
        return None if self._ended else _place(frame)

    def applied(self, place: CodeLine, data: Any) -> Any:
        """Returns the data with the remedies that are to be put in place there."""
        return data if self._applies is None else self._applies.to_loop(place, data)

    def begin(self, adapter: Adapter, data: Any, place: CodeLine) -> Pass:
        """Begins to watch a pass over data, in a loop at a place of the script."""
        # A generator of the script can loop over several loaders on one line, and make each anew for every epoch. So a
        # loop is identified by its place and its data.
        kind = adapter.loop_kind()
        with self._noting:
            key = place, kind, adapter.identity(data)
            loop = self._loops.get(key)
            if loop is None:
                loop = self._loops[key] = _Loop(place, adapter, data, kind)
            watched = Pass(place, data, loop, self._count, outer=self._step_here())
            for other in list(self._running):
                if other.place == place and other.runs:
                    other.overtaken_by(watched)
            self._running.add(watched)
            given = data if self._applies is None else self._applies.as_given(data)
            loop.note(data, given, held=self._tries and adapter.tries)
            # A script may make other data for each of a thousand loops: only those that run and the longest are held.
            kept = {running.loop for running in self._running} | {
                max(self._loops.values(), key=lambda one: one.took_ns)
            }
            for ended in set(self._loops.values()) - kept:
                ended.loader = ended.given = ended.work = None
        return watched

    def _step_here(self) -> Pass | None:
        """Returns the pass in whose step this thread is, the innermost of several; None outside of steps."""
        inside = [one for one in list(self._running) if one.runs and one.in_step_of == threading.get_ident()]
        return max(inside, key=lambda one: one.came_ns, default=None)

    def wait(self) -> None:
        """Waits for all threads that may train."""
        wait_for_threads()

    def pause(self) -> None:
        """Stops watching, and ends the passes that the script has begun and not finished."""
        self._ended = True
        for unfinished in list(self._running):
            unfinished.close(whole=False)

    def backend(self) -> dict[str, Any]:
        """Describes the libraries whose loops were watched, and their devices."""
        facts: dict[str, Any] = {}
        for adapter in dict.fromkeys(loop.adapter for loop in self._loops.values()):
            facts |= adapter.backend()
        return facts

    def _count(self) -> None:
        self._steps += 1
        if self._max_steps is not None and self._steps >= self._max_steps:
            raise SystemExit(0)


class _Loop:
    """A place in a script that loops over data, and the epochs of these loops.

    Attributes:
      begun: number of passes that have begun.
      mixed: whether other data are drawn from on the same line while these loops run.
      left, ended: whether a pass was left before the end of its data, as by `break`; whether one came to their end.
      unit: what the batches hold; None before the first.
      data: returns the data of the first pass; None if the script has let them go.
      given: what the script gave of `loader`, where a remedy took its place; else the same.
      loader: of the last pass, where remedies are to be tried; None where another loop took longer, and none runs.
      last: the data of the last pass.
      work: the modules and optimizers of a step, where remedies are to be tried and these could be noted.
      behind: whether a device computes the steps behind the host.
      copies: how many workers each give the whole data; None where none was seen to.
    """

    def __init__(self, place: CodeLine, adapter: Adapter, data: Any, kind: str) -> None:
        self.place = place
        self.adapter = adapter
        self.looking = LinesWithin(adapter.source(data))
        self.epochs: deque[EpochRecord] = deque(maxlen=KEPT_EPOCHS)
        self.begun = 0
        self.mixed = self.left = self.ended = False
        self.unit: Unit | None = None
        self.loader: Any = None
        self.given: Any = None
        self.work: Work | None = None
        self.behind = False
        self.copies: int | None = None
        self.last = LastData(data)
        self.data = reference_to(data) or (lambda: None)
        self._steps_ns = self._steps_cpu_ns = 0
        self._looked_ns = self._queued_ns = 0
        self._traces: tuple[int, ...] = (0, 0, 0)
        self._traced = ""
        self._results = self._waited_for = 0
        self._fetch_ns = self._host_ns = 0
        self.device: Device
        self._label, self._data_kind = adapter.label(data), adapter.kind(data)
        self._workers = adapter.workers(data)
        self._kind = kind
        self._canary_ns = clock.canary_ns()

    @property
    def took_ns(self) -> int:
        """How long the epochs that are kept took."""
        return sum(epoch.outer_ns for epoch in self.epochs)

    def note(self, data: Any, given: Any, *, held: bool) -> None:
        """Notes the data of another pass, and keeps them, and what the script gave, if they are to be held."""
        self.last.note(data)
        self.loader, self.given = (data, given) if held else (None, None)

    def held_data(self) -> Any:
        """Returns the data of the last pass where they are held, else those of the first if the script has them."""
        return self.data() if self.loader is None else self.loader

    def note_queued(self, wall_ns: int, queued_ns: int) -> None:
        """Adds the time of a step, and for how long of it its thread waited for a core."""
        self._looked_ns += wall_ns
        self._queued_ns += queued_ns

    @property
    def queued_ratio(self) -> float:
        """The part of a step in which its thread waited for a core."""
        return min(self._queued_ns / self._looked_ns, 1.0) if self._looked_ns else 0.0

    def note_step(self, wall_ns: int, cpu_ns: int) -> None:
        """Adds the time of a step, and the CPU time of this process in it."""
        self._steps_ns += wall_ns
        self._steps_cpu_ns += cpu_ns

    def note_behind(self, *, waited_for: bool, fetch_ns: int, wall_ns: int) -> None:
        """Notes a step that a device computes behind the host.

        Args:
          waited_for: whether the script has waited for its result before it asked for the next batch.
          fetch_ns, wall_ns: how long the host was held by the loader, of how long it had the step.
        """
        self._results += 1
        self._waited_for += waited_for
        self._fetch_ns += fetch_ns
        self._host_ns += wall_ns

    def note_traces(self, count: int, traced_ns: int, wall_ns: int, name: str) -> None:
        """Adds what steps behind the first ones of a pass have traced, in so long a time."""
        self._traces = tuple(map(sum, zip(self._traces, (count, traced_ns, wall_ns), strict=True)))
        self._traced = name

    @property
    def step_threads(self) -> int:
        """How many threads a step keeps busy, on average; at least 1."""
        return max(1, round(self._steps_cpu_ns / self._steps_ns)) if self._steps_ns else 1

    def _facts(self) -> Facts:
        return Facts(
            data=self._label,
            kind=self._data_kind,
            loop=True,
            workers_asked=self._workers or None,
            waited_for_ratio=self._waited_for / self._results if self._results else None,
            fetching_ratio=self._fetch_ns / max(self._host_ns, 1) if self._results else None,
            retraced=self._retraced(),
            copies=self.copies,
        )

    def _retraced(self) -> Retraced | None:
        count, traced_ns, wall_ns = self._traces
        if count <= 0 or wall_ns <= 0:
            return None
        return Retraced(function=self._traced, count=count, ratio=traced_ns / wall_ns, ms=traced_ns / count / 1e6)

    def _why_unknown(self) -> str | None:
        if self.mixed:
            return "several loaders are drawn from in one line, each while a step of the other runs"
        if any(epoch.images is None for epoch in self.epochs):
            return "no array was found in its batches, whose samples could be counted"
        return None

    def record(self, short: str) -> FitRecord:
        epochs = tuple(self.epochs)
        if self.mixed:
            epochs = tuple(replace(epoch, steady_wait_ns=None) for epoch in epochs)
        return FitRecord(
            short=short,
            place=self.place,
            model=self._kind,
            epochs=epochs,
            device=self.device,
            ceilings=Ceilings(samples=(), reason="a loop's steps are the script's own"),
            canary_ns=self._canary_ns,
            facts=self._facts(),
            why_unknown=self._why_unknown(),
            loop=True,
            unit=self.unit or SAMPLE,
            lines=self.looking.seen,
        )


class Pass:
    """One pass of a loop over its data: notes when a batch is asked for, and when it arrives.

    A device that computes behind the host, as that of JAX does, is idle only from when it has finished the step before.
    What it still computes when a batch is asked for is waited for by a thread, so that no step of the script waits.

    A pass that begins and ends within a step of another, such as an evaluation from time to time, is no part of it.

    Args:
      outer: the pass in whose step this one begins; None for none.
    """

    def __init__(
        self, place: CodeLine, data: Any, loop: _Loop, count: Callable[[], None], outer: Pass | None = None
    ) -> None:
        self.place = place
        self.loop: _Loop | None = loop
        self._count = count
        self._thread = threading.get_ident()
        # The pass in whose step this one began, and which step that is.
        self._outer = None if outer is None else (weakref.ref(outer), outer.came_ns)
        self._began = clock.now_ns(), clock.own_cpu_ns()
        # How long this thread had waited for a core when the step began, of a step that is looked at; else None.
        self._queued_ns: int | None = None
        # How long the passes took that began and ended in the step of this one that is made now: their time, and CPU
        # time; and until when, since several may run at once.
        self._apart = [0, 0]
        self._apart_until = (0, 0)
        if outer is not None:
            outer.drop_notes()
        self._drawn: tuple[int, int, int | None] | None = None
        self._step_cpu_ns = 0
        self._notes: StepNotes | None = None
        self._traces = loop.adapter.traces and not loop.begun
        self._completion: Completion | None = None
        self._results: Callable[[], Any] = list
        self._copies = None if loop.begun else loop.adapter.copies(data)
        # Passes of the same line that began while this one ran. `batches = iter(loader)` drops the older one then.
        self._newer: list[Callable[[], Pass | None]] = []
        # When the first steps, which trace, were over, and what this thread had traced by then: (time, count, time).
        self._settled_ns: tuple[int, int, int] | None = None
        self._epoch = Epoch(
            number=loop.begun,
            steady=steady_part(Ahead(parallel_batches=loop.adapter.workers(data))),
            random_=random.Random(loop.begun),  # not the global random state, which is the user's
        )
        loop.begun += 1
        loop.looking.begin()

    @property
    def runs(self) -> bool:
        """Whether this pass has not ended."""
        return self.loop is not None

    @property
    def in_step_of(self) -> int | None:
        """The thread that makes a step of this pass now; None between steps."""
        return None if self._drawn is None else self._thread

    @property
    def came_ns(self) -> int:
        """When the batch of the step came that is made now; 0 between steps."""
        return 0 if self._drawn is None else self._drawn[1]

    def drop_notes(self) -> None:
        """Notes no more of this step: what a loop inside it runs is no part of it."""
        notes, self._notes = self._notes, None
        if notes is not None:
            notes.close()

    def _end_in_outer(self) -> None:
        """Has the step in which this pass began leave out this pass, if that step has not ended before."""
        if self._outer is None:
            return
        outer, came_ns = self._outer[0](), self._outer[1]
        if outer is not None and outer.came_ns == came_ns:
            now = clock.now_ns(), clock.own_cpu_ns()
            for at, (began, until) in enumerate(zip(self._began, outer._apart_until, strict=True)):
                outer._apart[at] += now[at] - max(began, until)
            outer._apart_until = now

    def draw(self, fetch: Callable[[], Any]) -> Any:
        """Fetches the next batch for the script, and ends the step before."""
        asked_ns = clock.now_ns()
        for newer in filter(None, (reference() for reference in self._newer)):
            if newer.runs:
                self._mark_mixed()
                newer._mark_mixed()
        if self._completion is not None:
            self._completion.look(asked_ns)
        try:
            if self._end_step(asked_ns):
                self._count()
            batch = fetch()
        except BaseException as error:
            ended = isinstance(error, StopIteration) or type(error).__name__ == "OutOfRangeError"
            if self.loop is not None:
                self.loop.ended |= ended
            self.close(whole=ended)
            raise
        if self._epoch.steps == _NOTED_STEP:
            self._notes = self._step_notes()
        if self._settled_ns is None and self._epoch.steps >= RAMP_STEPS:
            self._settled_ns = asked_ns, traced_here().count, traced_here().ns
        is_tried = self.loop is not None and self.loop.loader is not None
        is_looked_at = is_tried and self._epoch.steps % _LOOKED_AT == _LOOKED_AT // 2
        self._queued_ns = clock.queued_ns() if is_looked_at else None
        came_ns = clock.now_ns()
        if self._completion is not None:
            self._completion.look(came_ns)
        self._drawn = asked_ns, came_ns, images_in(batch)
        self._step_cpu_ns = clock.own_cpu_ns()
        if self.loop is not None and self.loop.unit is None:
            self.loop.unit = self.loop.adapter.unit_in(batch)
        if self.loop is not None and self._copies is not None and (copies := self._copies.look(batch)):
            self.loop.copies = copies
        return batch

    def overtaken_by(self, newer: Pass) -> None:
        """Notes that another pass of the same line has begun. Both are mixed if this one is drawn from once more."""
        self._newer.append(weakref.ref(newer))

    def _mark_mixed(self) -> None:
        """Notes that other data are drawn from on the same line."""
        if self.loop is not None:
            self.loop.mixed = True

    def __del__(self) -> None:
        with suppress(Exception):  # while Python ends, modules that `close` needs may be gone
            self.close(left=True)

    def close(self, *, whole: bool = True, left: bool = False) -> None:
        """Ends the epoch. Leaves out a last batch after which none was asked for: the end of its step is unknown.

        The epoch then ends where the step before has ended.

        Args:
          whole: whether the script ended the loop itself, at the end of the data or before by `break`.
          left: whether the data had not come to their end.
        """
        self._end_notes()
        loop, self.loop = self.loop, None
        if loop is None:
            return
        loop.looking.end()
        self._end_in_outer()
        loop.left |= left
        if self._completion is not None:
            self._epoch.settle(self._completion.take_all())
        if self._settled_ns is not None:
            began_ns, count, traced_ns = self._settled_ns
            traces = traced_here()
            loop.note_traces(traces.count - count, traces.ns - traced_ns, clock.now_ns() - began_ns, traces.name)
        if self._epoch.steps:
            self._epoch.end_steps(whole=whole, ended_ns=None if self._drawn is None else self._epoch.last_ns)
            loop.device = device_of(loop.adapter.computed_by)
            asynchronous = loop.device.asynchronous and self._completion is None
            loop.epochs.append(self._epoch.record(asynchronous=asynchronous))

    def _step_notes(self) -> StepNotes | None:
        """Begins to note a step, where remedies are to be tried and none was noted yet.

        On a GPU none is noted: a sleep takes the place of its steps.
        """
        loop = self.loop
        if loop is None or loop.loader is None or loop.work is not None:
            return None
        if device_of(loop.adapter.computed_by).kind == "gpu":
            return None
        return loop.adapter.step_notes()

    def _end_notes(self) -> None:
        notes, self._notes = self._notes, None
        work = notes.close() if notes is not None else None
        if self.loop is not None and work is not None:
            self.loop.work = work

    def _end_step(self, now_ns: int) -> bool:
        loop = self.loop
        if self._drawn is None or loop is None:
            return False
        (asked_ns, came_ns, images), self._drawn = self._drawn, None
        self._end_notes()
        (apart_ns, apart_cpu_ns), self._apart = self._apart, [0, 0]
        apart_ns = min(apart_ns, now_ns - came_ns)
        loop.note_step(now_ns - came_ns - apart_ns, clock.own_cpu_ns() - self._step_cpu_ns - apart_cpu_ns)
        if self._queued_ns is not None and not apart_ns:
            loop.note_queued(now_ns - came_ns, clock.queued_ns() - self._queued_ns)
        traced, self._traces = self._traces, False
        if not self._epoch.begun_steps:
            computing = Computing()
            self._completion, self._results = computing.completion(), computing.results
            loop.behind = self._completion is not None
        step = Step(
            asked_ns=asked_ns, fetched_ns=came_ns, done_ns=now_ns, images=images, traced=traced, apart_ns=apart_ns
        )
        if self._completion is None:
            self._epoch.add(step)
            return True
        self._epoch.hand_over(step)
        results = self._results()
        if not traced:
            loop.note_behind(waited_for=not results, fetch_ns=came_ns - asked_ns, wall_ns=now_ns - asked_ns)
        self._completion.add(results)
        self._epoch.settle(self._completion.take())
        return True


def _place(frame: Any) -> CodeLine | None:
    """Returns where the user's own code began the loop; None if Keras or this package did."""
    places: list[tuple[str, int]] = []
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name.startswith("keras.") or (name.startswith(_OURS) and not any(map(_is_of_script, places))):
            return None
        places.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    file, line = next(filter(_is_of_script, places), places[0])
    return CodeLine(file=file, line=line)


def _is_of_script(place: tuple[str, int]) -> bool:
    return not is_library(place[0])
