"""Databases in which a handler's effects and the inbox stand side by side, on every driver."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Column, Engine, MetaData, String, Table, create_engine, insert, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from hookline_receiver import Delivery, SqlLedger, inbox_table
from tests.support import run
from tests.support_receiver import call, handled_by

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator
    from pathlib import Path

    import pytest

    from hookline_receiver import Receiver
    from tests.support_receiver import Reply

R = TypeVar("R")

# What handlers write goes to `effects`. It takes the same twice: whoever repeats an effect is seen.
METADATA = MetaData()
INBOX = inbox_table(METADATA)
EFFECTS = Table("effects", METADATA, Column("id", String))

SQLITE = ("sqlite+aiosqlite", "sqlite")
POSTGRES = ("postgresql+asyncpg", "async postgresql+psycopg", "postgresql+psycopg")
DRIVERS = (*SQLITE, *POSTGRES)


@dataclass
class Hold:
    """Where a handler stops: it says that it is there, and goes on when it may."""

    there: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    async def reached(self) -> None:
        """Wait until the handler is there."""
        assert await asyncio.to_thread(self.there.wait, 10)

    def wait(self) -> None:
        """Stop in a thread."""
        self.there.set()
        self.go_on.wait(10)

    async def pause(self) -> None:
        """Stop on the loop."""
        self.there.set()
        while not self.go_on.is_set():  # noqa: ASYNC110 - set by whoever tests, in any thread
            await asyncio.sleep(0.005)


@dataclass
class Shop:
    """One database on one driver; `address` is for whatever else looks at it."""

    driver: str
    address: str
    engine: AsyncEngine | Engine
    observer: Engine

    def ledger(self, **options: Any) -> SqlLedger:
        """A ledger on the shop's engine."""
        return SqlLedger(self.engine, **options)

    def receiver(self, *runs: list[Any], ledger: SqlLedger | None = None, **options: Any) -> Receiver:
        """A receiver of orders. Its handler writes one effect and then takes the next of the `runs`.

        Of a run's steps a text is executed as SQL, an exception raised, a Hold waited at and anything else returned.
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
    """A shop with empty tables in a database of its own."""
    if "sqlite" in driver:
        folder: Path = request.getfixturevalue("tmp_path")
        address, plain = f"///{folder}/shop.db", "sqlite"
    else:
        address = request.getfixturevalue("postgres").url("psycopg").partition(":")[2]
        plain = "postgresql+psycopg"
    observer = create_engine(f"{plain}:{address}")
    METADATA.create_all(observer)
    engine = engine_of(driver, address, **options)
    try:
        yield Shop(driver, address, engine, observer)
    finally:
        observer.dispose()
