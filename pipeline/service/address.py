"""Where a service is: the config's `service`, HOST:PORT of a dispatcher or `local:N`. No TensorFlow here."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from pipeline.errors import ConfigError, UnavailableError

NO_SERVICE = "none"
# More workers than this on one host are a mistake in the number.
_MOST_LOCAL = 1024
_CONNECT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A service: worker processes of this host that the loader starts and ends, or a dispatcher that runs already.

    Attributes:
      workers: how many worker processes the loader starts; 0 for a dispatcher that runs.
      host, port: of a dispatcher that runs.
    """

    workers: int = 0
    host: str = ""
    port: int = 0

    @property
    def target(self) -> str:
        """The address as TensorFlow's client takes it."""
        return f"grpc://{_bracketed(self.host)}:{self.port}"

    @property
    def text(self) -> str:
        return f"local:{self.workers}" if self.workers else f"{_bracketed(self.host)}:{self.port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def parse_address(text: str) -> Address | None:
    """Reads the config's `service`; None for "none".

    Raises:
      ConfigError: if the text is neither `none`, `local:N` nor HOST:PORT.
    """
    if text == NO_SERVICE:
        return None
    host, colon, number = text.rpartition(":")
    if colon and host and number.isdecimal():
        if host == "local" and 0 < int(number) <= _MOST_LOCAL:
            return Address(workers=int(number))
        if host != "local" and 0 < int(number) < 1 << 16 and not set(host) & set("/ \t\n"):
            return Address(host=host.strip("[]"), port=int(number))
    raise ConfigError(
        f"`service` must be 'none', 'local:N' with N worker processes, or HOST:PORT of a dispatcher. "
        f"Received: service={text!r}."
    )


def check_reachable(address: Address) -> None:
    """Connects to a dispatcher once. TensorFlow's client would try for an hour.

    Raises:
      UnavailableError: if nothing answers.
    """
    try:
        socket.create_connection((address.host, address.port), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise UnavailableError(
            f"no dispatcher answers at {address.text} ({error.strerror or error}): start one there with "
            f"`unstall service dispatcher --port {address.port}`"
        ) from error
