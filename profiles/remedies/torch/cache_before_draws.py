"""Samples kept in memory as they are before their first random transform, which draws again in each epoch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unstall.profiles.random_states import Generators
from unstall.profiles.remedies.change import Change, Offer
from unstall.profiles.remedies.equality import compare
from unstall.profiles.remedies.reading_twice import Refused, copied, some_indices
from unstall.profiles.remedies.remedy import Edit, Remedy, Untried

if TYPE_CHECKING:
    from unstall.profiles.remedies.torch.kept_before_draws import KeptBeforeDraws
    from unstall.profiles.remedies.torch.loader_data import LoaderData
    from unstall.profiles.remedies.torch.loader_plan import LoaderPlan

_NAME = "cache-before-draws"
# Transforms that never draw; each other one of these libraries counts as random, also where it seldom is.
_FIXED = {
    "torchvision": frozenset(
        (
            "CenterCrop",
            "ClampBoundingBoxes",
            "ConvertBoundingBoxFormat",
            "ConvertImageDtype",
            "FiveCrop",
            "Grayscale",
            "Identity",
            "Normalize",
            "PILToTensor",
            "Pad",
            "RGB",
            "Resize",
            "TenCrop",
            "ToDtype",
            "ToImage",
            "ToPILImage",
            "ToPureTensor",
            "ToTensor",
        )
    ),
    "albumentations": frozenset(
        (
            "CenterCrop",
            "Crop",
            "FromFloat",
            "LongestMaxSize",
            "NoOp",
            "Normalize",
            "PadIfNeeded",
            "Resize",
            "SmallestMaxSize",
            "ToFloat",
            "ToGray",
            "ToRGB",
            "ToTensorV2",
            "Transpose",
        )
    ),
}
# Modes of Pillow's photos that are known by the shape of their arrays.
_MODES = ("L", "RGB", "RGBA")
# Samples that are made both ways from the same random states.
_COMPARED_SAMPLES = 16


class CacheBeforeDraws(Change["LoaderData", "LoaderPlan"]):
    """What comes before the first random transform, such as to decode and resize, is the same in each epoch."""

    names = (_NAME,)
    serves = ("waiting", "interference")

    def find(self, data: LoaderData) -> Iterator[Offer[LoaderPlan] | Untried]:
        if not data.takes_indices:
            return
        dataset = data.loader.dataset
        attribute, transforms = _transforms_of(dataset)
        if transforms is None:
            return
        from unstall.profiles.remedies.torch.keeping import kept, samples_read
        from unstall.profiles.remedies.torch.kept_before_draws import KeptForNames

        steps = transforms.transforms
        certain = [*itertools.takewhile(lambda step: _draws(step) is not True, steps)]
        # What no library is known to draw in may draw nevertheless: then the cache ends before it.
        doubtful = [at for at, step in enumerate(certain) if _draws(step) is None]
        if len(certain) == len(steps) and not doubtful:
            return
        for fixed in (len(certain), *reversed(doubtful)):
            with Generators(dataset).put_back():
                made = _wrapped(dataset, attribute, fixed)
            if isinstance(made, str):
                yield Untried(name=_NAME, reason=made)
                return
            wrapped = made
            by_name = isinstance(wrapped, KeptForNames)  # albumentations draw for each transform, also for fixed ones
            read = samples_read(wrapped.dataset, _arrays, watched=None if by_name else wrapped.dataset)
            if not isinstance(read, Refused) or not read.draws:
                break
        if read is None or fixed == len(steps):
            return
        drawing = type(steps[fixed]).__name__
        if isinstance(read, Refused):
            yield Untried(name=_NAME, reason=f"before `{drawing}`, the first transform that draws, {read.reason}")
            return
        if not _are_alike(dataset, wrapped, attribute, by_name=by_name):
            reason = f"with the transforms from `{drawing}` on made apart from the rest, its samples are others"
            yield Untried(name=_NAME, reason=reason)
            return
        fits = kept(data, read, _NAME)
        if isinstance(fits, Untried):
            yield fits
            return
        form, is_shared = type(wrapped), fits.is_shared

        def build(plan: LoaderPlan) -> None:
            plan.dataset, plan.repeats = form(plan.dataset, attribute, fixed, is_shared), True

        place = data.place
        written = f'dataset=KeptBeforeDraws({{dataset}}, "{attribute}", fixed={fixed}, shared={is_shared})'
        remedy = Remedy(
            name=_NAME,
            text=f"samples kept as they are before `{drawing}` draws, {fits.size_bytes / 1e6:,.0f} MB; "
            f"{read.count} of them were the same when made again",
            code=f'DataLoader(KeptBeforeDraws(dataset, "{attribute}", fixed={fixed}), ...)',
            effect="other draws" if by_name else "identical",
            place=None if place is None else str(place),
            edits=()
            if place is None or data.other_data_sets != [] or not data.wraps_dataset
            else (
                Edit(place=place, kind="define", text=form.as_written()),
                Edit(place=place, kind="argument", text=written),
            ),
            memory_bytes=fits.size_bytes,
            warms_up=True,
        )
        yield Offer(remedy=remedy, build=build, conflicts=frozenset((*fits.conflicts, "cache-samples")))


def _arrays(sample: Any) -> list[np.ndarray]:
    return [np.asarray(part) for part in sample]


def _transforms_of(dataset: Any) -> tuple[str, Any]:
    """Returns transforms that stand in a list, and the attribute that holds them; ("", None) where there are none.

    They are those of the data set, or of the one that it is a part of.
    """
    for one in _chain(dataset):
        found = [
            (name, value)
            for name, value in getattr(one, "__dict__", {}).items()
            if callable(value) and isinstance(getattr(value, "transforms", None), (list, tuple))
        ]
        if found:
            return found[0] if len(found) == 1 else ("", None)
    return "", None


def _chain(dataset: Any) -> Iterator[Any]:
    """Yields a data set, and those that it is a part of, as a `Subset` is."""
    while dataset is not None:
        yield dataset
        dataset = getattr(dataset, "dataset", None)


def _draws(step: Any) -> bool | None:
    """Whether a transform draws, by its class; None for one of another library or of the user's own."""
    inner = getattr(step, "transforms", None)
    library = type(step).__module__.partition(".")[0]
    if library not in _FIXED:
        return None
    if getattr(step, "p", 1) < 1:
        return True
    if type(step).__name__ == "Compose" and isinstance(inner, Sequence):
        draws = [_draws(one) for one in inner]
        return True if True in draws else None if None in draws else False
    if type(step).__name__ == "Lambda":
        return None
    return type(step).__name__ not in _FIXED[library]


def _wrapped(dataset: Any, attribute: str, fixed: int) -> KeptBeforeDraws | str:
    """Returns the data set with so many of its transforms kept; or why it cannot be."""
    import torch
    from PIL import Image

    from unstall.profiles.remedies.torch import kept_before_draws as forms

    try:
        whole = copied(dataset)[0]
        if type(whole) not in (tuple, list):
            return f"its samples are of type {type(whole).__name__}, and no tuples that begin with an image"
        plain = forms.KeptBeforeDraws(dataset, attribute, fixed, shared=False)
    except Exception as error:  # code of the user's, which is given less than it was written for
        return f"its samples cannot be kept without the transforms that draw ({type(error).__name__})"
    sample, chain = plain.first, plain.draw
    by_name = type(chain).__module__.partition(".")[0] == "albumentations"
    first: type[KeptBeforeDraws] | None = None
    if isinstance(sample[0], Image.Image) and sample[0].mode in _MODES:
        first = forms.KeptPhotos
    elif isinstance(sample[0], np.ndarray):
        first = forms.KeptForNames if by_name else forms.KeptArrays
    elif isinstance(sample[0], torch.Tensor):
        return plain
    if first is None:
        mode = f" of mode {sample[0].mode}" if isinstance(sample[0], Image.Image) else ""
        return f"its samples begin with a {type(sample[0]).__name__}{mode}"
    return first(dataset, attribute, fixed, shared=False)


class _Noting:
    """Transforms that note what they are called with, and what they returned last."""

    def __init__(self, transforms: Any) -> None:
        self._transforms = transforms
        self.calls: list[tuple[int, tuple[str, ...]]] = []
        self.last: Any = None

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.calls.append((len(given), tuple(named)))
        self.last = self._transforms(*given, **named)
        return self.last

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transforms, name)


def _are_alike(dataset: Any, wrapped: Any, attribute: str, *, by_name: bool) -> bool:
    """Whether samples are the same, made from the same random states, and leave these the same.

    albumentations draw more numbers without the remedy: there the data set must give the image just as its transforms
    returned it, and all else must be the same. Transforms must be called once for a sample, with the image alone.
    """
    noted = copied(dataset)
    owner = next(one for one in _chain(noted) if hasattr(getattr(one, attribute, None), "transforms"))
    noting = _Noting(getattr(owner, attribute))
    setattr(owner, attribute, noting)
    generators = Generators(dataset)
    try:
        with generators.put_back():
            for index in some_indices(len(dataset), _COMPARED_SAMPLES):
                generators.seed(index)
                states, samples, ends = generators.states(), [], []
                for one in (noted, wrapped):
                    generators.set(states)
                    samples.append(one[index])
                    ends.append(generators.states())
                (image, *others), (drawn, *kept) = samples
                if noting.calls.pop() != ((0, ("image",)) if by_name else (1, ())) or noting.calls:
                    return False
                if type(image) is not type(drawn) or compare([_arrays(others)], [_arrays(kept)]).effect != "identical":
                    return False
                if by_name:
                    kinds = {(np.shape(one), str(one.dtype)) for one in (image, drawn)}
                    if image is not noting.last["image"] or len(kinds) > 1:
                        return False
                elif ends[0] != ends[1] or compare([_arrays([image])], [_arrays([drawn])]).effect != "identical":
                    return False
    except Exception:  # code of the user's, which is given less than it was written for
        return False
    return True
