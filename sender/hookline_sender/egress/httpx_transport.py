"""The default way out: httpcore's HTTP/1.1 over connections of our own."""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpcore

from hookline_sender.egress.pooled import MAX_IDLE_CONNECTIONS, PooledTransport
from hookline_sender.egress.progress import Progress, by_deadline
from hookline_sender.egress.proxy import Proxy
from hookline_sender.egress.stream import OverBudget, Stream
from hookline_sender.egress.strict import StrictReader
from hookline_sender.egress.transport import MAX_BODY_BYTES, MAX_HEAD_BYTES, Headers, WireResponse

if TYPE_CHECKING:
    import ssl

    from hookline_sender.egress.addresses import AddressPolicy
    from hookline_sender.egress.urls import Url

# At DEBUG httpcore logs every field of an answer, and a redirect's has the URL's query. Requests of others are theirs.
_unlogged: ContextVar[bool] = ContextVar("hookline_unlogged", default=False)
logging.getLogger("httpcore.http11").addFilter(lambda _: not _unlogged.get())


@dataclass(slots=True, eq=False)
class HttpxConnection:
    """One open connection, to speak HTTP over with httpcore."""

    http: httpcore.AsyncHTTP11Connection
    stream: Stream
    opened_at: float
    idle_since: float = 0.0

    @property
    def answered(self) -> bool:
        """See Pooled."""
        return self.stream.answered

    @property
    def reusable(self) -> bool:
        """See Pooled."""
        return self.http.is_idle() and not self.stream.is_dirty

    def has_unread(self) -> bool:
        """See Pooled."""
        return self.stream.has_unread()

    async def exchange(self, request: httpcore.Request, progress: Progress, deadline: float) -> WireResponse:
        """See Exchanging."""
        return await by_deadline(deadline, progress, _over(self, request, progress))

    def abort(self) -> None:
        """See Pooled."""
        self.stream.abort()


class HttpxTransport(PooledTransport[HttpxConnection, httpcore.Request]):
    """POSTs over HTTP/1.1 as httpcore speaks it, with httpx's trust store. For one event loop.

    proxy: a forward proxy that https goes through, "http://user:password@host:port"; the environment's are ignored.
        Addresses and ports in URLs are judged as ever. Names are looked up by the proxy, which has to refuse private
        addresses itself: the guard then applies to the proxy's own address, which may be a private one.
    """

    def __init__(
        self,
        policy: AddressPolicy | None = None,
        *,
        ssl_context: ssl.SSLContext | None = None,
        max_idle: int = MAX_IDLE_CONNECTIONS,
        proxy: str | None = None,
    ) -> None:
        super().__init__(policy, ssl_context=ssl_context, max_idle=max_idle)
        self._proxy = None if proxy is None else Proxy(proxy)

    async def aclose(self) -> None:
        """See PooledTransport."""
        await super().aclose()
        if self._proxy is not None:
            self._proxy.close()

    def _request(self, target: Url, headers: Headers, body: bytes) -> httpcore.Request:
        framing = [
            (b"host", target.authority.encode("ascii")),
            (b"accept-encoding", b"identity"),
            (b"content-length", b"%d" % len(body)),
        ]
        return httpcore.Request(b"POST", _url(target), headers=[*framing, *headers], content=body)

    async def _open(self, target: Url) -> HttpxConnection:
        if self._proxy is not None and target.scheme == "https":
            stream = await self._proxy.connect(target, self._context())
        else:
            stream = await self._connect(target, Stream)
        http = httpcore.AsyncHTTP11Connection(_url(target).origin, stream)
        _unlock(http)
        return HttpxConnection(http, stream, opened_at=asyncio.get_running_loop().time())


async def _over(connection: HttpxConnection, request: httpcore.Request, progress: Progress) -> WireResponse:
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
        if kept:
            stream.rest()
        else:
            stream.abort()
    return answer


def _unlock(http: httpcore.AsyncHTTP11Connection) -> None:
    # Who took a connection from the pool has it alone, and httpcore suspends nowhere under this lock. It is anyio's,
    # yields to the loop twice a request and keeps state for each task: 10 of a worker's 160 µs per delivery.
    opened: Any = http
    opened._state_lock = nullcontext()  # noqa: SLF001
    opened._h11_state = StrictReader()  # noqa: SLF001 - it takes no parser of ours


def _url(target: Url) -> httpcore.URL:
    return httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.target)


def _answer(response: httpcore.Response) -> WireResponse:
    return WireResponse(response.status, tuple((name.lower(), value) for name, value in response.headers))


async def _is_clean(connection: HttpxConnection, response: httpcore.Response) -> bool:
    """Whether the next request may use the connection, after the whole answer was read."""
    # httpcore would parse what follows an answer as the next one. It shows this nowhere else.
    leftovers, _ = connection.http._h11_state.trailing_data  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if leftovers:
        return False
    await response.aclose()
    return connection.reusable


def _judged(error: Exception, stream: Stream, progress: Progress) -> WireResponse:
    if isinstance(error, OverBudget):
        progress.flooded = True
        if progress.answer is not None:
            return progress.answer
        raise progress.failed("too_large") from None
    if stream.tls_failed:
        raise progress.failed("tls") from None
    if isinstance(error, httpcore.NetworkError) or stream.read_to_end:
        raise progress.failed("closed") from None
    raise progress.failed("protocol") from None
