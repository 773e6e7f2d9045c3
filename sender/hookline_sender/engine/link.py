"""One connection to Redis on which commands are exchanged in pipelines.

An exchange that does not end, by cancellation or an error of the connection, drops the connection: a reply left on it
would be read by the next caller as its own. redis-py's retries are off, because they repeat commands whose reply was
lost whether or not that is safe.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from redis.asyncio import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from hookline_sender.engine.address import pool_of, replies_only
from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.asyncio.connection import AbstractConnection

    from hookline_sender.engine.dialogue import RawCommand, Reply


def connection_pool(url: str, **settings: object) -> ConnectionPool:
    """Connections with redis-py's own retries off."""
    pool: ConnectionPool = pool_of(ConnectionPool, url, retry=Retry(NoBackoff(), 0), **settings)
    return pool


class Link:
    """A connection made when it is needed. `timeout` in seconds bounds connecting and each exchange.

    `generation` grows when a connection is made and when it is dropped: the next one may lead to another server.
    """

    def __init__(self, url: str, *, timeout: float = 5.0) -> None:
        self._pool = connection_pool(url, socket_timeout=None, socket_connect_timeout=timeout)
        self._timeout = timeout
        self._connection: AbstractConnection | None = None
        self._busy = asyncio.Lock()
        self._closed = False
        self.generation = 0

    async def exchange(self, commands: Sequence[RawCommand]) -> list[Reply | ResponseError]:
        """Send all commands, then read all replies; one round trip, one fsync on the server.

        Raises:
            RedisError, OSError: the connection failed; whether commands ran is not known.
            HooklineError: it was closed, and nothing was sent.
        """
        async with self._busy:
            if self._closed:
                raise HooklineError("the connection to Redis was closed, by the end of what it was opened for")
            connection = self._connection or await self._connect()
            self._connection = None
            try:
                replies = await self._converse(connection, commands)
            except BaseException:
                self.generation += 1
                await connection.disconnect(nowait=True)
                raise
            self._connection = connection
            return replies

    async def drop(self) -> None:
        """Close the connection, if there is one, because the next may lead to another server."""
        async with self._busy:
            connection, self._connection = self._connection, None
            if connection is not None:
                self.generation += 1
                await connection.disconnect(nowait=True)

    async def aclose(self) -> None:
        """Wait for the exchange in flight, then close the connection for good. Safe to call twice."""
        self._closed = True
        async with self._busy:
            connection, self._connection = self._connection, None
            if connection is not None:
                await connection.disconnect()

    async def _converse(
        self, connection: AbstractConnection, commands: Sequence[RawCommand]
    ) -> list[Reply | ResponseError]:
        # The timeout is ours and not redis-py's, which before Python 3.12 writes from a task of its own: after all that
        # the event loop has to do first, for a worker the posts of a whole batch, while Redis has nothing to do.
        ours = packed(commands)
        with replies_only():
            async with asyncio.timeout(self._timeout):
                await connection.send_packed_command(ours)
                return [await _reply(connection) for _ in commands]

    async def _connect(self) -> AbstractConnection:
        make: Any = self._pool.make_connection  # typed in some releases of redis-py only
        connection: AbstractConnection = make()
        connect: Any = connection.connect
        try:
            with replies_only():
                async with asyncio.timeout(self._timeout):
                    await connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self.generation += 1
        return connection


def packed(commands: Sequence[RawCommand]) -> bytes:
    """The commands as RESP arrays of bulk strings: redis-py's own packing takes three times as long for a turn."""
    parts: list[bytes] = []
    for command in commands:
        parts.append(b"*%d\r\n" % len(command))
        for argument in command:
            raw = argument if isinstance(argument, bytes) else str(argument).encode()
            parts.append(b"$%d\r\n%b\r\n" % (len(raw), raw))
    return b"".join(parts)


async def _reply(connection: AbstractConnection) -> Reply | ResponseError:
    read: Any = connection.read_response
    try:
        return await read()
    except ResponseError as refused:
        return refused.with_traceback(None)  # it would hold the frames it came through, and with them this connection


__all__ = ["Link", "connection_pool"]
