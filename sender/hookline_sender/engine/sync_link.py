"""A connection to Redis for each thread that needs one, blocking.

An exchange that does not end, by KeyboardInterrupt or any other error, drops its connection: a reply left on it would
be read by the thread's next call as its own.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from redis import ConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError
from redis.retry import Retry

from hookline_sender.engine.address import pool_of, replies_only
from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookline_sender.engine.dialogue import RawCommand, Reply


class SyncLink:
    """A connection made when it is needed. `timeout` in seconds bounds connecting and each reply.

    `generation` grows when a connection is made and when it is dropped: the next one may lead to another server.
    """

    def __init__(self, url: str, *, timeout: float = 5.0) -> None:
        # Only to read the URL: a pool counts the connections it made and never forgets one.
        self._pool = pool_of(
            ConnectionPool,
            url,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
        )
        self._connection: Any = None  # redis-py's own has no types
        self._busy = threading.RLock()  # a signal's handler may publish in the middle of this thread's exchange
        self._closed = False
        self.generation = 0

    def exchange(self, commands: Sequence[RawCommand]) -> list[Reply]:
        """Send all commands, then read all replies; one round trip, one fsync on the server.

        Raises:
            RedisError, OSError: the connection failed; whether commands ran is not known.
        """
        with self._busy:
            if self._closed:
                raise HooklineError("the publisher is closed")
            connection, self._connection = self._connection, None
            if connection is None:
                connection = self._connect()
            try:
                ours = connection.pack_commands(commands)
                with replies_only():
                    connection.send_packed_command(ours)
                    replies = [_reply(connection) for _ in commands]
            except BaseException:
                self.generation += 1
                connection.disconnect()
                raise
            self._connection = connection
            return replies

    def drop(self) -> None:
        """Close the connection, if there is one, because the next may lead to another server."""
        with self._busy:
            connection, self._connection = self._connection, None
            if connection is not None:
                self.generation += 1
                connection.disconnect()

    def close(self) -> None:
        """Wait for an exchange of another thread, then close the connection for good. Safe to call twice."""
        with self._busy:
            self._closed = True
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.disconnect()

    def __del__(self) -> None:
        # The thread has ended: its connection ends with it, also when nobody closes the publisher. Without the lock:
        # a process that was forked may have inherited it from a thread it does not have.
        with contextlib.suppress(Exception):
            if self._connection is not None:
                self._connection.disconnect()

    def _connect(self) -> Any:  # noqa: ANN401
        connection = self._pool.connection_class(**self._pool.connection_kwargs)
        try:
            with replies_only():
                connection.connect()
        except BaseException:
            connection.disconnect()
            raise
        self.generation += 1
        return connection


def _reply(connection: Any) -> Reply:  # noqa: ANN401
    try:
        return connection.read_response()
    except ResponseError as refused:
        return refused.with_traceback(None)  # it would hold the frames it came through, and with them this connection


__all__ = ["SyncLink"]
