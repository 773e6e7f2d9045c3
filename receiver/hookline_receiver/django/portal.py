"""A receiver on an event loop of its own, for views that have none."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from hookline_receiver.receiver import Receiver

R = TypeVar("R")
CLOSING: Final = 10.0  # seconds that running handlers get when the process ends


class Opened:
    """A receiver that opens when it is first asked for. For one event loop."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver, self._open, self._lock = receiver, False, asyncio.Lock()
        self._stack = AsyncExitStack()

    async def receiver(self) -> Receiver:
        """The receiver, open. Raises LedgerUnavailable as long as it cannot open."""
        async with self._lock:
            if not self._open:
                await self._stack.enter_async_context(self._receiver.lifespan())
                self._open = True
        return self._receiver

    async def aclose(self) -> None:
        """Close it."""
        await self._stack.aclose()


class Portal:
    """Calls a receiver's coroutines from any thread; a forked process has a loop of its own."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._lock = threading.Lock()
        self._pid = 0

    def call(self, made: Callable[[Opened], Coroutine[object, object, R]]) -> R:
        """What the coroutine returns."""
        with self._lock:
            if self._pid != os.getpid():
                self._start()
        return asyncio.run_coroutine_threadsafe(made(self._opened), self._loop).result()

    def _start(self) -> None:
        self._pid, self._loop, self._opened = os.getpid(), asyncio.new_event_loop(), Opened(self._receiver)
        threading.Thread(target=self._loop.run_forever, name="hookline-receiver", daemon=True).start()
        atexit.register(self._stop)

    def _stop(self) -> None:
        if self._pid == os.getpid():
            closing = asyncio.run_coroutine_threadsafe(self._opened.aclose(), self._loop)
            closing.result(CLOSING)
            self._loop.call_soon_threadsafe(self._loop.stop)
