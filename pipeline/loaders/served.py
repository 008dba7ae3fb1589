"""The loader whose batches the workers of a tf.data service make: here, or on other hosts."""

from __future__ import annotations

import weakref

import tensorflow as tf

from unstall.pipeline.address import Address
from unstall.pipeline.config import PipelineConfig
from unstall.pipeline.service.client import ServiceClient
from unstall.pipeline.service.local import LocalService
from unstall.pipeline.service.numbered import rest_of
from unstall.pipeline.sources.source import ImageSource
from unstall.pipeline.stages import output


class Served:
    """The client of a service, and the worker processes of this host if the loader started them.

    Attributes:
      client: counts what becomes of each batch.

    Raises:
      UnavailableError: if the service cannot be used.
    """

    def __init__(self, source: ImageSource, config: PipelineConfig, address: Address) -> None:
        self._config = config
        self._local = LocalService(source, config, address.workers) if address.workers else None
        # A loader that is forgotten, and a script that ends, leave no workers behind.
        self._end_local = weakref.finalize(self, self._local.close if self._local else int)
        try:
            self.client = ServiceClient(self._local.address if self._local else address, source, config)
        except BaseException:
            self.close()
            raise

    def dataset(self, *, endless: bool = False) -> tf.data.Dataset:
        """Returns the batches as tf.data: each iterator gives the next epoch, or with `endless` all from it on."""
        client, served = self.client, self._config.served
        if served == "batches":
            return output.from_python(client.epoch, client.batches, self._config, dtype="uint8", endless=endless)
        return output.from_python(
            client.counted_epoch,
            client.batches,
            self._config,
            dtype="string" if served == "files" else "uint8",
            rest=lambda dataset: rest_of(dataset, client.maker),
            endless=endless,
        )

    def close(self) -> None:
        """Ends the job, and the workers that the loader started."""
        if hasattr(self, "client"):
            self.client.close()
        self._end_local()
