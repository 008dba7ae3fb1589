"""What runs in a child process of the doctor: it examines one file after another, with a limit on its memory."""

from __future__ import annotations

import resource
from pathlib import Path

from unstall.benchmarks.doctor.decoders import DECODERS, judge
from unstall.benchmarks.doctor.examine import examine
from unstall.benchmarks.doctor.results import ExaminedFile, Finding

# The memory that a child may take in addition to what it has once the decoders are imported. 50 megapixels in four
# channels of 16 bits are 0.4 GB, and a decoder holds an image up to three times.
_MOST_GROWTH_BYTES = 2 << 30
# A BMP image of one pixel, which every decoder reads. The first call of a decoder prepares and logs things: it must not
# happen while a user's file is examined.
_PIXEL = b"BM:\0\0\0\0\0\0\x006\0\0\0(\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\x18\0\0\0\0\0\x04\0\0\0" + bytes(20)


class Session:
    """Answers the doctor's requests."""

    def open(self) -> None:
        """Imports the decoders and calls each once, then limits the memory of this process."""
        import cv2
        import tensorflow as tf

        cv2.setNumThreads(0)
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        for name in DECODERS:
            judge(name, _PIXEL)
        taken_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken_bytes + _MOST_GROWTH_BYTES,) * 2)

    def examine(self, root: str, file: str, fatal: dict[str, Finding]) -> ExaminedFile:
        return examine(Path(root), file, judge, fatal)

    def close(self) -> None:
        """Does nothing: a session keeps nothing open."""
