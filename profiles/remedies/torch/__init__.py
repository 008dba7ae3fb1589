"""Remedies for PyTorch's `DataLoader`: a file for each, and one line here."""

from unstall.profiles.remedies.torch.cache_before_draws import CacheBeforeDraws
from unstall.profiles.remedies.torch.cache_samples import CacheSamples
from unstall.profiles.remedies.torch.fewer_threads import FewerThreads
from unstall.profiles.remedies.torch.loader_workers import LoaderWorkers
from unstall.profiles.remedies.torch.more_ready import MoreReady
from unstall.profiles.remedies.torch.persistent import Persistent
from unstall.profiles.remedies.torch.pin import Pin
from unstall.profiles.remedies.torch.whole_batches import WholeBatches

# In the order in which they are offered.
REMEDIES = (
    CacheSamples(),
    CacheBeforeDraws(),
    WholeBatches(),
    LoaderWorkers(),
    Persistent(),
    MoreReady(),
    FewerThreads(),
    Pin(),
)

__all__ = ["REMEDIES"]
