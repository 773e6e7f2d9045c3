"""What an answer, or none, means for a delivery."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline_sender import DeliveryPolicy
from hookline_sender.egress.transport import FailureKind, TransportFailed, WireResponse
from hookline_sender.engine.codes import CODES
from hookline_sender.engine.records import Dead, Delivered, Retry
from hookline_sender.policy import next_delay
from hookline_sender.webhook import classify, failure_code, retry_after

POLICY = DeliveryPolicy()


def asked(*values: bytes, status: int = 429) -> float | None:
    return retry_after(WireResponse(status, tuple((b"retry-after", value) for value in values)))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(b"120", 120), (b" 120 ", 120), (b"\t7", 7), (b"0", 0), (b"00012", 12), (b"9999999999", 9_999_999_999)],
)
def test_seconds_are_read(value: bytes, seconds: float) -> None:  # cases: A30
    assert asked(value) == seconds
    assert POLICY.max_backoff >= next_delay(POLICY, 1, 0.0, asked(value)) >= next_delay(POLICY, 1, 0.0)


@pytest.mark.parametrize(
    "value",
    [
        b"-5", b"+5", b"1.5", b"1e3", b"1_000", b"9" * 11, b"9" * 5000, b"", b"abc", "\uff11\uff12".encode(),
        b"120, 60", b"Wed, 21 Oct 2015 07:28:00 GMT", b"\xb2", b"1\x00", b"12 3",
    ],
)  # fmt: skip
def test_anything_else_is_ignored(value: bytes) -> None:  # cases: A30
    assert asked(value) is None


def test_two_headers_are_ignored() -> None:  # cases: A30
    assert asked(b"120", b"60") is None


@pytest.mark.parametrize("status", [200, 404, 500, 502, 504])
def test_retry_after_counts_on_429_and_503_only(status: int) -> None:
    assert asked(b"120", status=status) is None
    assert asked(b"120", status=503) == 120


@given(st.binary(max_size=40))
def test_any_bytes_as_retry_after_are_seconds_or_ignored(value: bytes) -> None:  # cases: A30
    seconds = asked(value)
    assert seconds is None or 0 <= seconds < 1e10


@given(st.integers(0, 1000), st.binary(max_size=60))
def test_every_status_has_one_outcome_and_a_known_code(status: int, location: bytes) -> None:  # cases: A26
    outcome = classify(WireResponse(status, ((b"location", location),)), POLICY, 5)
    assert isinstance(outcome, Delivered) == (200 <= status <= 299)
    assert isinstance(outcome, Retry) == (status == 429 or 500 <= status <= 599)
    assert isinstance(outcome, Delivered) or (isinstance(outcome, Retry | Dead) and outcome.code in CODES)


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        (b"https://shop.example/hooks/shop/?token=hush#x", "/hooks/shop/"),
        (b"/hooks/shop/?hush", "/hooks/shop/"),
        (b"hooks/hush\x1b[2J", "hooks/hush?[2J"),
        ("/ü".encode(), "/??"),
        (b"/" + b"a" * 5000, "/" + "a" * 199),
    ],
)
def test_a_redirect_shows_the_path_to_register_and_nothing_more(location: bytes, shown: str) -> None:  # cases: C10
    outcome = classify(WireResponse(307, ((b"location", location),)), POLICY, 5)
    assert outcome == Dead("redirect", 5, 307, f"answered 307 to …{shown}: register that URL")


@pytest.mark.parametrize("kind", get_args(FailureKind))
def test_every_failure_has_a_known_code(kind: FailureKind) -> None:
    assert failure_code(TransportFailed(kind, "", sent=True)) in CODES


def test_a_timeout_says_whether_the_request_had_left() -> None:
    assert failure_code(TransportFailed("timeout", "", sent=False)) == "timeout_connect"
    assert failure_code(TransportFailed("timeout", "", sent=True)) == "timeout_total"
