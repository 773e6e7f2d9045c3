"""Revisions in a handler's transaction, on both databases, sync and async."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine, MetaData
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from hookline_receiver import DomainEvent, Reject, SqlRevisions, revision_table
from hookline_receiver.revisions import Duplicate, Gap, Next, Stale
from tests.support import HANG
from tests.support_receiver import Order
from tests.support_sql import SQLITE, shop_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support_sql import Shop

METADATA = MetaData()
TABLE = revision_table(METADATA)
ORDERS = SqlRevisions("order")


@pytest.fixture(params=[*SQLITE, "postgresql+asyncpg", "postgresql+psycopg"])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    with shop_of(request.param, request) as opened:
        METADATA.create_all(opened.observer)
        yield opened


def event(revision: int | None, aggregate_id: str | None = "order-1") -> DomainEvent[Order]:
    data = Order(id="o_1")
    return DomainEvent(type="order.paid", data=data, aggregate_id=aggregate_id, aggregate_revision=revision)


async def asked(
    shop: Shop, name: str, *arguments: Any, revisions: SqlRevisions = ORDERS, roll_back: bool = False
) -> Any:
    """What the method answers in a transaction of its own."""
    ask = getattr(revisions, name)
    if isinstance(shop.engine, Engine):
        return await asyncio.to_thread(_asked_in_thread, shop.engine, ask, arguments, roll_back=roll_back)
    async with AsyncSession(shop.engine) as session:
        answer = await ask(session, *arguments)
        await (session.rollback() if roll_back else session.commit())
        return answer


def _asked_in_thread(engine: Engine, ask: Any, arguments: Any, *, roll_back: bool) -> Any:
    with Session(engine) as session:
        answer = ask(session, *arguments)
        assert not inspect.isawaitable(answer)
        session.rollback() if roll_back else session.commit()
        return answer


def checked(shop: Shop, *revisions: int) -> list[Any]:
    """How events of those revisions stand, one after the other."""

    async def go() -> list[Any]:
        return [await asked(shop, "check", event(revision)) for revision in revisions]

    return shop.run(go())


def test_events_in_order_are_next_and_repeated_ones_are_not(shop: Shop) -> None:
    assert checked(shop, 1, 2, 2, 3, 1) == [Next(), Next(), Duplicate(), Next(), Stale(3)]


def test_a_gap_says_what_is_missing_and_records_nothing(shop: Shop) -> None:
    assert checked(shop, 1, 4, 4, 2, 3) == [Next(), Gap(2), Gap(2), Next(), Next()]


def test_the_first_revision_may_be_another_than_one(shop: Shop) -> None:
    async def go() -> list[Any]:
        from_zero = SqlRevisions("invoice", first=0)
        return [await asked(shop, "check", event(revision), revisions=from_zero) for revision in (1, 0, 1)]

    assert shop.run(go()) == [Gap(0), Next(), Next()]


def test_what_is_rolled_back_was_not_applied(shop: Shop) -> None:
    async def go() -> list[Any]:
        return [await asked(shop, "check", event(1), roll_back=roll_back) for roll_back in (True, False)]

    assert shop.run(go()) == [Next(), Next()]


def test_an_aggregate_that_was_fetched_whole_goes_on_from_there_and_never_back(shop: Shop) -> None:
    async def go() -> list[Any]:
        await asked(shop, "set", "order-1", 7)
        await asked(shop, "set", "order-1", 5)
        return [await asked(shop, "check", event(revision)) for revision in (6, 7, 8)]

    assert shop.run(go()) == [Stale(7), Duplicate(), Next()]


def test_aggregates_of_other_kinds_and_ids_are_counted_apart(shop: Shop) -> None:
    async def go() -> list[Any]:
        kinds = (ORDERS, SqlRevisions("customer"))
        events = (event(1), event(1, "order-2"))
        return [await asked(shop, "check", one, revisions=kind) for kind in kinds for one in events]

    assert shop.run(go()) == [Next()] * 4


def test_of_events_at_once_with_one_revision_one_is_next(shop: Shop) -> None:
    async def go() -> list[Any]:
        return await asyncio.gather(*(asked(shop, "check", event(1)) for _ in range(8)))

    standings = shop.run(go())
    assert (standings.count(Next()), standings.count(Duplicate())) == (1, 7)


@pytest.mark.parametrize(("held", "standing", "waits", "then"), [(2, Next(), 2, Duplicate()), (5, Gap(2), 2, Next())])
def test_events_of_one_aggregate_wait_for_each_others_transactions(
    request: pytest.FixtureRequest, *, held: int, standing: object, waits: int, then: object
) -> None:
    told: list[Any] = []
    with shop_of("postgresql+psycopg", request) as shop, Session(shop.observer) as session:
        METADATA.create_all(shop.observer)
        check = (shop.observer, ORDERS.check)
        _asked_in_thread(*check, (event(1),), roll_back=False)
        assert ORDERS.check(session, event(held)) == standing
        waiting = threading.Thread(
            target=lambda: told.append(_asked_in_thread(*check, (event(waits),), roll_back=False))
        )
        waiting.start()
        waiting.join(0.2)
        assert told == []
        session.commit()
        waiting.join(HANG)
    assert told == [then]


def test_every_id_and_revision_that_its_table_takes_can_be_put_in_order(shop: Shop) -> None:
    async def go() -> list[Any]:
        events = [event(1, "a\tb\xa0c\u200d"), event(2**63 - 1, "ж" * 256), event(-(2**63))]
        return [await asked(shop, "check", one) for one in events]

    assert shop.run(go()) == [Next(), Gap(1), Stale(0)]


@pytest.mark.parametrize(
    "bad",
    [
        event(None),
        event(1, None),
        event(1, ""),
        event(1, "a\0b"),
        event(1, "\ud800"),
        event(2**63),
        event(-(2**63) - 1),
        event(1, "x" * 257),
    ],
)
def test_an_event_that_cannot_be_put_in_order_is_rejected(bad: DomainEvent[Order]) -> None:
    with pytest.raises(Reject):
        ORDERS.check(None, bad)  # type: ignore[call-overload]
