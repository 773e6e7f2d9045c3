"""What a user's own test of exactly-once says of handlers that keep it and of handlers that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Column, MetaData, String, Table, func, insert, select
from starlette.applications import Starlette
from starlette.routing import Route

from hookline_receiver import Delivery, DomainEvent, InvalidReceiver, MemoryQueue, Reject
from hookline_receiver.testing import assert_exactly_once, async_assert_exactly_once
from tests.support import run
from tests.support_django import django_shop
from tests.support_receiver import Order, handled_by

if TYPE_CHECKING:
    from hookline_receiver.testing.fixtures import HooklineInbox

pytest_plugins = ["hookline_receiver.testing"]

METADATA = MetaData()
BOOKINGS = Table("bookings", METADATA, Column("order_id", String))
PAID: DomainEvent[Order] = DomainEvent(type="order.paid", data=Order(id="o_1"))


@pytest.fixture
def inbox(hookline_inbox: HooklineInbox) -> HooklineInbox:
    hookline_inbox.create_all(METADATA)
    return hookline_inbox


def bookings(inbox: HooklineInbox) -> int:
    with inbox.engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(BOOKINGS)) or 0


def booked(event: DomainEvent[Order], delivery: Delivery) -> None:
    delivery.session.execute(insert(BOOKINGS).values(order_id=event.data.id))


async def booked_async(event: DomainEvent[Order], delivery: Delivery) -> None:
    await delivery.session.execute(insert(BOOKINGS).values(order_id=event.data.id))


def test_a_handler_that_writes_in_the_transaction_passes(inbox: HooklineInbox) -> None:
    receiver = handled_by(booked, ledger=inbox.ledger(threaded=True))
    assert_exactly_once(receiver, PAID, effects=lambda: bookings(inbox))
    assert (bookings(inbox), inbox.statuses()) == (1, [204])


def test_so_does_an_asynchronous_one_in_an_application(inbox: HooklineInbox) -> None:
    receiver = handled_by(booked_async, ledger=inbox.ledger())
    app = Starlette(routes=[Route("/hooks/shop", receiver)], lifespan=receiver.lifespan)
    body = {"type": "order.paid", "data": {"id": "o_1"}}
    proof = async_assert_exactly_once(app, body, path="/hooks/shop", receiver=receiver, effects=lambda: bookings(inbox))
    assert (run(proof), inbox.statuses()) == (None, [204])


def test_so_does_one_in_django(request: pytest.FixtureRequest) -> None:
    with django_shop("django sqlite", request) as shop:
        assert_exactly_once(shop.receiver(), PAID, effects=lambda: len(shop.effects()))
        assert shop.effects() == ["o_1"]


def test_a_handler_that_commits_elsewhere_does_not(inbox: HooklineInbox) -> None:
    count = [0]

    def elsewhere(event: DomainEvent[Order], delivery: Delivery) -> None:
        count[0] += 1  # as a session of its own would, or a call to another service

    receiver = handled_by(elsewhere, ledger=inbox.ledger(threaded=True))
    with pytest.raises(
        AssertionError, match="was refused at its commit, and its effect stayed: 1 effects instead of 0"
    ):
        assert_exactly_once(receiver, PAID, effects=lambda: count[0])


def test_a_ledger_of_claims_passes_only_with_effects_that_are_safe_to_repeat() -> None:
    done: list[str] = []
    keys: set[str] = set()

    async def handler(event: DomainEvent[Order]) -> None:
        done.append(event.data.id)
        keys.add(event.data.id)

    receiver = handled_by(handler)
    with pytest.raises(AssertionError, match="its effect stayed"):
        assert_exactly_once(receiver, PAID, effects=lambda: len(done))
    assert_exactly_once(receiver, PAID)
    assert keys == {"o_1"}


@pytest.mark.parametrize("answer", [Reject(), ValueError("x")], ids=["rejected", "raised"])
def test_an_event_that_is_not_handled_proves_nothing(inbox: HooklineInbox, answer: Exception) -> None:
    def handler(event: DomainEvent[Order]) -> None:
        raise answer

    with pytest.raises(AssertionError, match=r"did not handle the event: it was answered (422|500)"):
        assert_exactly_once(handled_by(handler, ledger=inbox.ledger(threaded=True)), PAID)


def test_the_receiver_has_its_own_ledger_again(inbox: HooklineInbox) -> None:
    ledger = inbox.ledger(threaded=True)
    receiver = handled_by(booked, ledger=ledger)
    assert_exactly_once(receiver, PAID)
    assert receiver.ledger is ledger


def test_an_application_without_its_receiver_and_accept_mode_are_refused() -> None:
    async def app(*_: Any) -> None: ...

    with pytest.raises(InvalidReceiver, match="needs its receiver too"):
        assert_exactly_once(app, PAID)
    queued = handled_by(lambda event: None, ledger=MemoryQueue(allow_volatile=True), mode="accept")
    with pytest.raises(InvalidReceiver, match="in accept mode"):
        assert_exactly_once(queued, PAID)
