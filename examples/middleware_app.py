"""A service whose endpoint exists already: it stays as it is, and a middleware verifies what reaches it.

Run it:  uvicorn middleware_app:app
Needs:   HOOKLINE_REDIS_URL, and in SHOP_KEYS the signing key; during a rotation both keys, separated by a space
"""

from typing import Annotated

from fastapi import Depends, FastAPI, Request
from pydantic import BaseModel

from hookline_receiver import Delivery, Receiver, RedisLedger, SigningKey, WebhookMiddleware


class OrderPaid(BaseModel):
    """What we need of the event's data."""

    order_id: str
    amount_cents: int


class Event(BaseModel):
    """The body of a delivery, as far as this endpoint reads it."""

    type: str
    data: OrderPaid


def verified(request: Request) -> Delivery:
    """The verified delivery; an endpoint that asks for it never runs without."""
    return Delivery.from_request(request)


receiver = Receiver("shop-events", keys=SigningKey.all_from_env("SHOP_KEYS"), ledger=RedisLedger.from_env())
invoices: dict[str, int] = {}
app = FastAPI()


@app.post("/hooks/shop")
def paid(event: Event, delivery: Annotated[Delivery, Depends(verified)]) -> dict[str, str]:
    """Book one payment.

    Whatever it writes is committed when it returns: its 2xx is what the ledger records. Had it to say so itself, the
    middleware would get complete="explicit" and the endpoint would `await delivery.complete()` after its commit.
    """
    invoices[event.data.order_id] = event.data.amount_cents
    return {"booked": event.data.order_id, "delivery": delivery.id}


app.add_middleware(WebhookMiddleware, receiver=receiver, path="/hooks/shop")
