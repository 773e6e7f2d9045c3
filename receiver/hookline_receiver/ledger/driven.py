"""Transactions written as plain functions, run where they have to run: on the event loop, or all in one thread."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from hookline_receiver.errors import LedgerUnavailable
from hookline_receiver.ledger.loops import PerLoop

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from hookline_receiver.ledger.protocol import Busy, Conflict, Done

R = TypeVar("R")
log = logging.getLogger("hookline.receiver")

CONNECTIONS: Final = 5  # that deliveries use at a time
SHARE_PATIENCE: Final = 1.0  # seconds that a delivery waits for one of them
LOCK_TIMEOUT: Final = 2.0  # seconds that a statement waits for another transaction's lock
IDLE_GRACE: Final = 5.0  # seconds beyond the handler's deadline after which PostgreSQL ends an idle transaction
BUSY_PAUSE: Final = 1.0  # seconds after which a copy of a running delivery may come again
HANDLED: Final = 204  # what a row says until its transaction knows better


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
