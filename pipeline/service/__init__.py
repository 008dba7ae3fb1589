"""tf.data service: pipelines that run in worker processes, here or on other hosts, and serve each image once an epoch.

A worker makes batches by their numbers, from the seed and the number alone: whichever worker makes a batch, it has the
same images and draws. A client asks for the numbers of all epochs in one job that never ends, counts what comes, and
makes what is missing itself.
"""

from unstall.pipeline.address import LOOPBACK_HOST, NO_SERVICE, Address, Place, parse_address
from unstall.pipeline.service.account import Account, WorkerFacts

__all__ = ["LOOPBACK_HOST", "NO_SERVICE", "Account", "Address", "Place", "WorkerFacts", "parse_address"]
