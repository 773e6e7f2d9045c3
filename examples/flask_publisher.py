"""A Flask service that takes payments and tells billing about them; so does any other code without an event loop.

Try it:  hookline dev flask_publisher:plan -- flask --app flask_publisher run
         curl -H 'content-type: application/json' -d '{"amount_cents": 1999}' http://127.0.0.1:5000/orders/42/payment
Run it:  gunicorn 'flask_publisher:create_app()'
Needs:   HOOKLINE_REDIS_URL, HOOKLINE_GRANTS=publish:order.paid
Its worker, another process:  hookline worker flask_publisher:plan
needs HOOKLINE_WEBHOOK_BILLING_URL and HOOKLINE_WEBHOOK_BILLING_KEY as well.
"""

import atexit

from flask import Flask, jsonify, request
from flask.typing import ResponseReturnValue
from pydantic import BaseModel

from hookline_sender import Plan, SyncPublisher


class OrderPaid(BaseModel):
    """What billing learns."""

    order_id: str
    amount_cents: int


class Payment(BaseModel):
    """What the shop's front end sends."""

    amount_cents: int


plan = Plan("shop")
order_paid = plan.event("order.paid", OrderPaid)
plan.webhook("billing", order_paid)
publisher = SyncPublisher(plan)  # for all threads, and for the processes that a server forks


def create_app() -> Flask:
    """Make the service. Opened here and not at import: the worker imports this module for its plan only."""
    publisher.open()
    atexit.register(publisher.close)
    app = Flask(__name__)
    app.add_url_rule("/orders/<order_id>/payment", view_func=pay, methods=["POST"])
    return app


def pay(order_id: str) -> ResponseReturnValue:
    """Record a payment, then publish it; the id names the payment, so a repeated request publishes nothing new."""
    payment = Payment.model_validate_json(request.get_data())
    paid = OrderPaid(order_id=order_id, amount_cents=payment.amount_cents)
    publication = publisher.publish(order_paid, paid, id=f"{order_id}-paid", aggregate=(order_id, 1))
    deliveries = [receipt.delivery_id for receipt in publication.receipts]
    return jsonify(duplicate=publication.duplicate, deliveries=deliveries), 202
