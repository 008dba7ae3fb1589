"""Remedies of tf.data pipelines, each in a file of its own.

`tf_data_rebuilt` alone imports TensorFlow at its top.
"""

from unstall.profiles.remedies.tf.any_order import AnyOrder
from unstall.profiles.remedies.tf.batches_first import BatchesFirst
from unstall.profiles.remedies.tf.cache import Cache
from unstall.profiles.remedies.tf.cache_before_drawing import CacheBeforeDrawing
from unstall.profiles.remedies.tf.parallel import Parallel
from unstall.profiles.remedies.tf.pool import Pool
from unstall.profiles.remedies.tf.prefetch import Prefetch
from unstall.profiles.remedies.tf.repeat import Repeat
from unstall.profiles.remedies.tf.shuffle_first import ShuffleFirst
from unstall.profiles.remedies.tf.tf_change import TfChange
from unstall.profiles.remedies.tf.tuner_off import TunerOff

# The most promising first, of those that one need calls for. Where several are built together, each changes the plan
# in its turn.
REMEDIES: tuple[TfChange, ...] = (
    CacheBeforeDrawing(),
    # What costs nothing is tried first, where the budget does not suffice for all.
    Parallel(),
    Pool(),
    Prefetch(),
    Cache(),
    BatchesFirst(),
    ShuffleFirst(),
    TunerOff(),
    Repeat(),
    AnyOrder(),
)

__all__ = ["REMEDIES", "TfChange"]
