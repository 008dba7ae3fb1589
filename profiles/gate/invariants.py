"""What of a loader has no noise: a change of it needs no statistics to be seen."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

# Where only some images are decoded, how many of an epoch is an accident beyond this digit.
DIGITS = 1
# So begins what stands for the stages of a pipeline that could not be read.
UNKNOWN = "unknown: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariants:
    """What a loader does, whatever the machine does.

    Attributes:
      images: served in an epoch, or by a call.
      stages: of a tf.data pipeline, in order: "map load_image, 2 calls", "prefetch, AUTOTUNE". Empty for others;
        of one that could not be read, "unknown: " and the reason.
      decodes_per_image: calls of known decoders, in the traced graphs and in Python; None where unknown.
      batch: types and shapes of the first batch, such as "float32 (32, 64, 64, 3), int32 (32)".
      bytes_per_image: of a batch, labels and all.
      random_before_cache: random operations whose draws a cache keeps.
      workers: of a PyDataset, as asked for; None for others.
      several_at_work: whether two or more of them were busy at once; None where there is one.
      varying: the names of those above that differ from one inspection of the same to the next.
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
    known = {field.name for field in fields(Invariants)}
    if not isinstance(values, dict) or set(values) != known or not isinstance(values["images"], int):
        raise ValueError(f"`invariants` must be a table of {', '.join(sorted(known))}. Received: {values!r}.")
    for name in ("stages", "random_before_cache", "varying"):
        if not (isinstance(values[name], list) and all(isinstance(one, str) for one in values[name])):
            raise ValueError(f"`invariants.{name}` must be a list of texts. Received: {values[name]!r}.")
    table: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in values.items()}
    return Invariants(**table)


def agreed(first: Invariants, second: Invariants) -> Invariants:
    """Returns what two inspections of the same agree on.

    Which images come first, how many a random filter keeps, or who was busy when, can differ from process to process:
    that is noise, and nothing is said of it.
    """
    varying = [name for name in _FIELDS if getattr(first, name) != getattr(second, name)]
    return replace(first, varying=tuple(varying))


def differences(before: Invariants, now: Invariants) -> tuple[str, ...]:
    """Returns what is not as it was, in words."""
    found = []
    for name in _same(before, now):
        was, is_ = getattr(before, name), getattr(now, name)
        if was != is_:
            found.append(_stages(was, is_) if name == "stages" else f"{_NAMES[name]}: {was} -> {is_}")
    return tuple(found)


def unknown(*seen: Invariants) -> tuple[str, ...]:
    """Returns why the stages of pipelines could not be read, each reason once."""
    stages = (stage for one in seen for stage in one.stages if stage.startswith(UNKNOWN))
    return tuple(dict.fromkeys(stage.removeprefix(UNKNOWN) for stage in stages))


def losses(before: Invariants, now: Invariants) -> tuple[str, ...]:
    """Returns what got worse, whatever the rate says: less served, more work an image, frozen draws, idle workers."""
    same = _same(before, now)
    found = []
    if "images" in same and now.images < before.images:
        found.append(f"{_NAMES['images']}: {before.images} -> {now.images}")
    for name in ("decodes_per_image", "bytes_per_image"):
        was, is_ = getattr(before, name), getattr(now, name)
        if name in same and was is not None and is_ is not None and is_ > was:
            found.append(f"{_NAMES[name]}: {was} -> {is_}")
    frozen = [one for one in now.random_before_cache if one not in before.random_before_cache]
    if frozen and "random_before_cache" in same:
        found.append(f"frozen by a cache: {', '.join(frozen)}")
    if "several_at_work" in same and before.several_at_work and now.several_at_work is False:
        found.append("workers: several were busy at once, now one is")
    return tuple(found)


def _same(before: Invariants, now: Invariants) -> list[str]:
    """Returns the names of what can be compared: what varied on neither side."""
    return [name for name in _FIELDS if name not in (*before.varying, *now.varying)]


_FIELDS = [one.name for one in fields(Invariants) if one.name != "varying"]
_NAMES = {
    "images": "images served",
    "decodes_per_image": "decodes per image",
    "batch": "a batch",
    "bytes_per_image": "bytes per image",
    "random_before_cache": "random before a cache",
    "workers": "workers",
    "several_at_work": "several workers busy at once",
}


def _stages(was: tuple[str, ...], is_: tuple[str, ...]) -> str:
    gone = [one for one in was if one not in is_]
    new = [one for one in is_ if one not in was]
    if not gone and not new:
        return f"stages: in another order, {' > '.join(is_)}"
    return "stages: " + "; ".join(
        f"{word} {', '.join(names)}" for word, names in (("without", gone), ("with", new)) if names
    )
