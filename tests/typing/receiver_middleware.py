"""What the type checkers must accept and refuse around WebhookMiddleware and DeliveryClient. Never run.

A line that must be reported ends in a comment `E:` that says why; every other line must pass.
"""

from __future__ import annotations

from typing import assert_type

from fastapi import FastAPI, Request
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import HTTPConnection  # noqa: TC002 - as users write it

from hookline_receiver import Delivery, EventType, MemoryLedger, Receiver, SigningKey, WebhookMiddleware
from hookline_receiver.testing import AsyncDeliveryClient, DeliveryClient, DeliveryResponse


class OrderPaid(BaseModel):
    order_id: str


class Refund(BaseModel):
    refund_id: str


order_paid = EventType("order.paid", OrderPaid)
receiver = Receiver("shop", keys=SigningKey.generate(), ledger=MemoryLedger(allow_volatile=True))
app = Starlette()
fastapi = FastAPI()

app.add_middleware(WebhookMiddleware, receiver=receiver, path="/hooks/shop")
fastapi.add_middleware(WebhookMiddleware, receiver=receiver, path="/hooks/shop", complete="explicit")
WebhookMiddleware(app, receiver=receiver, path="/hooks/shop")
WebhookMiddleware(app, receiver=receiver, path="/hooks/shop", complete="later")  # E: neither way of completing
WebhookMiddleware(app, receiver=receiver)  # E: no path
WebhookMiddleware(app, path="/hooks/shop")  # E: no receiver
app.add_middleware(WebhookMiddleware, receiver=receiver)  # E: no path


async def endpoint(request: Request) -> None:
    delivery = Delivery.from_request(request)
    assert_type(delivery, Delivery)
    assert_type(await delivery.complete(), None)
    Delivery.from_scope(request.scope)
    Delivery.from_request("request")  # E: text is no request


def plain_endpoint(request: HTTPConnection) -> Delivery:
    return Delivery.from_request(request)


def plain_test() -> None:
    with DeliveryClient(app, "/hooks/shop", receiver=receiver) as client:
        answer = client.deliver(order_paid, OrderPaid(order_id="1"), id="order-1-paid")
        assert_type(answer, DeliveryResponse)
        assert_type(answer.status, int)
        assert_type(answer.replayed, bool)
        client.deliver("order.paid", {"order_id": "1"})
        client.deliver(order_paid, Refund(refund_id="1"))  # E: another event's payload
        client.deliver(order_paid, {"order_id": "1"})  # E: a mapping is not the payload
        client.deliver(order_paid)  # E: no payload


async def async_test() -> None:
    async with AsyncDeliveryClient(fastapi, "/hooks/shop", receiver=receiver) as client:
        assert_type(await client.deliver(order_paid, OrderPaid(order_id="1")), DeliveryResponse)
        await client.deliver(order_paid, Refund(refund_id="1"))  # E: another event's payload
