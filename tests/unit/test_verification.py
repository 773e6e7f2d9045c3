"""`verify`: any bytes give a delivery or one refusal."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from starlette.datastructures import Headers

from hookline_receiver import Delivery, InvalidReceiver, Refused, SigningKey, verify
from hookline_receiver.testing import sign_request
from hookline_shared.errors import InvalidSigningKey
from hookline_shared.signature import sign
from tests.support_receiver import KEY, NOW_MS, signed

NAMES = [b"x-axiom-delivery", b"x-axiom-timestamp", b"x-axiom-signature", b"x-axiom-attempt", b"traceparent"]


def checked(headers: Any, body: Any, **options: Any) -> Delivery:
    return verify(headers, body, **{"keys": KEY, "now_ms": NOW_MS, **options})


def reason_of(headers: Any, body: Any, **options: Any) -> str:
    with pytest.raises(Refused) as refused:
        checked(headers, body, **options)
    return refused.value.reason


@given(some.lists(some.tuples(some.sampled_from(NAMES) | some.binary(), some.binary())), some.binary())
def test_any_headers_and_any_body_are_refused_or_verified(headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    assert reason_of(headers, body)


@given(some.binary())
def test_any_signed_body_is_delivered_unchanged(body: bytes) -> None:
    assert checked(*signed(body)).body == body


@given(some.binary(), some.integers(0, 2**31), some.sampled_from(["delivery", "timestamp", "body"]))
def test_whatever_is_changed_after_signing_is_refused(body: bytes, place: int, what: str) -> None:
    headers, body = signed(body, delivery_id="dlv_1")
    head = dict(headers)
    if what == "body":
        body = body[: place % (len(body) + 1)] + b"x" + body[place % (len(body) + 1) :]
    elif what == "delivery":
        head[b"x-axiom-delivery"] += b"1"
    else:
        head[b"x-axiom-timestamp"] = b"%d" % (NOW_MS + 1 + place % 1000)
    assert reason_of(head, body) == "no_matching_signature"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_raw_bytes_of_any_kind_are_equal(kind: Any) -> None:  # cases: B04
    headers, body = signed()
    assert checked(headers, kind(body)).body == body


@pytest.mark.parametrize("body", ["text", {"parsed": 1}, None])
def test_a_body_that_is_not_raw_bytes_is_a_misuse(body: Any) -> None:  # cases: B01 B04
    with pytest.raises(TypeError, match="raw bytes"):
        checked(signed()[0], body)


def test_headers_may_be_a_mapping_of_bytes_or_text() -> None:  # cases: C16
    headers, body = signed()
    text = {name.decode().title(): value.decode() for name, value in headers}
    assert checked(dict(headers), body) == checked(text, body) == checked(Headers(text), body)


def test_a_mapping_that_holds_repeated_names_is_ambiguous() -> None:  # cases: B11 C16
    headers, body = signed()
    assert reason_of(Headers(raw=[*headers, headers[1]]), body) == "repeated_delivery"


def test_text_that_no_wire_carries_is_refused() -> None:
    headers, body = signed()
    text = {name.decode(): value.decode() for name, value in headers}
    assert reason_of({**text, "x-axiom-signature": "v1=\u0661\ud800"}, body) == "malformed_signature"


@pytest.mark.parametrize(("off_ms", "fresh"), [(-300_000, True), (300_000, True), (-300_001, False), (300_001, False)])
def test_the_tolerance_is_inclusive_in_both_directions(off_ms: int, *, fresh: bool) -> None:  # cases: B17
    headers, body = signed(now_ms=NOW_MS + off_ms)
    if fresh:
        assert checked(headers, body).timestamp_ms == NOW_MS + off_ms
    else:
        assert reason_of(headers, body) == "stale"


def test_without_a_given_time_it_is_now() -> None:
    headers, body = signed(now_ms=None)
    assert verify(headers, body, keys=KEY).body == body
    assert reason_of(headers, body, now_ms=0) == "stale"


def test_it_matches_any_of_several_keys_with_any_of_several_signatures() -> None:
    old, new, other = (SigningKey.generate() for _ in range(3))
    headers, body = signed(key=[new, old])
    assert checked(headers, body, keys=[other, old]).body == body
    assert reason_of(headers, body, keys=[other]) == "no_matching_signature"


@pytest.mark.parametrize("keys", [[], (), [b"0" * 32], SigningKey(b"0" * 31)])
def test_a_missing_or_short_key_is_a_misuse(keys: Any) -> None:
    with pytest.raises(InvalidSigningKey):
        checked(*signed(), keys=keys)


@pytest.mark.parametrize("tolerance", [float("nan"), float("inf"), -1.0])
def test_a_tolerance_that_would_switch_the_check_off_is_a_misuse(tolerance: float) -> None:  # cases: B14
    with pytest.raises(InvalidReceiver):
        checked(*signed(), tolerance=tolerance)


def test_malformed_unsigned_headers_are_ignored() -> None:
    headers, body = signed()
    head = {**dict(headers), b"x-axiom-attempt": b"first", b"traceparent": b"zz"}
    delivery = checked(head, body)
    assert (delivery.attempt, delivery.traceparent) == (None, None)


def test_the_type_is_the_bodys_and_else_the_headers() -> None:
    headers, body = signed()
    assert checked([*headers, (b"x-axiom-event", b"other")], body).type == "order.paid"
    headers, body = signed(b"raw")
    assert checked([*headers, (b"x-axiom-event", b"other")], body).type == "other"
    assert checked(headers, body).type is None


def test_the_signed_text_is_the_headers_own() -> None:
    body = b"{}"
    signature = sign([KEY], "dlv_1", str(NOW_MS), body).encode()
    head = {b"x-axiom-delivery": b"dlv_1", b"x-axiom-timestamp": b"%d" % NOW_MS, b"x-axiom-signature": signature}
    assert checked(head, body).id == "dlv_1"


def test_a_refusal_shows_its_reason_and_no_header() -> None:
    headers, body = signed(b"payload-text", key=SigningKey.generate())
    with pytest.raises(Refused) as refused:
        checked(headers, body)
    assert str(refused.value) == "refused: no_matching_signature (1 key, 1 signature, 12 bytes)"


def test_a_deliverys_repr_shows_no_body() -> None:
    assert "payload-text" not in repr(checked(*signed(b"payload-text")))


def test_a_tolerance_of_nothing_takes_the_very_millisecond_only() -> None:
    headers, body = signed()
    assert checked(headers, body, tolerance=0.0).body == body
    with pytest.raises(Refused, match=r"stale.*\+0\.0 s, the tolerance is 0 s"):
        checked(headers, body, tolerance=0.0, now_ms=NOW_MS + 1)
    with pytest.raises(Refused, match=r"the tolerance is 0\.5 s"):
        checked(headers, body, tolerance=0.5, now_ms=NOW_MS + 501)


def test_the_content_type_is_its_own_headers_and_no_others() -> None:
    headers, body = signed()
    headers = [(b"accept", b"text/html"), (b"Content-Type", b"application/json"), *headers[1:], (b"x-z", b"text/plain")]
    assert checked(headers, body).content_type == "application/json"


def test_a_refusal_counts_the_signatures_of_both_kinds() -> None:
    signed_with = [SigningKey.generate(), SigningKey.generate_ed25519()]
    headers, body = sign_request("order.paid", b"{}", key=signed_with, now_ms=NOW_MS, scheme="standard-webhooks")
    with pytest.raises(Refused, match=r"no_matching_signature \(1 key, 2 signatures, 2 bytes\)"):
        verify(headers, body, keys=SigningKey.generate(), now_ms=NOW_MS, scheme="standard-webhooks")
