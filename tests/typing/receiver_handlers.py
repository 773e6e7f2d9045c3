"""What the type checkers must accept and refuse around handlers. Never run: test_typing_contract.py reads it.

A line that must be reported ends in a comment `E:` that says why; every other line must pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session
from starlette.responses import JSONResponse, Response

from hookline_receiver import (
    Delivery,
    DomainEvent,
    DomainEventRef,
    EventType,
    MemoryLedger,
    Receiver,
    RedisLedger,
    SigningKey,
    SqlLedger,
    verify,
)
from hookline_receiver.testing import sign_request

if TYPE_CHECKING:
    from sqlalchemy import Engine


class OrderPaid(BaseModel):
    order_id: str


class Refund(BaseModel):
    refund_id: str


key = SigningKey.generate()
order_paid = EventType("order.paid", OrderPaid)
receiver = Receiver("shop", keys=key, ledger=MemoryLedger(allow_volatile=True))
event = DomainEvent(type="order.paid", data=OrderPaid(order_id="1"))
delivery = verify([], b"", keys=[key])


async def fetch() -> list[SigningKey]:
    return [key]


# Keys and ledgers in all their forms.
Receiver("shop", keys=[key, key], ledger=RedisLedger("redis://localhost", namespace="shop"))
Receiver("shop", keys=fetch, ledger=RedisLedger.from_env())
Receiver("shop", keys="text", ledger=RedisLedger.from_env())  # E: text is no key
Receiver("shop", keys=key)  # E: no ledger
Receiver("shop", keys=key, ledger=None)  # E: no ledger
Receiver("shop", keys=key, ledger=RedisLedger.from_env(), stale_status=200)  # E: not a refusal


# Handlers of one or two parameters, sync and async, by event or by name and model.
@receiver.on(order_paid)
async def one(event: DomainEvent[OrderPaid]) -> None:
    assert_type(event.data, OrderPaid)


@receiver.on(order_paid)
async def two(event: DomainEvent[OrderPaid], delivery: Delivery) -> Response:
    assert_type(delivery.fence, int | None)
    return Response()


@receiver.on("order.paid", OrderPaid)
def three(event: DomainEvent[OrderPaid]) -> None:
    assert_type(event.data.order_id, str)


@receiver.on("order.paid", OrderPaid)
def four(event: DomainEvent[OrderPaid], delivery: Delivery) -> JSONResponse | None:
    return None


@receiver.on_ref(order_paid)
async def five(event: DomainEventRef) -> None:
    assert_type(event.data_ref, str)


# A session has the type that the handler says; without a word it is anything.
@receiver.on(order_paid)
async def booked(event: DomainEvent[OrderPaid], delivery: Delivery[AsyncSession]) -> None:
    assert_type(delivery.session, AsyncSession)
    assert_type(await delivery.session.get(object, 1), object | None)
    delivery.session.commit_all()  # E: an AsyncSession has no such method


@receiver.on(order_paid)
def booked_in_a_thread(event: DomainEvent[OrderPaid], delivery: Delivery[Session]) -> None:
    assert_type(delivery.session, Session)


# `once` is entered as its session is.
async def once(engine: AsyncEngine, plain: Engine) -> None:
    inbox = SqlLedger(engine)
    Receiver("shop", keys=key, ledger=inbox)
    SqlLedger("sqlite://")  # E: no engine
    async with AsyncSession(engine) as asynchronous, inbox.once(asynchronous, delivery) as first:
        assert_type(first, bool)
    with Session(plain) as session, SqlLedger(plain).once(session, delivery) as first:
        assert_type(first, bool)
    with inbox.once(asynchronous, delivery):  # E: an AsyncSession is entered with async with
        pass


# They stay directly callable.
async def unit_test() -> None:
    await one(event)
    assert_type(await two(event, delivery), Response)
    assert_type(four(event, delivery), JSONResponse | None)
    three(event)
    await one(DomainEvent(type="refund", data=Refund(refund_id="1")))  # E: another event
    await one(event, delivery)  # E: it takes no delivery
    await two(event)  # E: it takes a delivery


# Another event's handler, other parameters and other results are refused.
@receiver.on(order_paid)  # E: another event's handler
async def six(event: DomainEvent[Refund]) -> None: ...


@receiver.on("order.paid", OrderPaid)  # E: another event's handler
def seven(event: DomainEvent[Refund], delivery: Delivery) -> None: ...


@receiver.on(order_paid)  # E: three parameters
async def eight(event: DomainEvent[OrderPaid], delivery: Delivery, more: int) -> None: ...


@receiver.on(order_paid)  # E: the payload is not the event
async def nine(event: OrderPaid) -> None: ...


@receiver.on(order_paid)  # E: neither nothing nor a response
async def ten(event: DomainEvent[OrderPaid]) -> dict[str, str]:
    return {}


@receiver.on_ref(order_paid)  # E: a reference has no data
async def eleven(event: DomainEvent[OrderPaid]) -> None: ...


receiver.on("order.paid")  # E: a name needs its model
receiver.on(order_paid, OrderPaid)  # E: an event has its model

sign_request(order_paid, OrderPaid(order_id="1"), key=key)
sign_request("order.paid", {"order_id": "1"}, key=[key])
sign_request(order_paid, Refund(refund_id="1"), key=key)  # E: another event's payload
sign_request(order_paid, {"order_id": "1"}, key=key)  # E: a mapping is not the payload
