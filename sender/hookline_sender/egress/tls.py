"""TLS as every connection of ours has it, with a limit to what a peer may say in it that is no data.

Whatever a peer tells about itself (tickets, new keys, padding) OpenSSL takes within one read and without end. A few
megabytes of that hold the event loop for seconds, and none of it is an answer that anybody else could count.
"""

from __future__ import annotations

import ssl
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Self, cast

import httpx

from hookline_sender.egress.transport import TransportFailed

if TYPE_CHECKING:
    from collections.abc import Generator

MAX_OVERHEAD_BYTES: Final = 128 * 1024
"""Most that may come besides data, in a handshake or for a request: 150 ms of new keys, and several times what the
longest chains of certificates take, or 64 KiB of data in records of a dozen bytes."""


class Metered(ssl.SSLObject):
    """Raises SSLError when more came than MAX_OVERHEAD_BYTES that was no data. `incoming` is what it reads from."""

    incoming: ssl.MemoryBIO
    _overhead = 0

    @classmethod
    def _create(cls, incoming: ssl.MemoryBIO, *args: object, **options: object) -> Self:
        # What SSLContext.wrap_bio calls.
        made = cast("Self", super()._create(incoming, *args, **options))  # type: ignore[misc]
        made.incoming = incoming
        return made

    def do_handshake(self) -> None:
        """See SSLObject."""
        waiting = self.incoming.pending
        try:
            super().do_handshake()
        finally:
            self._count(waiting)

    def read(self, len: int = 1024, buffer: Any = None) -> Any:  # noqa: A002, ANN401 - as SSLObject has it
        """See SSLObject."""
        waiting, taken = self.incoming.pending, 0
        try:
            found: Any = super().read(len, buffer)
            taken = memoryview(found).nbytes if buffer is None else found
        finally:
            self._count(waiting - taken)
        return found

    def write(self, data: Any) -> int:  # noqa: ANN401 - as SSLObject has it
        """See SSLObject."""
        self._overhead = 0
        return super().write(data)

    def _count(self, waited: int) -> None:
        self._overhead += waited - self.incoming.pending
        if self._overhead > MAX_OVERHEAD_BYTES:
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, "too much of what came is no data")


def metered(context: ssl.SSLContext) -> ssl.SSLContext:
    """The context itself; from now on what it makes for an event loop is metered."""
    context.sslobject_class = Metered
    return context


@lru_cache(maxsize=1)
def default_context() -> ssl.SSLContext:
    """Httpx's trust store and TLS 1.2 or later. Shared: building one reads the whole store, 25-136 ms."""
    context = metered(httpx.create_ssl_context())
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False  # a subject is no name of a host (RFC 9525 2)
    context.set_alpn_protocols(["http/1.1"])
    # Not DHE (RFC 9325 4.1): the server picks the size of its numbers, and 8,192 bits cost 0.1-0.25 s of the loop.
    context.set_ciphers(":".join(each["name"] for each in context.get_ciphers() if not each["name"].startswith("DHE-")))
    return context


@contextmanager
def securing() -> Generator[None]:
    """Raise TransportFailed for what goes wrong with a new connection before it can be used."""
    try:
        yield
    except ssl.SSLError as error:
        raise TransportFailed("tls", f"the TLS handshake failed: {error.reason or 'no reason given'}") from None
    except OSError:
        raise TransportFailed("connect", "the connection ended before it was secured") from None
