"""The ledger in your own database: the row and what a handler writes are one commit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, overload

from sqlalchemy import Engine, MetaData
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.pool import SingletonThreadPool

from hookline_receiver.errors import InvalidReceiver, LedgerUnavailable
from hookline_receiver.ledger.driven import Driven, Lanes, Share
from hookline_receiver.ledger.inbox import DIALECTS, Inbox, inbox_table
from hookline_receiver.ledger.once import entered_async, entered_sync
from hookline_receiver.ledger.protocol import RETENTION, Entry
from hookline_receiver.ledger.sql_unit import OnLoop, ReceiverSession, SqlUnit, passes
from hookline_receiver.limits import check_seconds, check_whole

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from sqlalchemy import Connection, Table
    from sqlalchemy.orm import Session

    from hookline_receiver.delivery import Delivery
    from hookline_receiver.ledger.protocol import Conflict, Done

R = TypeVar("R")
log = logging.getLogger("hookline.receiver")

CONNECTIONS: Final = 5
PATIENCE: Final = 5.0  # seconds for a short transaction of the ledger's own
PRUNE_BATCH: Final = 1_000  # rows per transaction: some milliseconds, during which nobody waits for them
PRUNE_INTERVAL: Final = 3_600.0


class SqlLedger:
    """Remembers deliveries in the database that holds their effects: handled exactly once, as far as it reaches.

    `engine`: a SQLAlchemy 2 engine for PostgreSQL or SQLite. With an AsyncEngine handlers are `async def` and
    `delivery.session` is an AsyncSession. With an Engine they are `def`, run in one thread with their transaction, and
    it is a Session. `table`: from `inbox_table(metadata)`; None = "hookline_inbox". It has to exist.

    `connections` of the engine's pool are used at a time, at most: give the pool more. SQLite has one writer, so one.
    Rows older than `retention` (seconds) are deleted in batches every `prune_interval`, None = only by `prune()`.
    Safe to share between receivers: each has rows of its own. No I/O before the first use. Raises InvalidReceiver.
    """

    def __init__(
        self,
        engine: AsyncEngine | Engine,
        *,
        table: Table | None = None,
        retention: float = RETENTION,
        connections: int = CONNECTIONS,
        prune_interval: float | None = PRUNE_INTERVAL,
    ) -> None:
        _check_engine(engine)
        check_whole("connections", connections)
        check_seconds(1, retention=retention)
        if prune_interval is not None:
            check_seconds(prune_interval=prune_interval)
        self._engine, self._inbox = engine, Inbox(inbox_table(MetaData()) if table is None else table)
        self._retention, self._prune_interval = retention, prune_interval
        self._share = Share(1 if engine.dialect.name == "sqlite" else connections)
        self._lanes = Lanes()
        self._openings = 0

    def __repr__(self) -> str:
        return f"SqlLedger({self._engine.dialect.name}+{self._engine.dialect.driver}, {self._inbox.table.fullname!r})"

    @property
    def threaded(self) -> bool:
        """Whether handlers have to be plain functions."""
        return isinstance(self._engine, Engine)

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Check the table, and prune it meanwhile. Raises LedgerUnavailable; InvalidReceiver for a useless engine."""
        try:
            await self._run(self._inbox.check)
        except (SQLAlchemyError, OSError) as error:
            message = (
                f"the table {self._inbox.table.fullname!r} cannot be read ({type(error).__name__}): is the database "
                "up, and was the table made, with inbox_table(metadata) and create_all or by a migration?"
            )
            raise LedgerUnavailable(message) from error
        stop = asyncio.Event()
        pruning = asyncio.create_task(self._prune_until(stop))
        self._openings += 1
        try:
            yield
        finally:
            stop.set()
            await pruning
            self._openings -= 1
            if not self._openings:
                self._lanes.close()

    async def find(self, entry: Entry) -> Done | Conflict | None:
        """How the delivery ended; None while it has not."""
        try:
            return await self._run(partial(self._inbox.find, entry=entry))
        except (SQLAlchemyError, OSError) as error:
            message = f"the ledger's database cannot be asked ({type(error).__name__})"
            raise LedgerUnavailable(message) from error

    def transaction(self, entry: Entry, deadline: float) -> Driven:
        """A new transaction for the delivery, whose handler is stopped after `deadline` seconds."""
        if isinstance(self._engine, Engine):
            session = ReceiverSession(self._engine, expire_on_commit=False)
            return Driven(SqlUnit(self._inbox, session, entry, deadline), self._lanes.take, self._share)
        given = AsyncSession(self._engine, expire_on_commit=False, sync_session_class=ReceiverSession)
        unit = SqlUnit(self._inbox, given, entry, deadline)
        return Driven(unit, partial(OnLoop, given), self._share)

    def passes(self, error: BaseException) -> bool:
        """Whether the error is the database's and may be gone at the next attempt."""
        return passes(error)

    async def prune(self) -> int:
        """Delete the rows past the retention, and say how many. Beside deliveries and other prunings, at any time."""
        total = 0
        while deleted := await self._prune_batch():
            total += deleted
        return total

    @overload
    def once(
        self, session: AsyncSession, delivery: Delivery, *, endpoint: str = ...
    ) -> AbstractAsyncContextManager[bool]: ...
    @overload
    def once(self, session: Session, delivery: Delivery, *, endpoint: str = ...) -> AbstractContextManager[bool]: ...

    def once(
        self, session: AsyncSession | Session, delivery: Delivery, *, endpoint: str = ""
    ) -> AbstractAsyncContextManager[bool] | AbstractContextManager[bool]:
        """Whether this is the delivery's first time, in a session of your own: `async with`, or `with` a Session.

        The row is inserted in the session's transaction, which is committed when the block ends and rolled back when it
        raises. Begin the transaction with it. For verified deliveries; `endpoint` tells senders apart whose deliveries
        come to several endpoints of one inbox.
        Raises DeliveryConflict for another body than the first time's, RetryLater while another transaction has it.
        """
        entry = Entry.of("once", endpoint, delivery.id, body=delivery.body)
        if isinstance(session, AsyncSession):
            return entered_async(self._inbox, session, entry)
        return entered_sync(self._inbox, session, entry)

    async def _prune_until(self, stop: asyncio.Event) -> None:
        while not stop.is_set() and self._prune_interval is not None:
            try:
                more = await self._prune_batch() == PRUNE_BATCH
            except (SQLAlchemyError, OSError) as error:
                log.warning("the inbox could not be pruned: %s", type(error).__name__)
                more = False
            if not more:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._prune_interval):
                        await stop.wait()

    async def _prune_batch(self) -> int:
        return await self._run(partial(self._inbox.prune, retention=self._retention, batch=PRUNE_BATCH))

    async def _run(self, statements: Callable[[Connection], R]) -> R:
        """Run them in a short transaction of their own."""
        async with asyncio.timeout(PATIENCE):  # a TimeoutError is an OSError
            if isinstance(self._engine, AsyncEngine):
                async with self._engine.begin() as connection:
                    return await connection.run_sync(statements)
            lane = self._lanes.take()
            try:
                return await lane.run(partial(_in_transaction, self._engine, statements))
            finally:
                lane.leave()


def _in_transaction(engine: Engine, statements: Callable[[Connection], R]) -> R:
    with engine.begin() as connection:
        return statements(connection)


def _check_engine(engine: object) -> None:
    if not isinstance(engine, AsyncEngine | Engine):
        message = (
            "a SqlLedger needs a SQLAlchemy engine: create_async_engine(url), or create_engine(url) for def handlers"
        )
    elif engine.dialect.name not in DIALECTS:
        message = f"a SqlLedger works with {' and '.join(DIALECTS)}, not with {engine.dialect.name}"
    elif isinstance(engine.pool, SingletonThreadPool):
        message = (
            "this SQLite database is another one in each thread: use a file, or create_engine(…, poolclass=StaticPool)"
        )
    else:
        return
    raise InvalidReceiver(message)
