"""Imports Keras and its backend without the lines that TensorFlow writes on the way, whatever its log level."""

from __future__ import annotations

import os
import sys
import tempfile


def import_keras() -> None:
    """Imports Keras, and has its backend look for devices; what it writes is shown only if that fails."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            import keras

            keras.ops.zeros(())
        except BaseException:
            said.seek(0)
            os.write(stderr, said.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
