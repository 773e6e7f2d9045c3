"""One connection to Redis that concurrent callers share: what gathers during a round trip goes out with the next.

With appendfsync=always every round trip waits for the disk once, so sixty-four steps cost about as much as one.

An exchange that does not end well drops the connection. A reply left on it would answer the next caller's question. So
does a server that became a replica: the address leads to its successor, and only a new connection finds that.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from redis.asyncio import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ReadOnlyError, ResponseError

if TYPE_CHECKING:
    from redis.asyncio.connection import AbstractConnection

Words = tuple[str | bytes | int, ...]

BATCH: Final = 64  # commands of one round trip
SOCKET_TIMEOUT: Final = 1.0  # seconds, for connecting and for each reply


@dataclass(frozen=True, slots=True)
class _Sending:
    """A command that waits for its turn, and where its reply goes."""

    words: Words
    reply: asyncio.Future[Any]
    until: float

    def end(self, answer: object) -> None:
        if not self.reply.done():
            self.reply.set_result(answer)


def is_address(url: str) -> bool:
    """Whether a connection can be made for the URL. No I/O."""
    untyped: Any = ConnectionPool
    try:
        untyped.from_url(url).make_connection()
    except (ValueError, TypeError):  # a port or an option that is none; the text may hold a part of a password
        return False
    return True


class Pipeline:
    """Sends commands in the order of the calls; connects when it must."""

    def __init__(self, url: str) -> None:
        # redis-py's own retries stay off: they would run a script up to eleven times, replies that time out included.
        untyped: Any = ConnectionPool
        self._pool: Any = untyped.from_url(
            url,
            socket_timeout=SOCKET_TIMEOUT,
            socket_connect_timeout=SOCKET_TIMEOUT,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        self._connection: AbstractConnection | None = None
        self.connections = 0  # made so far: each may have found another server
        self._waiting: list[_Sending] = []
        self._sending: asyncio.Task[None] | None = None

    async def send(self, *words: str | bytes | int, until: float) -> Any:  # noqa: ANN401 - Redis answers anything
        """The reply to one command. Raises ResponseError, or RedisError or OSError when the connection failed.

        `until` is the loop's time after which nobody waits for it: then it is not sent any more. Else a server that
        hung would find the claims of all who left, and hold their deliveries for a lease each.
        For a caller that is never cancelled: the command may be on its way.
        """
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Any] = loop.create_future()
        self._waiting.append(_Sending(words, reply, until))
        if self._sending is None or self._sending.done():
            self._sending = loop.create_task(self._send_all())
        answer = await reply
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def drop(self) -> None:
        """Leave the server: the next command connects anew. What is being sent keeps its connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect()

    async def aclose(self) -> None:
        """Stop sending and close the connection."""
        if self._sending is not None and not self._sending.done():
            self._sending.cancel()
            await asyncio.wait({self._sending})
        await self.drop()

    async def _send_all(self) -> None:
        while self._waiting:
            self._drop_late()
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            try:
                answers = await self._exchange([sending.words for sending in batch]) if batch else []
            except Exception as error:  # noqa: BLE001 - each caller gets it, and decides
                answers = [error] * len(batch)
            for sending, answer in zip(batch, answers, strict=True):
                sending.end(answer)

    def _drop_late(self) -> None:
        now = asyncio.get_running_loop().time()
        late = [sending for sending in self._waiting if sending.until < now]
        if late:
            self._waiting = [sending for sending in self._waiting if sending.until >= now]
        for sending in late:
            sending.end(TimeoutError())

    async def _exchange(self, commands: list[Words]) -> list[Any]:
        connection, self._connection = self._connection, None
        if connection is None:
            connection = self._pool.make_connection()
            self.connections += 1
        try:
            await connection.connect()  # nothing to do when it is
            await connection.send_packed_command(connection.pack_commands(commands))
            answers = [await _reply(connection) for _ in commands]
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self._connection = connection
        if any(isinstance(answer, ReadOnlyError) for answer in answers):
            await self.drop()
        return answers


async def _reply(connection: AbstractConnection) -> Any:  # noqa: ANN401
    read: Any = connection.read_response
    try:
        return await read()
    except ResponseError as error:
        return error
