"""What an answer, or none, means for a delivery."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline_sender import DeliveryPolicy
from hookline_sender.egress.transport import FailureKind, TransportFailed, WireResponse
from hookline_sender.engine.codes import CODES, code_class
from hookline_sender.engine.records import Dead, Delivered, Retry
from hookline_sender.policy import next_delay
from hookline_sender.webhook import classify, failure_code, retry_after

POLICY = DeliveryPolicy()


NOW_MS = 784_111_777_000  # Sun, 06 Nov 1994 08:49:37 GMT


def asked(*values: bytes, status: int = 429) -> float | None:
    return retry_after(WireResponse(status, tuple((b"retry-after", value) for value in values)), NOW_MS)


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
        b"120, 60", b"\xb2", b"1\x00", b"12 3", b"Sunday, 06-Nov-94 08:49:37 GMT", b"Sun Nov  6 08:49:37 1994",
        b"Sun, 06 Nov 1994 08:49:37", b"Sun, 06 Nov 1994 08:49:37 +0100", b"Sun, 31 Feb 1994 08:49:37 GMT",
        b"Sun, 06 Nov 1994 99:49:37 GMT", b"Sun, 06 Zzz 1994 08:49:37 GMT",
    ],
)  # fmt: skip
def test_anything_else_is_ignored(value: bytes) -> None:  # cases: A30
    assert asked(value) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"Sun, 06 Nov 1994 08:51:37 GMT", 120),
        (b" Sun, 06 Nov 1994 08:49:38 GMT\t", 1),
        (b"Sun, 06 Nov 1994 08:49:37 GMT", 0),
        (b"Sun, 06 Nov 1994 08:00:00 GMT", 0),
        (b"Thu, 01 Jan 1970 00:00:00 GMT", 0),
        (b"Fri, 31 Dec 9999 23:59:59 GMT", 252_618_189_022),
    ],
)
def test_a_date_is_the_time_until_then(value: bytes, seconds: float) -> None:
    assert asked(value) == seconds
    assert POLICY.max_backoff >= next_delay(POLICY, 1, 0.0, asked(value)) >= next_delay(POLICY, 1, 0.0)


def test_two_headers_are_ignored() -> None:  # cases: A30
    assert asked(b"120", b"60") is None


@pytest.mark.parametrize("status", [200, 404, 500, 502, 504])
def test_retry_after_counts_on_429_and_503_only(status: int) -> None:
    assert asked(b"120", status=status) is None
    assert asked(b"120", status=503) == 120


@given(st.binary(max_size=40))
def test_any_bytes_as_retry_after_are_seconds_or_ignored(value: bytes) -> None:  # cases: A30
    seconds = asked(value)
    assert seconds is None or 0 <= seconds < 1e12


@given(st.integers(0, 1000), st.binary(max_size=60))
def test_every_status_has_one_outcome_and_a_known_code(status: int, location: bytes) -> None:  # cases: A26
    outcome = classify(WireResponse(status, ((b"location", location),)), POLICY, 5, now_ms=NOW_MS)
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
    outcome = classify(WireResponse(307, ((b"location", location),)), POLICY, 5, now_ms=NOW_MS)
    assert outcome == Dead("redirect", 5, 307, shown)


@pytest.mark.parametrize("kind", get_args(FailureKind))
def test_every_failure_has_a_known_code(kind: FailureKind) -> None:
    assert failure_code(TransportFailed(kind, "", sent=True)) in CODES


def test_a_timeout_says_whether_the_request_had_left() -> None:
    assert failure_code(TransportFailed("timeout", "", sent=False)) == "timeout_connect"
    assert failure_code(TransportFailed("timeout", "", sent=True)) == "timeout_total"


@pytest.mark.parametrize(("status", "code"), [(410, "gone"), (409, "receiver_conflict"), (404, "http_4xx")])
def test_an_answer_that_means_more_than_no_has_a_code_of_its_own(status: int, code: str) -> None:
    assert classify(WireResponse(status), POLICY, 5, now_ms=NOW_MS) == Dead(code, 5, status)


@pytest.mark.parametrize("status", [409, 410])
def test_a_policy_may_retry_them_all_the_same(status: int) -> None:
    outcome = classify(WireResponse(status), DeliveryPolicy(retry_statuses=(status,)), 5, now_ms=NOW_MS)
    assert isinstance(outcome, Retry)


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_somebodys_fault_or_nobodys(code: str) -> None:
    nobodys = code in {"", "cancelled", "destination_gone"}
    assert (code_class(code) is None) == nobodys


def test_what_the_sending_side_has_to_mend_is_told_from_what_a_destination_has_to() -> None:
    assert {code for code in CODES if code_class(code) == "system"} == {
        *("misconfigured", "deadline_exceeded", "worker_lost", "interrupted", "indeterminate", "internal_error"),
        "receiver_conflict",
    }
    assert code_class("code_99") == "system"  # of a newer release
