"""Threads for those databases whose transactions belong to threads."""

from __future__ import annotations

import asyncio
import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hookline_receiver.ledger.loops import PerLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from concurrent.futures import Future

R = TypeVar("R")

PATIENCE: Final = 5.0  # seconds for a short transaction of a store's own
AT_ONCE: Final = 16  # of these; more would wait for the pool's connections, each with a thread of its own


class Lanes:
    """Threads, each for one transaction at a time. A forked process has its own: the others' did not come along."""

    def __init__(self) -> None:
        self._idle: list[ThreadPoolExecutor] = []
        self._pid, self._openings = os.getpid(), 0
        self._room = PerLoop(lambda: asyncio.Semaphore(AT_ONCE))

    @contextlib.contextmanager
    def opened(self) -> Generator[None]:
        """Let go of idle threads when the last block ends."""
        self._openings += 1
        try:
            yield
        finally:
            self._openings -= 1
            while self._idle and not self._openings:
                self._idle.pop().shutdown(wait=False)

    def take(self) -> Lane:
        """One that nobody uses."""
        if self._pid != os.getpid():
            self._pid, self._idle = os.getpid(), []
        try:
            threads = self._idle.pop()
        except IndexError:
            threads = ThreadPoolExecutor(1, thread_name_prefix="hookline-transaction")
        return Lane(threads, self._idle)

    async def run(self, step: Callable[[], R]) -> R:
        """What a short step returns. Raises TimeoutError, which is an OSError: then it goes on by itself."""
        async with asyncio.timeout(PATIENCE), self._room.current():
            lane = self.take()
            try:
                return await lane.run(step)
            finally:
                lane.leave()


class Lane:
    """One thread, until its transaction is over."""

    def __init__(self, threads: ThreadPoolExecutor, idle: list[ThreadPoolExecutor]) -> None:
        self.threads, self._idle = threads, idle
        self._last: Future[Any] | None = None

    async def run(self, step: Callable[[], R]) -> R:
        """What the step returns. A caller that is cancelled stops waiting; the step, and what was queued, goes on."""
        self._last = step_done = self.threads.submit(step)
        return await asyncio.shield(asyncio.wrap_future(step_done))

    def leave(self) -> None:
        """Give the thread back, as soon as its last step has ended: the next one would wait for that."""
        if self._last is None:
            self._idle.append(self.threads)
        else:
            self._last.add_done_callback(lambda _: self._idle.append(self.threads))
