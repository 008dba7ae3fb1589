"""Remedies for what `fit` reads without a tf.data pipeline of the user's: a file for each, and one line here."""

from unstall.profiles.remedies.keras.cache_batches import CacheBatches
from unstall.profiles.remedies.keras.keras_workers import KerasWorkers
from unstall.profiles.remedies.keras.own_dataset import OwnDataset
from unstall.profiles.remedies.keras.processes import Processes
from unstall.profiles.remedies.keras.threads import Threads

# Of a PyDataset and of arrays, in the order in which they are offered.
PY_DATASET_REMEDIES = (CacheBatches(), KerasWorkers(), Processes(), Threads())
ARRAY_REMEDIES = (OwnDataset(),)

__all__ = ["ARRAY_REMEDIES", "PY_DATASET_REMEDIES"]
