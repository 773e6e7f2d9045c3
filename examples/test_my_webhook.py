"""Your own tests of sending and receiving. No server, no Redis, no environment.

Run it:  pytest test_my_webhook.py
Above the line is what your modules hold, below it are your tests.
"""

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.routing import Route

from hookline_receiver import DomainEvent, Receiver, RedisLedger, Reject
from hookline_receiver.testing import DeliveryClient
from hookline_sender import Plan, SigningKey, SyncPublisher
from hookline_sender.testing import record


class OrderPaid(BaseModel):
    """The event of both sides."""

    order_id: str
    amount_cents: int


plan = Plan("shop")
order_paid = plan.event("order.paid", OrderPaid)
plan.webhook("billing", order_paid)
publisher = SyncPublisher(plan)

receiver = Receiver(
    "shop-events",
    keys=SigningKey.generate(),  # yours: SigningKey.all_from_env("SHOP_KEYS")
    ledger=RedisLedger("redis://redis.invalid", namespace="billing"),  # yours: RedisLedger.from_env()
)
app = Starlette(routes=[Route("/hooks/shop", receiver)], lifespan=receiver.lifespan)
invoices: dict[str, int] = {}


def pay(order_id: str, amount_cents: int) -> None:
    """Take a payment, as the shop does it."""
    publisher.publish(order_paid, OrderPaid(order_id=order_id, amount_cents=amount_cents), id=f"{order_id}-paid")


@receiver.on(order_paid)
def book(event: DomainEvent[OrderPaid]) -> None:
    """Book a payment, as billing does it."""
    if event.data.amount_cents < 0:
        raise Reject("a payment is not negative")
    invoices[event.data.order_id] = event.data.amount_cents


# ----------------------------------------------------------------------------------------------------------------------


def test_a_payment_is_published_once_and_a_repeat_changes_nothing() -> None:
    """`record` keeps what is published in memory, under the rules of production."""
    with record(publisher) as published:
        pay("o-1", 1999)
        pay("o-1", 1999)
    assert published.only(order_paid) == OrderPaid(order_id="o-1", amount_cents=1999)


def test_a_payment_is_booked_once() -> None:
    """`DeliveryClient` signs with the receiver's own key; the same id is the same delivery's next attempt."""
    with DeliveryClient(app, "/hooks/shop", receiver=receiver) as client:
        first = client.deliver(order_paid, OrderPaid(order_id="o-2", amount_cents=5), id="o-2-paid")
        again = client.deliver(order_paid, OrderPaid(order_id="o-2", amount_cents=5), id="o-2-paid")
    assert (first.status, again.status, again.replayed) == (204, 204, True)
    assert invoices["o-2"] == 5


def test_nonsense_makes_the_sender_give_up() -> None:
    """A 4xx other than 429 is final."""
    with DeliveryClient(app, "/hooks/shop", receiver=receiver) as client:
        answer = client.deliver(order_paid, OrderPaid(order_id="o-3", amount_cents=-5))
    assert (answer.status, "o-3" in invoices) == (422, False)


def test_what_is_not_signed_is_not_handled() -> None:
    """`post` sends whatever you like."""
    with DeliveryClient(app, "/hooks/shop", receiver=receiver) as client:
        assert client.post([], b'{"type": "order.paid"}').status == 401


def test_a_handler_is_still_a_function() -> None:
    """So most tests need no HTTP at all."""
    book(DomainEvent(type="order.paid", data=OrderPaid(order_id="o-4", amount_cents=7)))
    assert invoices["o-4"] == 7
