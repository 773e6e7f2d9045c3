"""What the receiver's stores in SQL share: an engine of yours, a part of its pool, and the pruning of old rows."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.pool import SingletonThreadPool

from hookline_receiver.errors import InvalidReceiver, LedgerUnavailable
from hookline_receiver.ledger.driven import Driven, Share
from hookline_receiver.ledger.inbox import DIALECTS
from hookline_receiver.ledger.lanes import PATIENCE, Lanes
from hookline_receiver.ledger.pruning import prune_all, pruning
from hookline_receiver.ledger.sql_unit import OnLoop, ReceiverSession, SqlUnit
from hookline_receiver.limits import check_whole

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from sqlalchemy import Connection, Table

    from hookline_receiver.ledger.protocol import Entry
    from hookline_receiver.ledger.sql_unit import Rows

R = TypeVar("R")


class Database:
    """One table of a store on an engine, of whose pool `connections` are used at a time for handlers.

    `store`: the class that uses it, for errors. SQLite has one writer, so one connection. Raises InvalidReceiver.
    """

    def __init__(self, engine: AsyncEngine | Engine, table: Table, connections: int, store: str) -> None:
        _check_engine(engine, store)
        check_whole("connections", connections)
        self._engine, self._table, self._store = engine, table, store
        self.connections = 1 if engine.dialect.name == "sqlite" else connections
        self._share = Share(self.connections)
        self._lanes = Lanes()

    def __repr__(self) -> str:
        return f"{self._store}({self._engine.dialect.name}+{self._engine.dialect.driver}, {self._table.fullname!r})"

    @property
    def threaded(self) -> bool:
        """Whether handlers have to be plain functions."""
        return isinstance(self._engine, Engine)

    @contextlib.asynccontextmanager
    async def opened(
        self, check: Callable[[Connection], None], prune: Callable[[Connection], int], interval: float | None
    ) -> AsyncGenerator[None]:
        """Check the table, and prune it every `interval` seconds. Raises LedgerUnavailable, InvalidReceiver."""
        try:
            await self._run(check)
        except (SQLAlchemyError, OSError) as error:
            message = (
                f"the table {self._table.fullname!r} of {self._store} cannot be read ({type(error).__name__}): is the "
                "database up, and was the table made, by create_all or by a migration?"
            )
            raise LedgerUnavailable(message) from error
        with self._lanes.opened():
            async with pruning(partial(self._run, prune), interval, SQLAlchemyError, OSError):
                yield

    async def run(self, statements: Callable[[Connection], R]) -> R:
        """What they return, in a short transaction of their own. Raises LedgerUnavailable."""
        try:
            return await self._run(statements)
        except (SQLAlchemyError, OSError) as error:
            message = f"the database of {self._store} cannot be asked ({type(error).__name__})"
            raise LedgerUnavailable(message) from error

    async def prune(self, batch: Callable[[Connection], int]) -> int:
        """Prune batch by batch until nothing is left, and say how many rows. Raises SQLAlchemyError, OSError."""
        return await prune_all(partial(self._run, batch))

    def transaction(self, rows: Rows, entry: Entry, deadline: float) -> Driven:
        """A new transaction for the delivery, whose handler is stopped after `deadline` seconds."""
        if isinstance(self._engine, Engine):
            session = ReceiverSession(self._engine)
            return Driven(SqlUnit(rows, session, entry, deadline), self._lanes.take, self._share)
        given = AsyncSession(self._engine, sync_session_class=ReceiverSession)
        return Driven(SqlUnit(rows, given, entry, deadline), partial(OnLoop, given), self._share)

    async def _run(self, statements: Callable[[Connection], R]) -> R:
        if isinstance(self._engine, Engine):
            return await self._lanes.run(partial(_in_transaction, self._engine, statements))
        async with asyncio.timeout(PATIENCE), self._engine.begin() as connection:  # a TimeoutError is an OSError
            return await connection.run_sync(statements)


def _in_transaction(engine: Engine, statements: Callable[[Connection], R]) -> R:
    with engine.begin() as connection:
        return statements(connection)


def _check_engine(engine: object, store: str) -> None:
    if not isinstance(engine, AsyncEngine | Engine):
        message = (
            f"a {store} needs a SQLAlchemy engine: create_async_engine(url), or create_engine(url) for def handlers"
        )
    elif engine.dialect.name not in DIALECTS:
        message = f"a {store} works with {' and '.join(DIALECTS)}, not with {engine.dialect.name}"
    elif isinstance(engine.pool, SingletonThreadPool):
        message = (
            "this SQLite database is another one in each thread: use a file, or create_engine(…, poolclass=StaticPool)"
        )
    else:
        return
    raise InvalidReceiver(message)
