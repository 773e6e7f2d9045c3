"""What every transactional ledger promises of its transactions, on each driver."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import insert

from hookline_receiver import InvalidReceiver, LedgerUnavailable, SqlLedger
from hookline_receiver.ledger.protocol import Busy, Conflict, Done, Entry
from tests.support_sql import DRIVERS, EFFECTS, shop_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hookline_receiver.ledger.protocol import Transaction
    from tests.support_sql import Shop

DEADLINE = 8.0


@pytest.fixture(params=DRIVERS)
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    options = {"connect_args": {"timeout": 0.05}} if "sqlite" in request.param else {}
    with shop_of(request.param, request, **options) as opened:
        yield opened


def entry(body: bytes = b"{}") -> Entry:
    return Entry(secrets.token_bytes(32), body.ljust(32, b"\0"))


async def begun(ledger: SqlLedger, delivery: Entry) -> tuple[Transaction, Any]:
    """A transaction and how it began."""
    transaction = ledger.transaction(delivery, DEADLINE)
    await transaction.connect()
    return transaction, await transaction.begin()


async def opened(ledger: SqlLedger, delivery: Entry) -> Transaction:
    """A transaction with an effect in it."""
    transaction, claim = await begun(ledger, delivery)
    assert claim is None
    session: Any = transaction.session
    written = session.execute(insert(EFFECTS).values(id="effect"))
    if not ledger.threaded:
        await written
    return transaction


async def closed(transaction: Transaction) -> None:
    """End it as no handler should."""
    session: Any = transaction.session
    closing = session.close()
    if closing is not None:
        await closing


@pytest.mark.parametrize("status", [204, 201, 422])
def test_row_and_effect_are_there_when_it_is_committed_and_not_before(shop: Shop, status: int) -> None:
    async def go() -> None:
        transaction = await opened(ledger, delivery)
        assert await ledger.find(delivery) is None
        await transaction.commit(status)
        assert (await begun(ledger, delivery))[1] == Done(status) == await ledger.find(delivery)

    ledger, delivery = shop.ledger(), entry()
    shop.run(go())
    assert (shop.effects(), shop.rows()) == (["effect"], [status])


def test_a_rollback_leaves_no_trace_and_the_delivery_to_the_next(shop: Shop) -> None:
    async def go() -> None:
        await (await opened(ledger, delivery)).rollback()
        assert await ledger.find(delivery) is None
        await (await opened(ledger, delivery)).commit(204)

    ledger, delivery = shop.ledger(), entry()
    shop.run(go())
    assert (shop.effects(), shop.rows()) == (["effect"], [204])


def test_another_body_is_a_conflict(shop: Shop) -> None:
    async def go() -> None:
        await (await opened(ledger, delivery)).commit(204)
        assert (await begun(ledger, other))[1] == Conflict() == await ledger.find(other)

    ledger, delivery = shop.ledger(), entry(b"one")
    other = Entry(delivery.key, entry(b"two").fingerprint)
    shop.run(go())


def test_another_ledger_does_not_begin_what_this_one_has(shop: Shop) -> None:
    async def go() -> None:
        transaction = await opened(shop.ledger(), delivery)
        try:
            _, claim = await begun(shop.ledger(), delivery)
        except LedgerUnavailable:  # SQLite's answer: it has one writer
            claim = Busy(1.0)
        assert claim == Busy(1.0)
        await transaction.commit(204)

    delivery = entry()
    shop.run(go())
    assert shop.effects() == ["effect"]


def test_whatever_ends_a_transaction_gives_its_connection_back(shop: Shop) -> None:
    async def go() -> None:
        await (await opened(ledger, known)).commit(204)
        for _ in range(3):
            await (await opened(ledger, entry())).rollback()
            await begun(ledger, known)
            transaction = await opened(ledger, entry())
            await closed(transaction)
            with pytest.raises(InvalidReceiver):
                await transaction.commit(204)
        async with shop.connections(1):
            pass

    ledger, known = shop.ledger(connections=1), entry()
    shop.run(go())


def test_deliveries_of_different_keys_run_side_by_side(postgres_shop: Shop) -> None:
    async def go() -> None:
        transactions = [await opened(ledger, entry()) for _ in range(5)]
        for transaction in transactions:
            await transaction.commit(204)

    ledger = postgres_shop.ledger()
    postgres_shop.run(go())
    assert len(postgres_shop.rows()) == 5
