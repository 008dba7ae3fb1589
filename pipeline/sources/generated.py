"""A folder of generated photographs, made once: the data of the main job on a machine that has none."""

import concurrent.futures
import errno
import multiprocessing
import os
import pathlib
import shutil
import signal
import threading
from collections.abc import Callable

from unstall.pipeline.cache import built_aside
from unstall.pipeline.sources.photographs import CLASS_NAMES, VERSION, encode_photo

__all__ = ["generated_folder"]

_Progress = Callable[[int, int], None]

_MEAN_PHOTO_BYTES = 26_000  # 22,780 measured on 2,000 real ones, and the rounding up to disk blocks.
_ROOM_MARGIN_RATIO = 1.2
_CHUNK_PHOTOS = 50


def generated_folder(
    images: int,
    cache_root: pathlib.Path,
    *,
    seed: int = 0,
    processes: int | None = None,
    progress: _Progress | None = None,
) -> pathlib.Path:
    """Returns the folder of `images` photographs; makes it unless an earlier call has made it.

    The folder gets its name when all its photographs are written, so a folder of that name is complete. With more than
    one process, each imports the caller's main module again ("spawn"): a script needs the usual
    `if __name__ == "__main__"`.

    Args:
      images: how many photographs, at least 4; even indexes are the first class, odd ones the second.
      cache_root: the folder of such folders; made if missing.
      seed: which series of photographs.
      processes: how many processes make them; by default one per core that this process may use.
      progress: called in this process with (photographs done, `images`).
    Returns:
      `cache_root/generated-v{VERSION}-{images}-s{seed}`, with files such as `discs/000000.jpg`.
    Raises:
      ValueError: if `images`, `seed` or `processes` is too small.
      OSError: if there is no room for the photographs.
    """
    _require_at_least("images", images, 4)
    _require_at_least("seed", seed, 0)
    if processes is None:
        processes = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    _require_at_least("processes", processes, 1)
    cache_root = pathlib.Path(cache_root)
    cache_root.mkdir(parents=True, exist_ok=True)
    folder = cache_root / f"generated-v{VERSION}-{images}-s{seed}"
    if folder.is_dir():
        return folder
    _require_room(images, cache_root)

    report = progress or (lambda done, total: None)
    with built_aside(folder) as building:
        for class_name in CLASS_NAMES:
            (building / class_name).mkdir()
        _write_all(building, images, seed, processes, report)
    return folder


def _require_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"`{name}` must be at least {least}. Received: {name}={value}.")


def _require_room(images: int, cache_root: pathlib.Path) -> None:
    needed_bytes = int(images * _MEAN_PHOTO_BYTES * _ROOM_MARGIN_RATIO)
    free_bytes = shutil.disk_usage(cache_root).free
    if free_bytes < needed_bytes:
        raise OSError(
            errno.ENOSPC,
            f"{images} generated photographs need {needed_bytes / 1e6:.1f} MB of free room. "
            f"Received: {free_bytes / 1e6:.1f} MB free. Free some, ask for fewer, or choose another folder",
            str(cache_root),
        )


def _write_all(building: pathlib.Path, images: int, seed: int, processes: int, report: _Progress) -> None:
    chunks = [range(start, min(start + _CHUNK_PHOTOS, images)) for start in range(0, images, _CHUNK_PHOTOS)]
    done = 0
    if min(processes, len(chunks)) == 1:
        for chunk in chunks:
            done += _write_chunk(building, chunk, seed)
            report(done, images)
        return
    spawn = multiprocessing.get_context("spawn")
    workers = min(processes, len(chunks))
    pool = concurrent.futures.ProcessPoolExecutor(workers, mp_context=spawn, initializer=_prepare_worker)
    try:
        futures = [pool.submit(_write_chunk, building, chunk, seed) for chunk in chunks]
        for future in concurrent.futures.as_completed(futures):
            done += future.result()
            report(done, images)
    finally:
        # Waits, so that no worker writes into a folder that is being removed.
        pool.shutdown(wait=True, cancel_futures=True)


def _prepare_worker() -> None:
    """Makes a worker ignore Ctrl-C, which its parent handles, and end with its parent instead of waiting for work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _write_chunk(building: pathlib.Path, chunk: range, seed: int) -> int:
    for index in chunk:
        path = building / CLASS_NAMES[index % 2] / f"{index:06d}.jpg"
        path.write_bytes(encode_photo(index, seed))
    return len(chunk)
