"""SqlLedger when the database is slow, full of others, or away: 503, no trace, and the retry is handled."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import AsyncAdaptedQueuePool

from hookline_receiver import LedgerUnavailable
from tests.support import HANG
from tests.support_postgres import PostgresServer
from tests.support_receiver import Reply, asking, call, until
from tests.support_sql import DRIVERS, POSTGRES, REQUEST, Hold, order, replayed, shop_at, shop_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support_postgres import Database
    from tests.support_sql import Shop

PG = pytest.mark.parametrize("driver", POSTGRES)


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    """A server to be killed."""
    with PostgresServer.start() as running:
        yield running


def is_503(reply: Reply) -> bool:
    return (reply.status, reply.headers.get(b"retry-after")) == (503, b"1")


async def while_held(app: Any, hold: Hold, act: Any) -> Reply:
    """The answer to a delivery during whose handler's hold `act` is called."""
    async with app.lifespan():
        running = asyncio.create_task(call(app, *REQUEST))
        await hold.reached()
        await asyncio.to_thread(act)
        hold.go_on.set()
        return await running


def test_its_transaction_waits_for_locks_and_idles_for_a_bounded_time(postgres_shop: Shop) -> None:
    names = "lock_timeout", "idle_in_transaction_session_timeout"
    run = [f"INSERT INTO effects SELECT current_setting('{name}')" for name in names]
    postgres_shop.deliver(postgres_shop.receiver(run, handler_deadline=7.0), REQUEST)
    assert postgres_shop.effects() == ["o_1", "2s", "12s"]


def test_a_lock_that_is_not_given_up_in_time_rolls_back(postgres_shop: Shop) -> None:
    postgres_shop.execute("CREATE TABLE stock (n int)")
    hold = Hold()
    app = postgres_shop.receiver([hold, "SET LOCAL lock_timeout = '20ms'", "INSERT INTO stock VALUES (1)"])
    with postgres_shop.observer.begin() as other:
        reply = postgres_shop.run(while_held(app, hold, lambda: other.exec_driver_sql("LOCK stock")))
    (retry,) = postgres_shop.deliver(app, REQUEST)
    assert is_503(reply)
    assert (retry.status, replayed(retry), postgres_shop.effects()) == (204, False, ["o_1"])


@PG
@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_serialisation_failure_rolls_back(request: pytest.FixtureRequest, driver: str, isolation: str) -> None:
    with shop_of(driver, request, isolation_level=isolation) as shop:
        shop.execute("CREATE TABLE stock (n int)", "INSERT INTO stock VALUES (1)")
        hold = Hold()
        app = shop.receiver([hold, "UPDATE stock SET n = n + 1"])
        reply = shop.run(while_held(app, hold, lambda: shop.execute("UPDATE stock SET n = 5")))
        (retry,) = shop.deliver(app, REQUEST)
        assert is_503(reply)
        assert (retry.status, replayed(retry), shop.effects()) == (204, False, ["o_1"])


@PG
def test_a_serialisation_failure_of_the_commit_rolls_back(request: pytest.FixtureRequest, driver: str) -> None:
    skew = "INSERT INTO effects SELECT 'skew ' || count(*) FROM effects"
    with shop_of(driver, request, isolation_level="SERIALIZABLE") as shop:
        hold = Hold()
        app = shop.receiver([skew, hold])

        def other() -> None:
            with shop.observer.connect().execution_options(isolation_level="SERIALIZABLE") as connection:
                connection.exec_driver_sql(skew)
                connection.commit()

        assert is_503(shop.run(while_held(app, hold, other)))
        assert (shop.effects(), shop.rows()) == (["skew 0"], [])


@pytest.mark.parametrize("driver", DRIVERS)
def test_without_a_free_connection_a_delivery_is_refused_after_a_second(
    request: pytest.FixtureRequest, driver: str
) -> None:
    async def go() -> tuple[Reply, float, Reply]:
        async with app.lifespan():
            async with shop.connections(1):
                begun = time.monotonic()
                refused, waited = await call(app, *REQUEST), time.monotonic() - begun
            return refused, waited, await call(app, *REQUEST)

    pool = {"poolclass": AsyncAdaptedQueuePool} if "aiosqlite" in driver else {}  # not SQLAlchemy 2.0's own choice
    with shop_of(driver, request, pool_size=1, max_overflow=0, **pool) as shop:
        app = shop.receiver()
        refused, waited, retry = shop.run(go())
        assert is_503(refused)
        assert 0.9 < waited < 29  # the pool's own patience is 30 s
        assert (retry.status, shop.effects()) == (204, ["o_1"])


def test_fifteen_slow_deliveries_leave_the_pool_to_the_application(postgres_shop: Shop) -> None:
    async def go() -> list[int]:
        async with app.lifespan():
            running = [asyncio.create_task(call(app, *order(number))) for number in range(15)]
            await until(asking(lambda: sum(task.done() for task in running)), lambda refused: refused == 10)
            async with asyncio.timeout(HANG), postgres_shop.connections(10):  # the pool has fifteen
                hold.go_on.set()
                return sorted([(await each).status for each in running])

    hold = Hold()
    app = postgres_shop.receiver(*([hold] for _ in range(15)))
    assert postgres_shop.run(go()) == [204] * 5 + [503] * 10


@PG
def test_a_database_that_dies_amid_a_delivery_and_comes_back(own_postgres: PostgresServer, driver: str) -> None:
    async def go() -> list[Reply]:
        async with app.lifespan():
            running = asyncio.create_task(call(app, *REQUEST))
            await hold.reached()
            await asyncio.to_thread(own_postgres.kill)
            hold.go_on.set()
            cut, down = await running, await call(app, *order(2))
            await asyncio.to_thread(own_postgres.restart)
            return [cut, down, await until(lambda: call(app, *REQUEST), lambda reply: reply.status == 204)]

    hold = Hold()
    with own_postgres.database() as database, shop_at(driver, database.url("psycopg")) as shop:
        app = shop.receiver([hold])
        cut, down, retry = shop.run(go())
        assert is_503(cut)
        assert is_503(down)
        assert (replayed(retry), shop.effects()) == (False, ["o_1"])


def stop_backends(database: Database, number: signal.Signals) -> None:
    """A server that hangs: signal what serves this database."""
    pids = database.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
    for (pid,) in pids[:]:
        if pid not in {own for (own,) in database.execute("SELECT pg_backend_pid()")}:
            try:
                os.kill(pid, number)
            except ProcessLookupError:  # the question's own
                continue


@PG
@pytest.mark.parametrize("held", [True, False], ids=["before the commit", "before the first statement"])
def test_a_database_that_hangs_is_answered_503_in_time_and_has_one_effect(
    request: pytest.FixtureRequest, shop_database: Database, driver: str, *, held: bool
) -> None:
    async def go() -> tuple[Reply, float, Reply]:
        async with app.lifespan():
            await call(app, *order(2))  # a connection is in the pool
            running = asyncio.create_task(call(app, *REQUEST)) if held else None
            if held:
                await hold.reached()
            await asyncio.to_thread(stop_backends, shop_database, signal.SIGSTOP)
            begun = time.monotonic()
            hold.go_on.set()
            reply = await (running or call(app, *REQUEST))
            waited = time.monotonic() - begun
            await asyncio.to_thread(stop_backends, shop_database, signal.SIGCONT)
            return reply, waited, await until(lambda: call(app, *REQUEST), lambda reply: reply.status == 204)

    with shop_of(driver, request) as shop:
        hold = Hold()
        app = shop.receiver([], [hold] if held else [])
        reply, waited, _ = shop.run(go())
        assert is_503(reply)
        assert waited < 30  # for ever, if nobody ended it
        assert sorted(shop.effects()) == ["2", "o_1"]


def test_a_transaction_that_idles_too_long_is_ended_by_the_server_and_rolled_back(postgres_shop: Shop) -> None:
    run = ["SET LOCAL idle_in_transaction_session_timeout = '20ms'", "SELECT 1", lambda _: time.sleep(0.3), "SELECT 1"]
    first, retry = postgres_shop.deliver(postgres_shop.receiver(run), REQUEST, REQUEST)
    assert is_503(first)
    assert (retry.status, replayed(retry), postgres_shop.effects()) == (204, False, ["o_1"])


def test_a_ledger_without_its_table_does_not_open(shop: Shop) -> None:
    async def go() -> None:
        async with shop.ledger().opened():
            pass

    shop.execute("DROP TABLE hookline_inbox")
    with pytest.raises(LedgerUnavailable, match="was the table made"):
        shop.run(go())
