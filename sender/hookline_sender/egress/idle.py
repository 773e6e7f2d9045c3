"""Connections that wait for the next request to the same destination."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import httpcore

    from hookline_sender.egress.stream import Stream

MAX_AGE: Final = 90.0
"""Seconds after which a connection is not used again: load balancers change behind a name."""
MAX_IDLE: Final = 30.0
"""Seconds a connection may wait: below what servers and NATs keep."""

PoolKey = tuple[str, str]
"""Destination and origin. Tenants behind one host never share a connection."""


@dataclass(slots=True)
class Connection:
    """One open connection; times are the loop's, in seconds."""

    http: httpcore.AsyncHTTP11Connection
    stream: Stream
    opened_at: float
    idle_since: float = 0.0

    def usable(self, now: float) -> bool:
        """Whether the next request may go over it."""
        fresh = now - self.opened_at < MAX_AGE and now - self.idle_since < MAX_IDLE
        return fresh and self.http.is_idle() and not self.stream.is_dirty and not self.stream.has_unread()


class IdleConnections:
    """A small stack per destination, and one limit over all of them: the least recently used goes first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pools: OrderedDict[PoolKey, list[Connection]] = OrderedDict()
        self._count = 0

    def take(self, key: PoolKey, now: float) -> Connection | None:
        """The connection that waited least, or None. Those that are not usable any more are closed on the way."""
        pool = self._pools.get(key, [])
        while pool:
            connection = self._pop(key, -1)
            if connection.usable(now):
                return connection
            connection.stream.abort()
        return None

    def put(self, key: PoolKey, connection: Connection, now: float) -> None:
        """Keep a connection for the next request; may close others."""
        connection.idle_since = now
        connection.stream.rest()
        self._pools.setdefault(key, []).append(connection)
        self._pools.move_to_end(key)
        self._count += 1
        while self._count > self._limit or (self._count and self._oldest().idle_since <= now - MAX_IDLE):
            self._pop(next(iter(self._pools)), 0).stream.abort()

    def close(self) -> None:
        """Close them all, and each one that is put from now on. Safe to call twice."""
        self._limit = 0
        while self._count:
            self._pop(next(iter(self._pools)), 0).stream.abort()

    def _oldest(self) -> Connection:
        return next(iter(self._pools.values()))[0]

    def _pop(self, key: PoolKey, index: int) -> Connection:
        pool = self._pools[key]
        connection = pool.pop(index)
        self._count -= 1
        if not pool:
            del self._pools[key]
        return connection
