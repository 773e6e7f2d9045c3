"""The default way out: httpcore's HTTP/1.1, httpx's trust store, connections of our own.

    post ── take an idle connection ──┐
      └──── resolve, connect, TLS ────┴── write ── head ── body, at most 64 KiB ── keep or drop the connection

httpx's pool is quadratic in open connections, and a cancelled request can hold its slot in it for ever; so connections
wait in a small stack per destination, and a request that does not end well takes its connection with it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import nullcontext
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import httpcore
import httpx

from hookline_sender.egress.addresses import AddressPolicy
from hookline_sender.egress.guard import Guard
from hookline_sender.egress.idle import Connection, IdleConnections, PoolKey
from hookline_sender.egress.progress import Progress, by_deadline
from hookline_sender.egress.stream import OverBudget, Stream
from hookline_sender.egress.strict import StrictReader
from hookline_sender.egress.transport import MAX_BODY_BYTES, Headers, TransportFailed, WireResponse, check_headers
from hookline_sender.egress.urls import Url, parse_url
from hookline_sender.errors import UnsafeDestination

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_HEAD_BYTES: Final = 16 * 1024
"""Most that is read before a head is complete, interim answers included."""
MAX_IDLE_CONNECTIONS: Final = 200
"""Over all destinations; an idle TLS connection holds about half a megabyte."""

# At DEBUG httpcore logs every field of an answer, and a redirect's has the URL's query. Requests of others are theirs.
_unlogged: ContextVar[bool] = ContextVar("hookline_unlogged", default=False)
logging.getLogger("httpcore.http11").addFilter(lambda _: not _unlogged.get())


class HttpxTransport:
    """POSTs over HTTP/1.1 with one small pool of connections per destination. For one event loop at a time.

    policy: which addresses and ports it may connect to; None is nothing but public addresses.
    ssl_context: trust and versions; None is httpx's trust store, TLS 1.2 or later.
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
        self._ssl_context = ssl_context
        self._guard = Guard(self._policy)
        self._idle = IdleConnections(max_idle)

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
        try:
            target = parse_url(url, allow_loopback_http=self._policy.allow_loopback_http)
        except UnsafeDestination as refused:
            raise TransportFailed("url", str(refused)) from None
        check_headers(headers)
        request = _request(target, headers, body)
        progress = Progress(on_sent)
        return await by_deadline(deadline, progress, self._exchange(destination, target, request, progress))

    async def aclose(self) -> None:
        """Close every idle connection, and those of requests in flight when they end. Safe to call twice."""
        self._idle.close()
        self._guard.close()

    async def _exchange(
        self, destination: str, target: Url, request: httpcore.Request, progress: Progress
    ) -> WireResponse:
        key = (destination, target.origin)
        reused = self._idle.take(key, _now())
        connection = reused or await self._connect(target)
        try:
            return await self._over(key, connection, request, progress)
        except TransportFailed as failure:
            # The server closed an idle connection while the request was on its way. Deliveries are at-least-once with
            # an id, so this one case may be repeated, over a fresh connection (RFC 9110 9.2.2).
            if reused is None or failure.kind != "closed" or reused.stream.answered:
                raise
        return await self._over(key, await self._connect(target), request, progress)

    async def _over(
        self, key: PoolKey, connection: Connection, request: httpcore.Request, progress: Progress
    ) -> WireResponse:
        stream, kept = connection.stream, False
        stream.begin(progress.sending, MAX_HEAD_BYTES)
        unlogged = _unlogged.set(True)
        try:
            response = await connection.http.handle_async_request(request)
            answer = progress.answer = _answer(response)
            stream.allow(MAX_BODY_BYTES)
            async for _ in response.aiter_stream():
                pass
            kept = await _is_clean(connection, response)
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            answer = _judged(error, stream, progress)
        finally:
            _unlogged.reset(unlogged)
            if not kept:
                stream.abort()
        if kept:
            self._idle.put(key, connection, _now())
        return answer

    async def _connect(self, target: Url) -> Connection:
        secure = target.scheme == "https"
        context = (self._ssl_context or _default_ssl_context()) if secure else None
        connected = await self._guard.connect(target.host, target.port)
        try:
            # The socket is the loop's from here on: closing it here as well could close its descriptor's next user.
            _, stream = await asyncio.get_running_loop().create_connection(
                Stream,
                sock=connected,
                ssl=context,
                server_hostname=target.host if secure else None,
            )
        except ssl.SSLError as error:
            raise TransportFailed("tls", f"the TLS handshake failed: {error.reason or 'no reason given'}") from None
        except OSError:
            raise TransportFailed("connect", "the connection ended before it was secured") from None
        http = httpcore.AsyncHTTP11Connection(_url(target).origin, stream)
        _unlock(http)
        return Connection(http, stream, opened_at=_now())


def _unlock(http: httpcore.AsyncHTTP11Connection) -> None:
    # Who took a connection from the pool has it alone, and httpcore suspends nowhere under this lock. It is anyio's,
    # yields to the loop twice a request and keeps state for each task: 10 of a worker's 160 µs per delivery.
    opened: Any = http
    opened._state_lock = nullcontext()  # noqa: SLF001
    opened._h11_state = StrictReader()  # noqa: SLF001 - it takes no parser of ours


def _request(target: Url, headers: Headers, body: bytes) -> httpcore.Request:
    framing = [
        (b"host", target.authority.encode("ascii")),
        (b"accept-encoding", b"identity"),
        (b"content-length", b"%d" % len(body)),
    ]
    return httpcore.Request(b"POST", _url(target), headers=[*framing, *headers], content=body)


def _url(target: Url) -> httpcore.URL:
    return httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.target)


def _answer(response: httpcore.Response) -> WireResponse:
    return WireResponse(response.status, tuple((name.lower(), value) for name, value in response.headers))


async def _is_clean(connection: Connection, response: httpcore.Response) -> bool:
    """Whether the next request may use the connection, after the whole answer was read."""
    # httpcore would parse what follows an answer as the next one. It shows this nowhere else.
    leftovers, _ = connection.http._h11_state.trailing_data  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if leftovers:
        return False
    await response.aclose()
    return connection.http.is_idle() and not connection.stream.is_dirty


def _judged(error: Exception, stream: Stream, progress: Progress) -> WireResponse:
    if isinstance(error, OverBudget):
        if progress.answer is not None:
            return progress.answer
        raise progress.failed("too_large", f"the answer's head is over {MAX_HEAD_BYTES} bytes") from None
    if isinstance(error, httpcore.NetworkError) or stream.read_to_end:
        raise progress.failed("closed", "the connection ended before the answer did") from None
    raise progress.failed("protocol", "the answer is not HTTP/1.1") from None


def _now() -> float:
    return asyncio.get_running_loop().time()


@lru_cache(maxsize=1)
def _default_ssl_context() -> ssl.SSLContext:
    # Shared: building one reads the whole trust store, 25-136 ms.
    context = httpx.create_ssl_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
