"""Sessions for children of the tests: they have no TensorFlow and import little, so that the children start at once."""

from __future__ import annotations

import os
import time

from unstall.benchmarks.doctor import decoders
from unstall.benchmarks.doctor import examine as doctor_examine
from unstall.benchmarks.doctor.child import Session
from unstall.benchmarks.doctor.decoders import DECODERS


class Light(Session):
    """Pillow answers in the place of TensorFlow, which takes seconds to load."""

    def open(self) -> None:
        DECODERS["TensorFlow"] = DECODERS["Pillow"]


class Poisoned(Session):
    """Has an OpenCV that crashes or hangs at what some files end with, also in the place of TensorFlow."""

    def open(self) -> None:
        pass


def poisoned_session() -> Session:
    real = decoders.opencv

    def poisoned(encoded: bytes, scaled: bool) -> object:
        if encoded.endswith(b"CRASH"):
            os.write(2, b"terminate called\n")
            os.abort()
        if encoded.endswith(b"HANG"):
            time.sleep(600)
        if encoded.endswith(b"KILL"):
            os.kill(os.getpid(), 9)
        return real(encoded, scaled)

    real_look = doctor_examine._of_header

    def look(file: str, encoded: bytes) -> object:
        if encoded.endswith(b"OUTSIDE"):
            os.abort()
        return real_look(file, encoded)

    doctor_examine._of_header = look
    DECODERS["OpenCV"] = poisoned
    DECODERS["TensorFlow"] = real
    return Poisoned()


def no_session() -> None:
    os._exit(3)


def a_slow_session() -> None:
    time.sleep(600)
