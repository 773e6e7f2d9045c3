"""Key text that cannot be a key is refused where it is read, never at the first request."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from hookline_receiver import Receiver, SigningKey
from hookline_shared.errors import InvalidSigningKey
from tests.support_receiver import Ledger

MATERIAL = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(MATERIAL).decode()
SCHEMES = ["axiom", "standard-webhooks", "svix"]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("text", ["", "   ", "\n", "whsec_!!!!", "whsec_", "whsec_AA==", None, b"", b"bytes" * 9, 7])
def test_text_that_decodes_to_no_or_a_guessable_key_is_refused(text: Any, scheme: str) -> None:  # cases: B05
    with pytest.raises(InvalidSigningKey):
        SigningKey.parse(text, scheme=scheme)
    with pytest.raises(InvalidSigningKey):
        SigningKey.parse_all(text, scheme=scheme)


@pytest.mark.parametrize("material", [b"", None, "text" * 8, 32, [1, 2]])
def test_what_is_no_bytes_is_no_key_material(material: Any) -> None:  # cases: B05
    with pytest.raises(InvalidSigningKey):
        SigningKey(material)


@pytest.mark.parametrize("keys", [SigningKey(b"\x00"), [], [SigningKey(MATERIAL), SigningKey(b"short")]])
def test_a_receiver_is_not_built_with_a_guessable_key(keys: Any) -> None:  # cases: B05
    for scheme in SCHEMES:
        with pytest.raises(InvalidSigningKey):
            Receiver("orders", keys=keys, ledger=Ledger(), scheme=scheme)


@pytest.mark.parametrize("size", [24, 25, 26, 32])
def test_trimmed_padding_is_the_same_key(size: int) -> None:  # cases: B06
    padded = "whsec_" + base64.b64encode(MATERIAL[:size]).decode()
    keys = [SigningKey.parse(text, scheme="standard-webhooks") for text in (padded, padded.rstrip("="))]
    assert keys == [SigningKey(MATERIAL[:size])] * 2


@pytest.mark.parametrize("scheme", ["standard-webhooks", "svix"])
def test_a_short_key_without_padding_and_the_url_alphabet_are_refused(scheme: str) -> None:  # cases: B06
    for text in ("whsec_" + base64.b64encode(MATERIAL[:22]).decode().rstrip("="), "whsec_" + "-_" * 16):
        with pytest.raises(InvalidSigningKey, match="whsec_"):
            SigningKey.parse(text, scheme=scheme)


@pytest.mark.parametrize("text", [f"v1,{SECRET}", "whsec_not base64 at all", "whsec_" + "é" * 32, f"whsec_{SECRET}"])
def test_a_mixed_up_prefix_is_a_clear_error(text: str) -> None:  # cases: B07
    with pytest.raises(InvalidSigningKey):
        SigningKey.parse(text, scheme="standard-webhooks")


def test_bare_base64_is_a_key_and_raw_bytes_need_the_class() -> None:  # cases: B07
    bare = SECRET.removeprefix("whsec_")
    assert SigningKey.parse(bare, scheme="svix") == SigningKey.parse(SECRET, scheme="svix") == SigningKey(MATERIAL)


def test_a_key_read_by_another_schemes_rules_is_a_clear_error() -> None:  # cases: B07
    with pytest.raises(InvalidSigningKey, match='scheme="standard-webhooks"'):
        Receiver("orders", keys=SigningKey.parse(SECRET), ledger=Ledger(), scheme="standard-webhooks")


@pytest.mark.parametrize(
    ("text", "scheme"), [(SECRET, "svix"), ("hex:" + MATERIAL.hex(), "axiom"), ("k" * 32, "axiom")]
)
def test_whitespace_around_a_key_is_dropped_and_quotes_are_refused(text: str, scheme: str) -> None:  # cases: B08
    assert SigningKey.parse(f"  {text}\r\n", scheme=scheme) == SigningKey.parse(text, scheme=scheme)
    for quoted in (f'"{text}"', f"'{text}'\n"):
        with pytest.raises(InvalidSigningKey, match="quotes") as refused:
            SigningKey.parse(quoted, scheme=scheme)
        assert text not in str(refused.value)
        with pytest.raises(InvalidSigningKey, match="quotes"):
            SigningKey.parse_all(quoted.replace(text, f"{text} {text[:-1]}"), scheme=scheme)
