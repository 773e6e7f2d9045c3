from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline_shared import headers
from hookline_shared.headers import parse_attempt, parse_delivery_id, parse_event_name, parse_timestamp_ms

NEARLY = st.one_of(st.binary(max_size=200), st.from_regex(rb"[0-9A-Za-z_.\-\n ]{0,20}", fullmatch=True))


@given(NEARLY)
def test_header_parsers_are_total_and_give_back_what_was_written(value: bytes) -> None:
    for text in (parse_delivery_id(value), parse_event_name(value)):
        assert text is None or text.encode() == value
    for number in (parse_timestamp_ms(value), parse_attempt(value)):
        assert number is None or b"%d" % number == value


@pytest.mark.parametrize("value", [b"d", b"dlv_01J-x", b"a" * 128])
def test_delivery_ids_are_read(value: bytes) -> None:
    assert parse_delivery_id(value) == value.decode()


@pytest.mark.parametrize("value", [b"", b"a.b", b"a" * 129, b"a b", b"a\n", b"\xe9", b" a", b"a\t1"])
def test_what_is_no_delivery_id_is_none(value: bytes) -> None:
    assert parse_delivery_id(value) is None


def test_timestamps_have_one_to_sixteen_digits() -> None:
    assert parse_timestamp_ms(b"1767225600000") == 1767225600000
    assert parse_timestamp_ms(b"9" * 16) == 10**16 - 1


@pytest.mark.parametrize(
    "value", [b"", b"0", b"01", b"-1", b"+1", b"1_0", b"1 0", b"1\n", b"9" * 17, b"9" * 5000, b"1.0"]
)
def test_what_is_no_timestamp_is_none(value: bytes) -> None:
    assert parse_timestamp_ms(value) is None


def test_attempts_count_from_one() -> None:
    assert parse_attempt(b"16") == 16
    assert [parse_attempt(value) for value in (b"", b"0", b"999999999999", b"9" * 5000, b"one")] == [None] * 5


@pytest.mark.parametrize("value", [b"ping", b"order.paid", b"check_run.re-requested2", b"a" * 128])
def test_event_names_are_read(value: bytes) -> None:
    assert parse_event_name(value) == value.decode()


@pytest.mark.parametrize(
    "value", [b"", b"Order", b".a", b"a.", b"a..b", b"a b", b"a\n", b"a*", b"\xc3\xa9", b"a" * 129]
)
def test_what_is_no_event_name_is_none(value: bytes) -> None:
    assert parse_event_name(value) is None


def test_header_names_are_lower_case_bytes() -> None:
    names = [value for name, value in vars(headers).items() if name.isupper() and not name.startswith("_")]
    assert len(names) == 6
    assert all(re.fullmatch(rb"[a-z-]+", name) for name in names)
