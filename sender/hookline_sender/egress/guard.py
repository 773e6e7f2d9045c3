"""From a host name to a connected socket, over addresses that a policy allows.

    cached? ── no ──▶ look up and judge all, in a thread ──▶ connect to the first that accepts ──▶ still allowed?
       └───── yes ──────────────────────────────────────────▲

A name is only a way to an address: what was looked up is judged, exactly that is connected to, and the socket is asked
where it went before anybody gets it. Looking the name up again, as a connect by name would, may give other answers.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final

from hookline_sender.egress.addresses import is_address
from hookline_sender.egress.names import Names, unsafe
from hookline_sender.egress.transport import TransportFailed
from hookline_sender.egress.urls import Url, check_target, parse_url
from hookline_sender.errors import UnsafeDestination

if TYPE_CHECKING:
    from hookline_sender.egress.addresses import AddressPolicy
    from hookline_sender.egress.transport import FailureKind

_CONNECT_SHARE: Final = 2.0  # seconds for each address but the last, so that a dead one does not eat the deadline


def target_of(url: str, policy: AddressPolicy) -> Url:
    """Where a request to `url` goes. Raises TransportFailed: "url" for its text, "unsafe" for a port or an address."""
    kind: FailureKind = "url"
    try:
        target = parse_url(url, allow_loopback_http=policy.allow_loopback_http)
        kind = "unsafe"
        check_target(target, policy)
    except UnsafeDestination as refused:
        raise TransportFailed(kind, str(refused)) from None
    return target


class Guard:
    """Makes connections for a transport. For one event loop."""

    def __init__(self, policy: AddressPolicy, names: Names | None = None) -> None:
        self._policy, self._names = policy, names or Names(policy.allows)

    async def connect(self, host: str, port: int) -> socket.socket:
        """A socket connected to `host`, an address or a name: not blocking, without delay, the caller's to close.

        Each address gets two seconds, the last one as long as the caller waits. Raises TransportFailed: "unsafe" when
        any address of the host or the port is not allowed, "dns", "connect"; none shows an address or a resolver's
        own words.
        """
        if not self._policy.allows_port(port):
            raise TransportFailed("unsafe", "the port is not one that destinations may have")
        if is_address(host) and not self._policy.allows(host):
            raise unsafe()
        *others, last = (host,) if is_address(host) else await self._names.addresses(host)
        for address in others:
            try:
                async with asyncio.timeout(_CONNECT_SHARE):
                    return await self._connected(address, port)
            except (OSError, TimeoutError):
                continue
        try:
            return await self._connected(last, port)
        except OSError:
            raise TransportFailed("connect", "the connection was refused or the host cannot be reached") from None

    def close(self) -> None:
        """Start no further lookup. Safe to call twice."""
        self._names.close()

    async def _connected(self, address: str, port: int) -> socket.socket:
        made, peer = await _dialled(address, port)
        if not self._policy.allows(peer):
            made.close()
            raise unsafe()
        return made


async def _dialled(address: str, port: int) -> tuple[socket.socket, str]:
    """A connected socket and the address of its peer as the system has it. Raises OSError."""
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setblocking(False)  # noqa: FBT003 - socket's own
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(made, (address, port))
        return made, made.getpeername()[0]
    except BaseException:
        made.close()
        raise
