"""The requests that users' own tests send."""

from __future__ import annotations

import json

import pytest

from hookline_receiver import EventType, verify
from hookline_receiver.testing import sign_request
from hookline_shared.errors import InvalidEventType
from tests.support_receiver import KEY, NOW_MS, Order

order_paid = EventType("order.paid", Order)


def test_a_typed_event_is_signed_as_a_sender_would() -> None:
    headers, body = sign_request(order_paid, Order(id="o_1"), key=KEY, event_id="evt_1", now_ms=NOW_MS)
    assert json.loads(body)["occurred_at"] == "2026-01-01T00:00:00.000Z"
    assert json.loads(body)["event_id"] == "evt_1"
    assert verify(headers, body, keys=KEY, now_ms=NOW_MS).type == "order.paid"


def test_a_name_goes_with_a_model_a_mapping_or_the_whole_body() -> None:
    for payload in (Order(id="o_1"), {"id": "o_1"}):
        assert json.loads(sign_request("order.paid", payload, key=KEY)[1])["data"] == {"id": "o_1"}
    assert sign_request("order.paid", b"\xff", key=KEY)[1] == b"\xff"


def test_it_is_fresh_and_of_its_own_unless_told_otherwise() -> None:
    (first, body), (second, other) = (sign_request(order_paid, Order(id="o_1"), key=KEY) for _ in range(2))
    assert verify(first, body, keys=KEY).id != verify(second, other, keys=KEY).id
    retry, _ = sign_request("order.paid", body, key=KEY, delivery_id="dlv_1", attempt=2)
    assert (verify(retry, body, keys=KEY).id, verify(retry, body, keys=KEY).attempt) == ("dlv_1", 2)


def test_a_bare_payload_carries_its_event_in_a_header() -> None:
    bare = EventType("order.paid", Order, body="payload")
    headers, body = sign_request(bare, Order(id="o_1"), key=KEY)
    assert body == b'{"id":"o_1"}'
    assert (b"x-axiom-event", b"order.paid") in headers


def test_a_mapping_does_not_go_with_a_typed_event() -> None:
    with pytest.raises(InvalidEventType):
        sign_request(order_paid, {"id": "o_1"}, key=KEY)  # type: ignore[call-overload]
