"""A forward proxy between the transport and its destinations: one tunnel per connection (CONNECT, RFC 9110 9.3.6).

    connect to the proxy ── CONNECT host:443 ──▶ 2xx ── TLS with the destination, through the tunnel

The proxy looks the destination's name up, so it is the proxy that has to refuse private addresses.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import httpcore

from hookline_sender.egress.addresses import AddressPolicy
from hookline_sender.egress.guard import Guard
from hookline_sender.egress.stream import Stream
from hookline_sender.egress.tls import securing
from hookline_sender.egress.transport import MAX_HEAD_BYTES, TransportFailed
from hookline_sender.errors import InvalidDeployment

if TYPE_CHECKING:
    import ssl

    from hookline_sender.egress.urls import Url

_SUCCESS: Final = range(200, 300)


class Proxy:
    """One HTTP proxy, given as http://host:port or http://user:password@host:port. Raises InvalidDeployment, unshown.

    An operator names it, so private addresses are allowed for it; link-local ones and metadata services are not.
    """

    def __init__(self, url: str) -> None:
        self._host, self._port, self._headers = _read(url)
        policy = AddressPolicy(unsafe_allow_private_addresses=True, ports=frozenset({self._port}))
        self._guard = Guard(policy)

    async def connect(self, target: Url, context: ssl.SSLContext) -> Stream:
        """TLS with the target through a tunnel. Raises TransportFailed."""
        connected = await self._guard.connect(self._host, self._port)
        _, plain = await asyncio.get_running_loop().create_connection(Stream, sock=connected)
        try:
            await self._open_tunnel(plain, target)
            with securing():
                return await plain.secured(context, target.host)
        except BaseException:
            plain.abort()
            raise

    def close(self) -> None:
        """Start no further lookup. Safe to call twice."""
        self._guard.close()

    async def _open_tunnel(self, plain: Stream, target: Url) -> None:
        plain.begin(_nothing, MAX_HEAD_BYTES)
        host = f"[{target.host}]" if ":" in target.host else target.host
        authority = f"{host}:{target.port}".encode("ascii")
        there = httpcore.URL(scheme="http", host=self._host, port=self._port, target=authority)
        request = httpcore.Request(b"CONNECT", there, headers=[(b"host", authority), *self._headers])
        http = httpcore.AsyncHTTP11Connection(there.origin, plain)
        try:
            answer = await http.handle_async_request(request)
        except (httpcore.NetworkError, httpcore.ProtocolError):
            raise TransportFailed("connect", "the proxy did not answer") from None
        if answer.status not in _SUCCESS:
            raise TransportFailed("connect", f"the proxy answered {answer.status} instead of connecting")
        # What came behind the answer would be taken for the destination's.
        leftovers, _ = http._h11_state.trailing_data  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        if leftovers or plain.is_dirty:
            raise TransportFailed("protocol", "the proxy sent more than an answer")


def _nothing() -> None:
    """No byte of the delivery is in what is written to the proxy itself."""


def _read(url: str) -> tuple[str, int, list[tuple[bytes, bytes]]]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _malformed() from None
    if not host or not port or parts.scheme != "http" or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise _malformed()
    if parts.username is None:
        return host, port, []
    credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return host, port, [(b"proxy-authorization", b"Basic " + b64encode(credentials))]


def _malformed() -> InvalidDeployment:
    return InvalidDeployment("the proxy is not given as http://host:port or http://user:password@host:port")
