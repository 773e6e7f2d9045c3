"""A proxy before Redis that loses, delays or swallows what passes, in the test's own event loop."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(eq=False, slots=True)
class _Pair:
    """A client's connection and the server's, with what became of them."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    silent: bool = False
    tasks: list[asyncio.Task[None]] = field(default_factory=list["asyncio.Task[None]"])

    def close(self) -> None:
        for writer in (self.client, self.server):
            writer.transport.abort()


class Proxy:
    """Listens on loopback and talks to the Redis of a unix or TCP URL. An async context manager.

    `delay()` gives the seconds each reply is held back. While `refuses`, connections are accepted and nothing is
    forwarded. `lost` has the replies that were lost or held back on request.
    """

    def __init__(self, redis_url: str) -> None:
        self._target = urlsplit(redis_url)
        self._pairs: set[_Pair] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._next: tuple[float | None, Callable[[], None]] | None = None
        self.delay: Callable[[], float] = lambda: 0.0
        self.refuses = False
        self.lost: list[bytes] = []
        self.accepted = 0

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._begin, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        for serving in list(self._serving):
            serving.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._listener.wait_closed()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}/0"

    @property
    def open(self) -> int:
        """How many connections clients have at the moment."""
        return len(self._pairs)

    def lose_next_reply(self, then: Callable[[], None] = lambda: None) -> None:
        """Read the next reply from the server, throw it away, call `then` and close the connection."""
        self._next = (None, then)

    def hold_next_reply(self, seconds: float, then: Callable[[], None] = lambda: None) -> None:
        """When the next reply comes call `then`, and pass the reply on so much later."""
        self._next = (seconds, then)

    def swallow(self) -> None:
        """The connections there are stay open, and nothing passes any more: half-open, as after a lost route."""
        for pair in self._pairs:
            pair.silent = True

    def lead_to(self, redis_url: str) -> None:
        """New connections go to another server, as after a failover; those there are stay where they are."""
        self._target = urlsplit(redis_url)

    def cut(self) -> None:
        """Close every connection."""
        for pair in list(self._pairs):
            pair.close()

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            from_server, to_server = await self._dial()
        except OSError:
            writer.transport.abort()
            return
        pair = _Pair(writer, to_server, silent=self.refuses)
        self._pairs.add(pair)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._requests(pair, reader))
                both.create_task(self._replies(pair, from_server))
        except* (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._pairs.discard(pair)
            pair.close()

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._target.scheme == "unix":
            return await asyncio.open_unix_connection(unquote(self._target.path))
        return await asyncio.open_connection(self._target.hostname, self._target.port)

    async def _requests(self, pair: _Pair, reader: asyncio.StreamReader) -> None:
        while piece := await reader.read(1 << 16):
            if not pair.silent:
                pair.server.write(piece)
                await pair.server.drain()
        pair.close()

    async def _replies(self, pair: _Pair, reader: asyncio.StreamReader) -> None:
        while piece := await reader.read(1 << 20):
            seconds: float | None = self.delay()
            if self._next is not None:
                (seconds, then), self._next = self._next, None
                self.lost.append(piece)
                then()
            if seconds is None:
                break
            if seconds > 0:
                await asyncio.sleep(seconds)
            if not pair.silent:
                pair.client.write(piece)
                with suppress(ConnectionError):
                    await pair.client.drain()
        pair.close()
