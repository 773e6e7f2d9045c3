"""A receiver on an event loop of its own, for views that have none."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from hookline_receiver.receiver import Receiver

R = TypeVar("R")
CLOSING: Final = 10.0  # seconds that running handlers get when the process ends


class Opened:
    """A receiver that opens when it is first asked for, and closes when it is told or its event loop ends."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver, self._lock = receiver, asyncio.Lock()
        self._closing = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    async def receiver(self) -> Receiver:
        """The receiver, open. Raises LedgerUnavailable as long as it cannot open."""
        async with self._lock:
            if self._keeper is None or self._keeper.done():
                opened = asyncio.get_running_loop().create_future()
                self._keeper = asyncio.create_task(self._keep(opened))
                await opened
        return self._receiver

    async def aclose(self) -> None:
        """Close it."""
        self._closing.set()
        if self._keeper is not None:
            await self._keeper

    async def _keep(self, opened: asyncio.Future[None]) -> None:
        # A task of its own, since an end of the loop cancels tasks one by one, and tears generators apart.
        try:
            async with self._receiver.lifespan():
                opened.set_result(None)
                await self._closing.wait()
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            if not opened.done():
                opened.set_exception(error)


class Portal:
    """Calls a receiver's coroutines from any thread; a forked process has a loop of its own."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._lock = threading.Lock()
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop
        self._opened: Opened
        self._inherited: list[object] = []

    def call(self, made: Callable[[Opened], Coroutine[object, object, R]]) -> R:
        """What the coroutine returns."""
        with self._lock:
            if self._pid != os.getpid():
                self._start()
        return asyncio.run_coroutine_threadsafe(made(self._opened), self._loop).result()

    def _start(self) -> None:
        if self._pid:  # forked: what runs belongs to the parent. Kept, since its end would be an end in this process
            self._inherited += [self._loop, self._opened]
            self._receiver.ledger = self._receiver.ledger  # nothing runs here yet, and nobody has a turn
        self._pid, self._loop, self._opened = os.getpid(), asyncio.new_event_loop(), Opened(self._receiver)
        threading.Thread(target=self._loop.run_forever, name="hookline-receiver", daemon=True).start()
        atexit.register(self._stop)

    def _stop(self) -> None:
        if self._pid == os.getpid():
            closing = asyncio.run_coroutine_threadsafe(self._opened.aclose(), self._loop)
            with contextlib.suppress(TimeoutError):
                closing.result(CLOSING)
