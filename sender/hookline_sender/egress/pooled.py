"""What every way out over connections of our own has in common, whatever reads and writes on them.

    post ── take an idle connection ──────┐
      └──── pause?, resolve, connect, TLS ┴── exchange ── keep or drop the connection

Pools of HTTP libraries are quadratic in open connections, and a cancelled request can hold its slot in one for ever; so
connections wait in a small stack per destination, and a request that does not end well takes its connection with it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from hookline_sender.egress.addresses import AddressPolicy
from hookline_sender.egress.guard import Guard, target_of
from hookline_sender.egress.idle import IdleConnections, Pooled, PoolKey
from hookline_sender.egress.pauses import Pauses
from hookline_sender.egress.progress import Progress
from hookline_sender.egress.tls import default_context, metered, securing
from hookline_sender.egress.transport import Headers, TransportFailed, WireResponse, check_headers

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from hookline_sender.egress.urls import Url

MAX_IDLE_CONNECTIONS: Final = 200
"""Over all destinations; an idle TLS connection holds about half a megabyte."""

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)
P = TypeVar("P", bound=asyncio.Protocol)


class Exchanging(Pooled, Protocol[R_contra]):
    """A connection that takes requests of one type, one at a time."""

    async def exchange(self, request: R_contra, progress: Progress, deadline: float) -> WireResponse:
        """Send and read until the loop's time `deadline`. Raises TransportFailed.

        However it ends, a connection that may not be used again is closed and not `reusable`.
        """
        ...


C = TypeVar("C", bound=Exchanging[Any])


class PooledTransport(ABC, Generic[C, R]):
    """A Transport with connections of type C that take requests of type R. For one event loop.

    policy: which addresses and ports it may connect to; None is nothing but public addresses.
    ssl_context: trust and versions; None is httpx's trust store, TLS 1.2 or later. Give it to nothing else: from now on
        its connections end when a peer sends more than 128 KiB that is no data.
    max_idle: most connections that wait, over all destinations.
    """

    def __init__(
        self,
        policy: AddressPolicy | None = None,
        *,
        ssl_context: ssl.SSLContext | None = None,
        max_idle: int = MAX_IDLE_CONNECTIONS,
    ) -> None:
        self._policy = policy or AddressPolicy()
        self._ssl_context = None if ssl_context is None else metered(ssl_context)
        self._guard = Guard(self._policy)
        self._idle = IdleConnections[C](max_idle)
        self._pauses = Pauses()
        self._expiry: asyncio.TimerHandle | None = None
        self.repeated = 0
        """Requests that were sent a second time, because their connection had been closed by the server."""

    async def post(
        self,
        url: str,
        headers: Headers,
        body: bytes,
        *,
        deadline: float,
        destination: str,
        on_sent: Callable[[], None] | None = None,
    ) -> WireResponse:
        """See Transport.post."""
        target = target_of(url, self._policy)
        check_headers(headers)
        request, progress = self._request(target, headers, body), Progress(on_sent)
        key, loop = (destination, target.origin), asyncio.get_running_loop()
        reused = self._idle.take(key, loop.time())
        if reused is not None:
            try:
                return await self._exchanged(key, reused, reused.exchange(request, progress, deadline), progress)
            except TransportFailed as failure:
                # The server closed an idle connection while the request was on its way. Deliveries are at-least-once
                # with an id, so this one case may be repeated, over a fresh connection (RFC 9110 9.2.2).
                if failure.kind != "closed" or reused.answered:
                    raise
                self.repeated += 1
        try:
            async with asyncio.timeout_at(deadline):
                if pause := self._pauses.before(key, loop.time(), deadline):
                    await asyncio.sleep(pause)
                fresh = await self._opened(target)
        except TimeoutError:
            raise progress.failed("timeout", "no connection before the deadline") from None
        return await self._exchanged(key, fresh, fresh.exchange(request, progress, deadline), progress)

    async def aclose(self) -> None:
        """Close every idle connection, and those of requests in flight when they end. Safe to call twice."""
        self._idle.close()
        self._guard.close()
        if self._expiry is not None:
            self._expiry.cancel()

    async def _exchanged(
        self, key: PoolKey, connection: C, exchange: Awaitable[WireResponse], progress: Progress
    ) -> WireResponse:
        """What an exchange over `connection` gives; keeps that, and in mind an answer that was cut at a cap."""
        loop = asyncio.get_running_loop()
        try:
            answer = await exchange
        finally:
            if progress.flooded:
                self._pauses.cut(key, loop.time())
        self._idle.put(key, connection, loop.time())
        if self._expiry is None:
            self._expire(loop)
        return answer

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close what waited too long, and come back when the next one has: one timer over all connections."""
        due = self._idle.expire(loop.time())
        self._expiry = None if due is None else loop.call_at(due, self._expire, loop)

    @abstractmethod
    def _request(self, target: Url, headers: Headers, body: bytes) -> R:
        """A whole request: host, accept-encoding, content-length, the headers, the body."""

    @abstractmethod
    async def _open(self, target: Url) -> C:
        """A new connection over `_connect`."""

    async def _opened(self, target: Url) -> C:
        made = await self._open(target)
        try:
            await asyncio.sleep(0)  # what came with the handshake is read before the request can ask for it
        except BaseException:
            made.abort()
            raise
        return made

    async def _connect(self, target: Url, protocol: Callable[[], P]) -> P:
        """A protocol on a new connection, secured for https. Raises TransportFailed."""
        secure = target.scheme == "https"
        context = self._context() if secure else None
        connected = await self._guard.connect(target.host, target.port)
        with securing():
            # The socket is the loop's from here on: closing it here as well could close its descriptor's next user.
            _, made = await asyncio.get_running_loop().create_connection(
                protocol, sock=connected, ssl=context, server_hostname=target.host if secure else None
            )
        return made

    def _context(self) -> ssl.SSLContext:
        return default_context() if self._ssl_context is None else self._ssl_context
