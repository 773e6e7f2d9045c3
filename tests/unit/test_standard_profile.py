"""The profiles `standard-webhooks` and `svix`: what is written, what is read, and what judges a body."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline_shared import (
    STANDARD_WEBHOOKS,
    SVIX,
    InvalidHeader,
    InvalidSigningKey,
    Profile,
    SignedHead,
    SigningKey,
    get_profile,
)

SECRET, OTHER = SigningKey(bytes(range(24))), SigningKey(bytes(range(1, 25)))
PAIR, FOREIGN = SigningKey.generate_ed25519(), SigningKey.generate_ed25519()
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
BODY = b'{"test": 2432232314}'
NAMES = {STANDARD_WEBHOOKS: "webhook", SVIX: "svix"}
Pairs = list[tuple[bytes, bytes]]

both = pytest.mark.parametrize("profile", [STANDARD_WEBHOOKS, SVIX], ids=lambda profile: profile.name)


def sign(profile: Profile, *keys: SigningKey, **changes: Any) -> Pairs:
    said = {"delivery_id": "dlv_1", "timestamp_ms": 1767225600999, "attempt": 3, "traceparent": TRACE, "event": "a.b"}
    return profile.sign(keys or (SECRET,), body=BODY, **{**said, **changes})


def read(profile: Profile, pairs: Pairs) -> SignedHead:
    head = profile.read(pairs)
    assert isinstance(head, SignedHead), head
    return head


def judged(profile: Profile, pairs: Pairs, *keys: SigningKey, body: bytes = BODY, step: int = 1000) -> bool:
    verifier = profile.verifier(keys, read(profile, pairs))
    for start in range(0, len(body), step):
        verifier.update(body[start : start + step])
    return verifier.matches(body)


def replaced(pairs: Pairs, ending: bytes, *values: bytes) -> Pairs:
    """The pairs with the header whose name ends so given these values instead."""
    name = next(name for name, _ in pairs if name.endswith(ending) and b"axiom" not in name)
    return [pair for pair in pairs if pair[0] != name] + [(name, value) for value in values]


def v1(digest: bytes) -> bytes:
    return b"v1," + base64.b64encode(digest)


@both
def test_what_one_side_signs_the_other_reads_and_verifies(profile: Profile) -> None:
    pairs = sign(profile)
    head = read(profile, pairs)
    assert (head.delivery_id, head.timestamp, head.timestamp_ms) == ("dlv_1", "1767225600", 1767225600000)
    assert (head.attempt, head.traceparent, head.event) == (3, TRACE, "a.b")
    assert {name.decode() for name, _ in pairs[:3]} == {
        f"{NAMES[profile]}-{x}" for x in ("id", "timestamp", "signature")
    }
    assert judged(profile, pairs, SECRET)


@both
def test_an_ed25519_signature_verifies_with_either_half_of_its_key(profile: Profile) -> None:
    pairs = sign(profile, PAIR)
    assert judged(profile, pairs, PAIR)
    assert judged(profile, pairs, PAIR.public())
    assert not judged(profile, pairs, FOREIGN.public())
    assert not judged(profile, pairs, PAIR, body=BODY + b" ")


def test_the_published_ed25519_vector_is_reproduced() -> None:
    text = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
    key = SigningKey.parse(text, scheme="svix")
    pairs = sign(SVIX, key, delivery_id="msg_p5jXN8AQM9LWM0D4loKWxJek", timestamp_ms=1614265330000)
    expected = b"v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
    assert dict(pairs)[b"svix-signature"] == expected


@pytest.mark.parametrize(
    "keys", [(SECRET,), (OTHER, SECRET), (PAIR,), (FOREIGN, PAIR), (OTHER, PAIR), (FOREIGN, SECRET)]
)
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_any_key_of_a_reader_meets_any_entry_of_a_rotation_list(keys: tuple[SigningKey, ...], step: int) -> None:
    pairs = sign(SVIX, SigningKey.generate(), SigningKey.generate_ed25519(), PAIR, SECRET)
    assert judged(SVIX, pairs, *keys, step=step)
    assert not judged(SVIX, pairs, *keys, body=BODY[:-1], step=step)


@pytest.mark.parametrize("keys", [(OTHER,), (FOREIGN,), (OTHER, FOREIGN)])
def test_keys_of_nobody_match_nothing(keys: tuple[SigningKey, ...]) -> None:
    assert not judged(SVIX, sign(SVIX, SECRET, PAIR), *keys)


def test_an_entry_counts_only_for_keys_of_its_kind() -> None:
    pairs = sign(SVIX, SECRET, PAIR)
    macs, signatures = read(SVIX, pairs).signatures, read(SVIX, pairs).ed25519
    assert [len(each) for each in (*macs, *signatures)] == [32, 64]
    only_mac = replaced(pairs, b"-signature", v1(macs[0]))
    assert not judged(SVIX, only_mac, PAIR)
    only_ed25519 = replaced(pairs, b"-signature", b"v1a," + base64.b64encode(signatures[0]))
    assert not judged(SVIX, only_ed25519, SECRET)


@pytest.mark.parametrize("part", ["delivery_id", "timestamp_ms"])
@pytest.mark.parametrize("key", [SECRET, PAIR], ids=["v1", "v1a"])
def test_id_and_time_are_signed(part: str, key: SigningKey) -> None:
    pairs = sign(SVIX, key)
    other = sign(SVIX, key, **{part: "dlv_2" if part == "delivery_id" else 1767225601000})
    assert not judged(SVIX, replaced(other, b"-signature", dict(pairs)[b"svix-signature"]), key)


@both
@pytest.mark.parametrize(
    ("ending", "word"), [(b"-id", "delivery"), (b"-timestamp", "timestamp"), (b"-signature", "signature")]
)
def test_each_signed_header_is_there_exactly_once(profile: Profile, ending: bytes, word: str) -> None:
    pairs = sign(profile)
    value = next(value for name, value in pairs if name.endswith(ending))
    assert profile.read(replaced(pairs, ending)) == f"missing_{word}"
    assert profile.read(replaced(pairs, ending, value, value)) == f"repeated_{word}"
    assert profile.read(replaced(pairs, ending, b"\xe9")) == f"malformed_{word}"


def test_the_two_spellings_are_not_mixed() -> None:
    assert SVIX.read(sign(STANDARD_WEBHOOKS)) == STANDARD_WEBHOOKS.read(sign(SVIX)) == "missing_delivery"


@pytest.mark.parametrize("value", [b"", b"a.b", b"a b", b"a\n", b"\x7f", b"x" * 257, "é".encode()])
def test_an_id_that_could_be_cut_differently_is_neither_read_nor_signed(value: bytes) -> None:
    assert SVIX.read(replaced(sign(SVIX), b"-id", value)) == "malformed_delivery"
    with pytest.raises(InvalidHeader, match="svix-id"):
        sign(SVIX, delivery_id=value.decode())


@pytest.mark.parametrize("value", ["msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "urn:uuid:0-1", "x" * 256])
def test_ids_of_other_senders_are_read(value: str) -> None:
    assert read(SVIX, sign(SVIX, delivery_id=value)).delivery_id == value


@pytest.mark.parametrize(
    "value", [b"", b"0", b"01", b"+1", b"-1", b"1.0", b"1e3", b"1_0", b" 1", "\u0661".encode(), b"9" * 5000]
)
def test_a_time_is_whole_seconds_in_one_spelling(value: bytes) -> None:
    assert SVIX.read(replaced(sign(SVIX), b"-timestamp", value)) == "malformed_timestamp"


@pytest.mark.parametrize("moment", [-1, 0, 999, 10**16])
def test_a_time_that_no_receiver_reads_is_not_signed(moment: int) -> None:
    with pytest.raises(InvalidHeader, match="svix-timestamp"):
        sign(SVIX, timestamp_ms=moment)


GOOD = v1(bytes(32))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b" ",
        b"v1",
        b"v1,",
        b"v1=" + GOOD[3:],
        GOOD[:-1],
        GOOD[:-2] + b"B=",  # unused bits set
        GOOD[:-1] + b"A",
        GOOD.replace(b"A", b"-", 1),
        GOOD + b"\n",
        GOOD + b",",
        b"V1" + GOOD[2:],
        b"v2" + GOOD[2:],
        b"v1a" + GOOD[2:],
        b"v1," + base64.b64encode(bytes(64)),
        b"v1a," + base64.b64encode(bytes(64))[:-3] + b"B==",
        b" ".join([GOOD] * 17),
        b" ".join([b"v1a," + base64.b64encode(bytes(64))] * 5),
        GOOD + b" " + b"x" * 2048,
    ],
)
def test_a_list_without_a_usable_entry_or_over_the_limits_is_malformed(value: bytes) -> None:
    assert SVIX.read(replaced(sign(SVIX), b"-signature", value)) == "malformed_signature"


@pytest.mark.parametrize("value", [b"v1,A " + GOOD, b"  " + GOOD + b"  v9,\xff", b" ".join([GOOD] * 16)])
def test_an_entry_that_cannot_be_used_does_not_spoil_the_others(value: bytes) -> None:
    assert set(read(SVIX, replaced(sign(SVIX), b"-signature", value)).signatures) == {bytes(32)}


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ([], "0 signing keys"),
        ([SigningKey(bytes([n + 1]) * 24) for n in range(17)], "17 signing keys"),
        ([SigningKey.generate_ed25519() for _ in range(5)], "5 of them Ed25519"),
        ([PAIR.public()], "only verifies"),
    ],
)
def test_no_list_is_written_that_no_reader_takes(keys: list[SigningKey], fault: str) -> None:
    with pytest.raises(InvalidSigningKey, match=fault):
        SVIX.sign(keys, delivery_id="d", timestamp_ms=1000, attempt=1, traceparent=None, event=None, body=b"")


def test_the_longest_list_that_is_written_is_read() -> None:
    keys = [SigningKey(bytes([n + 1]) * 24) for n in range(12)] + [SigningKey.generate_ed25519() for _ in range(4)]
    head = read(SVIX, sign(SVIX, *keys))
    assert (len(head.signatures), len(head.ed25519)) == (12, 4)


@pytest.mark.parametrize("name", [b"x-axiom-attempt", b"traceparent", b"x-axiom-event"])
def test_an_unsigned_header_never_decides(name: bytes) -> None:
    pairs = [pair for pair in sign(SVIX) if pair[0] != name]
    head = read(SVIX, [*pairs, (name, b"\xff")])
    assert None in (head.attempt, head.traceparent, head.event)
    assert judged(SVIX, pairs, SECRET)


WORDS = st.sampled_from([value for key in (SECRET, PAIR) for pair in sign(SVIX, key) for value in pair])
ENTRIES = st.lists(st.one_of(st.sampled_from([GOOD, b"v1,", b"v1a,", b""]), st.binary(max_size=60))).map(b" ".join)


@given(
    st.lists(st.tuples(st.one_of(WORDS, st.binary(max_size=20)), st.one_of(WORDS, ENTRIES, st.binary())), max_size=12)
)
def test_reading_headers_is_total(pairs: Pairs) -> None:
    answer = SVIX.read(pairs)
    assert isinstance(answer, SignedHead) or answer.partition("_")[0] in {"missing", "repeated", "malformed"}


@given(ENTRIES)
def test_reading_signatures_is_total(value: bytes) -> None:
    head = SVIX.read(replaced(sign(SVIX), b"-signature", value))
    if isinstance(head, SignedHead):
        verifier = SVIX.verifier([SECRET, PAIR.public()], head)
        verifier.update(BODY)
        assert verifier.matches(BODY) is False


def test_profiles_are_found_by_name_and_have_the_schemes_limits() -> None:
    assert (get_profile("standard-webhooks"), get_profile("svix")) == (STANDARD_WEBHOOKS, SVIX)
    assert {(each.minimum_key_bytes, each.max_body_bytes) for each in (STANDARD_WEBHOOKS, SVIX)} == {(24, 2**20)}


@both
def test_a_secret_below_the_schemes_length_is_a_fault(profile: Profile) -> None:
    assert profile.key_fault(SECRET) is profile.key_fault(PAIR.public()) is None
    assert "has 23 bytes, " + profile.name + " needs 24" in (profile.key_fault(SigningKey(bytes(range(23)))) or "")
