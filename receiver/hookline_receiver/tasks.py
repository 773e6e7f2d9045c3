"""Tasks that outlive the request that began them, until the receiver stops."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from hookline_receiver.outcome import STOP_GRACE

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class Tasks:
    """The running tasks of one receiver. At the end they get `patience` seconds."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run it in a task of its own."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def ended(self) -> None:
        """Return when none runs any more, also no thread past its handler's deadline."""
        while self._running:
            await asyncio.wait(set(self._running))

    async def drain(self) -> None:
        """Let running tasks end in time, then stop what is left."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=self._patience)
        await self.stop()

    async def stop(self) -> None:
        """Stop what runs."""
        left = set(self._running)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=STOP_GRACE * 2)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # seen: the client may have left before it
