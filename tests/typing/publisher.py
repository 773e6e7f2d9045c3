"""What the type checkers must accept and refuse around publishing. Never run: test_typing_contract.py reads it.

A line that must be reported ends in a comment `E:` that says why; every other line must pass.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import assert_type

from pydantic import BaseModel

from hookline_sender import (
    DomainEvent,
    EventType,
    NotAllPublished,
    Plan,
    Publication,
    Publish,
    Publisher,
    RawEventType,
    SyncPublisher,
    Webhook,
)
from hookline_sender.testing import record, without_backoff


class OrderPaid(BaseModel):
    order_id: str


class OrderPaidLate(OrderPaid):
    days: int


class Refund(BaseModel):
    refund_id: str


plan = Plan("shop")
order_paid = plan.event("order.paid", OrderPaid)
refund = plan.event("refund", Refund, body="payload")
push = plan.raw_event("push", content_type="application/json")
publisher = Publisher(plan)
blocking = SyncPublisher(plan)
paid = OrderPaid(order_id="1")

# Declarations.
assert_type(order_paid, EventType[OrderPaid])
assert_type(push, RawEventType)
assert_type(plan.webhook("billing", order_paid, push), Webhook)
plan.event("order.paid", dict)  # E: not a model
plan.event("order.paid", OrderPaid, body="raw")  # E: bytes are another kind of event
plan.raw_event("push", "application/json")  # E: options are keywords
plan.raw_event("push", OrderPaid)  # E: bytes have no model
plan.webhook("billing", "order.paid")  # E: a name is no event
push.name = "pull"  # E: frozen


async def publish() -> None:
    assert_type(await publisher.publish(order_paid, paid, id="1"), Publication)
    await publisher.publish(order_paid, OrderPaidLate(order_id="1", days=3), id="1", delay=1.0, tenant=None)
    await publisher.publish(order_paid, paid, id="1", occurred_at=datetime.now(UTC), aggregate=("order-1", 7))
    await publisher.publish(order_paid, paid, id="1", causation_id="evt_1", correlation_id=None, data_ref=None)
    await publisher.publish(order_paid, Refund(refund_id="1"), id="1")  # E: another event's payload
    await publisher.publish(order_paid, {"order_id": "1"}, id="1")  # E: a dict is no model
    await publisher.publish(order_paid, paid)  # E: no id
    await publisher.publish(order_paid, paid, "1")  # E: options are keywords
    await publisher.publish(order_paid, paid, id=1)  # E: an id is text
    await publisher.publish(order_paid, paid, id="1", dealy=1.0)  # E: no such keyword
    await publisher.publish(order_paid, paid, id="1", aggregate="order-1")  # E: id and revision
    await publisher.publish("order.paid", paid, id="1")  # E: a name is no event
    await publisher.publish(event=order_paid, payload=paid, id="1")  # E: these two go by position
    publication: str = await publisher.publish(order_paid, paid, id="1")  # E: not its id
    del publication


async def publish_bytes() -> None:
    assert_type(await publisher.publish(push, b"{}", id="1"), Publication)
    await publisher.publish(push, b"{}", id="1", delay=1.0, aggregate=("order-1", 7), tenant="acme")
    await publisher.publish(push, "{}", id="1")  # E: text is no bytes
    await publisher.publish(push, paid, id="1")  # E: a model is no bytes
    await publisher.publish(push, id="1")  # E: no bytes
    await publisher.publish(order_paid, b"{}", id="1")  # E: bytes are no model
    await publisher.publish(push, b"{}", id="1", causation_id="evt_1")  # E: bytes have no envelope
    await publisher.publish(push, b"{}", id="1", data_ref="s3://1")  # E: bytes have no envelope


async def publish_reference() -> None:
    assert_type(await publisher.publish(order_paid, id="1", data_ref="s3://1"), Publication)
    await publisher.publish(order_paid, None, id="1", data_ref="s3://1", correlation_id="cart-7")
    await publisher.publish(order_paid, paid, id="1", data_ref="s3://1")  # E: a payload or a reference
    await publisher.publish(order_paid, id="1")  # E: neither payload nor reference
    await publisher.publish(order_paid, None, id="1")  # E: neither payload nor reference


# A list of calls mixes events; each call is checked by itself.
Publish(order_paid, paid, id="1", tenant="acme")
Publish(order_paid, Refund(refund_id="1"), id="1")  # E: another event's payload
Publish(order_paid, paid)  # E: no id
Publish(push, "{}", id="1")  # E: text is no bytes
Publish(order_paid, id="1")  # E: neither payload nor reference
calls: list[Publish] = [
    Publish(order_paid, paid, id="1"),
    Publish(refund, Refund(refund_id="1"), id="2"),
    Publish(push, b"{}", id="3"),
    Publish(order_paid, id="4", data_ref="s3://4"),
]
calls[0].event = refund  # E: frozen


async def publish_many() -> None:
    assert_type(await publisher.publish_many(calls), list[Publication])
    await publisher.publish_many([(order_paid, paid)])  # E: a tuple is no call
    try:
        blocking.publish_many(calls)
    except NotAllPublished as failed:
        assert_type(failed.publications, tuple[Publication | None, ...])


# Without a loop: the same arguments, and the result itself.
with blocking as opened:
    assert_type(opened, SyncPublisher)
assert_type(blocking.open(), SyncPublisher)
assert_type(blocking.publish(order_paid, paid, id="1"), Publication)
assert_type(blocking.publish(push, b"{}", id="1"), Publication)
assert_type(blocking.publish_many(calls), list[Publication])
blocking.publish(order_paid, id="1", data_ref="s3://1")
blocking.publish(order_paid, Refund(refund_id="1"), id="1")  # E: another event's payload
blocking.publish(order_paid, paid)  # E: no id
blocking.publish(push, "{}", id="1")  # E: text is no bytes


async def mixed_up() -> None:
    await blocking.publish(order_paid, paid, id="1")  # E: a publication cannot be awaited
    await blocking.publish_many(calls)  # E: a list cannot be awaited
    async with blocking:  # E: `with` it
        pass
    with publisher:  # E: `async with` it
        pass
    receipts = publisher.publish(order_paid, paid, id="1").receipts  # E: not awaited
    del receipts


# What was recorded has the payload's type.
with record(publisher) as published, without_backoff():
    assert_type(published.only(order_paid), OrderPaid)
    assert_type(published.only(push), bytes)
    assert_type(published.of(refund), list[Refund])
    assert published.only(order_paid).refund_id  # E: an order has no refund
record(plan)  # E: a plan publishes nothing
event = DomainEvent(type="order.paid", data=paid)
blocking.publish(order_paid, event, id="1")  # E: the envelope is made here
