from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel, field_serializer

from hookline_shared import (
    DomainEvent,
    DomainEventRef,
    EventType,
    HooklineError,
    InvalidEvent,
    InvalidEventType,
    decode_event,
    decode_event_ref,
    encode_event,
    format_time,
    peek_type,
)


class OrderPaid(BaseModel):
    order_id: str
    amount: float = 1.0
    paid_at: datetime | None = None


class Renamed(BaseModel):
    order_id: str = Field(alias="orderId")


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


class Numbers(RootModel[list[float | None]]):
    pass


ORDER_PAID = EventType("order.paid", OrderPaid)
BARE = EventType("order.paid", OrderPaid, body="payload")
ANYTHING = EventType("anything", Anything)
PAYLOAD = OrderPaid(order_id="ö-1", paid_at=datetime(2026, 1, 1, tzinfo=UTC))


def encode(event_type: EventType[Any], payload: BaseModel | None, **options: Any) -> bytes:
    return encode_event(event_type, payload, event_id="evt_1", occurred_at="2026-01-01T00:00:00.000Z", **options)


def reason_of(event_type: EventType[Any], body: bytes) -> str:
    with pytest.raises(InvalidEvent) as caught:
        decode_event(event_type, body)
    assert caught.value.__context__ is None
    return caught.value.reason


def test_an_event_arrives_as_it_was_published() -> None:
    body = encode(ORDER_PAID, PAYLOAD, aggregate=("order-1", 7), causation_id="c", correlation_id="k")
    assert decode_event(ORDER_PAID, body) == DomainEvent(
        event_id="evt_1",
        type="order.paid",
        schema_version="1",
        occurred_at="2026-01-01T00:00:00.000Z",
        aggregate_id="order-1",
        aggregate_revision=7,
        causation_id="c",
        correlation_id="k",
        data=PAYLOAD,
    )


def test_the_body_is_compact_utf8_with_the_envelope_first() -> None:
    assert encode(ORDER_PAID, OrderPaid(order_id="ö")).decode() == (
        '{"event_id":"evt_1","type":"order.paid","schema_version":"1","occurred_at":"2026-01-01T00:00:00.000Z",'
        '"aggregate_id":null,"aggregate_revision":null,"data":{"order_id":"ö","amount":1.0,"paid_at":null}}'
    )


def test_a_bare_payload_travels_without_an_envelope() -> None:
    body = encode(BARE, PAYLOAD)
    assert OrderPaid.model_validate_json(body) == PAYLOAD
    assert decode_event(BARE, body) == DomainEvent(type="order.paid", data=PAYLOAD)


def test_a_reference_travels_without_a_payload() -> None:
    body = encode(ORDER_PAID, None, data_ref="s3://bucket/key")
    reference = decode_event_ref(ORDER_PAID, body)
    assert isinstance(reference, DomainEventRef)
    assert (reference.event_id, reference.data_ref) == ("evt_1", "s3://bucket/key")
    assert reason_of(ORDER_PAID, body) == "not_the_model"


def test_only_type_and_data_are_required_on_receipt() -> None:
    event = decode_event(ORDER_PAID, b'{"type":"order.paid","data":{"order_id":"1"},"unknown":1}')
    assert event == DomainEvent(type="order.paid", data=OrderPaid(order_id="1"))


def test_aliases_are_written_as_they_are_read() -> None:
    renamed = EventType("renamed", Renamed)
    body = encode(renamed, Renamed(orderId="1"))
    assert b'"orderId":"1"' in body
    assert decode_event(renamed, body).data == Renamed(orderId="1")


class AuditedOrder(OrderPaid):
    margin: float = 0.5


def test_what_a_subclass_adds_to_the_declared_model_is_not_sent() -> None:
    body = encode(ORDER_PAID, AuditedOrder(order_id="1"))
    assert body == encode(ORDER_PAID, OrderPaid(order_id="1"))


class Ratio(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="constants")
    value: float

    @field_serializer("value", when_used="json")
    def _inverse(self, value: float) -> float:
        return 1 / value if value else float("inf")


def test_an_infinity_that_only_a_json_serializer_makes_is_refused() -> None:
    with pytest.raises(InvalidEvent) as caught:
        encode(EventType("ratio", Ratio), Ratio(value=0.0))
    assert caught.value.reason == "not_serialisable"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(JSON)
def test_any_json_value_survives_the_way(value: object) -> None:
    body = encode(ANYTHING, Anything.model_validate({"value": value}))
    assert json.loads(body)["data"] == {"value": value}
    assert (decode_event(ANYTHING, body).data.model_extra or {})["value"] == value


@pytest.mark.parametrize("number", [10**60, -(2**63) - 1, 0.1 + 0.2, 1e308, 5e-324, -0.0, 2**53 + 1])
def test_big_integers_and_floats_keep_every_digit(number: float) -> None:  # cases: A71
    body = encode(ANYTHING, Anything.model_validate({"n": number}))
    arrived = (decode_event(ANYTHING, body).data.model_extra or {})["n"]
    assert repr(arrived) == repr(number)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinity_are_refused_wherever_they_hide(number: float) -> None:  # cases: A71
    numbers = EventType("numbers", Numbers)
    hidden: list[tuple[EventType[Any], BaseModel]] = [
        (ORDER_PAID, OrderPaid(order_id="1", amount=number)),
        (ANYTHING, Anything.model_validate({"deep": [{"er": (1, number)}]})),
        (numbers, Numbers([None, number])),
    ]
    for event_type, payload in hidden:
        with pytest.raises(InvalidEvent, match="NaN or infinity") as caught:
            encode(event_type, payload)
        assert caught.value.reason == "not_serialisable"


def test_null_and_the_word_nan_are_no_nan() -> None:
    assert encode(EventType("numbers", Numbers), Numbers([None, 1.0])).endswith(b'"data":[null,1.0]}')
    assert decode_event(ORDER_PAID, encode(ORDER_PAID, OrderPaid(order_id="NaN"))).data.order_id == "NaN"


def circular() -> Anything:
    loop: list[object] = []
    loop.append(loop)
    return Anything.model_construct(loop=loop)


@pytest.mark.parametrize(
    "payload",
    [
        OrderPaid.model_construct(order_id="secret-\ud800", amount=1.0),
        OrderPaid.model_construct(order_id=["secret"], amount=1.0),
        OrderPaid.model_construct(order_id=object(), amount=1.0),
    ],
)
def test_a_payload_that_is_no_json_is_refused_and_not_quoted(payload: OrderPaid) -> None:
    with pytest.raises(InvalidEvent, match="OrderPaid cannot be written as JSON") as caught:
        encode(ORDER_PAID, payload)
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_payload_that_contains_itself_is_refused() -> None:
    with pytest.raises(InvalidEvent, match="cannot be written"):
        encode(ANYTHING, circular())


def test_a_payload_of_another_model_is_refused() -> None:
    with pytest.raises(InvalidEvent, match="takes OrderPaid, not Anything") as caught:
        encode(ORDER_PAID, Anything())
    assert caught.value.reason == "bad_argument"


@pytest.mark.parametrize(
    "options",
    [
        {"aggregate": ("order-1", "7")},
        {"aggregate": (1, 7)},
        {"aggregate": ("order-1", True)},
        {"causation_id": 5},
        {"correlation_id": "\ud800"},
        {"data_ref": "both"},
    ],
)
def test_arguments_that_no_receiver_reads_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidEvent) as caught:
        encode(ORDER_PAID, PAYLOAD, **options)
    assert caught.value.reason == "bad_argument"
    assert caught.value.__context__ is None


@pytest.mark.parametrize(("event_type", "data_ref"), [(ORDER_PAID, None), (BARE, "s3://x")])
def test_an_event_has_a_payload_or_a_place_for_its_reference(event_type: EventType[Any], data_ref: str | None) -> None:
    with pytest.raises(InvalidEvent) as caught:
        encode(event_type, None, data_ref=data_ref)
    assert caught.value.reason == "bad_argument"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe{}",
        b'\xef\xbb\xbf{"type":"order.paid","data":{"order_id":"1"}}',
        '{"type":"order.paid"}'.encode("utf-16"),
        b'{"type":"order.paid","data":{"order_id":"1","amount":NaN}}',
        b'{"type":"order.paid","data":{"order_id":"1","amount":-Infinity}}',
        b'{"type":"order.paid","data":{"order_id":"\\ud800"}}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_json_says_so(body: bytes) -> None:
    assert reason_of(ORDER_PAID, body) == "not_json"


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b"[]", "body"),
        (b"null", "body"),
        (b'{"data":{"order_id":"1"}}', "type"),
        (b'{"type":"order.paid"}', "data"),
        (b'{"type":"order.paid","data":5}', "data"),
        (b'{"type":"order.paid","data":{"order_id":5}}', "data.order_id"),
        (b'{"type":"order.paid","data":{"order_id":"1"},"event_id":5}', "event_id"),
        (b'{"type":"order.paid","data":{"order_id":"1"},"aggregate_revision":"7"}', "aggregate_revision"),
    ],
)
def test_what_is_not_the_model_names_the_declared_field(body: bytes, place: str) -> None:
    with pytest.raises(InvalidEvent, match=f'is not "order.paid": {place} ') as caught:
        decode_event(ORDER_PAID, body)
    assert caught.value.reason == "not_the_model"


def test_another_event_is_the_wrong_type() -> None:
    assert reason_of(ORDER_PAID, encode(ANYTHING, Anything())) == "not_the_model"
    assert reason_of(ANYTHING, encode(ORDER_PAID, PAYLOAD)) == "wrong_type"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    scores: dict[str, int]


def test_names_that_the_sender_made_up_are_not_shown() -> None:
    strict = EventType("strict", Strict, body="payload")
    with pytest.raises(InvalidEvent) as caught:
        decode_event(strict, b'{"scores":{"secret":"x"},"secret":"secret"}')
    assert str(caught.value) == 'the body is not "strict": body.scores (int_parsing), body (extra_forbidden)'


def test_many_faults_are_counted() -> None:
    strict = EventType("strict", Strict)
    body = b'{"type":"strict","data":{"scores":{"a":"x","b":"x","c":"x","d":"x","e":"x"}}}'
    with pytest.raises(InvalidEvent, match=r"\(int_parsing\) and 2 more$"):
        decode_event(strict, body)


def spoilt(cut: int, junk: bytes) -> bytes:
    body = encode(ORDER_PAID, PAYLOAD)
    return body[:cut] + junk + body[cut:]


NEARLY = st.builds(spoilt, st.integers(0, 300), st.binary(max_size=3))


@given(st.one_of(st.binary(), NEARLY, JSON.map(lambda value: json.dumps(value).encode())))
def test_reading_a_body_is_total(body: bytes) -> None:
    assert peek_type(body) is None or len(peek_type(body) or "") <= 128
    for event_type in (ORDER_PAID, BARE):
        with suppress(InvalidEvent):
            assert decode_event(event_type, body).type == "order.paid"
    with suppress(InvalidEvent):
        decode_event_ref(ORDER_PAID, body)


def test_the_type_is_seen_without_the_model() -> None:
    assert peek_type(encode(ORDER_PAID, PAYLOAD)) == "order.paid"
    assert peek_type(encode(ORDER_PAID, None, data_ref="r")) == "order.paid"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"type":5}', b'{"type":""}', b'{"type":"a\\nb"}', b"\xff"])
def test_a_type_that_cannot_be_shown_is_none(body: bytes) -> None:
    assert peek_type(body) is None
    assert peek_type(b'{"type":"%b"}' % (b"a" * 129)) is None


declare = partial(cast("Any", EventType), model=OrderPaid)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("", {}),
        ("Order", {}),
        ("a" * 129, {}),
        ("order..paid", {}),
        ("é", {}),
        (None, {}),
        ("order", {"model": dict}),
        ("order", {"model": PAYLOAD}),
        ("order", {"schema_version": ""}),
        ("order", {"schema_version": 1}),
        ("order", {"body": "raw"}),
    ],
)
def test_a_bad_declaration_is_refused_where_it_is_made(name: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidEventType) as caught:
        declare(name, **options)
    assert isinstance(caught.value, HooklineError)


def test_equal_declarations_are_equal_and_do_not_change() -> None:
    assert {ORDER_PAID, EventType("order.paid", OrderPaid)} == {ORDER_PAID}
    assert ORDER_PAID != BARE
    with pytest.raises(AttributeError):
        ORDER_PAID.name = "other"  # type: ignore[misc]


def test_a_received_event_does_not_show_its_payload() -> None:
    event = decode_event(ORDER_PAID, encode(ORDER_PAID, OrderPaid(order_id="secret")))
    reference = decode_event_ref(ORDER_PAID, encode(ORDER_PAID, None, data_ref="https://x/?secret"))
    assert "secret" not in repr(event) + repr(reference)


@given(st.integers(0, 10**14))
def test_times_are_written_to_the_millisecond(ms: int) -> None:
    text = format_time(ms)
    assert len(text) == len("2026-01-01T00:00:00.000Z")
    assert round(datetime.fromisoformat(text).timestamp() * 1000) == ms
