from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline_shared import InvalidHeader, InvalidSigningKey, SigningKey, matches, parse_signatures, sign
from hookline_shared.signature import MAXIMUM_BYTES, MAXIMUM_ENTRIES

VECTORS = Path(__file__).parents[1] / "data" / "vectors" / "axiom-v1.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_bytes())["cases"]
AUTHENTIC = [case for case in CASES if case["expect"]["verdict"] in {"valid", "valid-signature", "stale"}]
GOOD = b"v1=" + b"0a" * 32
DIGEST = b"\x0a" * 32
KEY = SigningKey(bytes(32))


@pytest.mark.parametrize("case", AUTHENTIC, ids=lambda case: case["id"])
def test_signing_an_authentic_vector_gives_its_signature(case: dict[str, Any]) -> None:
    values = {name.lower(): value for name, value in case["headers_latin1"]}
    identity, moment = values["x-axiom-delivery"], values["x-axiom-timestamp"]
    body = base64.b64decode(case["body_b64"])
    ours = {sign([key], identity, moment, body) for key in SigningKey.parse_all(" ".join(case["secrets"]))}
    assert ours & set(values["x-axiom-signature"].replace(" ", "").split(","))


def test_the_vectors_are_all_there() -> None:
    assert (len(CASES), len(AUTHENTIC)) == (43, 17)


def test_one_key_makes_one_entry_and_two_keys_a_list_newest_first() -> None:
    newest, oldest = SigningKey.generate(), SigningKey.generate()
    header = sign([newest, oldest], "dlv_1", "1", b"body")
    assert header == f"{sign([newest], 'dlv_1', '1', b'body')},{sign([oldest], 'dlv_1', '1', b'body')}"


def test_nothing_is_signed_without_a_key_or_with_more_than_are_read() -> None:
    for keys in ([], [KEY] * (MAXIMUM_ENTRIES + 1)):
        with pytest.raises(InvalidSigningKey):
            sign(keys, "dlv_1", "1", b"")


@pytest.mark.parametrize(
    ("identity", "moment"), [("a.b", "1"), ("", "1"), ("é", "1"), ("\ud800", "1"), ("a", "01"), ("a", "")]
)
def test_a_head_that_could_be_cut_differently_is_not_signed(identity: str, moment: str) -> None:
    with pytest.raises(InvalidHeader):
        sign([KEY], identity, moment, b"")


@given(st.integers(1, MAXIMUM_ENTRIES), st.binary())
def test_what_is_signed_is_read_and_matches(count: int, body: bytes) -> None:
    keys = [SigningKey.generate() for _ in range(count)]
    header = sign(keys, "dlv_1", "1767225600000", body).encode()
    expected = [key.digest(b"1767225600000.dlv_1.", body) for key in keys]
    assert parse_signatures(header) == tuple(expected)
    assert len(header) <= MAXIMUM_BYTES


@given(st.one_of(st.binary(), st.from_regex(rb"(v1=[0-9a-f]{62,65},? ?|v[02]=x,?|,| ){0,5}", fullmatch=True)))
def test_reading_signatures_is_total(value: bytes) -> None:
    digests = parse_signatures(value)
    assert digests is None or (digests and all(len(digest) == 32 for digest in digests))


@pytest.mark.parametrize("value", [GOOD, b"v9=zz," + GOOD, GOOD + b", v1a=b64+/==", b"v2=," + GOOD])
def test_known_entries_are_read_and_other_versions_skipped(value: bytes) -> None:
    assert parse_signatures(value) == (DIGEST,)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"v1=",
        b"v2=" + b"0a" * 32,
        b"0a" * 32,
        GOOD.upper(),
        GOOD[:-1],
        GOOD + b"0",
        GOOD + b" ",
        b" " + GOOD,
        GOOD + b"\n",
        GOOD + b",",
        GOOD + b",  " + GOOD,
        GOOD + b" ," + GOOD,
        GOOD + b";" + GOOD,
        GOOD + b",v1=00",
        GOOD + b",v2=\xe9",
        b"v1=\xe9" + b"0a" * 31,
        b"v1=" + "\uff11".encode() * 64,
    ],
)
def test_a_malformed_entry_spoils_the_header(value: bytes) -> None:
    assert parse_signatures(value) is None


def test_entries_and_bytes_are_bounded() -> None:
    assert parse_signatures(b",".join([GOOD] * MAXIMUM_ENTRIES)) == (DIGEST,) * MAXIMUM_ENTRIES
    assert parse_signatures(b",".join([GOOD] * (MAXIMUM_ENTRIES + 1))) is None
    assert parse_signatures(GOOD + b",v2=" + b"x" * (MAXIMUM_BYTES - 71)) == (DIGEST,)
    assert parse_signatures(GOOD + b",v2=" + b"x" * (MAXIMUM_BYTES - 70)) is None


def test_any_key_may_match_any_entry() -> None:
    pairs = [("a", "a"), ("ab", "cb"), ("ab", "ac"), ("abc", "xxc")]
    assert all(matches(_digests(ours), _digests(theirs)) for ours, theirs in pairs)


def test_nothing_matches_nothing_or_another() -> None:
    pairs = [("a", "b"), ("ab", "cd"), ("", "a"), ("a", ""), ("", "")]
    assert not any(matches(_digests(ours), _digests(theirs)) for ours, theirs in pairs)
    assert not matches([b"a"], [b"aa"])


def _digests(letters: str) -> list[bytes]:
    return [letter.encode() * 32 for letter in letters]


@given(st.binary(min_size=1), st.integers(0, 7), st.data())
def test_a_flipped_bit_of_the_body_never_matches(body: bytes, bit: int, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(body) - 1))
    forged = bytearray(body)
    forged[position] ^= 1 << bit
    assert not matches([KEY.digest(b"1.d.", bytes(forged))], [KEY.digest(b"1.d.", body)])
