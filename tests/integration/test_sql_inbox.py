"""The inbox's table: its DDL, its upkeep beside traffic, and the engines it refuses."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import MetaData, StaticPool, create_engine, event, insert, inspect, select
from sqlalchemy.ext.asyncio import create_async_engine

from hookline_receiver import InvalidReceiver, SqlLedger, inbox_table
from tests.support_receiver import Reply, asking, until
from tests.support_sql import INBOX, POSTGRES, REQUEST, answered, order, shop_of

if TYPE_CHECKING:
    from tests.support_sql import Shop

PAGE = Path(__file__).parents[2] / "docs" / "exactly-once.md"
WEEK = 604_800.0


def fill(shop: Shop, count: int, age: timedelta = timedelta(days=8)) -> None:
    """Rows of deliveries that were handled so long ago."""
    moment = datetime.now(UTC) - age
    row = {"fingerprint": bytes(32), "status": 204, "recorded_at": moment}
    with shop.observer.begin() as connection:
        connection.execute(insert(INBOX), [{"key": secrets.token_bytes(32), **row} for _ in range(count)])


def described(shop: Shop) -> Any:
    found, name = inspect(shop.observer), "hookline_inbox"
    columns = [{**column, "type": str(column["type"])} for column in found.get_columns(name)]
    return columns, found.get_pk_constraint(name)["constrained_columns"], found.get_indexes(name)


@pytest.mark.parametrize("driver", ["sqlite", "postgresql+psycopg"])
def test_the_documented_ddl_makes_the_table_that_the_helper_makes(request: pytest.FixtureRequest, driver: str) -> None:
    scripts = re.findall(r"```sql\n-- (\w+)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    ddl = dict(scripts)["SQLite" if driver == "sqlite" else "PostgreSQL"]
    with shop_of(driver, request) as shop:
        helper = described(shop)
        shop.execute("DROP TABLE hookline_inbox", *filter(str.strip, ddl.split(";")))
        assert described(shop) == helper


def test_rows_past_the_retention_are_deleted_and_no_others(shop: Shop) -> None:
    fill(shop, 3)
    fill(shop, 2, timedelta(days=6))
    assert shop.run(shop.ledger(retention=WEEK).prune()) == 3
    assert len(shop.rows()) == 2


def test_many_rows_are_deleted_in_short_transactions_by_the_index(shop: Shop) -> None:  # cases: E13 E14
    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith(("WITH", "DELETE")):
            deleted.append(cursor.rowcount)

    deleted: list[int] = []
    engine: Any = shop.engine
    event.listen(getattr(engine, "sync_engine", engine), "after_cursor_execute", note)
    fill(shop, 2_500)
    assert shop.run(shop.ledger().prune()) == 2_500
    assert deleted == [1_000, 1_000, 500, 0]


@pytest.mark.parametrize("driver", ["sqlite", "postgresql+psycopg"])
def test_old_rows_are_found_by_the_index(request: pytest.FixtureRequest, driver: str) -> None:  # cases: E14
    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith(("WITH", "DELETE")):
            words = "EXPLAIN QUERY PLAN " if driver == "sqlite" else "EXPLAIN "
            cursor.execute(words + statement, parameters)
            plans.append(str(cursor.fetchall()))

    plans: list[str] = []
    with shop_of(driver, request) as shop:
        fill(shop, 5_000, timedelta(0))
        fill(shop, 10)
        shop.execute("ANALYZE")
        event.listen(shop.engine, "before_cursor_execute", explain)
        assert shop.run(shop.ledger().prune()) == 10
    assert all("hookline_inbox_recorded_at" in plan for plan in plans)


def test_pruning_goes_on_beside_deliveries_and_other_prunings(postgres_shop: Shop) -> None:  # cases: E13
    async def go() -> tuple[list[int], list[Reply]]:
        async with app.lifespan():
            deliveries = (answered(app, order(number)) for number in range(40))
            prunings, replies = await asyncio.gather(
                asyncio.gather(*(ledger.prune() for _ in range(3))), asyncio.gather(*deliveries)
            )
            return prunings, replies

    fill(postgres_shop, 5_000)
    ledger = postgres_shop.ledger(prune_interval=None)
    app = postgres_shop.receiver(ledger=ledger)
    prunings, replies = postgres_shop.run(go())
    assert sum(prunings) == 5_000
    assert {reply.status for reply in replies} == {204}
    assert len(postgres_shop.rows()) == 40


def test_pruning_waits_for_no_row_that_another_transaction_has(postgres_shop: Shop) -> None:
    fill(postgres_shop, 3)
    ledger = postgres_shop.ledger()
    with postgres_shop.observer.begin() as other:
        other.execute(select(INBOX).limit(1).with_for_update())
        assert postgres_shop.run(ledger.prune()) == 2
    assert len(postgres_shop.rows()) == 1


def test_an_open_receiver_prunes_by_itself(shop: Shop) -> None:
    async def go() -> None:
        async with app.lifespan():
            for _ in range(2):  # at the start, and again
                await until(asking(shop.rows), lambda rows: rows == [])
                await asyncio.to_thread(fill, shop, 2)
            await until(asking(shop.rows), lambda rows: rows == [])

    fill(shop, 2)
    app = shop.receiver(ledger=shop.ledger(prune_interval=0.05))
    shop.run(go())
    assert shop.rows() == []


def test_a_pruning_that_fails_is_told_and_tried_again(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        async with shop.ledger(prune_interval=0.05).opened():
            shop.execute("ALTER TABLE hookline_inbox RENAME TO away")
            await until(
                asking(lambda: caplog.messages), lambda told: any("could not be pruned" in line for line in told)
            )
            fill_away = "ALTER TABLE away RENAME TO hookline_inbox"
            shop.execute(fill_away)
            fill(shop, 1)
            await until(asking(shop.rows), lambda rows: rows == [])

    with caplog.at_level(logging.WARNING):
        shop.run(go())
    assert shop.rows() == []


@pytest.mark.parametrize("driver", POSTGRES)
def test_an_engine_that_commits_each_statement_is_refused(request: pytest.FixtureRequest, driver: str) -> None:
    async def go() -> None:
        async with shop.ledger().opened():
            pass

    options = {"isolation_level": "AUTOCOMMIT"}
    with shop_of(driver, request, **options) as shop, pytest.raises(InvalidReceiver, match="AUTOCOMMIT"):
        shop.run(go())


@pytest.mark.parametrize("options", [{"isolation_level": None}, {"isolation_level": "IMMEDIATE"}, {}], ids=str)
@pytest.mark.parametrize("driver", ["sqlite", "sqlite+aiosqlite"])
def test_however_sqlites_transactions_begin_a_failure_leaves_no_trace(
    request: pytest.FixtureRequest, driver: str, options: Any
) -> None:
    with shop_of(driver, request, connect_args=options) as shop:
        failed, handled = shop.deliver(shop.receiver([ValueError()]), REQUEST, REQUEST)
        assert (failed.status, handled.status) == (500, 204)
        assert (shop.effects(), shop.rows()) == (["o_1"], [204])


def test_sqlites_own_way_to_begin_is_left_as_it_is(request: pytest.FixtureRequest) -> None:
    with shop_of("sqlite", request, connect_args={"isolation_level": None}) as shop:
        event.listen(shop.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        failed, handled = shop.deliver(shop.receiver([ValueError()]), REQUEST, REQUEST)
        assert (failed.status, handled.status, shop.effects()) == (500, 204, ["o_1"])


def test_a_table_of_another_name_is_used(shop: Shop) -> None:
    table = inbox_table(MetaData(), "deliveries")
    table.metadata.create_all(shop.observer)
    first, again = shop.deliver(shop.receiver(ledger=shop.ledger(table=table)), REQUEST, REQUEST)
    assert (first.status, again.headers[b"x-axiom-replayed"], shop.rows()) == (204, b"true", [])


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        ("sqlite://", "needs a SQLAlchemy engine"),
        (create_engine("sqlite://"), "another one in each thread"),
    ],
    ids=["a text", "in memory"],
)
def test_what_is_no_engine_for_it_is_refused(engine: Any, says: str) -> None:
    with pytest.raises(InvalidReceiver, match=says):
        SqlLedger(engine)


@pytest.mark.parametrize(
    "options", [{"connections": 0}, {"retention": 0.5}, {"prune_interval": 0}, {"retention": 1e999}]
)
def test_an_impossible_option_is_refused(options: Any) -> None:
    with pytest.raises(InvalidReceiver):
        SqlLedger(create_engine("sqlite://", poolclass=StaticPool), **options)


def test_its_repr_shows_no_address() -> None:
    engine = create_async_engine("postgresql+asyncpg://user:pass-word@host/db")
    assert repr(SqlLedger(engine)) == "SqlLedger(postgresql+asyncpg, 'hookline_inbox')"
