"""What a name resolves to, if all of it is allowed.

Names are looked up in threads of their own, each by one lookup at a time, and its answer is used again for a while. It
is judged there too: an answer may have thousands of addresses, and they are judged once and not at every connection.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import OrderedDict, deque
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final

from hookline_sender.egress.transport import TransportFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Lookup = Callable[[str], Sequence[str]]

CACHED: Final = 30.0
"""Seconds for which answers are used again; a destination that moves is found after that."""
CACHED_FAILURE: Final = 5.0
"""Seconds for which a name counts as not resolving."""
SLOW: Final = 1.0
"""Seconds of a lookup from which on the name's next ones wait in a queue of their own."""
THREADS: Final = 64
"""Lookups under way at most. About as many as hang when half of a worker's attempts are for names that never answer."""
SLOW_THREADS: Final = 4
"""As many more for names that were slow before."""

MAX_ADDRESSES: Final = 8
"""Addresses of a name that are tried."""

_MAX_CACHED: Final = 4096


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a lookup gave: the first of its addresses, none when it failed, and whether all of them are allowed.

    Times are the clock's, in seconds.
    """

    addresses: tuple[str, ...]
    allowed: bool
    at: float
    took: float

    def is_fresh(self, now: float) -> bool:
        return now - self.at < (CACHED if self.addresses else CACHED_FAILURE)


def unsafe() -> TransportFailed:
    """The error for an address that is not allowed, which it does not show: it would tell what is inside."""
    return TransportFailed("unsafe", "the host has an address that destinations may not have")


def look_up(host: str) -> tuple[str, ...]:
    """The addresses of a name as the system resolves it, in the order to try them. Raises OSError, UnicodeError."""
    return tuple(str(answer[4][0]) for answer in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))


class Names:
    """Resolves names to addresses that are allowed. For one event loop.

    The loop's own threads are few, and a cancelled lookup keeps its thread. Names that were slow before have threads
    apart, so that many slow ones do not hold up the others.

    allows: whether an address may be connected to. lookup: gives the addresses of a name, or raises. Both are called in
    a thread. clock: seconds that only go forward.
    """

    def __init__(
        self, allows: Callable[[str], bool], lookup: Lookup = look_up, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._allows, self._lookup, self._clock = allows, lookup, clock
        self._threads, self._slow_threads = _Threads(THREADS), _Threads(SLOW_THREADS)
        self._lookups: OrderedDict[str, Future[_Answer]] = OrderedDict()
        self._closed = False

    async def addresses(self, host: str) -> tuple[str, ...]:
        """What `host` resolves to, one address to eight. Raises TransportFailed: "dns", "unsafe" for any of them."""
        if self._closed:
            raise TransportFailed("dns", "the transport is closed")
        # Shielded: the lookup is everybody's who asked for that name, and one of them may be cancelled.
        answer = await asyncio.shield(asyncio.wrap_future(self._lookup_of(host)))
        if not answer.addresses:
            raise TransportFailed("dns", "the host name does not resolve")
        if not answer.allowed:
            raise unsafe()
        return answer.addresses

    def close(self) -> None:
        """Start no further lookup. Safe to call twice."""
        self._closed = True

    def _lookup_of(self, host: str) -> Future[_Answer]:
        """The lookup of `host` that is under way or fresh, else a new one."""
        found, threads = self._lookups.get(host), self._threads
        if found is not None:
            self._lookups.move_to_end(host)
            if not found.done() or (answer := found.result()).is_fresh(self._clock()):
                return found
            threads = self._slow_threads if answer.took >= SLOW else self._threads
        found = self._lookups[host] = Future()
        threads.run(lambda: found.set_result(self._answer(host)))
        if len(self._lookups) > _MAX_CACHED:
            self._lookups.popitem(last=False)
        return found

    def _answer(self, host: str) -> _Answer:
        started, addresses, allowed = self._clock(), tuple[str, ...](), False
        if not self._closed:
            with suppress(Exception):  # not kept: a resolver's words may show its own address
                addresses = tuple(self._lookup(host))
                # All, not the first: which one would be connected to is otherwise the choice of who answers.
                allowed = all(self._allows(address) for address in addresses)
        now = self._clock()
        return _Answer(tuple(dict.fromkeys(addresses))[:MAX_ADDRESSES], allowed, now, now - started)


class _Threads:
    """Runs so many calls at a time at most. A lookup cannot be stopped, so its thread does not keep the process."""

    def __init__(self, most: int) -> None:
        self._most, self._running = most, 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._lock = Lock()

    def run(self, call: Callable[[], None]) -> None:
        """Call it in a thread, when one is free."""
        with self._lock:
            self._waiting.append(call)
            if self._running < self._most:
                Thread(target=self._work, name="hookline-dns", daemon=True).start()
                self._running += 1

    def _work(self) -> None:
        while (call := self._next()) is not None:
            call()

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._running -= 1
            return None
