"""Wakes idle workers: a pub/sub subscription that may come and go. Polling covers whatever it misses."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from hookline_sender.engine.address import replies_only
from hookline_sender.engine.link import connection_pool

_RECONNECT = 1.0  # seconds between attempts to subscribe again


class WakeUps:
    """Listens on one channel from the first wait on."""

    def __init__(self, url: str, channel: str) -> None:
        # No read timeout: silence is normal here. A half-open connection costs nothing but the wake-ups.
        keepalive = {} if url.startswith("unix:") else {"socket_keepalive": True}
        self._pool = connection_pool(url, socket_timeout=None, socket_connect_timeout=5.0, **keepalive)
        self._channel = channel
        self._woken = asyncio.Event()
        self._listener: asyncio.Task[None] | None = None

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109 - passing is no error
        """Return at the next wake-up, at one that came since the last wait, or after `timeout` seconds."""
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen(), name="hookline-wake-ups")
        # Not wait_for: before Python 3.12 it forgets a cancellation that comes together with the wake-up.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._woken.wait()
        self._woken.clear()

    async def aclose(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait([self._listener])
            self._listener = None
        await self._pool.disconnect()

    async def _listen(self) -> None:
        while True:
            with contextlib.suppress(RedisError, OSError), replies_only():
                await self._hear()
            await asyncio.sleep(_RECONNECT)

    async def _hear(self) -> None:
        client: Any = Redis(connection_pool=self._pool)  # pub/sub has no types
        async with client.pubsub() as channel:
            await channel.subscribe(self._channel)
            async for _ in channel.listen():
                self._woken.set()
