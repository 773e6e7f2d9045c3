"""A FastAPI service that takes payments and tells billing about them.

Run it:  uvicorn publisher_service:app
Needs:   HOOKLINE_REDIS_URL, HOOKLINE_GRANTS=publish:order.paid
Its worker, another process:  hookline worker publisher_service:plan
needs HOOKLINE_WEBHOOK_BILLING_URL and HOOKLINE_WEBHOOK_BILLING_KEY as well.
"""

from fastapi import FastAPI
from pydantic import BaseModel

from hookline_sender import Plan, Publisher


class OrderPaid(BaseModel):
    """What billing learns."""

    order_id: str
    amount_cents: int


plan = Plan("shop")
order_paid = plan.event("order.paid", OrderPaid)
plan.webhook("billing", order_paid)
publisher = Publisher(plan)
app = FastAPI(lifespan=publisher.lifespan)


class Payment(BaseModel):
    """What the shop's front end sends."""

    amount_cents: int


@app.post("/orders/{order_id}/payment", status_code=202)
async def pay(order_id: str, payment: Payment) -> dict[str, object]:
    """Record a payment, then publish it.

    The two are separate steps. If this process dies between them, the front end's repeat of the request publishes what
    is missing, and because the id names the payment, a repeat after a success publishes nothing new.
    """
    paid = OrderPaid(order_id=order_id, amount_cents=payment.amount_cents)
    publication = await publisher.publish(order_paid, paid, id=f"{order_id}-paid", aggregate=(order_id, 1))
    return {"duplicate": publication.duplicate, "deliveries": [receipt.delivery_id for receipt in publication.receipts]}
