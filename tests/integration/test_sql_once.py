"""`inbox.once` in sessions that the application opens and commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine, insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from hookline_receiver import DeliveryConflict, RetryLater, verify
from tests.support_receiver import KEY, NOW_MS, signed
from tests.support_sql import EFFECTS, REQUEST

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookline_receiver import Delivery
    from tests.support_sql import Shop


def delivery(request: Any = REQUEST) -> Delivery:
    headers, body = request
    return verify(headers, body, keys=KEY, now_ms=NOW_MS)


async def book(
    shop: Shop, given: Delivery, act: Callable[[Session], object] = lambda _: None, endpoint: str = ""
) -> bool:
    """Write one effect the first time; whether it was. `act` gets the plain session before the end."""
    inbox, effect = shop.ledger(), insert(EFFECTS).values(id="effect")
    if isinstance(shop.engine, Engine):
        with Session(shop.engine) as session, inbox.once(session, given, endpoint=endpoint) as first:
            if first:
                session.execute(effect)
            act(session)
            return first
    async with AsyncSession(shop.engine) as session_async, inbox.once(session_async, given, endpoint=endpoint) as first:
        if first:
            await session_async.execute(effect)
        await session_async.run_sync(act)
        return first


def failing(session: Session) -> None:
    raise ZeroDivisionError


def committing(session: Session) -> None:
    session.commit()


def test_the_first_time_is_told_from_every_other(shop: Shop) -> None:
    async def go() -> list[bool]:
        return [await book(shop, delivery()) for _ in range(3)]

    assert shop.run(go()) == [True, False, False]
    assert (shop.effects(), shop.rows()) == (["effect"], [204])


def test_a_block_that_raises_is_rolled_back_and_runs_again(shop: Shop) -> None:  # cases: E18
    async def go() -> bool:
        with pytest.raises(ZeroDivisionError):
            await book(shop, delivery(), failing)
        assert (shop.effects(), shop.rows()) == ([], [])
        return await book(shop, delivery())

    assert shop.run(go())
    assert shop.effects() == ["effect"]


def test_code_that_commits_by_itself_commits_the_row_too(shop: Shop) -> None:
    async def go() -> list[bool]:
        return [await book(shop, delivery(), committing), await book(shop, delivery(), committing)]

    assert shop.run(go()) == [True, False]
    assert shop.effects() == ["effect"]


def test_another_body_is_refused_by_name(shop: Shop) -> None:
    async def go() -> None:
        await book(shop, delivery())
        with pytest.raises(DeliveryConflict):
            await book(shop, delivery(signed(b"{}", delivery_id="dlv_1")))

    shop.run(go())
    assert shop.effects() == ["effect"]


def test_deliveries_of_two_endpoints_are_different_deliveries(shop: Shop) -> None:
    async def go() -> list[bool]:
        return [await book(shop, delivery(), endpoint=endpoint) for endpoint in ("billing", "depot", "billing")]

    assert shop.run(go()) == [True, True, False]


def test_a_copy_beside_it_is_told_to_come_again(postgres_shop: Shop) -> None:
    def copy(_: Session) -> None:
        with (
            Session(postgres_shop.observer) as other,
            pytest.raises(RetryLater),
            postgres_shop.ledger().once(other, delivery()),
        ):
            pass

    assert postgres_shop.run(book(postgres_shop, delivery(), copy))
    assert postgres_shop.effects() == ["effect"]
