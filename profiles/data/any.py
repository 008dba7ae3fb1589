"""Data of any kind that no library is known for."""

from __future__ import annotations

import inspect
from types import CodeType
from typing import Any

from unstall.profiles.data.base import Adapter
from unstall.profiles.data.kinds import DataKind


class AnyData(Adapter):
    """Data of any other kind. Loops over them are watched where the script marks them by `profiles.watch`."""

    def owns(self, data: Any) -> bool:
        return True

    def kind(self, data: Any) -> DataKind:
        return DataKind.GENERATOR if inspect.isgenerator(data) else DataKind.OTHER

    def label(self, data: Any) -> str:
        if inspect.isgenerator(data):
            return "a generator"
        return f"{'an iterator' if hasattr(data, '__next__') else 'data'} of type {type(data).__name__}"

    def source(self, data: Any) -> CodeType | None:
        if inspect.isgenerator(data):
            return data.gi_code
        return getattr(
            getattr(type(data), "__next__" if hasattr(data, "__next__") else "__iter__", None), "__code__", None
        )

    def workers(self, data: Any) -> int:
        workers = getattr(data, "num_workers", 0)
        return workers if isinstance(workers, int) else 0
