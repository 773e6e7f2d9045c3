"""The ledger in your own database: the row and what a handler writes are one commit."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, overload

from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncSession

from hookline_receiver.ledger.database import Database
from hookline_receiver.ledger.driven import CONNECTIONS
from hookline_receiver.ledger.inbox import Inbox, inbox_table
from hookline_receiver.ledger.once import entered_async, entered_sync
from hookline_receiver.ledger.protocol import RETENTION, Entry
from hookline_receiver.ledger.pruning import PRUNE_BATCH, PRUNE_INTERVAL
from hookline_receiver.ledger.sql_unit import passes
from hookline_receiver.limits import check_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from sqlalchemy import Connection, Engine, Table
    from sqlalchemy.ext.asyncio import AsyncEngine
    from sqlalchemy.orm import Session

    from hookline_receiver.delivery import Delivery
    from hookline_receiver.ledger.driven import Driven
    from hookline_receiver.ledger.protocol import Conflict, Done


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
        check_seconds(1, retention=retention)
        if prune_interval is not None:
            check_seconds(prune_interval=prune_interval)
        self._inbox = Inbox(inbox_table(MetaData()) if table is None else table)
        self._database = Database(engine, self._inbox.table, connections, "SqlLedger")
        self._retention, self._prune_interval = retention, prune_interval

    def __repr__(self) -> str:
        return repr(self._database)

    @property
    def threaded(self) -> bool:
        """Whether handlers have to be plain functions."""
        return self._database.threaded

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Check the table, and prune it meanwhile. Raises LedgerUnavailable; InvalidReceiver for a useless engine."""
        async with self._database.opened(self._inbox.check, self._prune_batch, self._prune_interval):
            yield

    async def find(self, entry: Entry) -> Done | Conflict | None:
        """How the delivery ended; None while it has not."""
        return await self._database.run(partial(self._inbox.find, entry=entry))

    def transaction(self, entry: Entry, deadline: float) -> Driven:
        """A new transaction for the delivery, whose handler is stopped after `deadline` seconds."""
        return self._database.transaction(self._inbox, entry, deadline)

    def passes(self, error: BaseException) -> bool:
        """Whether the error is the database's and may be gone at the next attempt."""
        return passes(error)

    async def prune(self) -> int:
        """Delete the rows past the retention, and say how many. Beside deliveries and other prunings, at any time."""
        return await self._database.prune(self._prune_batch)

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

    def _prune_batch(self, connection: Connection) -> int:
        return self._inbox.prune(connection, self._retention, PRUNE_BATCH)
