"""Invariants: those properties of a loader that have no noise, so that a change is seen without statistics."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

# Digits after the point of decodes per image: where a loader decodes only some of its images, the rest is chance.
DIGITS = 1
# The beginning of the text that is recorded in the place of stages that could not be read.
UNKNOWN = "unknown: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariants:
    """Properties of a loader that do not depend on how fast the machine is.

    Attributes:
      images: served in an epoch, or by a call.
      stages: of a tf.data pipeline, in order: "map load_image, 2 calls", "prefetch, AUTOTUNE". Empty for others;
        of one that could not be read, "unknown: " and the reason.
      decodes_per_image: calls of decoders per image, in the traced graphs and in Python; None where unknown.
      batch: types and shapes of the first batch, such as "float32 (32, 64, 64, 3), int32 (32)".
      bytes_per_image: bytes of a batch, labels included, over its images.
      random_before_cache: random operations in front of a cache, which repeats their first draws in every epoch.
      workers: of a PyDataset, as asked for; None for others.
      several_at_work: whether two or more workers were busy at once; None where there is one worker.
      varying: the names of those fields above that differed between two inspections of one loader.
    """

    images: int
    stages: tuple[str, ...] = ()
    decodes_per_image: float | None = None
    batch: str = ""
    bytes_per_image: float | None = None
    random_before_cache: tuple[str, ...] = ()
    workers: int | None = None
    several_at_work: bool | None = None
    varying: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def invariants_from_dict(values: dict[str, Any]) -> Invariants:
    """Reads what `to_dict` wrote.

    Raises:
      ValueError: at anything else.
    """
    names = {field.name for field in fields(Invariants)}
    if not isinstance(values, dict) or set(values) != names or not isinstance(values["images"], int):
        raise ValueError(f"`invariants` must be a table of {', '.join(sorted(names))}. Received: {values!r}.")
    for name in ("stages", "random_before_cache", "varying"):
        if not (isinstance(values[name], list) and all(isinstance(text, str) for text in values[name])):
            raise ValueError(f"`invariants.{name}` must be a list of texts. Received: {values[name]!r}.")
    table: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return Invariants(**table)


def mark_varying(first: Invariants, second: Invariants) -> Invariants:
    """Returns the first of two inspections of one loader, with the fields that differ between them marked as varying.

    Which images come first, how many a random filter keeps, and which workers are busy can differ from inspection to
    inspection: that is noise, and such fields are not compared.
    """
    varying = [name for name in _FIELDS if getattr(first, name) != getattr(second, name)]
    return replace(first, varying=tuple(varying))


def differences(before: Invariants, now: Invariants) -> tuple[str, ...]:
    """Returns what differs between two loaders, in words: the structure of the pipeline, then the work."""
    return (*structure_differences(before, now), *work_differences(before, now))


def structure_differences(before: Invariants, now: Invariants) -> tuple[str, ...]:
    """Returns how the stages of two pipelines differ, in words. The names of the user's functions do not count."""
    if "stages" not in _comparable(before, now) or _nameless(before.stages) == _nameless(now.stages):
        return ()
    return (_stage_changes(before.stages, now.stages),)


def work_differences(before: Invariants, now: Invariants) -> tuple[str, ...]:
    """Returns how what two loaders serve, and do for it, differs, in words."""
    values = {name: (getattr(before, name), getattr(now, name)) for name in _comparable(before, now)}
    return tuple(
        f"{_NAMES[name]}: {was} -> {is_}" for name, (was, is_) in values.items() if name in _NAMES and was != is_
    )


def _nameless(stages: tuple[str, ...]) -> list[str]:
    """Returns stages without the names of functions: "map, 2 calls" for "map load_image, 2 calls"."""
    return [", ".join((kind.split(" ")[0], *settings)) for kind, *settings in (stage.split(", ") for stage in stages)]


def unread_stages(*inspections: Invariants) -> tuple[str, ...]:
    """Returns why the stages of pipelines could not be read, each reason once."""
    stages = (stage for invariants in inspections for stage in invariants.stages if stage.startswith(UNKNOWN))
    return tuple(dict.fromkeys(stage.removeprefix(UNKNOWN) for stage in stages))


def losses(before: Invariants, now: Invariants) -> tuple[str, ...]:
    """Returns what is worse now, in words: fewer images, more work per image, frozen random draws, idle workers."""
    comparable = _comparable(before, now)
    worse = []
    if "images" in comparable and now.images < before.images:
        worse.append(f"{_NAMES['images']}: {before.images} -> {now.images}")
    for name in ("decodes_per_image", "bytes_per_image"):
        was, is_ = getattr(before, name), getattr(now, name)
        if name in comparable and was is not None and is_ is not None and is_ > was:
            worse.append(f"{_NAMES[name]}: {was} -> {is_}")
    frozen = [operation for operation in now.random_before_cache if operation not in before.random_before_cache]
    if frozen and "random_before_cache" in comparable:
        worse.append(f"frozen by a cache: {', '.join(frozen)}")
    if "several_at_work" in comparable and before.several_at_work and now.several_at_work is False:
        worse.append("workers: several were busy at once, now one is")
    return tuple(worse)


def _comparable(before: Invariants, now: Invariants) -> list[str]:
    """Returns the names of the fields that can be compared: those that varied on neither side."""
    return [name for name in _FIELDS if name not in (*before.varying, *now.varying)]


_FIELDS = [field.name for field in fields(Invariants) if field.name != "varying"]
_NAMES = {
    "images": "images served",
    "decodes_per_image": "decodes per image",
    "batch": "a batch",
    "bytes_per_image": "bytes per image",
    "random_before_cache": "random before a cache",
    "workers": "workers",
    "several_at_work": "several workers busy at once",
}


def _stage_changes(was: tuple[str, ...], is_: tuple[str, ...]) -> str:
    gone = [stage for stage in was if stage not in is_]
    new = [stage for stage in is_ if stage not in was]
    if not gone and not new:
        return f"stages: in another order, {' > '.join(is_)}"
    return "stages: " + "; ".join(
        f"{word} {', '.join(names)}" for word, names in (("without", gone), ("with", new)) if names
    )
