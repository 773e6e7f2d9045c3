"""Key text of the schemes that have prefixes: shared secrets and the two halves of Ed25519 keys."""

from __future__ import annotations

import base64
import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline_receiver import verify
from hookline_receiver.testing import sign_request
from hookline_shared import InvalidSigningKey, SigningKey, UnknownProfile, get_profile
from hookline_shared.ed25519 import KeyPair
from hookline_shared.keytext import key_text

STANDARD = "standard-webhooks"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
# Published by Svix's server as a test vector: seed and public key.
PRIVATE = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
SEED = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbc="
PUBLIC = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="


def parse(text: str) -> SigningKey:
    return SigningKey.parse(text, scheme=STANDARD)


def text_of(size: int, prefix: str = "whsec_") -> str:
    return prefix + base64.b64encode(bytes(range(size))).decode()


@pytest.mark.parametrize("scheme", ["axiom", STANDARD, "svix"])
def test_profiles_and_key_text_agree_on_names_and_lengths(scheme: str) -> None:
    assert key_text(scheme).minimum_bytes == get_profile(scheme).minimum_key_bytes


@pytest.mark.parametrize("text", [text_of(32), text_of(32).rstrip("="), text_of(32, ""), f" {text_of(32)}\n"])
def test_a_secret_is_base64_with_or_without_prefix_and_padding(text: str) -> None:
    assert parse(text) == SigningKey(bytes(range(32)))


def test_a_prefix_belongs_to_its_scheme() -> None:
    raw = SigningKey.parse(SECRET)
    assert raw == SigningKey(SECRET.encode())
    assert parse(SECRET) == SigningKey(base64.b64decode(SECRET[6:])) != raw


def test_the_least_length_belongs_to_the_scheme() -> None:
    assert parse(text_of(24)).size_bytes == 24
    with pytest.raises(InvalidSigningKey, match="23 bytes, at least 24"):
        parse(text_of(23))
    assert SigningKey.parse(text_of(5), scheme="svix", minimum_bytes=5).size_bytes == 5


def test_a_private_key_is_its_seed_with_or_without_the_public_key() -> None:
    assert parse(SEED) == parse(PRIVATE)
    assert parse(PRIVATE).can_sign
    assert parse(PRIVATE).public() == parse(PUBLIC)
    assert not parse(PUBLIC).can_sign


@pytest.mark.parametrize(
    "text",
    [
        "",
        "whsec_",
        "whsk_",
        "whpk_",
        "whsec_%" + "A" * 40,
        text_of(32)[:-2] + "9=",
        "whsec_" + "-_" * 20,
        "whsec_" + "é" * 40,
        "whsec_" + "\ud800" * 40,
        "v1," + SECRET,
        "hex:" + "ab" * 32,
        SEED[:-2],
        text_of(31, "whsk_"),
        text_of(64, "whsk_"),
        text_of(31, "whpk_"),
        text_of(33, "whpk_"),
        PUBLIC.rstrip("="),
        f"{SECRET} {SECRET}",
    ],
)
def test_text_that_is_no_key_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(InvalidSigningKey) as caught:
        parse(text)
    assert text[6:].strip() == "" or text[6:] not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


@given(
    st.one_of(st.text(), st.text().map("whsk_".__add__), st.binary(max_size=70).map(base64.b64encode).map(bytes.decode))
)
def test_reading_key_text_is_total(text: str) -> None:
    try:
        key = parse(text)
    except InvalidSigningKey:
        return
    assert parse(key.reveal(scheme=STANDARD)) == key


def test_a_rotation_list_mixes_kinds_of_keys() -> None:
    keys = SigningKey.all_from_env("KEYS", {"KEYS": f"{PRIVATE}\n{SECRET} {SEED}"}, scheme="svix")
    assert keys == (parse(PRIVATE), parse(SECRET))
    assert SigningKey.from_env("KEY", {"KEY": PUBLIC}, scheme="svix") == parse(PUBLIC)


def test_a_missing_variable_says_what_this_scheme_needs() -> None:
    with pytest.raises(InvalidSigningKey, match=r"KEY: .*hookline keygen --scheme standard-webhooks"):
        SigningKey.from_env("KEY", {}, scheme=STANDARD)


@pytest.mark.parametrize("text", [SECRET, PRIVATE, PUBLIC])
def test_revealed_text_is_the_schemes_own(text: str) -> None:
    assert parse(text).reveal(scheme=STANDARD) == text


@pytest.mark.parametrize("scheme", ["axiom", STANDARD, "svix"])
def test_a_generated_secret_is_long_enough_for_every_scheme(scheme: str) -> None:
    key = SigningKey.generate()
    assert SigningKey.parse(key.reveal(scheme=scheme), scheme=scheme) == key


def test_a_generated_ed25519_key_signs_and_its_public_half_only_verifies() -> None:
    key = SigningKey.generate_ed25519()
    assert parse(key.reveal()) == key != SigningKey.generate_ed25519()
    assert parse(key.public().reveal()) == key.public()
    assert key.public().public() == key.public()
    assert (key.can_sign, key.public().can_sign) == (True, False)


def test_equal_bytes_of_different_kinds_are_different_keys() -> None:
    private = parse(PRIVATE)
    assert private.ed25519 is not None
    seed = private.ed25519.seed or b""
    assert len({private, private.public(), SigningKey(seed), SigningKey.of_pair(KeyPair.from_public(seed))}) == 4


def test_a_shared_secret_has_no_public_half() -> None:
    with pytest.raises(InvalidSigningKey, match="no public half"):
        parse(SECRET).public()


@pytest.mark.parametrize("text", [PRIVATE, PUBLIC])
def test_an_ed25519_key_never_serves_as_a_shared_secret(text: str) -> None:
    key = parse(text)
    for use in (key.mac, lambda: key.digest(b"message"), lambda: sign_request("a", b"{}", key=key)):
        with pytest.raises(InvalidSigningKey, match="Ed25519"):
            use()


@pytest.mark.parametrize("text", [PRIVATE, PUBLIC])
def test_an_ed25519_key_is_hidden_immutable_and_not_pickled(text: str) -> None:
    key = parse(text)
    assert repr(key) == "SigningKey(<hidden>)"
    assert repr(key.ed25519) == "KeyPair(<hidden>)"
    assert copy.deepcopy(key) is key
    with pytest.raises(TypeError):
        pickle.dumps(key)
    with pytest.raises(AttributeError):
        key.can_sign = True  # type: ignore[misc]


@pytest.mark.parametrize("text", [SECRET + "A" * 8, PRIVATE, PUBLIC])
def test_text_parsed_for_another_scheme_is_noticed_before_it_refuses_every_request(text: str) -> None:
    with pytest.raises(InvalidSigningKey, match=r'parse\(text, scheme="svix"\)'):
        verify([], b"", keys=SigningKey.parse(text), scheme="svix")


def test_an_unknown_scheme_names_the_known_ones() -> None:
    with pytest.raises(UnknownProfile, match="axiom, standard-webhooks, svix"):
        SigningKey.parse(SECRET, scheme="stripe")
