"""Samples kept in memory after their first making, where nothing in them is drawn and they have one shape."""

from __future__ import annotations

import inspect
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unstall.profiles import clock
from unstall.profiles.remedies.change import Change, Offer
from unstall.profiles.remedies.equality import compare
from unstall.profiles.remedies.random_states import random_states_put_back
from unstall.profiles.remedies.remedy import Edit, Remedy, Untried

if TYPE_CHECKING:
    from unstall.profiles.remedies.torch.loader_data import LoaderData
    from unstall.profiles.remedies.torch.loader_plan import LoaderPlan

# So many samples are made twice, for so long, to see whether they are the same.
_READ_SAMPLES, _READ_NS = 64, 2_000_000_000
# A sample that is made in less is not worth keeping: to read it back takes about a third of that.
_LEAST_NS = 60_000
# Half of the free shared memory may be taken, as of the other memory.
_SHARED, _FREE_RATIO = "/dev/shm", 0.5
# Generators of random numbers are looked for so deep in a data set, in so many objects.
_DEPTH, _MOST_OBJECTS = 4, 2000
_WAY_OUT = "draw behind the cache, in a function of its own, and keep what comes before"


class CacheSamples(Change["LoaderData", "LoaderPlan"]):
    """An expert's first step for photos that are decoded again in each epoch: keep what was made."""

    names = ("cache-samples",)
    serves = ("waiting", "interference")

    def find(self, data: LoaderData) -> Iterator[Offer[LoaderPlan] | Untried]:
        if not data.takes_indices:
            return
        read = _read_twice(data)
        if read is None:
            return
        if isinstance(read, str):
            yield Untried(name="cache-samples", reason=read)
            return
        size_bytes = read.bytes_each * len(data.loader.dataset)
        shared_bytes = _FREE_RATIO * shutil.disk_usage(_SHARED).free
        shared = size_bytes <= shared_bytes
        limit = None
        if size_bytes > data.room.memory_bytes:
            limit = f"{data.room.memory_bytes / 1e6:,.0f} MB of memory"
        elif data.loader.num_workers and not shared:
            limit = f"{shared_bytes / 1e6:,.0f} MB of shared memory ({_SHARED}) that workers may take"
        if limit is not None:
            reason = f"its samples have {size_bytes / 1e6:,.0f} MB, more than {limit}"
            yield Untried(name="cache-samples", reason=reason)
            return

        def build(plan: LoaderPlan) -> None:
            from unstall.profiles.remedies.torch.kept_samples import KeptSamples

            plan.dataset, plan.repeats = KeptSamples(plan.dataset, shared), True

        place = data.place
        remedy = Remedy(
            name="cache-samples",
            text=f"samples made once and kept, {size_bytes / 1e6:,.0f} MB; "
            f"{read.count} of them were the same when made again",
            code="DataLoader(KeptSamples(dataset), ...)",
            effect="identical",
            place=None if place is None else str(place),
            edits=()
            if place is None
            else (
                Edit(place=place, kind="define", text=_source()),
                Edit(place=place, kind="argument", text=f"dataset=KeptSamples({{dataset}}, shared={shared})"),
            ),
            memory_bytes=size_bytes,
            warms_up=True,
        )
        # Workers that share no memory would each keep all samples.
        alone = () if shared else ("workers", "more-workers")
        yield Offer(remedy=remedy, build=build, conflicts=frozenset(alone))


@dataclass(frozen=True, slots=True)
class _Read:
    """What was seen of samples that were made twice: how many, and the bytes of each."""

    count: int
    bytes_each: int


def _read_twice(data: LoaderData) -> _Read | str | None:
    """Makes some samples twice, with other random numbers. Returns why they cannot be kept; None where it is no use."""
    import torch

    from unstall.profiles.remedies.torch.kept_samples import KeptSamples

    dataset = data.loader.dataset
    if hasattr(dataset, "set_epoch"):
        return "the data set has `set_epoch`: its samples change from epoch to epoch"
    length = len(dataset)
    indices = sorted({round(at * (length - 1) / max(_READ_SAMPLES - 1, 1)) for at in range(_READ_SAMPLES)})
    readings: list[list[Any]] = []
    took_ns: list[int] = []
    try:
        with random_states_put_back(), data.states_put_back():
            held = _generators(dataset)
            for seed in (1, 2):
                random.seed(seed)
                np.random.seed(seed)
                torch.default_generator.manual_seed(seed)
                until_ns = clock.now_ns() + _READ_NS // 2
                readings.append([])
                for index in indices:
                    before, began_ns = _states(held), clock.now_ns()
                    attributes = _attributes(dataset)
                    sample = dataset[index]
                    took_ns.append(clock.now_ns() - began_ns)
                    if _states(held) != before:
                        return f"making a sample draws random numbers, and epochs would get the first one's; {_WAY_OUT}"
                    if changed := [
                        name for name, value in _attributes(dataset).items() if attributes.get(name) != value
                    ]:
                        return f"making a sample changes `{changed[0]}` of the data set, which may change the next ones"
                    readings[-1].append(sample)
                    if clock.now_ns() > until_ns:
                        break
        if sorted(took_ns)[len(took_ns) // 2] < _LEAST_NS:
            return None
        count = min(map(len, readings))
        first = readings[0][0]
        if type(first) not in (tuple, list, dict) and not hasattr(first, "shape"):
            return f"its samples are of type {type(first).__name__}, and neither tensors, arrays nor numbers"
        kinds = {str([(part.dtype, tuple(part.shape)) for part in KeptSamples.parts(sample)]) for sample in readings[0]}
        if len(kinds) > 1:
            return "its samples differ in shape or type, so that they cannot lie in one array"
        if compare(*([_arrays(sample) for sample in some[:count]] for some in readings)).effect != "identical":
            return f"samples differ when they are made again; {_WAY_OUT}"
        size = sum(part.numel() * part.element_size() for part in KeptSamples.parts(first))
        return _Read(count, size)
    except (TypeError, ValueError, RuntimeError) as error:
        return f"its samples cannot be kept as arrays ({type(error).__name__})"
    except Exception:  # code of the user's, which shows its error where the loader is read
        return None


def _arrays(sample: Any) -> Any:
    from unstall.profiles.remedies.torch.kept_samples import KeptSamples

    return [part.numpy() for part in KeptSamples.parts(sample)]


def _attributes(dataset: Any) -> dict[str, Any]:
    """Returns what tells whether the attributes of a data set change: which objects they are, and how large."""
    values = getattr(dataset, "__dict__", {})
    return {
        name: (id(value), len(value) if isinstance(value, (list, dict, set)) else 0) for name, value in values.items()
    }


def _states(held: Sequence[Any]) -> list[Any]:
    """Returns the states of all global generators of random numbers, and of some others."""
    import torch

    states: list[Any] = [random.getstate(), str(np.random.get_state()), torch.default_generator.get_state().tolist()]
    for one in held:
        if isinstance(one, torch.Generator):
            states.append(one.get_state().tolist())
        elif isinstance(one, random.Random):
            states.append(one.getstate())
        else:
            states.append(str(one.bit_generator.state if isinstance(one, np.random.Generator) else one.get_state()))
    return states


def _generators(owner: Any) -> list[Any]:
    """Returns the generators of random numbers that an object holds, also in what it holds."""
    import torch

    found: list[Any] = []
    seen: set[int] = set()
    waiting = [(owner, 0)]
    while waiting and len(seen) < _MOST_OBJECTS:
        one, depth = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, (torch.Generator, random.Random, np.random.Generator, np.random.RandomState)):
            found.append(one)
        elif depth < _DEPTH:
            inner = (
                [*one]
                if isinstance(one, (list, tuple)) and len(one) < 100
                else [*getattr(one, "__dict__", {}).values()]
            )
            waiting += [(part, depth + 1) for part in inner]
    return found


def _source() -> str:
    """Returns the class as a script has it: as the trial has measured it, without what only our types need."""
    from unstall.profiles.remedies.torch import kept_samples

    text = inspect.getsource(kept_samples.KeptSamples)
    for typed, plain in _UNTYPED:
        text = text.replace(typed, plain)
    return text.rstrip("\n")


_UNTYPED = (
    ("Dataset[Any]", "Dataset"),
    (": Any", ""),
    (": bool", ""),
    (": int", ""),
    (" -> list[torch.Tensor]", ""),
    (" -> None", ""),
    (" -> int", ""),
    (" -> Any", ""),
)
