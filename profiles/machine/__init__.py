"""Readings of the machine: load, memory and GPUs during a run, what other programs take, the page cache, mounts."""

from unstall.profiles.machine.mounts import storage_of
from unstall.profiles.machine.others import Others
from unstall.profiles.machine.page_cache import (
    PageCacheError,
    ReaderRate,
    StorageRates,
    drop,
    left_warm,
    measure_readers,
    measure_storage,
)
from unstall.profiles.machine.peak import PeakMemory
from unstall.profiles.machine.telemetry import (
    GPU_AVERAGED_S,
    MachineUse,
    Recorder,
    Trace,
    during,
    settled,
    spans,
    unread_gpu,
)

__all__ = [
    "GPU_AVERAGED_S",
    "MachineUse",
    "Others",
    "PageCacheError",
    "PeakMemory",
    "ReaderRate",
    "Recorder",
    "StorageRates",
    "Trace",
    "drop",
    "during",
    "left_warm",
    "measure_readers",
    "measure_storage",
    "settled",
    "spans",
    "storage_of",
    "unread_gpu",
]
