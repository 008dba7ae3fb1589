"""Examines files in child processes, one file at a time in each: a decoder that crashes or hangs takes only a child."""

from __future__ import annotations

import queue
import random
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.progress import Progress

from unstall.benchmarks.doctor.decoders import DECODERS
from unstall.benchmarks.doctor.folder import findings_of
from unstall.benchmarks.doctor.plan import Plan
from unstall.benchmarks.doctor.report import DoctorDocument
from unstall.benchmarks.doctor.results import Examination, ExaminedFile, Finding, StorageReading
from unstall.benchmarks.lab.child import Child, ChildDied, ChildHung, JobRefused
from unstall.benchmarks.lab.options import UserError
from unstall.profiles import clock
from unstall.profiles.devices import CPU
from unstall.profiles.machine import PageCacheError, measure_readers, measure_storage, storage_of
from unstall.profiles.provenance import machine, usable_cores
from unstall.profiles.report import Document, now
from unstall.text import printable

# The time that a child has for one file. Three decoders take some 3 s for an image at the limit of pixels; the rest is
# for a slow disk.
_HANG_S = 30.0
# The time that a child has to import the decoders, on a machine that is busy with other work.
_OPEN_S = 300.0
_MOST_CHILDREN = 8
# Readers whose rate is measured.
_READERS = (1, 4, 16)
_SESSION = "benchmarks.doctor.child:Session"


class Examiner:
    """Examines files in a child process, and starts another when the child dies.

    Args:
      log: a file for the child's output.
      session: the class that answers in the child, as "module:Class".
      hang_s: seconds without an answer about a file after which the child is ended.
    """

    def __init__(self, log: Path, session: str = _SESSION, hang_s: float = _HANG_S) -> None:
        self._log = log
        self._session = session
        self._hang_s = hang_s
        self._child: Child | None = None
        self._ended = False

    def examine(self, root: Path, file: str) -> ExaminedFile:
        """Examines a file. If the child dies of a decoder, another child examines the file without that decoder.

        Raises:
          ChildDied: if a child cannot be started.
        """
        fatal: dict[str, Finding] = {}
        while not self._ended:
            child = self._child or self._open()
            try:
                return child.ask("examine", str(root), file, fatal, timeout_s=self._hang_s)
            except JobRefused as error:  # the file was deleted or replaced during its examination
                finding = Finding(path=file, trouble="unreadable", detail=str(error))
                return ExaminedFile(path=file, format=None, bytes=None, sha256=None, findings=(finding,))
            except ChildDied as error:
                self._child = None
                if self._ended:
                    raise
                decoder, last_line = self._last_words()
                trouble = "hangs" if isinstance(error, ChildHung) else "crashes"
                if decoder not in DECODERS or decoder in fatal:  # reading its header or frames ended the child
                    finding = Finding(path=file, trouble=trouble, detail=f"outside of a decoder: {error}")
                    return ExaminedFile(path=file, format=None, bytes=None, sha256=None, findings=(finding,))
                detail = f"{decoder}: {error}" + (f" ({printable(last_line)})" if last_line else "")
                fatal[decoder] = Finding(path=file, trouble=trouble, detail=detail)
        raise ChildDied("ended")

    def _open(self) -> Child:
        self._log.unlink(missing_ok=True)
        try:
            self._child = Child(self._session, CPU, self._log)
        except OSError as error:  # no memory, processes or descriptors
            raise ChildDied(f"no process can be started: {error.strerror or error}") from error
        if self._ended:  # another thread has called `end` before this child was assigned
            self._child.kill()
        try:
            self._child.ask("open", timeout_s=_OPEN_S)
        except JobRefused as error:
            raise ChildDied(f"the decoders cannot be used: {error}") from error
        return self._child

    def _last_words(self) -> tuple[str, str]:
        """Returns the decoder that was at work when the child died, and the first line that it logged."""
        with self._log.open("rb") as file:
            lines = file.read(4096).decode("utf-8", "replace").splitlines()
        first, second, *_ = *lines, "", ""
        return first, second[:200]

    def end(self) -> None:
        """Ends the child at once; may be called from any thread."""
        self._ended = True
        child = self._child
        if child is not None:
            child.kill()


def examine_folder(plan: Plan, progress: Progress) -> DoctorDocument:
    """Examines every file of a folder, then the folder as a whole.

    Raises:
      UserError: with exit code 3, if the decoders cannot be used at all.
    """
    folder = plan.folder
    created, begin_ns = now(), clock.now_ns()
    task = progress.add_task("examining", total=len(folder.files))
    examined: list[ExaminedFile] = []
    try:
        for file in examine_all(folder.root, folder.files, round(usable_cores())):
            examined.append(file)
            progress.update(task, advance=1, refresh=len(examined) % 50 == 0)
    except ChildDied as error:
        raise UserError(f"nothing could be examined. {printable(str(error))}.", exit_code=3) from error
    seconds = (clock.now_ns() - begin_ns) / 1e9
    return Document(
        command="doctor",
        created=created,
        complete=True,
        provenance=machine(),
        plan=plan.asked,
        dataset=None,
        samples=Examination(
            classes=folder.classes,
            examined=len(examined),
            seconds=seconds,
            files=tuple(sorted((file for file in examined if file.findings), key=lambda file: file.path)),
            findings=tuple(findings_of(folder, examined)),
            storage=_read_storage(folder.root, folder.files) if plan.asked.storage else None,
        ),
    )


def _read_storage(root: Path, files: Sequence[str]) -> StorageReading:
    """Measures how fast the files are read, in an order that is no order on the disk."""
    kind = storage_of(root)
    text = None if kind is None else kind.text
    paths = [root / file for file in random.Random(0).sample(files, len(files))]
    try:
        rates = measure_readers(paths, _READERS)
        memory = measure_storage(paths).warm_bytes_per_sec
    except PageCacheError as error:
        return StorageReading(text=text, reason=str(error))
    return StorageReading(text=text, rates=rates, memory_bytes_per_sec=memory)


def examine_all(root: Path, files: Iterable[str], children: int) -> Iterator[ExaminedFile]:
    """Yields the examination of each file, in the order in which they are finished.

    Args:
      root: the examined folder.
      files: paths below it.
      children: the most child processes among which the files are divided.
    Raises:
      ChildDied: if the decoders cannot be used at all.
    """
    left: queue.SimpleQueue[str] = queue.SimpleQueue()
    for file in files:
        left.put(file)
    total = left.qsize()
    done: queue.SimpleQueue[ExaminedFile | Exception] = queue.SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="unstall-doctor-") as scratch:
        count = max(1, min(children, _MOST_CHILDREN, total))
        examiners = [Examiner(Path(scratch) / f"{number}.log") for number in range(count)]
        threads = [
            threading.Thread(target=_work, args=(examiner, root, left, done), daemon=True) for examiner in examiners
        ]
        try:
            for thread in threads:
                thread.start()
            for _ in range(total):
                result = done.get()
                if isinstance(result, Exception):
                    raise result
                yield result
        finally:
            for examiner in examiners:
                examiner.end()
            for thread in threads:
                thread.join()


def _work(
    examiner: Examiner, root: Path, left: queue.SimpleQueue[str], done: queue.SimpleQueue[ExaminedFile | Exception]
) -> None:
    try:
        while True:
            done.put(examiner.examine(root, left.get_nowait()))
    except queue.Empty:
        pass
    except Exception as error:  # raised again by `examine_all`, which waits for this file
        done.put(error)
    finally:
        examiner.end()
