from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline_shared import (
    AXIOM,
    HooklineError,
    InvalidHeader,
    SignedHead,
    SigningKey,
    UnknownProfile,
    get_profile,
    headers,
    matches,
)

KEY = SigningKey(bytes(32))
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
Pairs = list[tuple[bytes, bytes]]


def signed(*, attempt: int = 1, traceparent: str | None = TRACE, event: str | None = "order.paid") -> Pairs:
    return AXIOM.sign(
        [KEY],
        delivery_id="dlv_1",
        timestamp_ms=1767225600000,
        attempt=attempt,
        traceparent=traceparent,
        event=event,
        body=b"body",
    )


def read(pairs: Pairs) -> SignedHead:
    head = AXIOM.read(pairs)
    assert isinstance(head, SignedHead)
    return head


def without(pairs: Pairs, name: bytes) -> Pairs:
    return [pair for pair in pairs if pair[0] != name]


def test_what_one_side_signs_the_other_reads_and_verifies() -> None:
    head = read(signed(attempt=3))
    assert (head.delivery_id, head.timestamp_ms, head.timestamp) == ("dlv_1", 1767225600000, "1767225600000")
    assert (head.attempt, head.traceparent, head.event) == (3, TRACE, "order.paid")
    assert matches([KEY.digest(head.prefix, b"body")], head.signatures)


def test_optional_headers_are_left_out() -> None:
    assert {name for name, _ in signed(traceparent=None, event=None)} == {
        headers.DELIVERY,
        headers.TIMESTAMP,
        headers.ATTEMPT,
        headers.SIGNATURE,
    }


def test_a_trace_context_that_is_invalid_is_not_sent() -> None:
    assert headers.TRACEPARENT not in dict(signed(traceparent="x\r\ninjected: 1"))


@pytest.mark.parametrize("event", ["", "Order", "a\r\nb", "é", "\ud800"])
def test_an_event_name_that_would_break_the_header_is_refused(event: str) -> None:
    with pytest.raises(InvalidHeader, match="x-axiom-event"):
        signed(event=event)


@pytest.mark.parametrize("moment", [0, -1, 10**16])
def test_a_time_that_no_receiver_reads_is_not_signed(moment: int) -> None:
    with pytest.raises(InvalidHeader, match="x-axiom-timestamp"):
        AXIOM.sign([KEY], delivery_id="d", timestamp_ms=moment, attempt=1, traceparent=None, event=None, body=b"")


@pytest.mark.parametrize(
    ("name", "word"),
    [(headers.DELIVERY, "delivery"), (headers.TIMESTAMP, "timestamp"), (headers.SIGNATURE, "signature")],
)
def test_each_signed_header_is_there_exactly_once(name: bytes, word: str) -> None:
    pairs = signed()
    assert AXIOM.read(without(pairs, name)) == f"missing_{word}"
    assert AXIOM.read([*pairs, (name.title(), dict(pairs)[name])]) == f"repeated_{word}"
    assert AXIOM.read([*without(pairs, name), (name, b"\xe9")]) == f"malformed_{word}"


@pytest.mark.parametrize("name", [headers.ATTEMPT, headers.TRACEPARENT, headers.EVENT])
@pytest.mark.parametrize("values", [[], [b""], [b"\xff"], [b"1", b"1"], [b"9" * 5000]])
def test_an_unsigned_header_never_decides(name: bytes, values: list[bytes]) -> None:
    head = read([*without(signed(), name), *((name, value) for value in values)])
    assert None in (head.attempt, head.traceparent, head.event)


def test_names_are_compared_without_case_and_foreign_headers_ignored() -> None:
    pairs = [(name.title(), value) for name, value in signed()]
    assert read([(b"Host", b"x"), *pairs, (b"\xff", b"\xff")]) == read(signed())


def test_neither_signature_nor_prefix_is_shown() -> None:
    head = read(signed())
    assert head.signatures[0].hex() not in repr(head)
    assert "signatures" not in repr(head)


NAMES = st.one_of(st.binary(max_size=20), st.sampled_from([name for name, _ in signed()]))
VALUES = st.one_of(st.binary(max_size=80), st.sampled_from([value for _, value in signed()]))


@given(st.lists(st.tuples(NAMES, VALUES), max_size=12))
def test_reading_headers_is_total(pairs: Pairs) -> None:
    answer = AXIOM.read(pairs)
    assert isinstance(answer, SignedHead) or answer.partition("_")[0] in {"missing", "repeated", "malformed"}


def test_profiles_are_found_by_name() -> None:
    assert get_profile("axiom") is AXIOM
    assert (AXIOM.name, AXIOM.minimum_key_bytes) == ("axiom", 32)


def test_an_unknown_profile_names_the_known_ones() -> None:
    with pytest.raises(UnknownProfile, match="use one of axiom") as caught:
        get_profile("stripe")
    assert isinstance(caught.value, HooklineError)
    assert isinstance(caught.value, ValueError)
