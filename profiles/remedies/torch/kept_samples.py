"""The classes that an edit adds to a script: the trial measures what is written."""

from __future__ import annotations

from typing import Any

import torch


class KeptSamples(torch.utils.data.Dataset[Any]):
    """Samples of a data set, each made once and then kept in memory that all workers share."""

    def __init__(self, dataset: Any, shared: bool) -> None:
        self.dataset, self.first = dataset, dataset[0]
        self.kept = [torch.empty((len(dataset), *part.shape), dtype=part.dtype) for part in self.parts(self.first)]
        self.is_kept = torch.zeros(len(dataset), dtype=torch.bool)
        for values in (*self.kept, self.is_kept) if shared else ():
            values.share_memory_()

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        if not self.is_kept[index]:
            parts = self.parts(self.dataset[index])
            if [(part.shape, part.dtype) for part in parts] != [(some.shape[1:], some.dtype) for some in self.kept]:
                return self.dataset[index]  # unlike the others
            for values, part in zip(self.kept, parts, strict=True):
                values[index] = part
            self.is_kept[index] = True
        sample = [values[index].clone() for values in self.kept]
        if isinstance(self.first, dict):
            return dict(zip(self.first, sample, strict=True))
        return type(self.first)(sample) if isinstance(self.first, (tuple, list)) else sample[0]

    @staticmethod
    def parts(one: Any) -> list[torch.Tensor]:
        parts = one.values() if isinstance(one, dict) else one if isinstance(one, (tuple, list)) else [one]
        return [torch.as_tensor(part, dtype=torch.float64 if isinstance(part, float) else None) for part in parts]


class KeptRows(torch.utils.data.Subset[Any]):
    """Samples of a data set, each made once and then kept in memory that all workers share; read a batch at a time."""

    def __init__(self, dataset: Any, shared: bool) -> None:
        super().__init__(dataset, range(len(dataset)))
        self.first = torch.utils.data.default_collate([dataset[0]])
        self.form = {key: (part.shape, part.dtype) for key, part in self.parts(self.first).items()}
        self.kept = {key: torch.empty((len(self), *size[1:]), dtype=kind) for key, (size, kind) in self.form.items()}
        self.is_kept = torch.zeros(len(self), dtype=torch.bool)
        for values in (*self.kept.values(), self.is_kept) if shared else ():
            values.share_memory_()

    def __getitems__(self, indices: Any) -> Any:
        rows = torch.as_tensor(indices)
        for index in rows[~self.is_kept[rows]].tolist():
            one = self.parts(torch.utils.data.default_collate([self.dataset[index]]))
            if {key: (part.shape, part.dtype) for key, part in one.items()} != self.form:
                return torch.utils.data.default_collate([self.dataset[one] for one in indices])  # unlike the others
            for key, part in one.items():
                self.kept[key][index] = part[0]
            self.is_kept[index] = True
        batch = {key: values[rows] for key, values in self.kept.items()}
        if isinstance(self.first, dict):
            return batch
        return [*batch.values()] if isinstance(self.first, list) else batch[None]

    @staticmethod
    def parts(one: Any) -> dict:
        return one if isinstance(one, dict) else dict(enumerate(one)) if isinstance(one, list) else {None: one}
