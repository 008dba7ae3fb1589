"""Remedies for PyTorch's `DataLoader`: a file for each, and one line here."""

from unstall.profiles.remedies.torch.cache_samples import CacheSamples
from unstall.profiles.remedies.torch.loader_workers import LoaderWorkers
from unstall.profiles.remedies.torch.more_ready import MoreReady
from unstall.profiles.remedies.torch.persistent import Persistent
from unstall.profiles.remedies.torch.pin import Pin
from unstall.profiles.remedies.torch.whole_batches import WholeBatches

# In the order in which they are offered.
REMEDIES = (CacheSamples(), WholeBatches(), LoaderWorkers(), Persistent(), MoreReady(), Pin())

__all__ = ["REMEDIES"]
