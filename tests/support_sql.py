"""Databases in which a handler's effects and the inbox stand side by side, on every driver."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from psycopg.pq import TransactionStatus
from sqlalchemy import Column, Engine, MetaData, String, Table, create_engine, event, insert, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from hookline_receiver import Delivery, SqlLedger, inbox_table
from tests.support import HANG, eventually, run
from tests.support_receiver import call, handled_by, signed, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Generator, Sequence
    from pathlib import Path

    import pytest

    from hookline_receiver import Receiver
    from tests.support_postgres import Database
    from tests.support_receiver import Reply

R = TypeVar("R")

# What handlers write goes to `effects`. It takes the same twice: whoever repeats an effect is seen.
METADATA = MetaData()
INBOX = inbox_table(METADATA)
EFFECTS = Table("effects", METADATA, Column("id", String))

SQLITE = ("sqlite+aiosqlite", "sqlite")
POSTGRES = ("postgresql+asyncpg", "async postgresql+psycopg", "postgresql+psycopg")
DRIVERS = (*SQLITE, *POSTGRES)


def order(number: object) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """A signed order of that id, in a delivery of its own."""
    return signed(json.dumps({"type": "order.paid", "data": {"id": str(number)}}).encode())


REQUEST = signed(delivery_id="dlv_1", event_id="evt_1")


def replayed(reply: Reply) -> bool:
    """Whether the ledger answered."""
    return reply.headers.get(b"x-axiom-replayed") == b"true"


async def answered(app: Receiver, request: Any) -> Reply:
    """The answer to a delivery, as often as it is told to come again."""
    return await until(lambda: call(app, *request), lambda reply: reply.status != 503)


@dataclass
class Hold:
    """Where a handler stops: it says that it is there, and goes on when it may."""

    there: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    async def reached(self) -> None:
        """Wait until the handler is there."""
        assert await asyncio.to_thread(self.there.wait, HANG)

    def wait(self) -> None:
        """Stop in a thread."""
        self.there.set()
        self.go_on.wait(HANG)

    async def pause(self) -> None:
        """Stop on the loop."""
        self.there.set()
        while not self.go_on.is_set():  # noqa: ASYNC110 - set by whoever tests, in any thread
            await asyncio.sleep(0.005)


@dataclass
class Shop:
    """One database at `address`, an application's engine for it, and an observer's."""

    address: str
    engine: AsyncEngine | Engine
    observer: Engine

    def ledger(self, **options: Any) -> SqlLedger:
        """A ledger on the shop's engine."""
        return SqlLedger(self.engine, **options)

    def receiver(self, *runs: list[Any], ledger: SqlLedger | None = None, **options: Any) -> Receiver:
        """A receiver of orders. Its handler writes one effect and then takes the next of the `runs`.

        Of a run's steps a text is executed as SQL, a function called with the plain Session, an exception raised, a
        Hold waited at, and a response returned.
        """
        scripts = list(runs)
        handler = self._sync_handler(scripts) if isinstance(self.engine, Engine) else self._async_handler(scripts)
        return handled_by(handler, ledger=ledger or self.ledger(), **options)

    def run(self, coro: Coroutine[Any, Any, R]) -> R:
        """What `coro` returns, from a loop of its own; nothing of the engine is left in it."""

        async def go() -> R:
            try:
                return await coro
            finally:
                await self._disposed()

        return run(go())

    def deliver(self, app: Receiver, *requests: Any) -> list[Reply]:
        """The answers to those requests, one after the other, while the receiver is open."""

        async def go() -> list[Reply]:
            async with app.lifespan():
                return [await call(app, *request) for request in requests]

        return self.run(go())

    def at_once(self, app: Receiver, requests: Sequence[Any]) -> list[Reply]:
        """The answers to those requests, all sent together, and sent again when they were told to come again."""

        async def go() -> list[Reply]:
            async with app.lifespan():
                return await asyncio.gather(*(answered(app, request) for request in requests))

        return self.run(go())

    def effects(self) -> list[str]:
        """What was committed."""
        with self.observer.connect() as connection:
            return list(connection.scalars(select(EFFECTS.c.id)))

    def rows(self) -> list[int]:
        """The statuses in the inbox."""
        with self.observer.connect() as connection:
            return list(connection.scalars(select(INBOX.c.status)))

    def execute(self, *statements: str) -> None:
        """Execute and commit."""
        with self.observer.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))

    @contextlib.asynccontextmanager
    async def connections(self, count: int) -> AsyncGenerator[None]:
        """Hold that many connections of the engine's pool, as the rest of an application would."""
        if isinstance(self.engine, AsyncEngine):
            async with contextlib.AsyncExitStack() as stack:
                for _ in range(count):
                    await stack.enter_async_context(self.engine.connect())
                yield
        else:
            with contextlib.ExitStack() as held:
                for _ in range(count):
                    held.enter_context(self.engine.connect())
                yield

    async def _disposed(self) -> None:
        if isinstance(self.engine, Engine):
            self.engine.dispose()
        else:
            await self.engine.dispose()

    def _sync_handler(self, scripts: list[list[Any]]) -> Any:
        def paid(event: Any, delivery: Delivery) -> Any:
            delivery.session.execute(insert(EFFECTS).values(id=event.data.id))
            for step in scripts.pop(0) if scripts else []:
                if isinstance(step, str):
                    delivery.session.execute(text(step))
                elif inspect.isfunction(step):
                    step(delivery.session)
                elif isinstance(step, Hold):
                    step.wait()
                elif isinstance(step, BaseException):
                    raise step
                else:
                    return step
            return None

        return paid

    def _async_handler(self, scripts: list[list[Any]]) -> Any:
        async def paid(event: Any, delivery: Delivery) -> Any:
            await delivery.session.execute(insert(EFFECTS).values(id=event.data.id))
            for step in scripts.pop(0) if scripts else []:
                if isinstance(step, str):
                    await delivery.session.execute(text(step))
                elif inspect.isfunction(step):
                    await delivery.session.run_sync(step)
                elif isinstance(step, Hold):
                    await step.pause()
                elif isinstance(step, BaseException):
                    raise step
                else:
                    return step
            return None

        return paid


def engine_of(driver: str, address: str, **options: Any) -> AsyncEngine | Engine:
    """An engine as an application has one."""
    is_async = driver.startswith("async ") or driver.endswith(("aiosqlite", "asyncpg"))
    url = f"{driver.removeprefix('async ')}:{address}"
    return create_async_engine(url, **options) if is_async else create_engine(url, **options)


@contextlib.contextmanager
def shop_of(driver: str, request: pytest.FixtureRequest, **options: Any) -> Generator[Shop]:
    """A shop with empty tables and nobody else in its database; options are those of its engine."""
    if "sqlite" in driver:
        folder: Path = request.getfixturevalue("tmp_path")
        url = f"sqlite:///{folder}/shop.db"
    else:
        database: Database = request.getfixturevalue("shop_database")
        database.empty()
        url = database.url("psycopg")
    with shop_at(driver, url, **options) as shop:
        yield shop


@contextlib.contextmanager
def shop_at(driver: str, url: str, **options: Any) -> Generator[Shop]:
    """A shop in the empty database at `url`."""
    observer, address = create_engine(url, pool_pre_ping=True), url.partition(":")[2]
    METADATA.create_all(observer)
    engine, made = engine_of(driver, address, **options), list[Any]()
    if isinstance(engine, Engine) and "psycopg" in driver:  # an AsyncEngine is disposed of in its loop, by `run`
        event.listen(engine, "connect", lambda connection, _: made.append(connection))
    try:
        yield Shop(address, engine, observer)
    finally:
        observer.dispose()
        if isinstance(engine, Engine):
            engine.dispose()
        # What a thread gave back after its pool was disposed of is in no pool any more, and psycopg warns when it goes.
        eventually(lambda: not any(_is_used(connection) for connection in made))
        for connection in made:
            connection.close()


def _is_used(connection: Any) -> bool:
    return connection.info.transaction_status not in {TransactionStatus.IDLE, TransactionStatus.UNKNOWN}
