from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline_shared import new_traceparent, parse_traceparent

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALID = f"00-{TRACE}-{PARENT}-01"


def test_a_valid_header_is_itself_as_text_or_bytes() -> None:
    assert parse_traceparent(VALID) == parse_traceparent(VALID.encode()) == VALID


@pytest.mark.parametrize("later", [f"01-{TRACE}-{PARENT}-01", f"cc-{TRACE}-{PARENT}-03-more-of-it"])
def test_a_later_version_is_read_as_far_as_this_one_goes(later: str) -> None:
    assert parse_traceparent(later) == VALID


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        VALID.upper(),
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"{VALID}-more",
        f"{VALID}\n",
        f" {VALID}",
        VALID[:-1],
        VALID.replace("-", "_"),
        f"01-{TRACE}-{PARENT}-01more",
        f"01-{TRACE}-{PARENT}-01-{'x' * 5000}",
        "\u0660" * 55,
        7,
    ],
)
def test_an_invalid_header_is_none(text: Any) -> None:
    assert parse_traceparent(text) is None


@given(st.one_of(st.text(), st.binary(), st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")))
def test_reading_a_trace_context_is_total_and_settles(text: str | bytes) -> None:
    found = parse_traceparent(text)
    assert parse_traceparent(found) == found


@given(st.binary(min_size=24, max_size=24))
def test_a_new_trace_is_always_valid(random: bytes) -> None:
    made = new_traceparent(random)
    assert parse_traceparent(made) == made


def test_a_new_trace_carries_the_random_bytes_and_is_sampled() -> None:
    assert new_traceparent(bytes.fromhex(TRACE + PARENT)) == VALID
    assert new_traceparent(bytes(24)) == f"00-{1:032x}-{1:016x}-01"


@pytest.mark.parametrize("size", [0, 23, 25])
def test_a_new_trace_takes_exactly_24_bytes(size: int) -> None:
    with pytest.raises(ValueError, match="24 random bytes"):
        new_traceparent(bytes(size))
