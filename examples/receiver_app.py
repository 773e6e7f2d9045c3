"""A service that receives the shop's events: as a Starlette application and as a FastAPI one.

Run it:  uvicorn receiver_app:app   (or receiver_app:fastapi_app)
Needs:   HOOKLINE_REDIS_URL, and in SHOP_KEYS the signing key; during a rotation both keys, separated by a space
"""

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.routing import Route

from hookline_receiver import Delivery, DomainEvent, Receiver, RedisLedger, Reject, SigningKey


class OrderPaid(BaseModel):
    """What we need of the event; fields that the shop adds later are ignored."""

    order_id: str
    amount_cents: int


receiver = Receiver("shop-events", keys=SigningKey.all_from_env("SHOP_KEYS"), ledger=RedisLedger.from_env())
invoices: dict[str, int] = {}


@receiver.on("order.paid", OrderPaid)
async def paid(event: DomainEvent[OrderPaid], delivery: Delivery) -> None:
    """Book one payment. Raising makes the sender come again, Reject makes it give up."""
    if event.data.amount_cents < 0:
        raise Reject("a payment is not negative")
    invoices[event.data.order_id] = event.data.amount_cents
    print(f"paid: {event.data.order_id} (attempt {delivery.attempt})")  # noqa: T201 - the example's output


# Route, never Mount: a Mount answers the bare path with a redirect, and a redirected delivery is a failed one.
routes = [Route("/hooks/shop", receiver)]
app = Starlette(routes=routes, lifespan=receiver.lifespan)

fastapi_app = FastAPI(lifespan=receiver.lifespan)
fastapi_app.router.routes.extend(routes)
