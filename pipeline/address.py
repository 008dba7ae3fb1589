"""Where a service is: the config's `service`, HOST:PORT of a dispatcher or `local:N`; and where a worker listens."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.pipeline.errors import ConfigError

NO_SERVICE = "none"
LOOPBACK_HOST = "127.0.0.1"
# More workers than this on one host are a mistake in the number.
_MOST_LOCAL = 1024


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
        return f"grpc://{bracketed(self.host)}:{self.port}"

    @property
    def text(self) -> str:
        return f"local:{self.workers}" if self.workers else f"{bracketed(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a worker listens.

    Attributes:
      dispatcher: HOST:PORT.
      host: the address under which clients reach this host.
      port: 0 for a free one.
      seen_as: HOST:PORT that clients use instead, such as that of a relay.
      open_to_others: whether other hosts may connect.
    """

    dispatcher: str
    host: str = LOOPBACK_HOST
    port: int = 0
    seen_as: str | None = None
    open_to_others: bool = False


def bracketed(host: str) -> str:
    """Returns a host as it stands in front of a port: IPv6 in brackets."""
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
