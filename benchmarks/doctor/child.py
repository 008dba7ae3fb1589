"""What a child of the doctor is asked: what decoders make of one file after another, in memory that has a limit."""

from __future__ import annotations

import resource
from pathlib import Path

from benchmarks.doctor.decoders import DECODERS, judge
from benchmarks.doctor.examine import examine
from benchmarks.doctor.results import Examined, Finding

# What a child may take beyond what it has when it starts. 50 megapixels in four channels of 16 bits are 0.4 GB, and a
# decoder holds an image up to three times.
_MOST_GROWTH_BYTES = 2 << 30
# 1x1, as bytes that any decoder reads: the first call of each sets up what it needs, and says so.
_PIXEL = b"BM:\0\0\0\0\0\0\x006\0\0\0(\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\x18\0\0\0\0\0\x04\0\0\0" + bytes(20)


class Session:
    """What a child is asked."""

    def open(self) -> None:
        """Imports the decoders, and takes no more memory than it may from here on."""
        import cv2
        import tensorflow as tf

        cv2.setNumThreads(0)
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        for name in DECODERS:
            judge(name, _PIXEL)
        taken_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken_bytes + _MOST_GROWTH_BYTES,) * 2)

    def examine(self, root: str, file: str, known: dict[str, Finding]) -> Examined:
        return examine(Path(root), file, judge, known)

    def close(self) -> None:
        """Nothing is kept."""
