"""TLS as every connection of ours has it, with a limit to what a peer may say in it that is no data.

Whatever a peer tells about itself (tickets, new keys, padding) OpenSSL takes within one read and without end. A few
megabytes of that hold the event loop for seconds, and none of it is an answer that anybody else could count.
"""

from __future__ import annotations

import ssl
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

import httpx

from hookline_sender.egress.transport import TransportFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

MAX_OVERHEAD_BYTES: Final = 64 * 1024
"""Most that may come besides data, in a handshake or for a request: 75 ms of new keys, and several times what the
longest chains of certificates take, or 64 KiB of data in records of two dozen bytes."""

_PIECE_BYTES: Final = 8 * 1024
T = TypeVar("T")


class Metered(ssl.SSLObject):
    """Raises SSLError when more came than MAX_OVERHEAD_BYTES that was no data.

    OpenSSL takes all that it is given before it returns, so it is given what `incoming` has a piece at a time.
    """

    incoming: ssl.MemoryBIO
    given: ssl.MemoryBIO
    overhead = 0

    @classmethod
    def _create(cls, incoming: ssl.MemoryBIO, *args: object, **options: object) -> Self:
        # What SSLContext.wrap_bio calls.
        given = ssl.MemoryBIO()
        made = cast("Self", super()._create(given, *args, **options))  # type: ignore[misc]
        made.incoming, made.given = incoming, given
        return made

    def do_handshake(self) -> None:
        """See SSLObject."""
        self._fed(super().do_handshake)

    def read(self, len: int = 1024, buffer: Any = None) -> Any:  # noqa: A002, ANN401 - as SSLObject has it
        """See SSLObject."""
        found: Any = self._fed(partial(super().read, len, buffer))
        self.overhead -= memoryview(found).nbytes if buffer is None else found
        return found

    def write(self, data: Any) -> int:  # noqa: ANN401 - as SSLObject has it
        """See SSLObject."""
        self.overhead = 0
        return super().write(data)

    def pending(self) -> int:
        """How many bytes are to be read yet, at most; uvloop reads no further at 0."""
        return super().pending() + self.given.pending

    def unwrap(self) -> None:
        """See SSLObject."""
        self._fed(super().unwrap)

    def _fed(self, step: Callable[[], T]) -> T:
        if not self.given.pending:
            self._feed()
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                if not self._feed():
                    raise

    def _feed(self) -> int:
        if self.overhead > MAX_OVERHEAD_BYTES:
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, "too much of what came is no data")
        size = self.given.write(self.incoming.read(_PIECE_BYTES))
        self.overhead += size
        return size


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
