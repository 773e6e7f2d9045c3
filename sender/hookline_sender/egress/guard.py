"""From a host name to a connected socket, over addresses that a policy allows.

    cached? ── no ──▶ look up, in a thread ──▶ all allowed? ──▶ connect to the first that accepts ──▶ still allowed?
       └───── yes ───────────────────────────────▲

A name is only a way to an address: what was looked up is judged, exactly that is connected to, and the socket is asked
where it went before anybody gets it. Looking the name up again, as a connect by name would, may give other answers.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hookline_sender.egress.addresses import is_address
from hookline_sender.egress.transport import TransportFailed
from hookline_sender.egress.urls import Url, check_target, parse_url
from hookline_sender.errors import UnsafeDestination

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hookline_sender.egress.addresses import AddressPolicy
    from hookline_sender.egress.transport import FailureKind

    Lookup = Callable[[str], Sequence[str]]

CACHED: Final = 30.0
"""Seconds for which answers are used again; a destination that moves is found after that."""
CACHED_FAILURE: Final = 5.0
"""Seconds for which a name counts as not resolving."""
SLOW: Final = 1.0
"""Seconds of a lookup from which on the name's next ones wait in a queue of their own."""

_MAX_CACHED: Final = 4096
_MAX_ADDRESSES: Final = 8
_THREADS, _SLOW_THREADS = 8, 4
_CONNECT_SHARE: Final = 2.0  # seconds for each address but the last, so that a dead one does not eat the deadline


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a lookup gave: its addresses, none when it failed. Times are the clock's, in seconds."""

    addresses: tuple[str, ...]
    at: float
    took: float

    def is_fresh(self, now: float) -> bool:
        return now - self.at < (CACHED if self.addresses else CACHED_FAILURE)


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


def look_up(host: str) -> tuple[str, ...]:
    """The addresses of a name as the system resolves it, in the order to try them. Raises OSError, UnicodeError."""
    return tuple(str(answer[4][0]) for answer in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))


class Guard:
    """Makes connections for a transport. For one event loop.

    Names are looked up in threads of its own: the loop's are few, and a cancelled lookup keeps its thread. One lookup
    per name is under way at most, and names that were slow before have threads apart, so that many slow ones do not
    hold up the others.

    lookup: gives the addresses of a name, or raises; called in a thread. clock: seconds that only go forward.
    """

    def __init__(
        self, policy: AddressPolicy, *, lookup: Lookup = look_up, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._policy, self._lookup, self._clock = policy, lookup, clock
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="hookline-dns")
        self._slow_threads = ThreadPoolExecutor(_SLOW_THREADS, thread_name_prefix="hookline-dns-slow")
        self._lookups: OrderedDict[str, Future[_Answer]] = OrderedDict()
        self._closed = False

    async def connect(self, host: str, port: int) -> socket.socket:
        """A socket connected to `host`, an address or a name: not blocking, without delay, the caller's to close.

        Each address gets two seconds, the last one as long as the caller waits. Raises TransportFailed: "unsafe" when
        any address of the host or the port is not allowed, "dns", "connect"; none shows an address or a resolver's
        own words.
        """
        if not self._policy.allows_port(port):
            raise TransportFailed("unsafe", "the port is not one that destinations may have")
        addresses = (host,) if is_address(host) else await self._resolved(host)
        # Any, not the first: which one would be connected to is otherwise the choice of who answers.
        if not all(self._policy.allows(address) for address in addresses):
            raise _unsafe()
        *others, last = tuple(dict.fromkeys(addresses))[:_MAX_ADDRESSES]
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
        self._closed = True
        self._threads.shutdown(wait=False)
        self._slow_threads.shutdown(wait=False)

    async def _resolved(self, host: str) -> tuple[str, ...]:
        if self._closed:
            raise TransportFailed("dns", "the transport is closed")
        # Shielded: the lookup is everybody's who asked for that name, and one of them may be cancelled.
        answer = await asyncio.shield(asyncio.wrap_future(self._lookup_of(host)))
        if not answer.addresses:
            raise TransportFailed("dns", "the host name does not resolve")
        return answer.addresses

    def _lookup_of(self, host: str) -> Future[_Answer]:
        """The lookup of `host` that is under way or fresh, else a new one."""
        found, threads = self._lookups.get(host), self._threads
        if found is not None:
            self._lookups.move_to_end(host)
            if not found.done() or (answer := found.result()).is_fresh(self._clock()):
                return found
            threads = self._slow_threads if answer.took >= SLOW else self._threads
        found = self._lookups[host] = threads.submit(self._answer, host)
        if len(self._lookups) > _MAX_CACHED:
            self._lookups.popitem(last=False)
        return found

    def _answer(self, host: str) -> _Answer:
        started, addresses = self._clock(), tuple[str, ...]()
        if not self._closed:
            with suppress(OSError, UnicodeError):  # not kept: a resolver's words may show its own address
                addresses = tuple(self._lookup(host))
        now = self._clock()
        return _Answer(addresses, now, now - started)

    async def _connected(self, address: str, port: int) -> socket.socket:
        made, peer = await _dialled(address, port)
        if not self._policy.allows(peer):
            made.close()
            raise _unsafe()
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


def _unsafe() -> TransportFailed:
    return TransportFailed("unsafe", "the host has an address that destinations may not have")
