"""Transactions written as plain functions, run where they have to run: on the event loop, or all in one thread."""

from __future__ import annotations

import asyncio
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from hookline_receiver.errors import LedgerUnavailable
from hookline_receiver.ledger.loops import PerLoop

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, Future

    from hookline_receiver.ledger.protocol import Busy, Conflict, Done

R = TypeVar("R")
log = logging.getLogger("hookline.receiver")

SHARE_PATIENCE: Final = 1.0  # seconds that a delivery waits for one of the ledger's connections


class Unit(Protocol):
    """One transaction. What each step may raise is the store's own; `rollback` raises nothing, and frees everything."""

    @property
    def session(self) -> object:
        """What the handler writes with."""
        ...

    def connect(self) -> None:
        """Get a connection."""
        ...

    def begin(self) -> Done | Conflict | Busy | None:
        """Insert the row; None when it is new."""
        ...

    def commit(self, status: int) -> None:
        """Record the status, commit, and free everything."""
        ...

    def rollback(self) -> None:
        """Leave no trace, whatever was done before."""
        ...


class Place(Protocol):
    """Where a unit's steps run. `threads` as in Transaction."""

    @property
    def threads(self) -> Executor | None:
        """The one thread of it, None on the loop."""
        ...

    async def run(self, step: Callable[[], R]) -> R:
        """What the step returns."""
        ...

    def leave(self) -> None:
        """The unit is over."""
        ...


class Share:
    """How many transactions may have a connection at a time; the rest of the engine's pool is for others."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._rooms = PerLoop(lambda: asyncio.Semaphore(size))

    async def take(self) -> Callable[[], None]:
        """Wait for room; what is returned gives it back. Raises LedgerUnavailable."""
        room = self._rooms.current()
        try:
            async with asyncio.timeout(SHARE_PATIENCE):
                await room.acquire()
        except TimeoutError:
            message = f"all {self._size} connections of the ledger are in use"
            raise LedgerUnavailable(message) from None
        return room.release


class Lanes:
    """Threads, each for one transaction at a time. A forked process has its own: the others' did not come along."""

    def __init__(self) -> None:
        self._idle: list[ThreadPoolExecutor] = []
        self._pid = os.getpid()

    def take(self) -> Lane:
        """One that nobody uses."""
        if self._pid != os.getpid():
            self._pid, self._idle = os.getpid(), []
        try:
            threads = self._idle.pop()
        except IndexError:
            threads = ThreadPoolExecutor(1, thread_name_prefix="hookline-transaction")
        return Lane(threads, self._idle)

    def close(self) -> None:
        """Let go of idle threads."""
        while self._idle:
            self._idle.pop().shutdown(wait=False)


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


class Driven:
    """A unit as a ledger's Transaction."""

    def __init__(self, unit: Unit, place: Callable[[], Place], share: Share) -> None:
        self._unit, self._enter, self._share = unit, place, share
        self._place: Place | None = None
        self._free: Callable[[], None] | None = None

    @property
    def threads(self) -> Executor | None:
        """The thread in which it runs; None on the loop."""
        return None if self._place is None else self._place.threads

    @property
    def session(self) -> object:
        """What the handler writes with."""
        return self._unit.session

    async def connect(self) -> None:
        """Get a connection."""
        self._free = await self._share.take()
        self._place = self._enter()
        await self._asked(self._unit.connect)

    async def begin(self) -> Done | Conflict | Busy | None:
        """Insert the row; None when it is new."""
        claim = await self._asked(self._unit.begin)
        if claim is not None:
            await self.rollback()
        return claim

    async def commit(self, status: int) -> None:
        """Record the status and commit."""
        try:
            await self._run(partial(self._unit.commit, status))
        except BaseException:
            await self.rollback()
            raise
        self._over()

    async def rollback(self) -> None:
        """Leave no trace. Nothing to do when it is over."""
        if self._place is None:
            return
        try:
            await self._run(self._unit.rollback)
        finally:
            self._over()

    async def _asked(self, step: Callable[[], R]) -> R:
        try:
            return await self._run(step)
        except Exception as error:
            await self.rollback()
            log.warning("the ledger's database cannot be used: %s", type(error).__name__)
            message = "the ledger's database cannot be used: deliveries are answered 503 until it can"
            raise LedgerUnavailable(message) from error
        except BaseException:
            await self.rollback()
            raise

    async def _run(self, step: Callable[[], R]) -> R:
        if self._place is None:
            message = "a transaction's steps begin with connect"
            raise RuntimeError(message)
        return await self._place.run(step)

    def _over(self) -> None:
        place, self._place, free, self._free = self._place, None, self._free, None
        if place is not None:
            place.leave()
        if free is not None:
            free()
