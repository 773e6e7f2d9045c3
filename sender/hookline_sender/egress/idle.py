"""Connections that wait for the next request to the same destination."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, Protocol, TypeVar

MAX_AGE: Final = 90.0
"""Seconds after which a connection is not used again: load balancers change behind a name."""
MAX_IDLE: Final = 30.0
"""Seconds a connection may wait: below what servers and NATs keep."""

PoolKey = tuple[str, str]
"""Destination and origin. Tenants behind one host never share a connection."""


class Pooled(Protocol):
    """One open connection; times are the loop's, in seconds. Bytes or an end while it waits close it."""

    opened_at: float
    idle_since: float

    @property
    def answered(self) -> bool:
        """Whether any byte of an answer came to the last request."""
        ...

    @property
    def reusable(self) -> bool:
        """Whether the last request ended well and nothing has come since."""
        ...

    def has_unread(self) -> bool:
        """Whether bytes or an end wait that the loop has not read yet."""
        ...

    def abort(self) -> None:
        """Close at once. Safe to call twice."""
        ...


C = TypeVar("C", bound=Pooled)


class IdleConnections(Generic[C]):
    """A small stack per destination, and one limit over all of them: whoever waited longest goes first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pools: dict[PoolKey, list[C]] = {}
        self._waiting: OrderedDict[C, PoolKey] = OrderedDict()  # like each stack in the order in which they came

    def take(self, key: PoolKey, now: float) -> C | None:
        """The connection that waited least, or None. Those that are not usable any more are closed on the way."""
        while key in self._pools:
            connection = self._pop(key, -1)
            young = now - connection.opened_at < MAX_AGE and now - connection.idle_since < MAX_IDLE
            if young and connection.reusable and not connection.has_unread():
                return connection
            connection.abort()
        return None

    def put(self, key: PoolKey, connection: C, now: float) -> None:
        """Keep a connection for the next request if it is reusable; may close another one."""
        if not connection.reusable:
            return
        connection.idle_since = now
        self._pools.setdefault(key, []).append(connection)
        self._waiting[connection] = key
        self._shrink(self._limit)

    def expire(self, now: float) -> float | None:
        """Close those that waited too long; when the next one will have, None when none waits."""
        while self._waiting:
            due = next(iter(self._waiting)).idle_since + MAX_IDLE
            if due > now:
                return due
            self._shrink(len(self._waiting) - 1)
        return None

    def close(self) -> None:
        """Close them all, and each one that is put from now on. Safe to call twice."""
        self._limit = 0
        self._shrink(0)

    def _shrink(self, count: int) -> None:
        while len(self._waiting) > count:
            self._pop(next(iter(self._waiting.values())), 0).abort()

    def _pop(self, key: PoolKey, index: int) -> C:
        pool = self._pools[key]
        connection = pool.pop(index)
        del self._waiting[connection]
        if not pool:
            del self._pools[key]
        return connection
