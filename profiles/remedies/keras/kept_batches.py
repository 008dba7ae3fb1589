"""The class that an edit adds to a script: the trial measures what is written."""

from __future__ import annotations

import copy
from typing import Any

import keras


class KeptBatches(keras.utils.PyDataset):
    """Batches of a dataset, each made once and then kept in memory."""

    def __init__(self, dataset: Any) -> None:
        super().__init__(workers=dataset.workers, max_queue_size=dataset.max_queue_size)
        self.dataset = dataset
        self.kept: dict = {}

    def __len__(self) -> int:
        return self.dataset.num_batches

    def __getitem__(self, index: int) -> Any:
        if index not in self.kept:
            self.kept[index] = copy.deepcopy(self.dataset[index])  # which may be filled again for the next
        return self.kept[index]

    def on_epoch_begin(self) -> None:
        self.dataset.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self.dataset.on_epoch_end()
