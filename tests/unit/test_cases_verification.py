"""Inputs that broke other verifiers: each is verified or refused, and never anything else."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from typing import Any

import pytest

from hookline_receiver import Delivery, Refused, SigningKey, verify
from hookline_receiver.testing import sign_request
from tests.support import run
from tests.support_receiver import KEY, NOW_MS, Ledger, Order, Reply, call, handled_by, nothing, receiver, signed

SECRET = SigningKey(bytes(range(32)))
SIGNED = [b"x-axiom-delivery", b"x-axiom-timestamp", b"x-axiom-signature"]


def checked(headers: Any, body: Any, **options: Any) -> Delivery:
    return verify(headers, body, **{"keys": KEY, "now_ms": NOW_MS, **options})


def reason_of(headers: Any, body: Any, **options: Any) -> str:
    with pytest.raises(Refused) as refused:
        checked(headers, body, **options)
    return refused.value.reason


def changed(name: bytes, value: bytes, body: bytes = b"{}") -> tuple[dict[bytes, bytes], bytes]:
    """A signed request with one header's value exchanged."""
    headers, body = signed(body)
    return {**dict(headers), name: value}, body


def signed_as(timestamp: bytes, body: bytes = b"{}") -> dict[bytes, bytes]:
    """What a sender of the key makes of any timestamp: the signature is right, whatever the text."""
    mac = hmac.digest(b"axiom-test-secret-0123456789abcdef", timestamp + b".dlv_1." + body, hashlib.sha256)
    return {
        b"x-axiom-delivery": b"dlv_1",
        b"x-axiom-timestamp": timestamp,
        b"x-axiom-signature": b"v1=" + mac.hex().encode(),
    }


REWRITTEN = [
    b'{"a": 1, "b": [1, 2]}',
    b'{"z":1,"a":2}',
    b'{"a":1,"a":2}',
    b'{"n":1.0,"e":1e2,"big":10000000000000001}',
    b'{"path":"a\\/b"}',
    b'{"a":1}\n',
]
ESCAPED = [
    rb'{"name":"caf\u00e9"}',
    '{"line":"a\u2028b"}'.encode(),
    b'{"text":"a\r\nb"}',
    b'{"html":"<p>"}',
    rb'{"html":"\u003cp\u003e"}',
]
NO_TEXT = ['{"mood":"\U0001f600"}'.encode(), b"\xff\xfe\x00", "caf\u00e9".encode("latin-1")]
EDGES = [b"", b"\xef\xbb\xbf{}", rb'{"a":"\u0000"}', b"\x00", b"\xff" * 1_000_000]


@pytest.mark.parametrize("body", REWRITTEN + ESCAPED + NO_TEXT + EDGES, ids=lambda body: repr(body[:20]))
def test_whatever_the_bytes_are_their_own_signature_verifies(body: bytes) -> None:  # cases: B01 B02 B03 B28
    assert checked(*signed(body)).body == body


@pytest.mark.parametrize("body", REWRITTEN + ESCAPED + NO_TEXT + EDGES, ids=lambda body: repr(body[:20]))
def test_whatever_the_bytes_are_another_signature_is_a_plain_refusal(body: bytes) -> None:  # cases: B02
    headers, _ = signed(body + b" ")
    assert reason_of(headers, body) == "no_matching_signature"


@pytest.mark.parametrize(
    "body", [*NO_TEXT[1:], EDGES[0], EDGES[1], EDGES[3], EDGES[4]], ids=lambda body: repr(body[:20])
)
def test_an_authentic_body_that_is_no_json_is_422_and_a_forged_one_401(body: bytes) -> None:  # cases: B02 B28
    app = handled_by(nothing, max_body_bytes=2_000_000)
    assert run(call(app, *signed(body))).status == 422
    assert run(call(app, *signed(body, key=SigningKey.generate()))).status == 401


@pytest.mark.parametrize("parsed", [{"id": "o_1"}, [1], "{}", None, 5])
def test_a_parsed_body_is_a_misuse_that_says_what_is_wanted(parsed: Any) -> None:  # cases: B01 B04
    with pytest.raises(TypeError, match="raw bytes as received"):
        checked(signed()[0], parsed)


def standard(signature: bytes) -> str | None:
    """Why a header is refused in which GOOD and BAD stand for signatures; None when it is not."""
    headers, body = sign_request("order.paid", b"{}", key=SECRET, now_ms=NOW_MS, scheme="standard-webhooks")
    head = dict(headers)
    good = head[b"webhook-signature"].removeprefix(b"v1,")
    bad = base64.b64encode(bytes(32))
    head[b"webhook-signature"] = signature.replace(b"BAD", bad).replace(b"GOOD", good)  # any text may be in a good one
    try:
        verify(head, body, keys=SECRET, now_ms=NOW_MS, scheme="standard-webhooks")
    except Refused as error:
        return error.reason
    return None


@pytest.mark.parametrize("value", [b"v1,GOOD", b"v1,BAD v1,GOOD", b"v2,X v1a,Y v1,GOOD", b"v1,GOOD v1"])
def test_one_good_signature_of_a_known_version_is_enough(value: bytes) -> None:  # cases: B09
    assert standard(value) is None


@pytest.mark.parametrize(
    "value", [b"GOOD", b"v1,", b",", b" ", b"", b"v1,GOOD,extra", b"v1,BAD", b"v2,GOOD", b"v1=GOOD"]
)
def test_no_other_signature_is(value: bytes) -> None:  # cases: B09
    assert standard(value) in {"malformed_signature", "no_matching_signature"}


@pytest.mark.parametrize("name", SIGNED)
@pytest.mark.parametrize("spelling", [bytes.lower, bytes.title, bytes.upper])
def test_a_repeated_signed_header_is_ambiguous_even_with_the_same_value(
    name: bytes, spelling: Any
) -> None:  # cases: B11
    headers, body = signed()
    again = (spelling(name), dict(headers)[name])
    for pairs in ([*headers, again], [again, *headers]):
        assert reason_of(pairs, body).startswith("repeated_")
        assert run(call(handled_by(nothing), pairs, body)).status == 401


@pytest.mark.parametrize("name", SIGNED[:2])
def test_values_that_a_proxy_joined_are_ambiguous(name: bytes) -> None:  # cases: B11
    value = dict(signed(b"{}", delivery_id="dlv_1")[0])[name]
    for joined in (value + b", " + value, value + b"," + value, value + b" "):
        assert reason_of(*changed(name, joined)).startswith("malformed_")


@pytest.mark.parametrize("name", [*SIGNED, b"x-axiom-attempt", b"traceparent", b"x-axiom-event"])
@pytest.mark.parametrize("value", [b"\xe9", b"v1=\xe9", b"", b"\x00", b"a\r\nb", "\u0661".encode()])
def test_a_byte_that_is_no_text_is_401_or_ignored_and_never_an_error(name: bytes, value: bytes) -> None:  # cases: B13
    headers, body = changed(name, value, b'{"type":"order.paid","data":{"id":"o_1"}}')
    status = run(call(handled_by(nothing), list(headers.items()), body)).status
    assert status == (401 if name in SIGNED else 204)


@pytest.mark.parametrize("scheme", ["standard-webhooks", "svix"])
@pytest.mark.parametrize("part", ["id", "timestamp", "signature"])
def test_a_byte_that_is_no_text_is_401_in_every_scheme(scheme: str, part: str) -> None:  # cases: B13
    headers, body = sign_request("order.paid", b"{}", key=SECRET, now_ms=NOW_MS, scheme=scheme)
    name = f"{scheme.removeprefix('standard-').removesuffix('s')}-{part}".encode()
    assert name in dict(headers)
    app = receiver(keys=SECRET, scheme=scheme)
    assert (
        run(call(app, [(key, b"\xe9" + value if key == name else value) for key, value in headers], body)).status == 401
    )


NO_TIMES = [b"nan", b"inf", b"-inf", b"abc", b"", b"1e9", b"0x65", b"-1", b"-0", b"0", b"1.0", b"+1", b" 1", b"1_0"]


@pytest.mark.parametrize("moment", [*NO_TIMES, b"9" * 17, b"9" * 400, b"9" * 5000], ids=lambda moment: repr(moment[:9]))
def test_a_time_that_is_none_is_refused_although_it_is_signed(moment: bytes) -> None:  # cases: B14 B15
    assert reason_of(signed_as(moment), b"{}") == "malformed_timestamp"
    assert run(call(handled_by(nothing), list(signed_as(moment).items()), b"{}")).status == 401


@pytest.mark.parametrize("moment", [b"1", b"1767225600", b"253402300800", b"9" * 16])
def test_a_time_far_away_is_stale_and_the_log_says_by_how_much(
    moment: bytes, caplog: pytest.LogCaptureFixture
) -> None:  # cases: B15
    assert run(call(handled_by(nothing), list(signed_as(moment).items()), b"{}")).status == 503
    assert f"{(NOW_MS - int(moment)) / 1000:+.1f} s" in caplog.text


@pytest.mark.parametrize("scheme", ["axiom", "svix"])
@pytest.mark.parametrize(("off", "fresh"), [(-299, 1), (-300, 1), (-301, 0), (299, 1), (300, 1), (301, 0)])
def test_freshness_is_symmetric_and_includes_its_edge(scheme: str, off: int, fresh: int) -> None:  # cases: B17
    headers, body = sign_request("order.paid", b"{}", key=SECRET, now_ms=NOW_MS + off * 1000, scheme=scheme)
    options: Any = {"keys": SECRET, "scheme": scheme, "tolerance": 300}
    if fresh:
        assert checked(headers, body, **options).body == body
    else:
        assert reason_of(headers, body, **options) == "stale"


@pytest.mark.parametrize(
    "spell",
    [
        lambda hexed: b"v1= " + hexed,
        lambda hexed: b" v1=" + hexed + b" ",
        lambda hexed: b"V1=" + hexed,
        lambda hexed: b"v1=" + hexed.upper(),
        lambda hexed: b"v1=" + hexed[:63],
        lambda hexed: b"v1=" + base64.b64encode(bytes.fromhex(hexed.decode())),
        lambda hexed: hexed,
    ],
    ids=["space", "padded", "upper-version", "upper-hex", "63", "base64", "bare"],
)
def test_a_signature_has_one_spelling(spell: Any) -> None:  # cases: B22
    headers, body = signed(b"\x01{}")
    hexed = dict(headers)[b"x-axiom-signature"].removeprefix(b"v1=")
    assert any(letter in b"abcdef" for letter in hexed)
    spelled = {**dict(headers), b"x-axiom-signature": spell(hexed)}
    assert reason_of(spelled, body) == "malformed_signature"


def test_a_body_is_parsed_only_after_its_signature_matched() -> None:  # cases: B24
    body = b"[" * 5_000_000
    app = handled_by(nothing, max_body_bytes=8_000_000)
    assert run(call(app, *signed(body, key=SigningKey.generate()))).status == 401
    assert run(call(app, *signed(body))).status == 422


def test_header_names_are_compared_without_case() -> None:  # cases: C16
    headers, body = signed()
    for spelling in (bytes.upper, bytes.title, bytes.swapcase):
        assert checked([(spelling(name), value) for name, value in headers], body).body == body


@pytest.mark.parametrize("days", [0.007, 1, 3, 6.9])
def test_a_repeat_signed_afresh_days_later_is_answered_from_the_ledger(days: float) -> None:  # cases: E21
    async def go() -> Reply:
        await call(app, *signed(delivery_id="dlv_1", event_id="evt_1"))
        body = signed(event_id="evt_1", delivery_id="dlv_1")[1]
        moment[0] += days * 86_400
        late_ms = NOW_MS + int(days * 86_400_000)
        return await call(app, *signed(body, delivery_id="dlv_1", now_ms=late_ms))

    moment = [0.0]
    ledger = Ledger(clock=lambda: moment[0])
    app = handled_by(nothing, ledger=ledger, clock=lambda: NOW_MS + int(moment[0] * 1000))
    assert run(go()).headers[b"x-axiom-replayed"] == b"true"


@pytest.mark.parametrize("body", [rb'{"type":"order.paid","data":{"id":"\u0000"}}', rb'{"a":"\ud800"}', b"\xff\xfe"])
def test_bytes_that_a_database_refuses_are_delivered_as_received(body: bytes) -> None:  # cases: E24
    assert checked(*signed(body)).body == body


def test_a_nul_in_a_string_reaches_the_handler_and_the_ledger() -> None:  # cases: E24
    async def go() -> list[int]:
        request = signed(rb'{"type":"order.paid","data":{"id":"a\u0000b"}}')
        return [(await call(app, *request)).status for _ in range(2)]

    seen: list[Any] = []
    app = handled_by(seen.append)
    assert run(go()) == [204, 204]
    assert [event.data for event in seen] == [Order(id="a\0b")]


@pytest.mark.parametrize("identity", [b"a" * 129, b"a" * 300, b"a\x00b", "\u00e9".encode(), b"a.b", b""])
def test_an_id_that_no_ledger_should_hold_is_refused(identity: bytes) -> None:  # cases: E24
    assert reason_of(*changed(b"x-axiom-delivery", identity)) == "malformed_delivery"


@pytest.mark.parametrize("now_ms", [0, 1, NOW_MS, 2**53, 10**16, -(2**63)])
def test_at_any_time_of_the_clock_a_delivery_is_fresh_or_stale(now_ms: int) -> None:
    app = handled_by(nothing, clock=lambda: now_ms)
    assert run(call(app, *signed())).status == (204 if now_ms == NOW_MS else 503)


def test_the_time_of_a_refusal_does_not_grow_with_headers_that_are_not_ours() -> None:
    pairs = [(b"x-%d" % n, b"v1=" * 100) for n in range(10_000)]
    begun = time.process_time()
    assert reason_of(pairs, b"") == "missing_delivery"
    assert time.process_time() - begun < 0.5
