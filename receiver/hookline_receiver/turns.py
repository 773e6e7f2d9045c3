"""One at a time per key, within this process."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Turns:
    """Callers with the same key wait for each other, in the order they came. For one event loop."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = (
            WeakValueDictionary()
        )  # each lives while it is waited for

    @contextlib.asynccontextmanager
    async def turn(self, key: bytes, patience: float) -> AsyncGenerator[bool]:
        """Whether it is the caller's turn, until the block ends; False when it was not within `patience` seconds."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with asyncio.timeout(patience):
                await lock.acquire()
        except TimeoutError:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()
