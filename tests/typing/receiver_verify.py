"""What the type checkers must accept and refuse of `verify`, ledgers and what a handler raises. Never run.

A line that must be reported ends in a comment `E:` that says why; every other line must pass.
"""

from __future__ import annotations

from typing import assert_type

from starlette.applications import Starlette
from starlette.routing import Route

from hookline_receiver import (
    Delivery,
    Ledger,
    MemoryLedger,
    Receiver,
    RedisLedger,
    Refused,
    Reject,
    RetryLater,
    SigningKey,
    verify,
)
from hookline_receiver.testing import DeliveryClient, DeliveryResponse, sign_request

key = SigningKey.generate()

# Headers as pairs or a mapping, of text or bytes; one key or several.
assert_type(verify({"x-axiom-delivery": "1"}, b"", keys=key), Delivery)
assert_type(verify([(b"x-axiom-delivery", b"1")], b"", keys=(key, key), now_ms=0, tolerance=60.0), Delivery)
verify({}, bytearray(), keys=key, scheme="standard-webhooks")
verify({}, "", keys=key)  # E: the body's bytes
verify({}, b"", keys="hex:00")  # E: text is no key
verify({}, b"")  # E: no keys
verify({}, b"", key)  # E: keys are a keyword
verify({}, b"", keys=key, now=0)  # E: no such keyword
try:
    delivery = verify({}, b"", keys=key)
    assert_type(delivery.id, str)
    assert_type(delivery.body, bytes)
    delivery.id = "2"  # E: frozen
except Refused as refused:
    assert_type(refused.reason, str)

# Ledgers, and what takes one.
ledger: Ledger = MemoryLedger(allow_volatile=True)
ledger = RedisLedger("redis://127.0.0.1", namespace="shop")
RedisLedger("redis://127.0.0.1")  # E: no namespace
wrong: Ledger = {}  # E: no ledger
receiver = Receiver("shop", keys=key, ledger=ledger, scheme="svix", on_unknown="reject", dedupe_by="event_id")
Receiver("shop", keys=key, ledger=ledger, on_unknown="ignore")  # E: neither of the two
app = Starlette(routes=[Route("/hooks/shop", receiver)], lifespan=receiver.lifespan)
assert_type(receiver.counters["handled"], int)
receiver.counters["handled"] = 1  # E: they are read
receiver.lifespan(app, app)  # E: one application

# What a handler may raise.
Reject("no such order", final=True)
Reject("no such order", True)  # E: final is a keyword  # noqa: FBT003
RetryLater(30)
RetryLater("30")  # E: seconds

with DeliveryClient(app, "/hooks/shop", receiver=receiver) as client:
    assert_type(client.post(*sign_request("order.paid", {}, key=key)), DeliveryResponse)
    client.post({}, b"")  # E: pairs, as they are sent
DeliveryClient(app, "/hooks/shop")  # E: no receiver
