"""The class that an edit adds to a script whose transforms draw: the trial measures what is written."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import numpy as np
import PIL.Image
import torch

from unstall.profiles.remedies.written_class import written


class KeptBeforeDraws(torch.utils.data.Dataset[Any]):
    """Samples made once up to their first random transform, and kept in memory that all workers share."""

    def __init__(self, dataset: Any, transform: str, fixed: int, shared: bool) -> None:
        self.whole, self.dataset = dataset, (owner := copy.copy(dataset))
        while not hasattr(getattr(owner, transform, None), "transforms"):  # as in a Subset
            owner.dataset = owner = copy.copy(owner.dataset)
        before, self.draw = copy.copy(getattr(owner, transform)), copy.copy(getattr(owner, transform))
        before.transforms, self.draw.transforms = before.transforms[:fixed], before.transforms[fixed:]
        setattr(owner, transform, before)
        size, self.first = len(dataset), self.dataset[0]
        parts = [np.asarray(part) for part in self.first]
        self.kept = [torch.from_numpy(np.empty((size, *part.shape), part.dtype)) for part in parts]
        self.is_kept = torch.zeros(size, dtype=torch.bool)
        for values in (*self.kept, self.is_kept) if shared else ():
            values.share_memory_()

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        if not self.is_kept[index]:
            parts = [torch.from_numpy(np.array(part)) for part in self.dataset[index]]
            if [(part.shape, part.dtype) for part in parts] != [(some.shape[1:], some.dtype) for some in self.kept]:
                return self.whole[index]  # unlike the others
            for values, part in zip(self.kept, parts, strict=True):
                values[index] = part
            self.is_kept[index] = True
        image, *others = (values[index].clone() for values in self.kept)
        return self.drawn(image), *others

    def drawn(self, image: Any) -> Any:
        return self.draw(image.as_subclass(type(self.first[0])))

    @classmethod
    def as_written(cls) -> str:
        """Returns the source of this class as a script has it, where `drawn` stands in its only place."""
        text, _, _ = written(KeptBeforeDraws).partition("\n\n    def drawn")
        _, _, expression = inspect.getsource(cls.drawn).rstrip().rpartition("return ")
        return text.replace("self.drawn(image)", expression)


class KeptPhotos(KeptBeforeDraws):
    """Of samples that begin with a photo of Pillow's."""

    def drawn(self, image: Any) -> Any:
        return self.draw(PIL.Image.fromarray(image.numpy()))


class KeptArrays(KeptBeforeDraws):
    """Of samples that begin with an array of NumPy's."""

    def drawn(self, image: Any) -> Any:
        return self.draw(image.numpy())


class KeptForNames(KeptBeforeDraws):
    """Of samples that begin with an array of NumPy's, which albumentations takes by its name."""

    def drawn(self, image: Any) -> Any:
        return self.draw(image=image.numpy())["image"]
