from __future__ import annotations

import copy
import hmac
import pickle
import traceback
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline_shared import HooklineError, InvalidSigningKey, SigningKey
from hookline_shared.keys import MAXIMUM_KEYS

MATERIAL = bytes(range(32))
TEXT = f"hex:{MATERIAL.hex()}"
OTHER = "an-older-secret-of-thirty-two-bytes!"


@pytest.mark.parametrize(
    "text",
    [TEXT, TEXT.upper().replace("HEX", "hex"), "base64:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", f"  {TEXT}\n"],
)
def test_every_spelling_of_a_key_is_the_same_key(text: str) -> None:
    assert SigningKey.parse(text) == SigningKey(MATERIAL)


def test_text_without_a_prefix_is_its_own_utf8_bytes() -> None:
    assert SigningKey.parse("ключ-" * 8) == SigningKey(("ключ-" * 8).encode())


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "hex:",
        "hex:" + "0" * 63,
        "hex:" + "g" * 64,
        "hex:" + "\u0660" * 64,
        "HEX:" + "0" * 64,
        "Base64:" + "A" * 44,
        "base64:",
        "base64:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
        "base64:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9=",
        "base64:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwd-_8=",
        "base64:" + "é" * 44,
        f"{TEXT} {TEXT}",
        "two raw words are not one key of many bytes",
        "\ud800" * 32,
        "one-byte-short-of-thirty-two-by",
    ],
)
def test_text_that_is_no_key_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(InvalidSigningKey, match=r"keygen|rotation list"):
        SigningKey.parse(text)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_refusal_never_quotes_the_text(text: str) -> None:
    with pytest.raises(InvalidSigningKey) as caught:
        SigningKey.parse(f"hex:{text}zz-secret-zz")
    shown = "".join(traceback.format_exception_only(caught.value))
    assert "zz-secret-zz" not in shown


@given(st.text())
def test_any_text_is_a_key_or_refused(text: str) -> None:
    with suppress(InvalidSigningKey):
        assert SigningKey.parse(text).size_bytes >= 32


@pytest.mark.parametrize("text", ["\ud800" * 32, "base64:" + "é" * 44, "base64:a"])
def test_a_refusal_keeps_no_hidden_context_with_the_key(text: str) -> None:
    with pytest.raises(InvalidSigningKey) as caught:
        SigningKey.parse(text)
    assert caught.value.__context__ is None


@given(st.binary(min_size=32, max_size=200))
def test_a_revealed_key_parses_back(material: bytes) -> None:
    key = SigningKey(material)
    assert SigningKey.parse(key.reveal()) == key
    assert key.size_bytes == len(material)


def test_keys_are_listed_in_order_and_once() -> None:
    assert SigningKey.parse_all(f"{TEXT}\n{OTHER}\t{TEXT}") == (SigningKey(MATERIAL), SigningKey.parse(OTHER))


@pytest.mark.parametrize("text", ["", "  ", f"{TEXT} short"])
def test_a_list_of_keys_is_refused_as_a_whole(text: str) -> None:
    with pytest.raises(InvalidSigningKey):
        SigningKey.parse_all(text)


def test_no_more_keys_than_a_receiver_reads_signatures() -> None:
    words = [SigningKey.generate().reveal() for _ in range(MAXIMUM_KEYS + 1)]
    assert len(SigningKey.parse_all(" ".join(words[1:]))) == MAXIMUM_KEYS
    with pytest.raises(InvalidSigningKey, match="drop the oldest"):
        SigningKey.parse_all(" ".join(words))


def test_the_minimum_belongs_to_the_caller_but_empty_is_never_enough() -> None:
    assert SigningKey.parse("k", minimum_bytes=1).size_bytes == 1
    with pytest.raises(InvalidSigningKey):
        SigningKey.parse("", minimum_bytes=0)
    with pytest.raises(InvalidSigningKey):
        SigningKey(b"")


def test_keys_come_from_a_given_environment() -> None:
    environ = {"KEYS": f"{TEXT} {OTHER}", "KEY": TEXT}
    assert SigningKey.from_env("KEY", environ) == SigningKey(MATERIAL)
    assert len(SigningKey.all_from_env("KEYS", environ)) == 2


def test_keys_come_from_the_process_environment_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOKLINE_TEST_KEY", TEXT)
    assert SigningKey.from_env("HOOKLINE_TEST_KEY") == SigningKey.all_from_env("HOOKLINE_TEST_KEY")[0]


@pytest.mark.parametrize("environ", [{}, {"SHOP_KEY": ""}, {"SHOP_KEY": "too-short"}, {"SHOP_KEY": "hex:xyz"}])
def test_a_bad_variable_is_named_and_its_value_is_not(environ: dict[str, str]) -> None:
    for read in (SigningKey.from_env, SigningKey.all_from_env):
        with pytest.raises(InvalidSigningKey, match=r"^SHOP_KEY: .*keygen") as caught:
            read("SHOP_KEY", environ)
        assert "too-short" not in str(caught.value)
        assert isinstance(caught.value, HooklineError)


def test_generated_keys_differ_and_have_32_bytes() -> None:
    first, second = SigningKey.generate(), SigningKey.generate()
    assert first != second
    assert first.size_bytes == 32


@given(st.binary(min_size=1, max_size=200), st.lists(st.binary(), max_size=4))
def test_the_pre_keyed_mac_is_hmac_sha256(material: bytes, parts: list[bytes]) -> None:
    key = SigningKey(material)
    mac = key.mac()
    for part in parts:
        mac.update(part)
    expected = hmac.digest(material, b"".join(parts), "sha256")
    assert key.digest(*parts) == mac.digest() == mac.digest() == expected


@pytest.mark.parametrize("size", [1, 63, 64, 65, 1000])
def test_keys_around_the_block_size_are_padded_or_hashed(size: int) -> None:
    material = bytes([0xA5]) * size
    assert SigningKey(material).digest(b"message") == hmac.digest(material, b"message", "sha256")


def test_macs_of_one_key_do_not_mix() -> None:
    key = SigningKey(MATERIAL)
    first, second = key.mac(), key.mac()
    first.update(b"first")
    second.update(b"second")
    assert (first.digest(), second.digest()) == (key.digest(b"first"), key.digest(b"second"))


def test_a_key_is_not_shown_by_repr_str_or_format() -> None:
    key = SigningKey.parse(OTHER)
    assert {repr(key), str(key), f"{key}"} == {"SigningKey(<hidden>)"}
    assert not hasattr(key, "__dict__")
    assert OTHER not in repr(key.mac())


def test_a_key_is_not_pickled_and_copies_are_itself() -> None:
    key = SigningKey(MATERIAL)
    with pytest.raises(TypeError, match="environment variable"):
        pickle.dumps(key)
    assert copy.copy(key) is copy.deepcopy(key) is key


@pytest.mark.parametrize("name", ["anything", "_SigningKey__material"])
def test_a_key_does_not_change(name: str) -> None:
    key = SigningKey(MATERIAL)
    with pytest.raises(AttributeError):
        setattr(key, name, b"")
    with pytest.raises(AttributeError):
        delattr(key, name)
    assert key == SigningKey(MATERIAL)


def test_equal_keys_are_one_in_a_set_and_nothing_else_is_equal() -> None:
    key = SigningKey(MATERIAL)
    assert {key, SigningKey(MATERIAL)} == {key}
    assert key != MATERIAL
    assert hash(key) != hash(MATERIAL)
