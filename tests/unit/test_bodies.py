"""Bodies that are not the usual envelope around a payload: given bytes, bare payloads, references, causes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hookline_sender import InvalidEventType, InvalidPayload, InvalidPlan, PayloadTooLarge, Plan, Publish, UnboundEvent
from hookline_sender.arguments import Options
from hookline_sender.publication import MAX_BODY_BYTES, Composer, content_digest
from hookline_shared import RawEventType, decode_event_ref
from tests.support_sender import Order

if TYPE_CHECKING:
    from hookline_sender.engine.records import PublishRequest

PLAN = Plan("shop")
ORDER_PAID = PLAN.event("order.paid", Order)
BARE = PLAN.event("order.bare", Order, body="payload")
PUSH = PLAN.raw_event("push", content_type="application/json; charset=utf-8")
PLAN.webhook("billing")
COMPOSER = Composer(PLAN, "shop")


def request(event: Any = ORDER_PAID, payload: Any = None, **options: Any) -> PublishRequest:
    return COMPOSER.request(event, payload, Options(**{"id": "1"} | options))


def test_bytes_are_stored_as_they_were_given_with_their_content_type() -> None:
    made = request(PUSH, b'{ "a" : 1 }\n')
    assert made.body == b'{ "a" : 1 }\n'
    assert made.content_type == "application/json; charset=utf-8"


def test_the_digest_of_bytes_covers_each_of_them_and_the_keywords() -> None:
    others: list[tuple[bytes, dict[str, Any]]] = [(b"a ", {}), (b"", {}), (b"a", {"delay": 1.0})]
    digests = {request(PUSH, body, **options).digest for body, options in [(b"a", {}), *others]}
    assert len(digests) == 4
    assert request(PUSH, b"a").digest in digests


@pytest.mark.parametrize("payload", [None, "text", bytearray(b"x"), Order(order_id="1")])
def test_a_raw_event_takes_bytes_only(payload: Any) -> None:
    with pytest.raises(InvalidPayload, match='"push" takes bytes'):
        request(PUSH, payload)


@pytest.mark.parametrize("payload", [None, b"{}", {"order_id": "1"}])
def test_a_typed_event_takes_its_model_only(payload: Any) -> None:
    with pytest.raises(InvalidPayload):
        request(ORDER_PAID, payload)


def test_the_limit_holds_for_bytes_too() -> None:
    assert len(request(PUSH, b"x" * MAX_BODY_BYTES).body) == MAX_BODY_BYTES
    with pytest.raises(PayloadTooLarge):
        request(PUSH, b"x" * (MAX_BODY_BYTES + 1))


@pytest.mark.parametrize("option", ["causation_id", "correlation_id", "data_ref"])
@pytest.mark.parametrize(("event", "payload"), [(PUSH, b"x"), (BARE, Order(order_id="1"))])
def test_what_an_envelope_would_carry_is_refused_without_one(event: Any, payload: Any, option: str) -> None:
    with pytest.raises(InvalidPayload, match=f"there is no place for {option}"):
        request(event, payload, **{option: "evt_1"})


def test_a_reference_stands_where_the_payload_would() -> None:
    made = request(data_ref="s3://orders/1", causation_id="evt_0", correlation_id="cart-7")
    received = decode_event_ref(ORDER_PAID, made.body)
    assert (received.data_ref, received.causation_id, received.correlation_id) == ("s3://orders/1", "evt_0", "cart-7")
    assert "data" not in json.loads(made.body)


def test_the_digest_covers_the_reference_and_no_payload_has_the_same() -> None:
    assert request(data_ref="a").digest == request(data_ref="a").digest != request(data_ref="b").digest
    assert content_digest("1", b"a") != content_digest("1", b"", data_ref="a")
    assert content_digest("1", b"") != content_digest("1", b"", data_ref="")


def test_the_ids_of_cause_and_correlation_are_sent_but_not_part_of_the_content() -> None:
    plain = request(payload=Order(order_id="1"))
    caused = request(payload=Order(order_id="1"), causation_id="evt_0", correlation_id="cart-7")
    assert caused.digest == plain.digest
    assert {"causation_id": "evt_0", "correlation_id": "cart-7"}.items() <= json.loads(caused.body).items()


@pytest.mark.parametrize(
    "options",
    [
        {"causation_id": ""},
        {"causation_id": 7},
        {"correlation_id": "x" * 257},
        {"correlation_id": "\ud800"},
        {"data_ref": ""},
        {"data_ref": "x" * 8193},
        {"data_ref": 7},
    ],
)
def test_an_id_or_a_reference_out_of_range_is_refused(options: dict[str, Any]) -> None:
    payload = None if "data_ref" in options else Order(order_id="1")
    with pytest.raises(InvalidPayload):
        request(payload=payload, **options)


def test_an_event_has_a_payload_or_a_reference_and_not_both() -> None:
    for payload, data_ref in ((None, None), (Order(order_id="1"), "s3://orders/1")):
        with pytest.raises(InvalidPayload, match="needs either a payload"):
            request(payload=payload, data_ref=data_ref)


@pytest.mark.parametrize("content_type", ["", "json", "a/b\r\nx: y", "a/b ", "text/plain;charset=utf-8 ", "ä/b", 7])
def test_a_content_type_is_one_header_value(content_type: Any) -> None:
    with pytest.raises(InvalidEventType, match="media type"):
        RawEventType("push", content_type=content_type)


@pytest.mark.parametrize("name", ["", "Push", "push!", "x" * 129, None])
def test_a_raw_event_is_named_like_any_other(name: Any) -> None:
    with pytest.raises(InvalidEventType, match="event name"):
        RawEventType(name)


def test_a_raw_event_belongs_to_its_plan_and_its_bindings() -> None:
    plan = Plan("shop")
    push = plan.raw_event("push")
    webhook, shared = plan.webhook("mirror", push), RawEventType("pull", content_type="text/plain")
    plan.webhook("pulls", shared)
    assert webhook.carries("push")
    assert not webhook.carries("pull")
    assert plan.events["pull"] is shared
    with pytest.raises(InvalidPlan, match="already has an event"):
        plan.raw_event("push")
    with pytest.raises(UnboundEvent, match="content_type"):
        Composer(plan, "shop").request(RawEventType("push", content_type="text/plain"), b"", Options("1"))


def test_a_call_of_many_shows_neither_payload_nor_reference() -> None:
    calls = [Publish(ORDER_PAID, Order(order_id="s3cret"), id="1"), Publish(ORDER_PAID, id="2", data_ref="s3cret")]
    assert "s3cret" not in repr(calls)
    assert "id='1'" in repr(calls)


def test_a_misspelt_keyword_is_a_mistake_at_once() -> None:
    wrong: Any = {"dely": 1.0}
    with pytest.raises(TypeError, match="dely"):
        Publish(ORDER_PAID, Order(order_id="1"), id="1", **wrong)
