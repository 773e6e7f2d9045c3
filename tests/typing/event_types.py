"""What the type checkers must accept and refuse around events. Never run: test_typing_contract.py reads it.

A line that must be reported ends in a comment `E:` that says why; every other line must pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, assert_type

from pydantic import BaseModel

from hookline_shared import DomainEvent, DomainEventRef, EventType, decode_event, decode_event_ref, encode_event

if TYPE_CHECKING:
    from collections.abc import Callable

M = TypeVar("M", bound=BaseModel)


class OrderPaid(BaseModel):
    order_id: str


class OrderPaidLate(OrderPaid):
    days: int


class Refund(BaseModel):
    refund_id: str


order_paid = EventType("order.paid", OrderPaid)
refund = EventType("refund", Refund, schema_version="2", body="payload")


def publish(event: EventType[M], payload: M, /) -> None:
    """Take what a publisher takes."""


def on(event: EventType[M], handler: Callable[[DomainEvent[M]], None], /) -> None:
    """Take what a receiver takes."""


def handle_order(event: DomainEvent[OrderPaid]) -> None:
    assert_type(event.data, OrderPaid)
    assert_type(event.data.order_id, str)
    assert event.data.refund_id  # E: an order has no refund


# The payload is the event's own, or a more special one.
publish(order_paid, OrderPaid(order_id="1"))
publish(order_paid, OrderPaidLate(order_id="1", days=3))
publish(refund, Refund(refund_id="1"))
publish(order_paid, Refund(refund_id="1"))  # E: another event's payload
publish(refund, OrderPaid(order_id="1"))  # E: another event's payload
publish(order_paid, {"order_id": "1"})  # E: a dict is no model
publish("order.paid", OrderPaid(order_id="1"))  # E: a name is no event

# Invariance: neither wider nor narrower.
wider: EventType[BaseModel] = order_paid  # E: EventType is invariant
narrower: EventType[OrderPaidLate] = order_paid  # E: EventType is invariant
same: EventType[OrderPaid] = order_paid

# A declaration is complete and of a model.
EventType("order.paid", dict)  # E: not a model
EventType("order.paid", OrderPaid(order_id="1"))  # E: an instance is not its class
EventType("order.paid", OrderPaid, "2")  # E: options are keywords
EventType("order.paid", OrderPaid, body="raw")  # E: no such body
order_paid.name = "other"  # E: frozen

# What is received has the payload's type.
received = decode_event(order_paid, b"")
assert_type(order_paid, EventType[OrderPaid])
assert_type(received, DomainEvent[OrderPaid])
assert_type(received.data, OrderPaid)
assert_type(received.aggregate_revision, int | None)
received.data = OrderPaid(order_id="1")  # E: frozen
DomainEvent(type="order.paid")  # E: an event without data
assert_type(DomainEvent(type="order.paid", data=OrderPaid(order_id="1")), DomainEvent[OrderPaid])

# A reference has no payload.
reference = decode_event_ref(order_paid, b"")
assert_type(reference, DomainEventRef)
assert_type(reference.data_ref, str)
assert reference.data  # E: a reference has no data

# A handler takes its event.
on(order_paid, handle_order)
on(refund, handle_order)  # E: another event's handler

# What is encoded is the event's own payload too.
encode_event(order_paid, OrderPaid(order_id="1"), event_id="1", occurred_at="")
encode_event(order_paid, Refund(refund_id="1"), event_id="1", occurred_at="")  # E: another event's payload
